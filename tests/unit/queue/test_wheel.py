"""The wheel against a sorted list, on simulated time, from milliseconds to weeks."""

from __future__ import annotations

import random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trine.queue import timers, wheel
from trine.queue.timers import Run, next_in_order, packed, pieces, sorted_run
from trine.queue.wheel import Wheel

NOW = 1_767_225_600_123
HOUR = 3_600_000
WEEK = 7 * 24 * HOUR

SPANS = st.one_of(
    st.integers(-3000, 3000),
    st.integers(-120_000, 120_000),
    st.integers(-2 * HOUR, 3 * HOUR),
    st.integers(-WEEK, 3 * WEEK),
    st.sampled_from([0, 1, 999, 1000, 60_000, HOUR, WEEK]),
)
JUMPS = st.one_of(
    st.integers(0, 1500), st.integers(0, 90_000), st.integers(0, 2 * HOUR), st.integers(0, 2 * WEEK)
)


class WheelMachine(RuleBasedStateMachine):
    """The model is a list of (due, order of adding, ref) without the discarded ones."""

    chunk = 16

    @initialize()
    def start(self) -> None:
        # Small chunks, so that a few timers already make many runs.
        self.patches = [
            mock.patch.multiple(timers, CHUNK=self.chunk),
            mock.patch.multiple(wheel, CHUNK=self.chunk, HEAP_MAX=16, FEW=3, SWEEP_EVERY=4),
        ]
        for patch in self.patches:
            patch.start()
        self.now = NOW
        self.wheel = Wheel(NOW)
        self.waiting: list[tuple[int, int, int]] = []
        self.refs = 0
        self.discards = 0

    def teardown(self) -> None:
        for patch in getattr(self, "patches", []):
            patch.stop()

    def new(self, spans: list[int]) -> list[tuple[int, int]]:
        pairs = []
        for span in spans:
            self.refs += 1
            # Refs do not follow the order of adding, so that ties are told apart.
            ref = self.refs ^ 0x55
            pairs.append((self.now + span, ref))
            self.waiting.append((self.now + span, self.refs, ref))
        return pairs

    @rule(spans=st.lists(SPANS, min_size=1, max_size=40))
    def add(self, spans: list[int]) -> None:
        for due, ref in self.new(spans):
            self.wheel.add(due, ref)

    @rule(spans=st.lists(SPANS, max_size=200))
    def add_many(self, spans: list[int]) -> None:
        pairs = self.new(spans)
        self.wheel.add_many([due for due, _ in pairs], [ref for _, ref in pairs])

    @rule(span=SPANS, count=st.integers(1, 150), width=st.integers(1, 3))
    def add_together(self, span: int, count: int, width: int) -> None:
        pairs = self.new([span + n % width for n in range(count)])
        self.wheel.add_many(
            np.array([due for due, _ in pairs], dtype=np.int64),
            np.array([ref for _, ref in pairs], dtype=np.int64),
        )

    @rule(seed=st.integers(0, 2**32), share=st.sampled_from([0.05, 0.3, 0.9]))
    def discard(self, seed: int, share: float) -> None:
        chance = random.Random(seed)
        kept = []
        for entry in self.waiting:
            if chance.random() < share:
                self.wheel.discard(entry[2])
                self.discards += 1
            else:
                kept.append(entry)
        self.waiting = kept

    @rule(jump=JUMPS, most=st.one_of(st.integers(0, 20), st.just(10_000)))
    def take(self, jump: int, most: int) -> None:
        self.now += jump
        expected = sorted(entry for entry in self.waiting if entry[0] <= self.now)[:most]
        due, refs = self.wheel.take_due(self.now, most)
        taken = list(zip(due.tolist(), refs.tolist(), strict=True))
        assert taken == [(entry[0], entry[2]) for entry in expected]
        gone = set(expected)
        self.waiting = [entry for entry in self.waiting if entry not in gone]

    @rule()
    def take_next(self) -> None:
        """A loop of next_due and take_due gets to the next timer, whatever was discarded."""
        for _ in range(2000):
            due_ms = self.wheel.next_due()
            if due_ms is None:
                break
            self.now = max(self.now, due_ms)
            due, refs = self.wheel.take_due(self.now, 1)
            if len(due):
                first = min(self.waiting)
                assert (due[0], refs[0]) == (first[0], first[2])
                self.waiting.remove(first)
                return
        assert not self.waiting

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "wheel"):
            return
        assert len(self.wheel) == len(self.waiting)
        earliest = min(self.waiting)[0] if self.waiting else None
        answer = self.wheel.next_due()
        if earliest is None:
            assert answer is None
        else:
            assert answer is not None
            assert answer <= earliest
            if not self.discards:
                assert answer == earliest
        assert self.wheel.memory_bytes() >= 0


WheelMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestWheelMachine = WheelMachine.TestCase


