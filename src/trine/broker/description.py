"""Topics, groups and schedules as they look from outside, read out of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trine.broker.metadata import CronMeta
from trine.model.description import (
    CronDescription,
    GroupDescription,
    Lag,
    MemberDescription,
    PartitionDescription,
    TopicDescription,
)

if TYPE_CHECKING:
    from trine.broker.group import GroupState
    from trine.broker.topic import TopicState


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
        archived=_archived(topic),
        **topic.counts(),
    )


def _archived(topic: TopicState) -> dict[int, int]:
    if topic.config.archive is None:
        return {}
    return {one.number: topic.meta.archived.get(one.number, 0) for one in topic.partitions}


def lag_of(group: GroupState, now: int) -> Lag:
    ages = {number: max(now - at, 0) for number, at in group.oldest_ms().items()}
    lanes = [0] * len(group.topic.config.lanes)
    for part in group.parts:
        for lane, count in enumerate(part.partition.lanes.counts(part.ledger.floor)):
            lanes[lane] += count
    return Lag(
        count=group.lag(),
        age_ms=max(ages.values(), default=0),
        in_flight=group.in_flight(),
        retrying=group.retrying(),
        partitions={
            part.partition.number: part.ledger.unsettled(part.partition.log.next_offset)
            for part in group.parts
        },
        lanes=dict(zip(group.topic.config.lanes, lanes, strict=True)),
        ages_ms=ages,
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
                group.members.seen_ms(name),
            )
            for name in group.members.names()
        ],
        rebalances=list(group.members.history),
    )


def describe_cron(cron: CronMeta) -> CronDescription:
    return CronDescription(cron.name, cron.topic, cron.expression, cron.timezone, cron.next_ms, cron.fired)
