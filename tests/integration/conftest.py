"""A broker in memory, on simulated time: what most of these tests need.

Every test that asks for `broker` or `open_broker` runs twice: with the embedded library, and with a server and its
client, which promise to behave alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

import trine
from tests.integration.hosting import hosted
from trine import SimulatedClock

OpenBroker = Callable[..., AbstractContextManager[Any]]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture(params=["embedded", "server"])
def open_broker(request: pytest.FixtureRequest) -> OpenBroker:
    """`open_broker(path, clock=clock)`: `trine.open`, or a server that has the path open and a connection to it."""
    if request.param == "embedded":
        return lambda path, *, clock=None: trine.open(path, clock=clock, seed=1)
    return lambda path, *, clock=None: hosted(path, clock)


@pytest.fixture
def broker(open_broker: OpenBroker, clock: SimulatedClock) -> Iterator[Any]:
    with open_broker(":memory:", clock=clock) as broker:
        yield broker
