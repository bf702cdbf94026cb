"""A million messages that wait for their time: taken in, opened, and fired.

Time is simulated, so that all of them can be due at once: what is measured is the work, not the waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trine
from benchmarks.bench import BATCH, VALUE, Bench, in_child
from trine.model.clock import SIMULATED_START_MS

MANY = 1_000_000
HOURS = 2
"""They are due within this time, in the near hours: all of them are loaded when the store is opened."""
OPEN_SECONDS_MAX = 3.0
FIRED_MIN = 100_000

Send = Callable[[Any], None]


def run(bench: Bench) -> None:
    folder = bench.folder()
    count = bench.size(MANY, 5_000)
    taken = in_child(_schedule, folder, count)
    bench.add(
        workload=f"schedule {count:,}, publish_many of 1,000 with deliver_at", durability="written",
        value=count / taken, unit="msg/s",
    )  # fmt: skip
    opened, fired = in_child(_fire, folder, count)
    bench.add(
        workload=f"open with {count:,} scheduled, due within {HOURS} h", durability="written", value=opened,
        unit="s", target=f"< {OPEN_SECONDS_MAX:.0f} s", met=opened < OPEN_SECONDS_MAX,
    )  # fmt: skip
    bench.add(
        workload=f"fire {count:,} due messages into the log", durability="written", value=count / fired,
        unit="msg/s", target=f"≥ {FIRED_MIN:,}", met=count / fired >= FIRED_MIN,
    )  # fmt: skip
    bench.remove(folder)


def _schedule(send: Send, folder: Path, count: int) -> None:
    with trine.open(str(folder), clock=trine.SimulatedClock()) as broker:
        topic = broker.create_topic("bench", durability="written")
        step_ms = HOURS * 3_600_000 / count
        begun = time.perf_counter()
        for first in range(0, count, BATCH):
            due = (SIMULATED_START_MS + 60_000 + int(first * step_ms)) / 1000
            topic.publish_many([VALUE] * BATCH, deliver_at=due)
        taken = time.perf_counter() - begun
    send(taken)


def _fire(send: Send, folder: Path, count: int) -> None:
    clock = trine.SimulatedClock()
    begun = time.perf_counter()
    broker = trine.open(str(folder), clock=clock)
    broker.tick()  # the near hours are loaded
    opened = time.perf_counter() - begun
    clock.advance(f"{HOURS + 1}h")
    begun = time.perf_counter()
    broker.tick()
    fired = time.perf_counter() - begun
    stored = sum(end - first for first, end in broker.topic("bench").offsets().values())
    assert stored == count, f"{stored} of {count} were fired"
    broker.close()
    send((opened, fired))
