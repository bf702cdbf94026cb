"""The sampler: what every topic and group counts now, and how fast it goes; one look for all who ask.

    engine ──a slice of topics at a time──▶ rows ──once a second──▶ rates, totals ──▶ the ring: the last 15 minutes

Nothing is counted that the broker does not count anyway. A row is made anew only when something of its topic has
changed, which a few sums tell; so a second in which nothing happened costs nothing, and a store of thousands of
partitions is looked through in slices, with the lock held for a fraction of a millisecond each. What is shown is made
of the rows by whoever is asked: the ring apart, nothing is done that nobody looks at.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from trine.broker.group import GroupState
from trine.broker.operations import REDRIVE_GROUP
from trine.broker.topic import TopicState
from trine.model.errors import TrineError
from trine.model.ids import DLQ_SUFFIX
from trine.server.context import Context

EVERY_S: Final = 1.0
"""How often rates are made: the difference of two looks that lie this far apart."""
SHARE: Final = 0.1
"""Of its time the loop looks no longer than this, whoever asks: after a look that took 2 ms, counts are good for 20."""
RING_MAX: Final = 900
"""Fifteen minutes of totals: some 100 kB."""
CHEAP_S: Final = 0.002
LOOKED_S: Final = 10.0
"""A look that takes longer than `CHEAP_S` is not taken every second for the ring alone: if nobody asked for so long."""
SLICE_PARTITIONS: Final = 256
"""Looked at with the lock held once: about a tenth of a millisecond, or one when all have changed."""
ALL_EVERY_S: Final = 30.0
"""How often every row is made anew: compaction changes a log's size and nothing that the sums tell."""


@dataclass(slots=True)
class GroupRow:
    """What a group counts. Totals are ever since the group began."""

    topic: str
    name: str
    partitions: int
    lag: int
    in_flight: int
    retrying: int
    members: int
    order: str
    paused: str | None
    in_log_settled: int
    delivered: int
    settled: int
    acked: int
    failed: int
    dead_lettered: int
    died_at: float
    """When its dead letters last became more, by the loop's clock; 0 if that was never seen."""
    delivered_rate: float = 0.0
    settled_rate: float = 0.0
    base: tuple[int, int] = (0, 0)
    """Delivered and settled when rates were last made."""


@dataclass(slots=True)
class TopicRow:
    name: str
    kind: str
    partitions: int
    messages: int
    size_bytes: int
    published: int
    scheduled: int
    depth: int
    depth_max: int
    buried: int
    """Of a topic of dead letters: how many are there now."""
    groups: dict[str, GroupRow]
    mark: tuple[object, ...]
    lag: int = 0
    in_flight: int = 0
    pending: int = 0
    """Not delivered yet, or to be tried again; of a topic without groups, all its messages."""
    acked: int = 0
    failed: int = 0
    published_rate: float = 0.0
    delivered_rate: float = 0.0
    settled_rate: float = 0.0
    base: int = 0
    """Published when rates were last made."""

    @property
    def is_dead_letters(self) -> bool:
        return self.name.endswith(DLQ_SUFFIX)


class Sums(NamedTuple):
    """Of all topics, or of those that somebody may see."""

    published_rate: float
    delivered_rate: float
    settled_rate: float
    acked: int
    failed: int
    dead_lettered: int
    pending: int
    in_flight: int
    scheduled: int
    lag: int
    messages: int
    size_bytes: int


