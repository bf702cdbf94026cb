"""What the broker knows of itself: topics, groups, schedules' buckets, producers, readers, jobs.

Each change is a record in the journal (log id 0) and takes effect in the engine's `apply_meta`, live and in
recovery alike. The whole state is saved in every checkpoint; it is small, because messages are not in it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from trine.model.options import GroupConfig, TopicConfig

META_LOG = 0


class GroupMeta(msgspec.Struct, array_like=True):
    config: GroupConfig
    logs: list[int]
    """Log ids of the ledgers, one a partition."""
    created_ms: int
    paused: str | None = None
    """Why the group is paused, None when it runs."""


class TopicMeta(msgspec.Struct, array_like=True):
    config: TopicConfig
    logs: list[int]
    created_ms: int
    groups: dict[str, GroupMeta] = {}
    buckets: dict[int, int] = {}
    """Hour (since the epoch) to log id of the schedule's bucket."""
    readers: dict[str, dict[int, int]] = {}
    """Committed positions of plain log readers: partition to offset."""
    archived: dict[int, int] = {}
    """What the archive has: partition to the first offset it lacks."""
    archived_ms: int = 0
    """When the archive last told so; 0: never."""


class CronMeta(msgspec.Struct, array_like=True):
    topic: str
    name: str
    expression: str
    timezone: str
    value: bytes | None
    key: bytes | None
    headers: dict[str, bytes]
    priority: str | None
    next_ms: int
    fired: int = 0


class ProducerMeta(msgspec.Struct, array_like=True):
    id: int
    epoch: int


class JobMeta(msgspec.Struct, array_like=True):
    """A redrive: what it was asked to do and how far it is."""

    id: str
    topic: str
    to: str | None
    reason: str | None
    group: str | None
    key: bytes | None
    from_ms: int | None
    to_ms: int | None
    rate: float | None
    ends: list[int]
    """Dead letters at or beyond these offsets came after the job began: they are not part of it."""
    positions: list[int]
    created_ms: int
    matched: int = 0
    moved: int = 0
    passed_over: int = 0
    state: str = "running"
    edited: bool = False
    where: str | None = None
    """A condition that the caller evaluates: he names the letters, the job moves them."""
    letters: list[tuple[int, int]] | None = None
    """Letters that were named when it began, as (partition, offset) and rising. Then `positions` and `ends` have one
    number each: how many of them are dealt with, and how many there are."""


class RunMeta(msgspec.Struct, array_like=True):
    """A run of one of Spark's commands, as it told us."""

    id: str
    kind: str
    name: str
    topics: list[str]
    began_ms: int
    state: Literal["running", "ended", "failed"] = "running"
    ended_ms: int | None = None
    rows: int = 0
    summary: str = "{}"
    report: str | None = None
    error: str | None = None


class Metadata(msgspec.Struct):
    secret: bytes
    next_log: int = 1
    next_producer: int = 1
    next_job: int = 1
    topics: dict[str, TopicMeta] = {}
    crons: dict[str, CronMeta] = {}
    producers: dict[str, ProducerMeta] = {}
    jobs: dict[str, JobMeta] = {}
    runs: dict[str, RunMeta] = {}
    next_run: int = 1


class Record(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """One change of the metadata."""


class StoreCreated(Record, frozen=True):
    secret: bytes


class TopicCreated(Record, frozen=True):
    name: str
    config: TopicConfig
    logs: list[int]
    at: int


class TopicAltered(Record, frozen=True):
    name: str
    config: TopicConfig
    new_logs: list[int]
    new_ledgers: dict[str, list[int]]


class TopicDeleted(Record, frozen=True):
    name: str


class GroupCreated(Record, frozen=True):
    topic: str
    name: str
    config: GroupConfig
    logs: list[int]
    starts: list[int]
    at: int


class GroupAltered(Record, frozen=True):
    topic: str
    name: str
    config: GroupConfig
    paused: str | None


class GroupDeleted(Record, frozen=True):
    topic: str
    name: str


class LogStarted(Record, frozen=True):
    """Retention or a purge: the partition begins at this offset now."""

    topic: str
    partition: int
    start: int


class BucketCreated(Record, frozen=True):
    topic: str
    hour: int
    log: int


class BucketDropped(Record, frozen=True):
    topic: str
    hour: int


class CronSet(Record, frozen=True):
    cron: CronMeta


class CronDeleted(Record, frozen=True):
    name: str


class ReaderMoved(Record, frozen=True):
    topic: str
    reader: str
    positions: dict[int, int]


class ArchiveMoved(Record, frozen=True):
    topic: str
    positions: dict[int, int]
    at: int = 0


class ProducerRegistered(Record, frozen=True):
    name: str
    id: int
    epoch: int


class ProducersForgotten(Record, frozen=True):
    """All whose names begin so."""

    prefix: str


class JobSet(Record, frozen=True):
    job: JobMeta


class JobForgotten(Record, frozen=True):
    id: str


class RunSet(Record, frozen=True):
    run: RunMeta


class RunForgotten(Record, frozen=True):
    id: str


AnyRecord = (
    StoreCreated
    | TopicCreated
    | TopicAltered
    | TopicDeleted
    | GroupCreated
    | GroupAltered
    | GroupDeleted
    | LogStarted
    | BucketCreated
    | BucketDropped
    | CronSet
    | CronDeleted
    | ReaderMoved
    | ArchiveMoved
    | ProducerRegistered
    | ProducersForgotten
    | JobSet
    | JobForgotten
    | RunSet
    | RunForgotten
)
RECORD = msgspec.msgpack.Decoder(AnyRecord)
PACK = msgspec.msgpack.Encoder()
