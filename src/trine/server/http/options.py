"""The options of topics and groups as JSON: the words of `TopicConfig` and `GroupConfig`, durations in any form.

A word that is left out keeps its default, or, when something is altered, its value. `null` is a value of its own:
`"retention": null` keeps messages for ever.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from trine.model.description import (
    GroupDescription,
    Lag,
    MemberDescription,
    PartitionDescription,
    Rebalance,
    TopicDescription,
)
from trine.model.duration import iso
from trine.model.options import Compression, Durability, Order, Start
from trine.server.http.bodies import Name, Span

Whole = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


class BackoffIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How long a failed message waits before it is tried again."""

    first: Span | UnsetType = UNSET
    factor: float | UnsetType = UNSET
    cap: Span | UnsetType = UNSET
    jitter: float | UnsetType = UNSET


class BreakerIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """When so much fails that the group is paused."""

    share: float | UnsetType = UNSET
    window: Span | UnsetType = UNSET
    least: Count | UnsetType = UNSET


class TopicOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    partitions: Count | UnsetType = UNSET
    lanes: list[str] | UnsetType = UNSET
    retention: Span | UnsetType | None = UNSET
    retention_bytes: Whole | UnsetType | None = UNSET
    retention_waits_for_groups: bool | UnsetType = UNSET
    compact: bool | UnsetType = UNSET
    tombstone: Span | UnsetType = UNSET
    segment_bytes: Count | UnsetType = UNSET
    segment: Span | UnsetType = UNSET
    compression: Compression | UnsetType = UNSET
    durability: Durability | UnsetType = UNSET
    message_bytes_max: Count | UnsetType = UNSET
    depth_max: Count | UnsetType = UNSET
    delay_max: Span | UnsetType = UNSET
    ttl: Span | UnsetType | None = UNSET
    dead_letter_expired: bool | UnsetType = UNSET
    dedup_window: Span | UnsetType = UNSET
    dedup_by_content: bool | UnsetType = UNSET
    backoff: BackoffIn | UnsetType = UNSET
    retained: bool | UnsetType = UNSET
    archive: str | UnsetType | None = UNSET


class GroupOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    order: Order | UnsetType = UNSET
    start: Start | UnsetType = UNSET
    lease: Span | UnsetType = UNSET
    max_deliveries: Count | UnsetType = UNSET
    backoff: BackoffIn | UnsetType | None = UNSET
    breaker: BreakerIn | UnsetType | None = UNSET
    lane_weights: list[Count] | UnsetType | None = UNSET
    auto_ack: bool | UnsetType = UNSET
    durability: Durability | UnsetType = UNSET
    in_flight_max: Count | UnsetType = UNSET
    member_timeout: Span | UnsetType = UNSET
    move_wait: Span | UnsetType = UNSET
    headers: dict[str, str] | UnsetType | None = UNSET
    ephemeral: bool | UnsetType = UNSET
    dead_letters: bool | UnsetType = UNSET


class CreateTopic(TopicOptions, kw_only=True, forbid_unknown_fields=True):
    name: Name
    kind: Literal["topic", "queue"] = "topic"
    exist_ok: bool = False
    """A topic that is there already is left as it is, and shown."""
    group: GroupOptions | None = None
    """Of a queue: the options of its one group."""


class CreateGroup(GroupOptions, kw_only=True, forbid_unknown_fields=True):
    name: Name


def words(given: TopicOptions | GroupOptions, *others: str) -> dict[str, Any]:
    """What was given, as the broker's keywords; `others` are fields that are not options."""
    return {
        word: _plain(value)
        for word in given.__struct_fields__
        if word not in others and (value := getattr(given, word)) is not UNSET
    }


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {word: one for word in value.__struct_fields__ if (one := getattr(value, word)) is not UNSET}
    return tuple(value) if isinstance(value, list) else value


# --- out


class TopicOut(msgspec.Struct, frozen=True, kw_only=True):
    """A topic. `config` has every option, durations in milliseconds (`…_ms`)."""

    name: str
    kind: str
    messages: int
    """In the log."""
    bytes: int
    scheduled: int
    depth: int
    """What waits for the slowest group, and for its time."""
    lanes: dict[str, int]
    groups: list[str]
    partitions: list[PartitionDescription]
    archived: dict[int, int]
    """What the archive has, if there is one: partition to the first offset that it lacks."""
    config: dict[str, Any]


class RebalanceOut(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    at_ms: int
    generation: int
    why: str
    joined: list[str]
    left: list[str]
    moved: list[int]
    """Partitions whose owners changed."""
    members: int
    """Afterwards."""
    pause_ms: int | None
    """The longest that a moved partition had no owner; null while some are on their way."""


class GroupOut(msgspec.Struct, frozen=True, kw_only=True):
    """A group. `config` has every option, durations in milliseconds (`…_ms`)."""

    name: str
    topic: str
    paused: str | None
    """Why it is paused, or null."""
    lag: Lag
    members: list[MemberDescription]
    rebalances: list[RebalanceOut]
    config: dict[str, Any]


def topic_out(found: TopicDescription) -> TopicOut:
    return TopicOut(
        name=found.name,
        kind=found.config.kind,
        messages=found.messages,
        bytes=found.bytes,
        scheduled=found.scheduled,
        depth=found.depth,
        lanes=found.lanes,
        groups=found.groups,
        partitions=found.partitions,
        archived=found.archived,
        config=_every_word(found.config),
    )


def group_out(found: GroupDescription) -> GroupOut:
    return GroupOut(
        name=found.name,
        topic=found.topic,
        paused=found.paused,
        lag=found.lag,
        members=found.members,
        rebalances=[rebalance_out(one) for one in found.rebalances],
        config=_every_word(found.config),
    )


def rebalance_out(one: Rebalance) -> RebalanceOut:
    return RebalanceOut(
        at=iso(one.at_ms),
        at_ms=one.at_ms,
        generation=one.generation,
        why=one.why,
        joined=list(one.joined),
        left=list(one.left),
        moved=list(one.moved),
        members=one.members,
        pause_ms=one.pause_ms,
    )


def _every_word(config: msgspec.Struct) -> dict[str, Any]:
    """Defaults too: the structs leave them out when they are stored."""
    return {
        word: msgspec.to_builtins(getattr(config, word))
        for word in config.__struct_fields__
        if word != "kind"
    }
