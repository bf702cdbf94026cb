"""The breaker: trips when nearly everything fails, within a bounded window."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.model.errors import InvalidOption
from trine.queue.breaker import BUCKETS, Breaker

NOW = 1_767_225_600_000


def test_it_says_why_it_tripped() -> None:
    breaker = Breaker(share=0.9, window_ms=60_000, least=50)
    breaker.record(NOW, good=3, bad=0)
    breaker.record(NOW + 10_000, good=0, bad=57)
    assert breaker.tripped(NOW + 10_000) == "57 of 60 messages failed within 60 s"


def test_few_messages_or_a_small_share_do_not_trip_it() -> None:
    breaker = Breaker(share=0.5, window_ms=60_000, least=50)
    breaker.record(NOW, good=0, bad=49)
    assert breaker.tripped(NOW) is None
    breaker.record(NOW, good=50, bad=0)
    assert breaker.tripped(NOW) is None
    breaker.record(NOW, good=0, bad=1)
    assert breaker.tripped(NOW) is not None


def test_what_is_older_than_the_window_is_forgotten() -> None:
    breaker = Breaker(share=0.5, window_ms=60_000, least=1)
    breaker.record(NOW, good=0, bad=10)
    assert breaker.tripped(NOW + 57_000) is not None
    assert breaker.tripped(NOW + 60_000) is None


def test_a_reset_forgets_everything() -> None:
    breaker = Breaker(share=0.5, window_ms=60_000, least=1)
    breaker.record(NOW, good=0, bad=10)
    breaker.reset()
    assert breaker.tripped(NOW) is None
    breaker.record(NOW, good=10, bad=0)
    assert breaker.tripped(NOW) is None


def test_memory_is_bounded_and_a_clock_going_back_is_borne() -> None:
    breaker = Breaker(share=1.0, window_ms=1000, least=1)
    for step in range(10_000):
        breaker.record(NOW + step * 7, good=1, bad=1)
    assert len(breaker._buckets) <= BUCKETS
    breaker.record(NOW, good=1, bad=1)
    assert len(breaker._buckets) <= BUCKETS
    assert breaker.tripped(NOW + 10_000_000) is None


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 5), st.integers(0, 5)), max_size=60))
def test_counts_are_those_of_the_window(steps: list[tuple[int, int, int]]) -> None:
    window_ms = 900
    width_ms = window_ms // BUCKETS
    breaker = Breaker(share=0.5, window_ms=window_ms, least=4)
    seen: deque[tuple[int, int, int]] = deque()
    now = NOW
    for wait_ms, good, bad in steps:
        now += wait_ms
        breaker.record(now, good, bad)
        seen.append((now, good, bad))
        counted = [entry for entry in seen if entry[0] // width_ms > now // width_ms - BUCKETS]
        assert all(now - at < window_ms for at, _, _ in counted)
        good_seen = sum(entry[1] for entry in counted)
        bad_seen = sum(entry[2] for entry in counted)
        total = good_seen + bad_seen
        assert (breaker.tripped(now) is not None) == (total >= 4 and bad_seen >= 0.5 * total)


@pytest.mark.parametrize("wrong", [(0.0, 1000, 1), (1.1, 1000, 1), (0.5, 1, 1), (0.5, 1000, 0)])
def test_wrong_rules_are_refused(wrong: tuple[float, int, int]) -> None:
    with pytest.raises(InvalidOption):
        Breaker(*wrong)
