"""One large store, through its life: filled, opened, drained a little, settled, killed, opened, traced, closed, opened.

Each part is a process of its own, so that memory and opening are measured without what the producer left behind.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trine
from benchmarks.bench import BATCH, VALUE, Bench, in_child, resident_bytes, seconds

FEW = 10_000
MANY = 10_000_000
SHARE_MAX = 1.2
BYTES_MAX = 50
OPEN_SECONDS_MAX = 3.0

Send = Callable[[Any], None]


def run(bench: Bench) -> None:
    folder = bench.folder()
    many = bench.size(MANY, 20_000)
    few = bench.size(FEW, 2_000)
    _backlog(bench, folder, few, many)
    _reopening(bench, folder / "many", many)
    bench.remove(folder)


def _backlog(bench: Bench, folder: Path, few: int, many: int) -> None:
    in_child(_fill, folder / "few", few)
    filled = in_child(_fill, folder / "many", many)
    bench.add(
        workload=f"fill with {many:,} messages, background checkpoints and close included",
        durability="written", value=many / filled, unit="msg/s",
    )  # fmt: skip
    grown = in_child(_memory, folder / "many")
    bench.add(
        workload=f"memory of a waiting message, {many:,} waiting, after opening and one receive",
        durability="written", value=grown / many, unit="bytes", target=f"< {BYTES_MAX}",
        met=grown / many < BYTES_MAX, note=f"{grown / 2**20:,.1f} MiB in all",
    )  # fmt: skip
    a_few, a_lot = in_child(_take_turns, folder / "few", folder / "many", few, bench.rounds * 3)
    bench.add(
        workload=f"receive(max=100) and ack, {many:,} waiting", durability="written", value=a_lot * 1e9,
        unit="ns/msg", limit=f"the same, {few:,} waiting", limit_value=a_few * 1e9,
        target=f"≤ {SHARE_MAX:.0%} of it", met=a_lot <= a_few * SHARE_MAX,
    )  # fmt: skip


def _reopening(bench: Bench, store: Path, many: int) -> None:
    settled = in_child(_settle_and_die, store)
    bench.add(
        workload="settle all of it, in batches of 1,000, background checkpoints included",
        durability="written", value=settled["count"] / settled["seconds"], unit="msg/s",
    )  # fmt: skip
    killed = in_child(_open, store, True)
    replayed = f"{settled['entries']:,} journal entries, {settled['bytes'] / 2**20:,.0f} MiB to replay"
    clean = in_child(_open, store, False)
    for taken, how, note in ((killed, "kill -9", replayed), (clean, "a clean close", "")):
        bench.add(
            workload=f"open {many:,} messages, all settled, after {how}", durability="written",
            value=taken["seconds"], unit="s", target=f"< {OPEN_SECONDS_MAX:.0f} s",
            met=taken["seconds"] < OPEN_SECONDS_MAX, note=note,
        )  # fmt: skip
    if killed["trace"] is not None:
        bench.add(
            workload=f"trace a message, {many:,} stored and settled", durability="written",
            value=killed["trace"] * 1e3, unit="ms", note="median of 50 random ones",
        )  # fmt: skip
    else:
        bench.add(
            workload="trace a message",
            durability="written",
            value=0,
            unit="ms",
            note="skipped: no trace here",
        )


# --- what the processes do


def _fill(send: Send, store: Path, count: int) -> None:
    values = [VALUE] * BATCH
    begun = time.perf_counter()
    with trine.open(str(store)) as broker:
        topic = broker.create_topic("bench", durability="written")
        topic.create_group("g", durability="written", in_flight_max=1_000_000)
        for _ in range(count // BATCH):
            topic.publish_many(values)
    send(time.perf_counter() - begun)


def _memory(send: Send, store: Path) -> None:
    before = resident_bytes()  # all that opening takes counts, though an empty store takes some of it too
    with trine.open(str(store)) as broker, broker.topic("bench").group("g").consumer("c") as consumer:
        consumer.receive()
        grown = resident_bytes() - before
    send(grown)


def _take_turns(send: Send, few: Path, many: Path, count: int, rounds: int) -> None:
    """Both stores open, a drain of each in turn: so both see the same neighbours on the machine."""
    half = count // 2
    times: tuple[list[float], list[float]] = ([], [])
    with trine.open(str(few)) as small, trine.open(str(many)) as large:
        consumers = [one.topic("bench").group("g").consumer("c") for one in (small, large)]
        for turn in range(rounds + 1):
            for consumer, taken in zip(consumers, times, strict=True):
                spent = seconds(partial(_drain, consumer, half))
                if turn:
                    taken.append(spent / half)
            for _ in range(half // BATCH):
                small.topic("bench").publish_many([VALUE] * BATCH)
        for consumer in consumers:
            consumer.close()
    send(tuple(map(statistics.median, times)))


def _drain(consumer: trine.Consumer, count: int) -> None:
    left = count
    while left > 0:
        messages = consumer.receive(max=min(left, 100))
        assert messages, "the backlog is used up: this would measure nothing"
        left -= len(messages)
        consumer.ack(messages)


def _settle_and_die(send: Send, store: Path) -> None:
    broker = trine.open(str(store))
    consumer = broker.topic("bench").group("g").consumer("c")
    count = 0
    begun = time.perf_counter()
    while messages := consumer.receive(max=BATCH):
        count += len(messages)
        consumer.ack(messages)
    spent = time.perf_counter() - begun
    statistics_ = broker.statistics()["store"]
    send(
        {
            "count": count,
            "seconds": spent,
            "entries": statistics_.entries_since_checkpoint,
            "bytes": statistics_.bytes_since_checkpoint,
        }
    )
    os.kill(os.getpid(), signal.SIGKILL)


def _open(send: Send, store: Path, traces: bool) -> None:
    begun = time.perf_counter()
    broker = trine.open(str(store))
    spent = time.perf_counter() - begun
    lag = broker.topic("bench").group("g").lag().count
    assert lag == 0, f"{lag} settlements were lost"
    traced = _trace(broker) if traces else None
    broker.close()
    send({"seconds": spent, "trace": traced})


def _trace(broker: trine.Broker) -> float | None:
    rng = random.Random(7)
    places = broker.topic("bench").offsets()
    times = []
    for _ in range(50):
        partition = rng.choice(list(places))
        message_id = f"bench/{partition}/{rng.randrange(*places[partition])}"
        try:
            times.append(seconds(partial(broker.trace, message_id)))
        except (AttributeError, TypeError):
            return None
    return statistics.median(times)
