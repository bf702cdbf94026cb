"""Every error a user of Trine can meet: one class per cause, each with a stable code.

    TrineError
    ├── InvalidInput          the caller's words are off; nothing was changed
    │   ├── InvalidName, InvalidDuration, InvalidTime, InvalidCron, InvalidOption, InvalidConfig
    │   ├── MessageTooLarge, DelayTooLong, NegativeDelay, UnknownLane, EmptyBatch
    │   └── InvalidReceipt    malformed or forged
    ├── NotFound
    │   └── UnknownTopic, UnknownGroup, UnknownPartition, UnknownMessage, UnknownSchedule, UnknownJob,
    │       OffsetOutOfRange
    ├── Conflict              the state says no
    │   ├── TopicExists, GroupExists, ScheduleExists, StaleReceipt, LeaseExpired
    │   ├── OutOfOrder, ProducerFenced, StaleMetadata
    │   └── Closed            the broker, consumer or transaction was closed
    ├── Denied                who asks may not
    │   └── Unauthenticated, Forbidden
    ├── Unreachable           no server, or the connection was lost; the call may or may not have happened
    ├── Refused               a limit was reached; the same call may succeed later
    │   └── TopicFull, DedupWindowFull, DiskFull, TooMany
    ├── SparkFailed           a job on Spark ended for a reason that is not Trine's
    └── StoreError            the data directory
        └── Locked, NewerFormat, Corrupt, StoreFailed

The code is what programs compare; the sentence is for people and says what to do. Edges (HTTP, wire)
translate codes once, from one table.
"""

from __future__ import annotations

from typing import ClassVar


class TrineError(Exception):
    """The root of all errors Trine raises on purpose."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidInput(TrineError):
    code = "invalid_input"


class InvalidName(InvalidInput):
    code = "invalid_name"


class InvalidDuration(InvalidInput):
    code = "invalid_duration"


class InvalidTime(InvalidInput):
    code = "invalid_time"


class InvalidCron(InvalidInput):
    code = "invalid_cron"


class InvalidOption(InvalidInput):
    code = "invalid_option"


class InvalidConfig(InvalidInput):
    """A configuration has faults: all of them are told, each with its place."""

    code = "invalid_config"


class MessageTooLarge(InvalidInput):
    code = "message_too_large"


class DelayTooLong(InvalidInput):
    code = "delay_too_long"


class NegativeDelay(InvalidInput):
    code = "negative_delay"


class UnknownLane(InvalidInput):
    code = "unknown_lane"


class EmptyBatch(InvalidInput):
    code = "empty_batch"


class InvalidReceipt(InvalidInput):
    code = "invalid_receipt"


class NotFound(TrineError):
    code = "not_found"


class UnknownTopic(NotFound):
    code = "unknown_topic"


class UnknownGroup(NotFound):
    code = "unknown_group"


class UnknownPartition(NotFound):
    code = "unknown_partition"


class UnknownMessage(NotFound):
    code = "unknown_message"


class UnknownSchedule(NotFound):
    code = "unknown_schedule"


class UnknownJob(NotFound):
    code = "unknown_job"


class OffsetOutOfRange(NotFound):
    code = "offset_out_of_range"


class Conflict(TrineError):
    code = "conflict"


class TopicExists(Conflict):
    code = "topic_exists"


class GroupExists(Conflict):
    code = "group_exists"


class ScheduleExists(Conflict):
    code = "schedule_exists"


class StaleReceipt(Conflict):
    code = "stale_receipt"


class LeaseExpired(Conflict):
    code = "lease_expired"


class OutOfOrder(Conflict):
    """An idempotent producer's sequence has a gap."""

    code = "out_of_order"


class ProducerFenced(Conflict):
    code = "producer_fenced"


class Closed(Conflict):
    code = "closed"


class StaleMetadata(Conflict):
    """Batches were made for a topic that has been altered since; clients fetch it anew and try again by themselves."""

    code = "stale_metadata"


class Denied(TrineError):
    code = "denied"


class Unauthenticated(Denied):
    code = "unauthenticated"


class Forbidden(Denied):
    code = "forbidden"


class Unreachable(TrineError):
    code = "unreachable"


class Refused(TrineError):
    code = "refused"


class TopicFull(Refused):
    code = "topic_full"


class DedupWindowFull(Refused):
    code = "dedup_window_full"


class DiskFull(Refused):
    code = "disk_full"


class TooMany(Refused):
    """A count limit (topics, groups, members) was reached."""

    code = "too_many"


class SparkFailed(TrineError):
    code = "spark_failed"


class StoreError(TrineError):
    code = "store_error"


class Locked(StoreError):
    code = "locked"


class NewerFormat(StoreError):
    code = "newer_format"


class StoreFailed(StoreError):
    """The disk refused a write or a sync; the broker must be reopened, so that nothing is promised in vain."""

    code = "store_failed"


class Corrupt(StoreError):
    """Stored bytes are not what was written. Names the file, the offset in it, and what to do."""

    code = "corrupt"

    def __init__(self, path: str, position: int, what: str, to_do: str) -> None:
        super().__init__(f"{path}, byte {position}: {what}. {to_do}")
        self.path = path
        self.position = position
        self.what = what
        self.to_do = to_do
