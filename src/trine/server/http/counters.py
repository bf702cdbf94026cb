"""Live counters: how much there is, how much waits, and how fast it goes.

A sample is taken when somebody asks, and at most a few times a second for all who ask: rates are the difference of two
samples. Nothing is counted that the broker does not count anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from trine.broker.dead_letters import dlq_name
from trine.broker.group import GroupState
from trine.broker.operations import REDRIVE_GROUP
from trine.broker.topic import TopicState
from trine.model.duration import iso
from trine.model.ids import DLQ_SUFFIX
from trine.server.context import Context

SAMPLE_SECONDS: Final = 0.5
"""A sample is good for this long: a hundred readers cost as much as one."""


class TopicCounters(msgspec.Struct, frozen=True, kw_only=True):
    messages: int
    """In the log."""
    depth: int
    scheduled: int
    published: int
    """Ever, by the log's offsets."""
    published_rate: float
    """A second, since the last sample."""
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


class Sampler:
    """Takes samples, and remembers the last two."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._taken = 0.0
        self._topics: dict[str, TopicCounters] = {}
        self._groups: dict[tuple[str, str], GroupCounters] = {}

    def counters(self, sees: Sees, pattern: str = "*") -> Counters:
        """What of the counters somebody may see."""
        self._refresh()
        topics = {
            name: one for name, one in self._topics.items() if fnmatchcase(name, pattern) and sees(name)
        }
        groups = [one for (topic, _), one in self._groups.items() if topic in topics]
        totals = Totals(
            messages=sum(one.messages for one in topics.values()),
            published_rate=round(sum(one.published_rate for one in topics.values()), 1),
            settled_rate=round(sum(one.settled_rate for one in groups), 1),
            lag=sum(one.lag for one in groups),
            in_flight=sum(one.in_flight for one in groups),
            scheduled=sum(one.scheduled for one in topics.values()),
            dead_letters=sum(one.dead_letters for one in topics.values()),
        )
        now = iso(self._context.engine.clock.now_ms())
        return Counters(at=now, totals=totals, topics=topics, groups=groups)

    def _refresh(self) -> None:
        now = time.monotonic()
        seconds = now - self._taken
        if seconds < SAMPLE_SECONDS:
            return
        engine = self._context.engine
        with engine.lock:
            engine.check_open()
            self._topics = {
                name: self._topic(topic, seconds)
                for name, topic in engine.topics.items()
                if not name.endswith(DLQ_SUFFIX)
            }
            self._groups = {
                (name, group.name): self._group(group, seconds)
                for name in self._topics
                for group in engine.topics[name].groups.values()
            }
        self._taken = now

    def _topic(self, topic: TopicState, seconds: float) -> TopicCounters:
        counts = topic.counts()
        published = sum(one.log.next_offset for one in topic.partitions)
        before = self._topics.get(topic.name)
        return TopicCounters(
            messages=counts["messages"],
            depth=counts["depth"],
            scheduled=counts["scheduled"],
            published=published,
            published_rate=_rate(published, None if before is None else before.published, seconds),
            dead_letters=buried_count(topic),
        )

    def _group(self, group: GroupState, seconds: float) -> GroupCounters:
        lag = group.lag()
        settled = sum(one.log.next_offset - one.log.start_offset for one in group.topic.partitions) - lag
        before = self._groups.get((group.topic.name, group.name))
        return GroupCounters(
            topic=group.topic.name,
            group=group.name,
            lag=lag,
            in_flight=group.in_flight(),
            retrying=group.retrying(),
            settled=settled,
            settled_rate=_rate(settled, None if before is None else before.settled, seconds),
            paused=group.paused,
        )


def _rate(now: int, before: int | None, seconds: float) -> float:
    """A second; a seek or retention may take the count back, which is no rate."""
    if before is None:
        return 0.0
    return round(max(now - before, 0) / seconds, 1)


def buried_count(topic: TopicState) -> int:
    """Dead letters of a topic that are still there. Under the engine's lock."""
    dlq = topic.engine.topics.get(dlq_name(topic.name))
    if dlq is None:
        return 0
    letters = dlq.groups.get(REDRIVE_GROUP)
    if letters is None:
        return dlq.counts()["messages"]
    return letters.lag()