@dataclass(slots=True)
class Sampler:
    """Looks, once a second by itself (`run`) and when somebody asks for what is newer (`refresh`)."""

    context: Context
    rows: dict[str, TopicRow] = field(default_factory=dict)
    ring: deque[tuple[float, ...]] = field(default_factory=lambda: deque(maxlen=RING_MAX))
    version: int = 0
    """Rises with every change of a row and every tick: what is made of the rows is good until then."""
    ticked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the next tick; then there is another one."""
    late_s: float = 0.0
    """How late the last tick was: the loop was busy with something else."""
    _taken: float = 0.0
    """When the last look began."""
    _good_s: float = 0.0
    _asked: float = 0.0
    _all_at: float = 0.0
    _rated_at: float = 0.0
    _signs: tuple[int, int] | None = None
    _moving: set[str] = field(default_factory=set)
    """Topics that changed since rates were made, and those that have a rate."""
    _spent_s: float = 0.0
    _totals: tuple[int, Sums] | None = None
    _refreshing: asyncio.Task[None] | None = None

    # --- looking

    async def refresh(self) -> None:
        """Returns when the counts are as they are now, or were a moment ago. Who asks together shares a look."""
        self.watched()
        await self._refresh()

    def watched(self) -> None:
        """Somebody waits for the next tick."""
        self._asked = time.monotonic()

    async def _refresh(self) -> None:
        came = time.monotonic()
        while self._taken <= came - self._good_s:
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.create_task(self._look(), name="trine sampler")
            await asyncio.shield(self._refreshing)

    async def _look(self) -> None:
        engine = self.context.engine
        now = time.monotonic()
        self._spent_s = 0.0
        with engine.lock:
            engine.check_open()
            signs = (engine.store.end_lsn, sum(group.members.generation for group in engine.groups()))
            topics = list(engine.topics.values())
        every = now - self._all_at >= ALL_EVERY_S
        if signs != self._signs or every:
            self._signs = signs
            self._all_at = now if every else self._all_at
            await self._look_at(topics, every, now)
        self._good_s = self._spent_s / SHARE
        self._taken = now

    async def _look_at(self, topics: list[TopicState], every: bool, now: float) -> None:
        engine = self.context.engine
        at = 0
        while at < len(topics):
            room = SLICE_PARTITIONS
            begun = time.perf_counter()
            with engine.lock:
                engine.check_open()
                while at < len(topics) and room > 0:
                    topic = topics[at]
                    at += 1
                    room -= len(topic.partitions)
                    if engine.topics.get(topic.name) is topic:
                        self._look_at_topic(topic, every, now)
            self._spent_s += time.perf_counter() - begun
            await asyncio.sleep(0)
        for name in [name for name in self.rows if name not in engine.topics]:
            del self.rows[name]
            self._moving.add(name)
            self.version += 1

    def _look_at_topic(self, topic: TopicState, every: bool, now: float) -> None:
        mark = _mark(topic)
        known = self.rows.get(topic.name)
        if known is None or known.mark != mark or every:
            self.rows[topic.name] = _row(topic, mark, known, now)
            self._moving.add(topic.name)
            self.version += 1

    # --- rates and totals

    async def run(self) -> None:
        """Ticks once a second until the server closes."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not self.context.closing.is_set():
            try:
                await self._refresh()
            except TrineError:  # closed, or the store failed: then there is nothing to count
                return
            self.tick()
            await self._rest()
            due = max(due + EVERY_S, loop.time())
            await asyncio.sleep(due - loop.time())
            self.late_s = loop.time() - due

    @property
    def totals(self) -> Sums:
        if self._totals is None or self._totals[0] != self.version:
            self._totals = (self.version, sums_of(self.rows.values()))
        return self._totals[1]

    async def _rest(self) -> None:
        """Of a store so large that a look costs something, the ring has fewer samples while nobody looks."""
        seconds = int(self._spent_s / CHEAP_S) * EVERY_S
        while seconds > 0 and time.monotonic() - self._asked > LOOKED_S:
            await asyncio.sleep(EVERY_S)
            seconds -= EVERY_S

    def tick(self) -> None:
        """Makes rates of what has changed since the last time, and puts the totals into the ring."""
        now = time.monotonic()
        seconds = max(now - self._rated_at, 0.001)
        first = not self._rated_at
        self._rated_at = now
        if self._moving:
            self.version += 1
            moved, self._moving = self._moving, set()
            for name in moved:
                row = self.rows.get(name)
                if row is not None and _rate(row, seconds, first):
                    self._moving.add(name)
        told = self.totals
        self.ring.append(
            (self.context.engine.clock.now_ms(), told.published_rate, told.delivered_rate, told.settled_rate,
             told.pending, told.in_flight, told.dead_lettered, told.scheduled)
        )  # fmt: skip
        self.ticked.set()
        self.ticked = asyncio.Event()

    def buried(self, row: TopicRow) -> int:
        """The dead letters of a topic that are there now."""
        letters = self.rows.get(row.name + DLQ_SUFFIX)
        return letters.buried if letters is not None else 0


RING_FIELDS: Final = [
    "at_ms", "published_rate", "delivered_rate", "settled_rate", "pending", "in_flight", "dead_lettered", "scheduled",
]  # fmt: skip


def sums_of(rows: Iterable[TopicRow]) -> Sums:
    """Topics of dead letters count as what they are: their messages are no second message of anybody."""
    origins: list[TopicRow] = []
    letters: list[TopicRow] = []
    for row in rows:
        (letters if row.is_dead_letters else origins).append(row)
    return Sums(
        published_rate=round(sum([row.published_rate for row in origins]), 1),
        delivered_rate=round(sum([row.delivered_rate for row in origins]), 1),
        settled_rate=round(sum([row.settled_rate for row in origins]), 1),
        acked=sum([row.acked for row in origins]),
        failed=sum([row.failed for row in origins]),
        dead_lettered=sum([row.buried for row in letters]),
        pending=sum([row.pending for row in origins]),
        in_flight=sum([row.in_flight for row in origins]),
        scheduled=sum([row.scheduled for row in origins]),
        lag=sum([row.lag for row in origins]),
        messages=sum([row.messages for row in origins]),
        size_bytes=sum([row.size_bytes for row in origins]) + sum([row.size_bytes for row in letters]),
    )


