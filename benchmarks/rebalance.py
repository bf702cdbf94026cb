"""A member leaves and another joins under steady load: how long each partition is without a delivery.

Three members on six partitions, each with a connection of its own; two are pushed to and two ask. A publisher sends one
message to each partition at a steady pace. Then one member leaves with messages in its hands, and later a new one
joins. The deliveries of each partition are written down as they come: what a change costs is the greatest time between
two of them, for the partitions that stay where they are and for those that move.

    calm ─▶ "c" leaves ─▶ settle ─▶ "d" joins ─▶ settle ─▶ the rest is drained
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import uvloop

import trine.aio
from benchmarks.bench import VALUE, Bench
from benchmarks.serving import Serving
from trine import Outgoing
from trine.client.aio import AsyncBroker, AsyncConsumer, AsyncGroup
from trine.model.errors import Conflict

PARTITIONS = 6
PREFETCH = {"a": 64, "b": 0, "c": 64, "d": 0}
"""0 asks with long polls."""
STAYS_MS, MOVES_MS = 100, 1_000
GIVE_UP_S = 60.0

Place = tuple[int, int]
"""(partition, offset)"""
Owners = dict[int, str]


@dataclass(frozen=True, slots=True)
class Delivery:
    at: float
    partition: int
    offset: int
    member: str


@dataclass(frozen=True, slots=True)
class Change:
    """A member came or went: who owned the partitions before it and after it."""

    what: str
    at: float
    until: float
    before: Owners
    after: Owners

    @property
    def moved(self) -> set[int]:
        return {number for number, owner in self.before.items() if self.after[number] != owner}

    @property
    def stayed(self) -> set[int]:
        return set(self.before) - self.moved


@dataclass(slots=True)
class Record:
    """All that was seen of one run, in order."""

    calm: tuple[float, float] = (0.0, 0.0)
    published: set[Place] = field(default_factory=set)
    deliveries: list[Delivery] = field(default_factory=list)
    unconfirmed: set[Place] = field(default_factory=set)
    """Received, and not acked by the one who had it: it left first, or its lease was taken from it."""
    changes: list[Change] = field(default_factory=list)

    def gap_ms(self, partitions: Iterable[int], begin: float, end: float) -> float:
        """The greatest time between two deliveries of one of these partitions that reaches into the span."""
        worst = 0.0
        for partition in partitions:
            times = [one.at for one in self.deliveries if one.partition == partition]
            spans = [later - earlier for earlier, later in pairwise(times) if later > begin and earlier < end]
            worst = max(worst, *spans, 0.0)
        return worst * 1000

    @property
    def calm_ms(self) -> float:
        """While nobody comes or goes: what the machine and the pace alone make of it."""
        return self.gap_ms(range(PARTITIONS), *self.calm)

    @property
    def stays_ms(self) -> float:
        return max(self.gap_ms(one.stayed, one.at, one.until) for one in self.changes)

    @property
    def moves_ms(self) -> float:
        return max(self.gap_ms(one.moved, one.at, one.until) for one in self.changes)


class Member:
    """One consumer with a connection of its own, which notes what it is given and acks it."""

    def __init__(self, url: str, topic: str, name: str, record: Record) -> None:
        self._broker: AsyncBroker = trine.aio.connect(url)
        self._topic = topic
        self._name = name
        self._record = record
        self._leaving = False
        self._work: asyncio.Task[None] | None = None
        self._consumer: AsyncConsumer | None = None
        self.left_at = 0.0

    async def connect(self) -> None:
        await self._broker.__aenter__()

    async def join(self) -> None:
        group = self._broker.topic(self._topic).group("g")
        self._consumer = group.consumer(self._name, prefetch=PREFETCH[self._name])
        await self._consumer.__aenter__()
        self._work = asyncio.create_task(self._take(self._consumer))

    async def leave(self) -> None:
        """With what it received last still in its hands."""
        assert self._work is not None
        self._leaving = True
        await self._work
        await self._broker.close()

    async def _take(self, consumer: AsyncConsumer) -> None:
        while True:
            messages = await consumer.receive(max=100, wait="100ms")
            now = time.perf_counter()
            self._record.deliveries += [
                Delivery(now, message.partition, message.offset, self._name) for message in messages
            ]
            if self._leaving:
                self._record.unconfirmed |= {(message.partition, message.offset) for message in messages}
                self.left_at = time.perf_counter()
                await consumer.close()
                return
            try:
                await consumer.ack(messages)
            except Conflict:
                self._record.unconfirmed |= {(message.partition, message.offset) for message in messages}


async def watch(
    url: str,
    order: str,
    *,
    durability: str = "synced",
    pace_s: float = 0.005,
    calm_s: float = 1.0,
    settle_s: float = 1.0,
) -> Record:
    """One run, in a topic of its own that is deleted afterwards."""
    record = Record()
    name = f"rebalance-{order}"
    async with asyncio.timeout(GIVE_UP_S), trine.aio.connect(url) as broker:
        topic = await broker.create_topic(name, partitions=PARTITIONS, durability=durability)
        group = await topic.create_group("g", order=order, durability=durability)
        members = {member: Member(url, name, member, record) for member in "abcd"}
        for member in members.values():
            await member.connect()
        for member in "abc":
            await members[member].join()
        pace = asyncio.create_task(_publish(url, name, pace_s, record))
        await _owners(group, "abc")
        await asyncio.sleep(min(calm_s, 0.3))  # connections, caches and the sync's pace are warm
        record.calm = await _span(calm_s)

        before = await _owners(group, "abc")
        await members["c"].leave()
        after = await _owners(group, "ab")
        _, until = await _span(settle_s)
        record.changes.append(Change("c left", members["c"].left_at, until, before, after))

        at = time.perf_counter()
        await members["d"].join()
        last = await _owners(group, "abd")
        _, until = await _span(settle_s)
        record.changes.append(Change("d joined", at, until, after, last))

        pace.cancel()
        await asyncio.gather(pace, return_exceptions=True)
        while (await group.lag()).count:
            await asyncio.sleep(0.01)
        for member in "abd":
            await members[member].leave()
        await broker.delete_topic(name)
    record.deliveries.sort(key=lambda one: one.at)
    return record


async def _publish(url: str, name: str, pace_s: float, record: Record) -> None:
    """One message to each partition at each beat, whatever became of the one before."""
    async with trine.aio.connect(url) as broker:
        topic = broker.topic(name)
        items = [Outgoing(value=VALUE, partition=number) for number in range(PARTITIONS)]
        loop = asyncio.get_running_loop()
        under_way: set[asyncio.Task[None]] = set()

        async def publish() -> None:
            published = await topic.publish_many(items)
            record.published |= {(one.partition, one.offset) for one in published}

        begun = loop.time()
        try:
            beat = 0
            while True:
                beat = max(beat + 1, int((loop.time() - begun) / pace_s))
                await asyncio.sleep(begun + beat * pace_s - loop.time())
                task = loop.create_task(publish())
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        finally:
            await asyncio.gather(*under_way)


async def _span(seconds: float) -> tuple[float, float]:
    begin = time.perf_counter()
    await asyncio.sleep(seconds)
    return begin, time.perf_counter()


async def _owners(group: AsyncGroup, members: str) -> Owners:
    """Who owns which partition, once these are the members and nothing is on its way any more."""
    while True:
        found = {one.name: one.partitions for one in await group.members()}
        owners = {number: name for name, numbers in found.items() for number in numbers}
        if set(found) == set(members) and len(owners) == PARTITIONS:
            return owners
        await asyncio.sleep(0.005)


def run(bench: Bench) -> None:
    folder = bench.folder()
    with Serving(folder) as server:
        for order in ("none", "partition"):
            seconds = 0.2 if bench.small else 1.5
            records = [
                uvloop.run(
                    watch(server.address, order, durability="written", calm_s=seconds, settle_s=seconds)
                )
                for _ in range(bench.size(3, 1))
            ]
            calm = max(record.calm_ms for record in records)
            stays = max(record.stays_ms for record in records)
            moves = max(record.moves_ms for record in records)
            for what, value, target in (("stay", stays, STAYS_MS), ("move", moves, MOVES_MS)):
                bench.add(
                    workload=f"rebalance, order {order}: the greatest gap of partitions that {what}",
                    durability="written", value=value, unit="ms", limit="while nobody comes or goes",
                    limit_value=calm, target=f"< {target:,} ms", met=value < target,
                    note=f"a message each 5 ms in each partition, worst of {len(records)} runs",
                )  # fmt: skip
    bench.remove(folder)
