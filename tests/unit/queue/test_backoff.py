"""Backoff: how long failed messages rest."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.model.errors import InvalidOption
from trine.model.limits import ATTEMPTS_MAX
from trine.queue.backoff import Backoff


def test_delays_grow_by_the_factor_up_to_the_cap() -> None:
    backoff = Backoff(first_ms=100, factor=3.0, cap_ms=2000, jitter=0.0)
    rng = random.Random(1)
    assert [backoff.delay_ms(attempt, rng) for attempt in (1, 2, 3, 4, 5)] == [100, 300, 900, 2000, 2000]


def test_a_factor_of_one_is_a_constant_delay_and_zero_is_at_once() -> None:
    rng = random.Random(1)
    assert Backoff(500, 1.0, 1000, 0.0).delay_ms(ATTEMPTS_MAX, rng) == 500
    assert Backoff(0, 2.0, 1000, 0.5).delay_ms(ATTEMPTS_MAX, rng) == 0
    assert Backoff(0, 2.0, 0, 0.5).delay_ms(1, rng) == 0


@given(
    first_ms=st.integers(0, 10**9),
    factor=st.floats(1.0, 1e6),
    more_ms=st.integers(0, 10**12),
    jitter=st.floats(0.0, 1.0),
    attempt=st.integers(1, ATTEMPTS_MAX),
    seed=st.integers(0, 1000),
)
def test_delays_keep_to_the_jitter_and_to_the_cap(
    first_ms: int, factor: float, more_ms: int, jitter: float, attempt: int, seed: int
) -> None:
    backoff = Backoff(first_ms, factor, first_ms + more_ms, jitter)
    nominal = backoff.nominal_ms(attempt)
    delay = backoff.delay_ms(attempt, random.Random(seed))
    assert nominal * (1 - jitter) - 1 <= delay <= min(nominal * (1 + jitter) + 1, backoff.cap_ms)
    assert backoff.nominal_ms(min(attempt + 1, ATTEMPTS_MAX)) >= nominal


def test_jitter_spreads_messages_also_at_the_cap() -> None:
    backoff = Backoff(1000, 2.0, 60_000, 0.2)
    rng = random.Random(7)
    delays = [backoff.delay_ms(50, rng) for _ in range(1000)]
    assert min(delays) < 49_000
    assert 58_000 < max(delays) <= 60_000
    assert delays.count(60_000) < 10


@pytest.mark.parametrize(
    "wrong",
    [{"first_ms": -1}, {"factor": 0.5}, {"factor": float("nan")}, {"factor": float("inf")}]
    + [{"first_ms": 10, "cap_ms": 9}, {"jitter": 1.5}, {"jitter": -0.1}, {"jitter": float("nan")}],
)
def test_wrong_rules_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidOption):
        Backoff(**wrong)  # type: ignore[arg-type]


def test_it_is_stored_and_read_back() -> None:
    backoff = Backoff(5, 1.5, 50, 0.1)
    assert msgspec.json.decode(msgspec.json.encode(backoff), type=Backoff) == backoff
