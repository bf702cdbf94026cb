"""Publishing: in batches and singly, written and synced, against raw appends of the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trine
from benchmarks.bench import BATCH, VALUE, Bench, medians
from benchmarks.raw import RawFile, in_threads
from trine.log import batch

THREADS = 4
"""Publishers in flight: while one batch is synced the next ones are encoded."""
AHEAD_BYTES = 64 << 20
WRITTEN_TARGET = 2_000_000
SYNCED_SHARE = 0.7


def run(bench: Bench) -> None:
    folder = bench.folder()
    mixed = [VALUE[: 50 + number % 51] * (1 + number % 2) for number in range(BATCH)]
    raw = RawFile(folder / "raw", AHEAD_BYTES)
    rows: list[Callable[[trine.Topic], None]] = [
        lambda topic: _batches_written(bench, topic, RawFile(folder / "written"), [VALUE] * BATCH, ""),
        lambda topic: _batches_written(bench, topic, RawFile(folder / "mixed"), mixed, ", of mixed lengths"),
        *(partial(_batches_synced, bench, raw=raw, threads=threads) for threads in (1, THREADS)),
        *(partial(_singles_synced, bench, raw=raw, threads=threads) for threads in (1, THREADS)),
        lambda topic: _singles_written(bench, topic, RawFile(folder / "singles")),
    ]
    for number, row in enumerate(rows):
        # A store of its own for each row: what one leaves to be checkpointed must not be paid for by the next.
        with trine.open(str(folder / f"store-{number}")) as broker:
            topic = broker.create_topic("bench")
            _warm(bench, broker, topic)
            row(topic)
    bench.remove(folder)


def _warm(bench: Bench, broker: trine.Broker, topic: trine.Topic) -> None:
    """A journal as it is after a while: its files are used again, and need no zeros written ahead."""
    for _ in range(bench.size(2_400, 2)):
        topic.publish_many([VALUE] * BATCH, durability="written")
    broker.checkpoint()


def _batches_written(bench: Bench, topic: trine.Topic, raw: RawFile, values: list[bytes], what: str) -> None:
    """Values of one length have a short way through the encoder; those of mixed lengths do not."""
    data = batch.encode_values(values, 1)
    count = bench.size(200, 5)

    def publish() -> None:
        for _ in range(count):
            topic.publish_many(values, durability="written")

    def append() -> None:
        raw.restart()
        for _ in range(count):
            raw.append(data)

    def encode() -> None:
        for _ in range(count):
            batch.encode_values(values, 1)

    ours, limit, encoding = medians(bench.rounds, publish, append, encode)
    raw.close()
    rate = count * BATCH / ours
    bench.add(
        workload=f"publish_many, batches of 1,000{what}", durability="written", value=rate, unit="msg/s",
        limit="raw append", limit_value=count * BATCH / limit, target=f"≥ {WRITTEN_TARGET:,}",
        met=rate >= WRITTEN_TARGET,
        note=f"{count * BATCH / ours.cpu:,.0f} by CPU time; encoding alone: {count * BATCH / encoding:,.0f} msg/s",
    )  # fmt: skip


def _batches_synced(bench: Bench, topic: trine.Topic, raw: RawFile, threads: int) -> None:
    values = [VALUE] * BATCH
    data = batch.encode_values(values, 1)
    each = bench.size(120, 4) // threads

    def publish() -> None:
        for _ in range(each):
            topic.publish_many(values, durability="synced")

    def append() -> None:
        for _ in range(each):
            raw.append_synced(data)

    ours, limit = medians(
        bench.rounds, lambda: in_threads(threads, publish), lambda: in_threads(threads, append)
    )
    total = each * threads * BATCH
    several = threads > 1
    bench.add(
        workload=f"publish_many, batches of 1,000, {_threads(threads)}", durability="synced",
        value=total / ours, unit="msg/s", limit=f"raw append + fdatasync, {_threads(threads)}",
        limit_value=total / limit, target=f"≥ {SYNCED_SHARE:.0%} of the limit" if several else "",
        met=limit / ours >= SYNCED_SHARE if several else None,
    )  # fmt: skip


def _singles_synced(bench: Bench, topic: trine.Topic, raw: RawFile, threads: int) -> None:
    data = batch.encode_single(1, None, VALUE)
    each = bench.size(600, 20) // threads

    def publish() -> None:
        for _ in range(each):
            topic.publish(VALUE, durability="synced")

    def append() -> None:
        for _ in range(each):
            raw.append_synced(data)

    ours, limit = medians(
        bench.rounds, lambda: in_threads(threads, publish), lambda: in_threads(threads, append)
    )
    total = each * threads
    bench.add(
        workload=f"publish, {_threads(threads)}", durability="synced", value=total / ours, unit="msg/s",
        limit=f"raw append + fdatasync, {_threads(threads)}", limit_value=total / limit,
    )  # fmt: skip


def _singles_written(bench: Bench, topic: trine.Topic, raw: RawFile) -> None:
    data = batch.encode_single(1, None, VALUE)
    count = bench.size(10_000, 200)

    def publish() -> None:
        for _ in range(count):
            topic.publish(VALUE, durability="written")

    def append() -> None:
        raw.restart()
        for _ in range(count):
            raw.append(data)

    ours, limit = medians(bench.rounds, publish, append)
    raw.close()
    bench.add(
        workload="publish", durability="written", value=count / ours, unit="msg/s",
        limit="raw append", limit_value=count / limit, note=f"{count / ours.cpu:,.0f} by CPU time",
    )  # fmt: skip


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
