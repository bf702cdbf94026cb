"""What topics, groups and schedules look like from outside: plain structs of numbers, made when asked for."""

from __future__ import annotations

import msgspec

from trine.model.options import GroupConfig, TopicConfig


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
    archived: dict[int, int] = {}
    """What the archive has, if there is one: partition to the first offset that it lacks."""


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


class Rebalance(msgspec.Struct, frozen=True):
    """What happened: when, why, and the partitions whose owners changed or are about to."""

    at_ms: int
    why: str
    moved: tuple[int, ...]
    members: int
    generation: int


class GroupDescription(msgspec.Struct, frozen=True):
    name: str
    topic: str
    config: GroupConfig
    paused: str | None
    lag: Lag
    members: list[MemberDescription]
    rebalances: list[Rebalance]


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
