"""What is looked at is what would be taken, and looking takes nothing."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from trine.queue.outlook import BEGINNING, counts, upcoming
from trine.queue.timers import FOREVER
from trine.queue.wheel import Wheel

HOUR = 3_600_000


@pytest.mark.parametrize("seed", range(8))
def test_the_outlook_is_what_is_there(seed: int) -> None:
    rng = random.Random(seed)
    wheel, timers = Wheel(5 * HOUR), {}
    for ref in range(3000):
        due = (
            5 * HOUR
            + rng.choice((0, 10, 1000, 60_000, HOUR, 30 * HOUR)) * rng.randrange(4)
            + rng.randrange(50)
        )
        timers[ref] = due
        wheel.add(due, ref)
    now = 5 * HOUR
    for _ in range(6):
        for ref in rng.sample(sorted(timers), 40):
            wheel.discard(ref)
            del timers[ref]
        now += rng.randrange(40_000)
        _, taken = wheel.take_due(now, 100)
        for ref in taken.tolist():
            del timers[ref]
        order = sorted((due, ref) for ref, due in timers.items())
        place, seen = BEGINNING, []
        while True:
            due, refs = upcoming(wheel, place, 37, FOREVER)
            if not len(due):
                break
            seen += list(zip(due.tolist(), refs.tolist(), strict=True))
            place = seen[-1]
        assert seen == order
        middle = order[len(order) // 2][0]
        due, _ = upcoming(wheel, BEGINNING, 10_000, middle)
        assert due.tolist() == [at for at, _ in order if at < middle]
        edges = np.array([now, now + 1000, now + HOUR, now + 31 * HOUR], dtype=np.int64)
        bounds = [-1, *edges.tolist(), FOREVER]
        expected = [sum(first <= at < end for at, _ in order) for first, end in pairwise(bounds)]
        assert counts(wheel, edges) == expected
    assert len(wheel) == len(timers)


def test_an_empty_wheel_has_no_outlook() -> None:
    wheel = Wheel(0)
    assert upcoming(wheel, BEGINNING, 10, FOREVER)[0].tolist() == []
    assert counts(wheel, np.array([10], dtype=np.int64)) == [0, 0]
