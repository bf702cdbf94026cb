"""What topics, groups and schedules look like from outside: plain structs of numbers, made when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

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
    ages_ms: dict[int, int] = {}
    """How old the oldest is, by partition; those with nothing to settle are left out."""


class MemberDescription(msgspec.Struct, frozen=True):
    name: str
    partitions: list[int]
    in_flight: int
    seen_ms: int | None = None
    """When it was last heard of."""


class Rebalance(msgspec.Struct, frozen=True):
    """What happened: when, why, and the partitions whose owners changed or are about to."""

    at_ms: int
    why: str
    moved: tuple[int, ...]
    members: int
    generation: int
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    pause_ms: int | None = 0
    """How long the partitions that moved had no owner, the longest of them; None while some are on their way."""


class PartitionPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a verb would do to a group in one partition."""

    partition: int
    from_offset: int = msgspec.field(name="from")
    """The first message that the group has not settled now."""
    to_offset: int = msgspec.field(name="to")
    """Where it would go on; of a replay, the end of what would come again."""
    again: int
    skipped: int


class Preview(msgspec.Struct, frozen=True):
    """What a verb that steers a group would do."""

    partitions: list[PartitionPreview]
    messages_again: int
    """Settled ones that would be delivered again."""
    messages_skipped: int
    """Ones that nobody has settled, and nobody would get any more."""
    in_flight_returned: int
    """Leased now, whose leases would be void."""
    says: str
    """The same in a sentence."""


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


RunState = Literal["running", "ended", "failed", "lost"]


def as_json(told: Mapping[str, Any]) -> str:
    """What a run tells, as text; what JSON has no word for, such as a path or a time, becomes text too."""
    return msgspec.json.encode(dict(told), enc_hook=str).decode()


class RunDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A run of one of Spark's commands, as it told the broker."""

    id: str
    kind: str
    name: str
    topics: list[str]
    state: RunState
    """lost: it has said nothing for a minute."""
    began_ms: int
    ended_ms: int | None
    heard_ms: int | None
    """When it last spoke."""
    rows: int
    """Messages or rows so far."""
    summary: str
    """What came out, as a JSON object."""
    error: str | None
    report: str | None = None
    """The numbers of a report, as a JSON object; only of a run that is asked for by id."""
    has_report: bool = False


class CronDescription(msgspec.Struct, frozen=True):
    name: str
    topic: str
    expression: str
    timezone: str
    next_ms: int
    fired: int