def drained(wheel_: Wheel, now_ms: int, most: int = 1000) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while True:
        due, refs = wheel_.take_due(now_ms, most)
        if not len(due):
            return found
        assert len(due) <= most
        found += zip(due.tolist(), refs.tolist(), strict=True)


@pytest.mark.parametrize("spread_ms", [1, 1000, 60_000, HOUR, WEEK])
@pytest.mark.parametrize("late_ms", [0, WEEK])
def test_a_hundred_thousand_come_in_order_at_full_chunk_size(spread_ms: int, late_ms: int) -> None:
    rng = np.random.default_rng(5)
    due = NOW + 2 * HOUR - late_ms + rng.integers(0, spread_ms, 100_000)
    refs = np.arange(100_000, dtype=np.int64)
    timers_ = Wheel(NOW)
    timers_.add_many(due[:90_000], refs[:90_000])
    for one, ref in zip(due[90_000:].tolist(), refs[90_000:].tolist(), strict=True):
        timers_.add(one, ref)
    order = np.lexsort((refs, due))
    expected = list(zip(due[order].tolist(), refs[order].tolist(), strict=True))
    half = int(due[order][50_000])
    early = sum(1 for one, _ in expected if one <= half)
    assert drained(timers_, half, 7000) == expected[:early]
    assert drained(timers_, NOW + 3 * WEEK, 30_000) == expected[early:]
    assert len(timers_) == 0
    assert timers_.next_due() is None


def test_nothing_is_early() -> None:
    timers_ = Wheel(NOW)
    timers_.add(NOW + 1, 1)
    assert drained(timers_, NOW) == []
    assert drained(timers_, NOW + 1) == [(NOW + 1, 1)]


def test_a_clock_that_went_back_only_delays() -> None:
    timers_ = Wheel(NOW)
    timers_.add(NOW + 5, 1)
    assert drained(timers_, NOW - WEEK) == []
    timers_.add(NOW - WEEK, 2)
    assert drained(timers_, NOW + 5) == [(NOW - WEEK, 2), (NOW + 5, 1)]


def test_equal_dues_come_in_the_order_they_were_added_also_when_late() -> None:
    timers_ = Wheel(NOW)
    timers_.add(NOW, 900)
    timers_.add_many([NOW] * 500, list(range(500)))
    timers_.add(NOW, 800)
    assert [ref for _, ref in drained(timers_, NOW)] == [900, *range(500), 800]


def test_dues_centuries_apart_are_still_sorted() -> None:
    timers_ = Wheel(NOW)
    due = [2**62, 5, 0, NOW, 2**61] * 10
    timers_.add_many(due, list(range(50)))
    assert [one for one, _ in drained(timers_, 2**62)] == sorted(due)


def test_discarded_far_timers_are_freed_before_their_time() -> None:
    timers_ = Wheel(NOW)
    for start in range(0, 400_000, 10_000):
        refs = np.arange(start, start + 10_000)
        timers_.add_many(NOW + WEEK + refs, refs)
        for ref in refs.tolist():
            timers_.discard(ref)
    assert len(timers_) == 0
    assert timers_._held < 100_000
    assert timers_.memory_bytes() < 3_000_000


def test_memory_is_compact() -> None:
    rng = np.random.default_rng(5)
    timers_ = Wheel(NOW)
    timers_.add_many(NOW + rng.integers(0, WEEK, 200_000), np.arange(200_000))
    assert timers_.memory_bytes() / len(timers_) < 40


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=60), min_size=1, max_size=8))
def test_taking_from_many_runs_is_merging_them(lists: list[list[int]]) -> None:
    with mock.patch.multiple(timers, CHUNK=16):
        runs = []
        count = 0
        for values in lists:
            runs.append(sorted_run(np.array(values), np.arange(count, count + len(values))))
            count += len(values)
        expected = sorted((int(d), int(r)) for run in runs for d, r in zip(run.due, run.refs, strict=True))
        found: list[tuple[int, int]] = []
        while runs:
            taken, bound = next_in_order(runs)
            assert taken
            for run in taken:
                found += zip(run.due.tolist(), run.refs.tolist(), strict=True)
            assert found[-1][0] < bound
            assert all(int(run.due[0]) >= bound for run in runs)
        assert found == expected


def test_packing_keeps_every_timer_and_the_order_of_equals() -> None:
    runs = [
        Run(np.full(size, 7), np.arange(start, start + size))
        for start, size in ((0, 5), (5, 9000), (9005, 1))
    ]
    assert [run.refs.tolist() for run in packed(runs)] == [list(range(5)), list(range(5, 9005)), [9005]]
    small = [Run(np.full(2, 7), np.array([2 * n, 2 * n + 1])) for n in range(10)]
    assert [run.refs.tolist() for run in packed(small)] == [list(range(20))]


def test_pieces_are_cut_at_the_width() -> None:
    run = Run(np.array([0, 9, 10, 35]), np.array([1, 2, 3, 4]))
    assert list(pieces(run, 10)) == [(0, 0, 2), (1, 2, 3), (3, 3, 4)]