# --- one topic, under the engine's lock


def _mark(topic: TopicState) -> tuple[object, ...]:
    """Sums of numbers that only rise: while none has risen, nothing that a row shows has changed."""
    logs = [one.log for one in topic.partitions]
    marks: list[object] = [
        id(topic),
        topic.config,
        sum([log.next_offset for log in logs]),
        sum([log.start_offset for log in logs]),
        len(topic.schedule),
    ]
    for group in topic.groups.values():
        marks += (
            id(group),
            sum([part.ledger.next_row for part in group.parts]),
            group.meta.paused,
            group.members.generation,
            group.config,
        )
    return tuple(marks)


def _row(topic: TopicState, mark: tuple[object, ...], known: TopicRow | None, now: float) -> TopicRow:
    groups: dict[str, GroupRow] = {}
    buried = 0
    for group in topic.groups.values():
        if group.name == REDRIVE_GROUP:
            buried = group.lag()
        else:
            before = known.groups.get(group.name) if known is not None else None
            groups[group.name] = _group_row(group, before, now)
    counts = topic.counts()
    if topic.name.endswith(DLQ_SUFFIX) and REDRIVE_GROUP not in topic.groups:
        buried = counts["messages"]
    published = sum([one.log.next_offset for one in topic.partitions])
    row = TopicRow(
        name=topic.name,
        kind=topic.config.kind,
        partitions=len(topic.partitions),
        messages=counts["messages"],
        size_bytes=counts["bytes"],
        published=published,
        scheduled=counts["scheduled"],
        depth=counts["depth"],
        depth_max=topic.config.depth_max,
        buried=buried,
        groups=groups,
        mark=mark,
        base=published if known is None else known.base,
    )
    if known is not None:
        row.published_rate = known.published_rate
        row.delivered_rate = known.delivered_rate
        row.settled_rate = known.settled_rate
    for one in groups.values():
        row.lag += one.lag
        row.in_flight += one.in_flight
        row.acked += one.acked
        row.failed += one.failed
    row.pending = row.lag - row.in_flight if groups else row.messages
    return row


def _group_row(group: GroupState, known: GroupRow | None, now: float) -> GroupRow:
    lag = group.lag()
    totals = group.totals()
    settled = totals["acked"] + totals["rejected"] + totals["dead_lettered"] + totals["expired"]
    messages = sum([part.partition.log.next_offset - part.partition.log.start_offset for part in group.parts])
    row = GroupRow(
        topic=group.topic.name,
        name=group.name,
        partitions=len(group.parts),
        lag=lag,
        in_flight=group.in_flight(),
        retrying=group.retrying(),
        members=len(group.members),
        order=group.config.order,
        paused=group.paused,
        in_log_settled=messages - lag,
        delivered=totals["delivered"],
        settled=settled,
        acked=totals["acked"],
        failed=totals["nacked"] + totals["returned"],
        dead_lettered=totals["dead_lettered"],
        died_at=0.0,
        base=(totals["delivered"], settled),
    )
    if known is not None:
        row.base = known.base
        row.delivered_rate = known.delivered_rate
        row.settled_rate = known.settled_rate
        row.died_at = now if row.dead_lettered > known.dead_lettered else known.died_at
    return row


def _rate(row: TopicRow, seconds: float, first: bool) -> bool:
    """Makes the rates of a topic; whether there are any."""
    row.published_rate = 0.0 if first else _risen(row.published, row.base, seconds)
    row.base = row.published
    row.delivered_rate = row.settled_rate = 0.0
    for one in row.groups.values():
        delivered, settled = one.base
        one.delivered_rate = _risen(one.delivered, delivered, seconds)
        one.settled_rate = _risen(one.settled, settled, seconds)
        one.base = (one.delivered, one.settled)
        row.delivered_rate += one.delivered_rate
        row.settled_rate += one.settled_rate
    return bool(row.published_rate or row.delivered_rate or row.settled_rate)


def _risen(now: int, before: int, seconds: float) -> float:
    """A second; a group that was made anew under the same name counts from nothing, which is no rate."""
    return round(max(now - before, 0) / seconds, 1)
