"""The two clocks: one that never goes backwards, one that passes only when told to."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.model.clock import Clock, SimulatedClock, SystemClock

MS = 1_000_000


class Sources:
    """A wall clock and a monotonic clock that do as they are told."""

    def __init__(self) -> None:
        self.wall_ns = 1_000_000 * MS
        self.monotonic_ns = 5 * MS

    def clock(self) -> SystemClock:
        return SystemClock(lambda: self.wall_ns, lambda: self.monotonic_ns)

    def step(self, wall_ms: int, monotonic_ms: int) -> None:
        self.wall_ns += wall_ms * MS
        self.monotonic_ns += monotonic_ms * MS


def test_the_system_clock_is_wall_time() -> None:
    sources = Sources()
    clock = sources.clock()
    assert clock.now_ms() == 1_000_000
    sources.step(3_600_000, 10)
    assert clock.now_ms() == 4_600_000


def test_wall_time_set_back_neither_reverses_nor_stops_the_clock() -> None:
    sources = Sources()
    clock = sources.clock()
    sources.step(-1000, 0)
    assert clock.now_ms() == 1_000_000
    sources.step(500, 500)
    assert clock.now_ms() == 1_000_250
    sources.step(1500, 1500)
    assert clock.now_ms() == 1_001_000, "the wall has caught up"
    sources.step(10, 10)
    assert clock.now_ms() == 1_001_010


@given(st.lists(st.tuples(st.integers(-5000, 5000), st.integers(0, 5000))))
def test_the_system_clock_never_goes_backwards(steps: list[tuple[int, int]]) -> None:
    sources = Sources()
    clock = sources.clock()
    before = clock.now_ms()
    for wall_ms, monotonic_ms in steps:
        sources.step(wall_ms, monotonic_ms)
        now = clock.now_ms()
        assert now >= before
        assert now >= sources.wall_ns // MS
        before = now


def test_a_real_wait_ends_at_its_timeout_and_without_one_at_once() -> None:
    clock: Clock = SystemClock()
    condition = threading.Condition()
    with condition:
        clock.wait(condition, 1)
        clock.wait(condition, 0)
        clock.wait(condition, -5)


def test_a_real_wait_without_a_bound_ends_when_notified() -> None:
    clock = SystemClock()
    condition = threading.Condition()

    def notify() -> None:
        with condition:
            condition.notify_all()

    with condition:
        thread = threading.Thread(target=notify)
        thread.start()
        clock.wait(condition, None)
    thread.join()


def test_simulated_time_passes_when_told_to() -> None:
    clock = SimulatedClock(start_ms=1000)
    assert clock.advance(1.5) == 2500
    assert clock.advance("1m") == 62_500
    clock.set(70_000)
    assert clock.now_ms() == 70_000
    with pytest.raises(AssertionError, match="backwards"):
        clock.set(69_999)


def test_a_simulated_wait_passes_its_time_and_needs_a_bound() -> None:
    clock: Clock = SimulatedClock(start_ms=0)
    condition = threading.Condition()
    with condition:
        clock.wait(condition, 7 * 86_400_000)
        assert clock.now_ms() == 7 * 86_400_000
        with pytest.raises(AssertionError, match="bound"):
            clock.wait(condition, None)
