"""What topics, groups and schedules look like from outside: plain structs of numbers, made when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from trine.broker.metadata import CronMeta
from trine.model.options import GroupConfig, TopicConfig

if TYPE_CHECKING:
    from trine.broker.group import GroupState
    from trine.broker.topic import TopicState


class PartitionDescription(msgspec.Struct, frozen=True):
    number: int
    first_offset: int
    next_offset: int
    bytes: int


class TopicDescription(msgspec.Struct, frozen=True):
    name: str
    config: TopicConfig
    partitions: list[PartitionDescription]
    groups: list[str]
    messages: int
    bytes: int
    scheduled: int
    depth: int
    lanes: dict[str, int]
    """Messages in the log by lane."""


class Lag(msgspec.Struct, frozen=True):
    """How far a group is behind."""

    count: int
    """Messages it has yet to settle, those in flight included."""
    age_ms: int
    """How old the oldest of them is."""
    in_flight: int
    retrying: int
    partitions: dict[int, int]
    lanes: dict[str, int]
    """Messages not settled, by lane (those settled out of order are counted until the floor passes them)."""


class MemberDescription(msgspec.Struct, frozen=True):
    name: str
    partitions: list[int]
    in_flight: int


class GroupDescription(msgspec.Struct, frozen=True):
    name: str
    topic: str
    config: GroupConfig
    paused: str | None
    lag: Lag
    members: list[MemberDescription]
    rebalances: list[Any]


class Scheduled(msgspec.Struct, frozen=True):
    """A message that waits for its time."""

    id: str
    topic: str
    due_ms: int
    published_ms: int
    key: bytes | None
    value: bytes | None
    priority: str


class CronDescription(msgspec.Struct, frozen=True):
    name: str
    topic: str
    expression: str
    timezone: str
    next_ms: int
    fired: int

    @classmethod
    def of(cls, cron: CronMeta) -> CronDescription:
        return cls(cron.name, cron.topic, cron.expression, cron.timezone, cron.next_ms, cron.fired)


def describe_topic(topic: TopicState) -> TopicDescription:
    lanes = [0] * len(topic.config.lanes)
    for one in topic.partitions:
        for lane, count in enumerate(one.lanes.counts(one.log.start_offset)):
            lanes[lane] += count
    return TopicDescription(
        name=topic.name,
        config=topic.config,
        partitions=[
            PartitionDescription(one.number, one.log.start_offset, one.log.next_offset, one.log.size_bytes)
            for one in topic.partitions
        ],
        groups=sorted(topic.groups),
        lanes=dict(zip(topic.config.lanes, lanes, strict=True)),
        **topic.counts(),
    )


def lag_of(group: GroupState, now: int) -> Lag:
    oldest = group.oldest_ms()
    lanes = [0] * len(group.topic.config.lanes)
    for part in group.parts:
        for lane, count in enumerate(part.partition.lanes.counts(part.ledger.floor)):
            lanes[lane] += count
    return Lag(
        count=group.lag(),
        age_ms=max(now - oldest, 0) if oldest is not None else 0,
        in_flight=group.in_flight(),
        retrying=group.retrying(),
        partitions={
            part.partition.number: part.ledger.unsettled(part.partition.log.next_offset)
            for part in group.parts
        },
        lanes=dict(zip(group.topic.config.lanes, lanes, strict=True)),
    )


def describe_group(group: GroupState) -> GroupDescription:
    return GroupDescription(
        name=group.name,
        topic=group.topic.name,
        config=group.config,
        paused=group.paused,
        lag=lag_of(group, group.engine.clock.now_ms()),
        members=[
            MemberDescription(
                name,
                list(group.members.assigned(name)),
                sum(lease.left for part in group.parts for lease in part.ledger.leases_of(name)),
            )
            for name in group.members.names()
        ],
        rebalances=list(group.members.history),
    )
