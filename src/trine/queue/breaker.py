"""The breaker: notices when everything fails, so that a group is paused, not drained into dead letters.

It counts good and bad ends of messages over a sliding window and trips when enough were seen and too large a
share of them was bad. It decides nothing else: the group pauses, says why with the sentence given here, and
resets the breaker when it is resumed.

The window is a ring of buckets, so memory does not depend on traffic. It slides by a bucket at a time: what
is counted is never older than the window, and may miss up to one bucket of its oldest part.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from trine.model.errors import InvalidOption

BUCKETS: Final = 30
"""Steps a window slides in: 2 s for a minute, fine enough for a decision that pauses a group."""


class Breaker:
    """Counts of one group; `share` of at least `least` messages failing within `window_ms` trips it."""

    __slots__ = ("_bad", "_buckets", "_good", "_width_ms", "least", "share", "window_ms")

    def __init__(self, share: float, window_ms: int, least: int) -> None:
        if not 0.0 < share <= 1.0:
            raise InvalidOption(f"The breaker's share is {share}; it must be above 0 and at most 1.")
        if window_ms < BUCKETS:
            raise InvalidOption(f"The breaker's window is {window_ms} ms; it must be at least {BUCKETS} ms.")
        if least < 1:
            raise InvalidOption(f"The breaker's least count is {least}; it must be at least 1.")
        self.share = share
        self.window_ms = window_ms
        self.least = least
        self._width_ms = window_ms // BUCKETS
        self._buckets: deque[list[int]] = deque()  # [bucket number, good, bad], oldest first
        self._good = 0
        self._bad = 0

    def record(self, now_ms: int, good: int, bad: int) -> None:
        """Count messages that were settled well and messages that failed."""
        assert good >= 0 <= bad, "counts are not negative"
        number = now_ms // self._width_ms
        # A clock that went back must not open a second, older bucket behind the newest one.
        if not self._buckets or self._buckets[-1][0] < number:
            self._slide(now_ms)
            self._buckets.append([number, 0, 0])
        newest = self._buckets[-1]
        newest[1] += good
        newest[2] += bad
        self._good += good
        self._bad += bad

    def tripped(self, now_ms: int) -> str | None:
        """Why the group should be paused, as a sentence; None while all is well."""
        self._slide(now_ms)
        total = self._good + self._bad
        if total < self.least or self._bad < self.share * total:
            return None
        return f"{self._bad} of {total} messages failed within {self.window_ms / 1000:g} s"

    def reset(self) -> None:
        """Forget everything: the group was resumed, and old failures must not pause it again at once."""
        self._buckets.clear()
        self._good = self._bad = 0

    def _slide(self, now_ms: int) -> None:
        oldest = now_ms // self._width_ms - BUCKETS + 1
        while self._buckets and self._buckets[0][0] < oldest:
            _, good, bad = self._buckets.popleft()
            self._good -= good
            self._bad -= bad
