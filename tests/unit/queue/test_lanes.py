"""Lanes count what they have, few runs or many."""

from __future__ import annotations

import random

from trine.queue.lanes import MANY, Lanes


def test_counts_are_those_of_the_offsets_whatever_the_number_of_runs() -> None:
    rng = random.Random(7)
    for batches in (0, 1, MANY - 1, MANY, 4 * MANY):
        lanes = Lanes(3)
        offsets: list[int] = []
        for _ in range(batches):
            lane, count = rng.randrange(3), rng.randrange(1, 5)
            if rng.random() < 0.1:  # compaction leaves gaps
                offsets.append(-1)
            lanes.add(lane, len(offsets), count)
            offsets += [lane] * count
        for start in {0, 1, len(offsets) // 3, len(offsets) - 1, len(offsets), len(offsets) + 5}:
            start = max(start, 0)
            expected = [sum(one == lane for one in offsets[start:]) for lane in range(3)]
            assert lanes.counts(start) == expected
        lanes.add(0, len(offsets), 1)  # nothing holds on to the arrays
