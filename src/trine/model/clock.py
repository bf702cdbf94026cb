"""The clock: the one thing that says what time it is, handed to everything that needs to know.

Rooms without I/O take `now_ms` as an argument; whoever calls them holds a `Clock`. There are two:
`SystemClock` for real life, and `SimulatedClock`, under which a week passes in no time and a test never
sleeps.

A clock also waits, because waiting is the other way to depend on real time: a consumer that waits for
messages waits on a condition *through* its clock, so that the same code runs under simulated time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol

from trine.model.duration import duration_ms

NS_PER_MS: Final = 1_000_000

SIMULATED_START_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z: a round instant that is easy to recognise in a failing test's output."""


class Clock(Protocol):
    """What time it is, and how to wait."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; never less than an earlier answer of the same clock."""

    def wait(self, condition: threading.Condition, timeout_ms: int | None) -> None:
        """Wait until the condition is notified or the time has passed; the caller holds the condition.

        May return early, as conditions do: callers look again at what they waited for, and at the time.
        """


class SystemClock:
    """Wall time that never goes backwards.

    When wall time is set back (a correction, a resumed virtual machine), leases and delays must neither see
    time reverse nor stand still until the wall has caught up. So this clock then runs on at half speed,
    measured by the monotonic clock, until wall time is ahead of it again: deadlines come late for a while,
    but they come.
    """

    __slots__ = ("_last_ns", "_lock", "_monotonic_ns", "_seen_ns", "_wall_ns")

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._lock = threading.Lock()
        self._last_ns = wall_ns()
        self._seen_ns = monotonic_ns()

    def now_ms(self) -> int:
        with self._lock:
            wall = self._wall_ns()
            seen = self._monotonic_ns()
            last = self._last_ns
            if wall < last:
                # Never less than `last`, as the monotonic clock does not go back either.
                wall = last + (seen - self._seen_ns) // 2
            self._last_ns = wall
            self._seen_ns = seen
            return wall // NS_PER_MS

    def wait(self, condition: threading.Condition, timeout_ms: int | None) -> None:
        if timeout_ms is None:
            condition.wait()
        elif timeout_ms > 0:
            # A span beyond what the platform can wait for in one call is cut; the caller looks again anyway.
            condition.wait(min(timeout_ms / 1000, threading.TIMEOUT_MAX))


class SimulatedClock:
    """Time that passes only when told to, or when somebody waits.

    >>> clock = SimulatedClock(start_ms=0)
    >>> clock.advance("1m")
    60000
    """

    __slots__ = ("_lock", "_now_ms")

    def __init__(self, start_ms: int = SIMULATED_START_MS) -> None:
        self._lock = threading.Lock()
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, duration: float | timedelta | str) -> int:
        """Let a duration pass (numbers are seconds); gives the new time."""
        return self._pass_ms(duration_ms(duration))

    def set(self, ms: int) -> None:
        """Go to an instant, which must not lie in the past."""
        with self._lock:
            assert ms >= self._now_ms, f"time does not go backwards: {ms} is before {self._now_ms}"
            self._now_ms = ms

    def wait(self, condition: threading.Condition, timeout_ms: int | None) -> None:
        """Pass the whole wait at once: nobody else is there to notify, or they would have done so before."""
        assert timeout_ms is not None, "a simulated wait needs a bound: nothing would ever end it"
        self._pass_ms(max(timeout_ms, 0))

    def _pass_ms(self, ms: int) -> int:
        with self._lock:
            self._now_ms += ms
            return self._now_ms
