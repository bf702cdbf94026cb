"""Live counters: how much there is, how much waits, and how fast it goes, as the sampler saw it last."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

import msgspec

from trine.broker.dead_letters import dlq_name
from trine.broker.operations import REDRIVE_GROUP
from trine.broker.topic import TopicState
from trine.model.duration import iso
from trine.server.http.sampler import GroupRow, Sampler, TopicRow


class TopicCounters(msgspec.Struct, frozen=True, kw_only=True):
    messages: int
    """In the log."""
    depth: int
    scheduled: int
    published: int
    """Ever, by the log's offsets."""
    published_rate: float
    """A second, over the last one."""
    dead_letters: int
    """Buried now: not redriven, not purged."""


class GroupCounters(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    group: str
    lag: int
    in_flight: int
    retrying: int
    settled: int
    """Of what the log has."""
    settled_rate: float
    paused: str | None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    messages: int
    published_rate: float
    settled_rate: float
    lag: int
    in_flight: int
    scheduled: int
    dead_letters: int


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    totals: Totals
    topics: dict[str, TopicCounters]
    groups: list[GroupCounters]


Sees = Callable[[str], bool]


def counters(sampler: Sampler, sees: Sees, pattern: str = "*") -> Counters:
    """What of the counters somebody may see."""
    rows = [
        row
        for name, row in sampler.rows.items()
        if not row.is_dead_letters and fnmatchcase(name, pattern) and sees(name)
    ]
    topics = {row.name: _topic(row, sampler) for row in rows}
    groups = [_group(one) for row in rows for one in row.groups.values()]
    totals = Totals(
        messages=sum(one.messages for one in topics.values()),
        published_rate=round(sum(one.published_rate for one in topics.values()), 1),
        settled_rate=round(sum(one.settled_rate for one in groups), 1),
        lag=sum(one.lag for one in groups),
        in_flight=sum(one.in_flight for one in groups),
        scheduled=sum(one.scheduled for one in topics.values()),
        dead_letters=sum(one.dead_letters for one in topics.values()),
    )
    now = iso(sampler.context.engine.clock.now_ms())
    return Counters(at=now, totals=totals, topics=topics, groups=groups)


def _topic(row: TopicRow, sampler: Sampler) -> TopicCounters:
    return TopicCounters(
        messages=row.messages,
        depth=row.depth,
        scheduled=row.scheduled,
        published=row.published,
        published_rate=row.published_rate,
        dead_letters=sampler.buried(row),
    )


def _group(row: GroupRow) -> GroupCounters:
    return GroupCounters(
        topic=row.topic,
        group=row.name,
        lag=row.lag,
        in_flight=row.in_flight,
        retrying=row.retrying,
        settled=row.in_log_settled,
        settled_rate=row.settled_rate,
        paused=row.paused,
    )


def buried_count(topic: TopicState) -> int:
    """Dead letters of a topic that are still there. Under the engine's lock."""
    dlq = topic.engine.topics.get(dlq_name(topic.name))
    if dlq is None:
        return 0
    letters = dlq.groups.get(REDRIVE_GROUP)
    if letters is None:
        return dlq.counts()["messages"]
    return letters.lag()
