"""A broker in memory, on simulated time: what most of these tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import trine
from trine import SimulatedClock


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def broker(clock: SimulatedClock) -> Iterator[trine.Broker]:
    with trine.open(":memory:", clock=clock, seed=1) as broker:
        yield broker
