"""Receiving and settling, by one consumer, against decoding the stored batches and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import trine
from benchmarks.bench import BATCH, VALUE, Bench, Spent, medians
from trine.log import batch

RECEIVED = 100
BATCH_TARGET = 1_000_000
SINGLE_TARGET = 150_000


def run(bench: Bench) -> None:
    folder = bench.folder()
    with trine.open(str(folder)) as broker:
        topic = broker.create_topic("bench", durability="written")
        _batches(bench, topic, "written", bench.size(100_000, 1_000))
        _batches(bench, topic, "synced", bench.size(10_000, 500))
        _one_by_one(bench, topic, RECEIVED, bench.size(20_000, 500), SINGLE_TARGET)
        _one_by_one(bench, topic, 1, bench.size(10_000, 200), None)
    bench.remove(folder)


def _batches(bench: Bench, topic: trine.Topic, durability: str, count: int) -> None:
    stored = bytes(batch.encode_values([VALUE] * BATCH, 1))

    def drain(consumer: trine.Consumer) -> None:
        for _ in range(count // RECEIVED):
            consumer.ack(consumer.receive(max=RECEIVED))

    def decode() -> None:
        for _ in range(count // BATCH or 1):
            batch.decode(stored)

    ours, limit = _measured(bench, topic, f"batches-{durability}", durability, count, drain, decode)
    rate = count / ours
    written = durability == "written"
    bench.add(
        workload="receive(max=100) and ack, as a batch", durability=durability, value=rate, unit="msg/s",
        limit="decoding the batches", limit_value=(count // BATCH or 1) * BATCH / limit,
        target=f"≥ {BATCH_TARGET:,}" if written else "", met=rate >= BATCH_TARGET if written else None,
        note=f"{count / ours.cpu:,.0f} by CPU time",
    )  # fmt: skip


def _one_by_one(bench: Bench, topic: trine.Topic, most: int, count: int, target: int | None) -> None:
    def drain(consumer: trine.Consumer) -> None:
        for _ in range(count // most):
            for message in consumer.receive(max=most):
                message.ack()

    (ours,) = _measured(bench, topic, f"singles-{most}", "written", count, drain)
    rate = count / ours
    bench.add(
        workload=f"receive(max={most}) and message.ack(), one by one", durability="written", value=rate,
        unit="msg/s", target=f"≥ {target:,}" if target else "", met=rate >= target if target else None,
        note=f"{count / ours.cpu:,.0f} by CPU time",
    )  # fmt: skip


def _measured(
    bench: Bench,
    topic: trine.Topic,
    name: str,
    durability: str,
    count: int,
    drain: Callable[[trine.Consumer], None],
    *others: Callable[[], None],
) -> list[Spent]:
    group = topic.create_group(name, durability=durability, start="latest")
    for _ in range(-(-count * (bench.rounds + 1) // BATCH)):
        topic.publish_many([VALUE] * BATCH)
    with group.consumer("c") as consumer:
        taken = medians(bench.rounds, lambda: drain(consumer), *others)
    group.delete()
    return taken
