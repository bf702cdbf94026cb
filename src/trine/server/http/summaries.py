"""Topics and groups in a line each: what lists and the first look show, made of the sampler's rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from heapq import nlargest
from typing import Any, Final, Literal

import msgspec

from trine.broker.topic import TopicState
from trine.server.http.counters import Sees
from trine.server.http.sampler import SLICE_PARTITIONS, GroupRow, Sampler, TopicRow

TOP_MAX: Final = 20
"""Topics or groups of a first look."""


class TopicNumbers(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    partitions: int
    messages: int
    depth: int
    size_bytes: int
    published_rate: float
    settled_rate: float
    lag: int
    in_flight: int
    scheduled: int
    dead_letters: int
    groups: int


class TopicSummary(TopicNumbers, frozen=True, kw_only=True):
    lanes: dict[str, int]
    """Messages in the log, by lane."""


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    group: str
    lag: int
    lag_age_ms: int
    """How old the oldest message is that the group has not settled (the batch it came in)."""
    in_flight: int
    retrying: int
    delivered_rate: float
    settled_rate: float
    paused: str | None
    members: int
    partitions: int
    order: str
    acked: int
    failed: int
    dead_lettered: int
    """Totals ever since the group began."""


TopicSort = Literal["name", "rate", "depth", "size", "lag", "messages", "partitions", "dead_letters"]
GroupSort = Literal["name", "lag", "in_flight", "rate", "members"]
Direction = Literal["natural", "asc", "desc"]
"""Names rise and numbers fall, unless somebody wants it otherwise."""

TOPIC_KEYS: Final[dict[str, Callable[[TopicRow, Sampler], float]]] = {
    "rate": lambda row, sampler: row.published_rate + row.settled_rate,
    "depth": lambda row, sampler: row.depth,
    "size": lambda row, sampler: row.size_bytes,
    "lag": lambda row, sampler: row.lag,
    "messages": lambda row, sampler: row.messages,
    "partitions": lambda row, sampler: row.partitions,
    "dead_letters": lambda row, sampler: sampler.buried(row),
}
GROUP_KEYS: Final[dict[str, Callable[[GroupRow], float]]] = {
    "lag": lambda row: row.lag,
    "in_flight": lambda row: row.in_flight,
    "rate": lambda row: row.settled_rate,
    "members": lambda row: row.members,
}


def visible(sampler: Sampler, sees: Sees, text: str | None = None) -> list[TopicRow]:
    """Topics, not those of dead letters, that may be seen and whose name has this in it, or matches it."""
    return [
        row
        for name, row in sampler.rows.items()
        if not row.is_dead_letters and (text is None or named(name, text)) and sees(name)
    ]


def named(name: str, text: str) -> bool:
    """Whether a name fits what somebody typed: a part of it, or a pattern with `*` or `?`."""
    if "*" in text or "?" in text:
        return fnmatchcase(name.lower(), text.lower())
    return text.lower() in name.lower()


def sorted_topics(
    sampler: Sampler, rows: list[TopicRow], sort: TopicSort, order: Direction
) -> list[TopicRow]:
    rows = sorted(rows, key=lambda row: row.name, reverse=sort == "name" and order == "desc")
    if sort == "name":
        return rows
    key = TOPIC_KEYS[sort]
    return sorted(rows, key=lambda row: key(row, sampler), reverse=order != "asc")


def sorted_groups(rows: list[GroupRow], sort: GroupSort, order: Direction) -> list[GroupRow]:
    rows = sorted(rows, key=lambda row: (row.topic, row.name), reverse=sort == "name" and order == "desc")
    return rows if sort == "name" else sorted(rows, key=GROUP_KEYS[sort], reverse=order != "asc")


def busiest(rows: Iterable[TopicRow]) -> list[TopicRow]:
    return nlargest(
        TOP_MAX, rows, key=lambda row: (row.published_rate + row.delivered_rate, row.pending, row.messages)
    )


def most_behind(rows: Iterable[TopicRow]) -> list[GroupRow]:
    """Paused groups first, then those with the largest lag."""
    groups = (one for row in rows for one in row.groups.values())
    return nlargest(TOP_MAX, groups, key=lambda one: (one.paused is not None, one.lag, one.in_flight))


def topic_numbers(row: TopicRow, sampler: Sampler) -> TopicNumbers:
    return TopicNumbers(**_fields(row, sampler))


def _fields(row: TopicRow, sampler: Sampler) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "partitions": row.partitions,
        "messages": row.messages,
        "depth": row.depth,
        "size_bytes": row.size_bytes,
        "published_rate": row.published_rate,
        "settled_rate": round(row.settled_rate, 1),
        "lag": row.lag,
        "in_flight": row.in_flight,
        "scheduled": row.scheduled,
        "dead_letters": sampler.buried(row),
        "groups": len(row.groups),
    }


async def topic_summaries(sampler: Sampler, rows: list[TopicRow]) -> list[TopicSummary]:
    """With what must be asked of the engine: a slice of topics at a time."""
    engine = sampler.context.engine
    made: list[TopicSummary] = []
    at = 0
    while at < len(rows):
        room = SLICE_PARTITIONS
        with engine.lock:
            while at < len(rows) and room > 0:
                row = rows[at]
                at += 1
                topic = engine.topics.get(row.name)
                if topic is not None:
                    room -= row.partitions
                    made.append(TopicSummary(lanes=lanes_of(topic), **_fields(row, sampler)))
        await asyncio.sleep(0)
    return made


def lanes_of(topic: TopicState) -> dict[str, int]:
    """Messages in the log by lane. Under the engine's lock."""
    totals = [0] * len(topic.config.lanes)
    for one in topic.partitions:
        for lane, count in enumerate(one.lanes.counts(one.log.start_offset)):
            totals[lane] += count
    return dict(zip(topic.config.lanes, totals, strict=True))


async def group_summaries(sampler: Sampler, rows: list[GroupRow]) -> list[GroupSummary]:
    """With their ages: of each partition with something to settle one batch's header is read."""
    engine = sampler.context.engine
    made: list[GroupSummary] = []
    for row in rows:
        age = 0
        if row.lag:
            with engine.lock:
                topic = engine.topics.get(row.topic)
                group = topic.groups.get(row.name) if topic is not None else None
                oldest = min(group.oldest_ms().values(), default=None) if group is not None else None
            if oldest is not None:
                age = max(engine.clock.now_ms() - oldest, 0)
            await asyncio.sleep(0)
        made.append(
            GroupSummary(
                topic=row.topic,
                group=row.name,
                lag=row.lag,
                lag_age_ms=age,
                in_flight=row.in_flight,
                retrying=row.retrying,
                delivered_rate=row.delivered_rate,
                settled_rate=row.settled_rate,
                paused=row.paused,
                members=row.members,
                partitions=row.partitions,
                order=row.order,
                acked=row.acked,
                failed=row.failed,
                dead_lettered=row.dead_lettered,
            )
        )
    return made
