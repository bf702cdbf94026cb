"""The calls: everything but the hot paths, one struct a call, as MessagePack in the body of a CALL frame.

A call is a MessagePack map with its name under "call"; the reply's body is the MessagePack of the type named in
`REPLIES`. Times are milliseconds since the epoch and durations milliseconds, both whole numbers; `options` are the
words of `TopicConfig` and `GroupConfig` as a user gives them (durations as numbers of seconds or text).

Names, types and lengths are checked here (`read_call`); whether the words make sense is for who carries a call out.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Union

import msgspec

from trine.model.description import (
    CronDescription,
    GroupDescription,
    Lag,
    RunDescription,
    Scheduled,
    TopicDescription,
)
from trine.model.errors import InvalidInput
from trine.model.limits import FRAME_ITEMS_MAX, MIB, OPTIONS_BYTES_MAX
from trine.model.message import Place
from trine.wire.frames import WireError

Bytes = bytes | bytearray | memoryview
Options = dict[str, Any]
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number as offsets and times have it. MessagePack has greater ones, which no batch and no ledger could hold."""
_few = msgspec.Meta(max_length=FRAME_ITEMS_MAX)


def _tag(name: str) -> str:
    """CreateTopic is "create_topic" on the wire."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


class Call(msgspec.Struct, kw_only=True, tag_field="call", tag=_tag, forbid_unknown_fields=True):
    """The root of all calls."""


# --- what replies are made of


class WireMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message by itself, outside a batch: what lists of dead letters are made of."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    priority: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    """The broker's own among them: a dead letter's reason, origin, group, attempts and time are there."""


class WireOutgoing(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message with options, on its way in."""

    value: bytes | None
    key: bytes | None = None
    headers: dict[str, bytes] | None = None
    priority: str | None = None
    delay_ms: Whole | None = None
    deliver_at_ms: Whole | None = None
    ttl_ms: Whole | None = None
    dedup_id: str | None = None
    partition: Whole | None = None
    producer: str | None = None


class PublishedReply(msgspec.Struct, frozen=True):
    """Where each message went, in order."""

    durability: str
    places: list[Place]
    duplicates: list[int]


class BatchReply(msgspec.Struct, frozen=True, kw_only=True):
    """Where a numbered batch is; of a duplicate, the first one's place, or -1 if it is no longer known."""

    durability: str
    first: int
    count: int
    duplicate: bool


class TopicReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a client must know of a topic to make batches for it."""

    name: str
    kind: str
    config: dict[str, Any]
    """The fields of `TopicConfig`."""
    version: int
    """Rises when the topic is altered; a PUBLISH with another one is refused as `stale_metadata`."""


class JoinReply(msgspec.Struct, frozen=True, kw_only=True):
    session: int
    """The number of this membership on this connection: RECEIVE, ACK and the like name it."""
    receipt_key: bytes
    partitions: list[int]
    lanes: tuple[str, ...]
    level: str
    """What an answered ack of this group promises."""


class PartitionsReply(msgspec.Struct, frozen=True):
    partitions: list[int]


class CountReply(msgspec.Struct, frozen=True):
    count: int
    durability: str = "synced"


class RedriveReply(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    progress: dict[str, Any]
    looked: int = 0
    pause_ms: int = 0
    done: bool = False
    where: str | None = None
    ends: list[int] = []


class LedgerReply(msgspec.Struct, frozen=True):
    blocks: list[bytes]
    next: int
    more: bool
    """Whether there are blocks from `next` on; the last answer has the newest rows."""


class ProducerReply(msgspec.Struct, frozen=True):
    id: int
    epoch: int


# --- topics


class CreateTopic(Call):
    name: str
    kind: str = "topic"
    """"topic" or "queue"; a queue takes the options of its group too."""
    options: Options = {}
    exist_ok: bool = False


class GetTopic(Call):
    """Answers `TopicReply`; `kind` asks for a queue by that word."""

    name: str
    kind: str | None = None


class ListTopics(Call):
    pass


class DescribeTopic(Call):
    topic: str


class AlterTopic(Call):
    topic: str
    options: Options


class DeleteTopic(Call):
    topic: str


class PurgeTopic(Call):
    topic: str


class GetOffsets(Call):
    topic: str


class GetArchived(Call):
    """What the archive has: partition to the first offset that it lacks."""

    topic: str


class SetArchived(Call):
    topic: str
    positions: dict[Whole, Whole]


# --- in: messages with options (those without go as batches, in PUBLISH frames)


class Send(Call):
    topic: str
    messages: Annotated[list[WireOutgoing], _few]
    durability: str | None = None
    wait_ms: Whole | None = None


class SendNumbered(Call):
    """An idempotent producer's batch."""

    topic: str
    messages: Annotated[list[WireOutgoing], _few]
    producer: tuple[str, Whole, Whole]
    """Name, id and epoch."""
    partition: Whole
    sequence: Whole
    durability: str | None = None


class SendBatch(Call):
    """An idempotent producer's batch as he encoded it, with his id, epoch and sequence in its header."""

    topic: str
    partition: Whole
    data: bytes
    durability: str | None = None


class RegisterProducer(Call):
    name: str


class ForgetProducers(Call):
    """All whose names begin with the prefix."""

    prefix: str


class NextSequence(Call):
    topic: str
    partition: Whole
    producer_id: Whole


class Transact(Call):
    """Acks and publishes as one. Acks are (session, partition, lease, first, count)."""

    acks: Annotated[list[tuple[Whole, Whole, Whole, Whole, Whole]], _few]
    receipts: Annotated[list[str], _few] = []
    messages: dict[str, Annotated[list[WireOutgoing], _few]] = {}


# --- groups


class CreateGroup(Call):
    topic: str
    group: str
    options: Options = {}


class CheckGroup(Call):
    """Whether the options given for a group agree with the ones it has; says nothing of a group that is not there."""

    topic: str
    group: str
    options: Options = {}


class ListGroups(Call):
    topic: str


class DescribeGroup(Call):
    topic: str
    group: str


class GetLag(Call):
    topic: str
    group: str


class ReadLedger(Call):
    """The rows of a ledger, as its log keeps them: see docs/internals/ledger.md."""

    topic: str
    group: str
    partition: Whole
    from_row: Whole
    """0, or `next` of the answer before."""
    bytes_max: Whole = 4 * MIB


class AlterGroup(Call):
    topic: str
    group: str
    options: Options


class DeleteGroup(Call):
    topic: str
    group: str


class PauseGroup(Call):
    topic: str
    group: str
    reason: str = "paused by hand"


class ResumeGroup(Call):
    topic: str
    group: str


class SeekGroup(Call):
    topic: str
    group: str
    options: Options = {}
    """The group is created with these if there is none."""
    offset: Whole | None = None
    time_ms: Whole | None = None
    to: str | None = None
    partition: Whole | None = None


class ReplayGroup(Call):
    topic: str
    group: str
    failed: bool = False
    key: bytes | None = None
    from_time_ms: Whole | None = None
    to_time_ms: Whole | None = None


class SettleReceipts(Call):
    """Settles by receipt, from wherever they came: what is "ack", "nack", "reject" or "extend"."""

    topic: str
    group: str
    what: str
    receipts: Annotated[list[str], _few]
    delay_ms: Whole | None = None
    """Of a nack; of an extend, how long from now."""
    reason: str | None = None


class Join(Call):
    """A consumer becomes a member of a group on this connection; the group is created if there is none."""

    topic: str
    group: str
    member: str
    options: Options = {}
    auto_heartbeat: bool = True


class Subscribe(Call):
    """Pub/sub: creates the subscriber's group from now on; answers its name. Join it then."""

    topic: str
    name: str | None = None
    durable: bool = False
    headers: dict[str, str] | None = None
    options: Options = {}


class Leave(Call):
    session: Whole


class Heartbeat(Call):
    """For members that joined with auto_heartbeat=False; others live as long as the connection."""

    session: Whole


class ReturnUnseen(Call):
    """After a connection broke and the consumer has joined again: `seen` is the last lease it got, by partition. What
    was leased to it since was lost on the way, and comes again at once. Nothing is returned while another session has
    the same member's name."""

    session: int
    seen: dict[int, int]


class GetPartitions(Call):
    session: Whole


# --- readers


class OpenReader(Call):
    """The committed positions of a reader, or where it begins: partition to offset."""

    topic: str
    reader: str
    start: str = "earliest"


class CommitReader(Call):
    topic: str
    reader: str
    positions: dict[Whole, Whole]


class FindOffsets(Call):
    """An offset or a time as places the partitions have: partition to offset."""

    topic: str
    offset: Whole | None = None
    time_ms: Whole | None = None
    partition: Whole | None = None


# --- schedule


class ListSchedules(Call):
    topic: str | None = None
    limit: Whole = 1000


class CancelSchedule(Call):
    schedule_id: str


class MoveSchedule(Call):
    schedule_id: str
    delay_ms: Whole | None = None
    deliver_at_ms: Whole | None = None


class CreateCron(Call):
    name: str
    topic: str
    expression: str
    value: bytes | None
    key: bytes | None = None
    headers: dict[str, bytes] | None = None
    priority: str | None = None
    timezone: str = "UTC"


class ListCrons(Call):
    pass


class DeleteCron(Call):
    name: str


# --- dead letters


class ListDeadLetters(Call):
    topic: str
    reason: str | None = None
    group: str | None = None
    key: bytes | None = None
    limit: Whole = 1000


class PurgeDeadLetters(Call):
    topic: str
    reason: str | None = None
    group: str | None = None
    key: bytes | None = None
    ids: Annotated[list[str], _few] | None = None


class BeginRedrive(Call):
    topic: str
    to: str | None = None
    reason: str | None = None
    group: str | None = None
    key: bytes | None = None
    from_time_ms: Whole | None = None
    to_time_ms: Whole | None = None
    rate: float | None = None
    edited: bool = False
    where: str | None = None
    """A condition that the caller evaluates; the job is then moved on by MoveLetters."""
    ids: Annotated[list[str], _few] | None = None


class ResumeRedrive(Call):
    """Answers where a job stands, to go on with it; `edited` says that the caller edits the letters."""

    id: str
    edited: bool = False


class ListRedrives(Call):
    pass


class PreviewRedrive(Call):
    id: str
    limit: Whole = 100


class StepRedrive(Call):
    """Moves up to `limit`. Of an edited job: `edits` are the letters of the last preview as the caller wants them, in
    the same order, None for what is to stay buried; the server moves exactly those."""

    id: str
    limit: Whole = 1000
    edits: Annotated[list[tuple[str, WireOutgoing | None]], _few] | None = None
    """(dead letter's id, the message to send instead)."""


class MoveLetters(Call):
    """Of a job with `where`: moves exactly these letters, by (partition, offset), rising. `looked` of the reply says
    how many of them, from the front, are dealt with. Those that were moved before are passed over."""

    id: str
    letters: Annotated[list[tuple[Whole, Whole]], _few]
    last: bool = False
    """The job is over when all of these are dealt with."""


class CancelRedrive(Call):
    id: str


# --- trace


class GetTrace(Call):
    message_id: str


class Search(Call):
    topic: str
    key: bytes | None = None
    group: str | None = None
    state: str | None = None
    older_than_ms: Whole | None = None
    from_time_ms: Whole | None = None
    to_time_ms: Whole | None = None
    limit: Whole = 100


# --- upkeep


class Checkpoint(Call):
    pass


class Tick(Call):
    pass


class ApplyRetention(Call):
    pass


class Verify(Call):
    pass


class Statistics(Call):
    pass


# --- runs


class BeginRun(Call):
    kind: str
    name: str
    topics: Annotated[list[str], _few] = []


class TellRun(Call):
    id: str
    rows: Whole


class EndRun(Call):
    """`summary` and `report` are JSON objects, as text."""

    id: str
    rows: Whole = 0
    summary: str = "{}"
    report: str | None = None
    error: str | None = None


class ListRuns(Call):
    kind: str | None = None
    limit: int = 100


class GetRun(Call):
    id: str


REPLIES: Final[dict[type[Call], Any]] = {
    CreateTopic: TopicReply,
    GetTopic: TopicReply,
    ListTopics: list[TopicDescription],
    DescribeTopic: TopicDescription,
    AlterTopic: None,
    DeleteTopic: None,
    PurgeTopic: CountReply,
    GetOffsets: dict[int, tuple[int, int]],
    GetArchived: dict[int, int],
    SetArchived: None,
    Send: PublishedReply,
    SendNumbered: PublishedReply,
    SendBatch: BatchReply,
    RegisterProducer: ProducerReply,
    ForgetProducers: CountReply,
    NextSequence: CountReply,
    Transact: dict[str, PublishedReply],
    CreateGroup: None,
    CheckGroup: None,
    ListGroups: list[GroupDescription],
    DescribeGroup: GroupDescription,
    GetLag: Lag,
    ReadLedger: LedgerReply,
    AlterGroup: None,
    DeleteGroup: None,
    PauseGroup: None,
    ResumeGroup: None,
    SeekGroup: dict[int, int],
    ReplayGroup: CountReply,
    SettleReceipts: CountReply,
    Join: JoinReply,
    Subscribe: str,
    Leave: None,
    Heartbeat: None,
    ReturnUnseen: CountReply,
    GetPartitions: PartitionsReply,
    OpenReader: dict[int, int],
    CommitReader: None,
    FindOffsets: dict[int, int],
    ListSchedules: list[Scheduled],
    CancelSchedule: None,
    MoveSchedule: None,
    CreateCron: CronDescription,
    ListCrons: list[CronDescription],
    DeleteCron: None,
    ListDeadLetters: list[WireMessage],
    PurgeDeadLetters: CountReply,
    BeginRedrive: RedriveReply,
    ResumeRedrive: RedriveReply,
    ListRedrives: list[RedriveReply],
    PreviewRedrive: list[WireMessage],
    StepRedrive: RedriveReply,
    MoveLetters: RedriveReply,
    CancelRedrive: RedriveReply,
    GetTrace: bytes,
    Search: bytes,
    BeginRun: str,
    TellRun: None,
    EndRun: None,
    ListRuns: list[RunDescription],
    GetRun: RunDescription,
    Checkpoint: None,
    Tick: None,
    ApplyRetention: None,
    Verify: CountReply,
    Statistics: dict[str, Any],
}
"""What each call is answered with. A trace and what a search found are structs of `trine.trace`, as MessagePack in
bytes: a room beside this one."""


CALL: Final = msgspec.msgpack.Decoder(Union[tuple(REPLIES)])  # noqa: UP007 - made of a table
NAMES: Final = {one.__struct_config__.tag: one for one in REPLIES}


class _Named(msgspec.Struct):
    call: str


_NAMED: Final = msgspec.msgpack.Decoder(_Named)
_WITH_OPTIONS: Final = frozenset(name for name, one in NAMES.items() if "options" in one.__struct_fields__)
_REPLIES: Final = {one: msgspec.msgpack.Decoder(reply) for one, reply in REPLIES.items()}
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def write_call(call: Call) -> bytes:
    try:
        return msgspec.msgpack.encode(call)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{_name(call)} has an argument that cannot be sent: {error}") from error


def read_call(body: Bytes) -> Call:
    """The call of a CALL frame. A `WireError` names the call, and the field that is off."""
    if len(body) > OPTIONS_BYTES_MAX and _name_in(body) in _WITH_OPTIONS:
        raise WireError(
            f"a call {_name_in(body)} of {len(body)} bytes came; at most {OPTIONS_BYTES_MAX} are taken of it"
        )
    try:
        call: Call = CALL.decode(body)
    except _UNREADABLE as error:
        name = _name_in(body)
        if name is None:
            raise WireError(f"a CALL is no map with the name of a call in it: {error}") from error
        if name not in NAMES:
            raise WireError(
                f"there is no call {name!r:.60}: does the client speak a newer version?"
            ) from error
        raise WireError(f"a call {name} is not what it should be: {error}") from error
    return call


def write_reply(reply: Any) -> bytes:
    return msgspec.msgpack.encode(reply)


def read_reply(kind: type[Call], body: Bytes) -> Any:
    """What a call of this type was answered with: an instance of `REPLIES[kind]`."""
    try:
        return _REPLIES[kind].decode(body)
    except _UNREADABLE as error:
        raise WireError(
            f"the reply to {kind.__struct_config__.tag} is not what it should be: {error}"
        ) from error


def _name(call: Call) -> str:
    return str(call.__struct_config__.tag)


def _name_in(body: Bytes) -> str | None:
    """The call's name, whatever else the body holds; nothing else of it is kept."""
    try:
        return _NAMED.decode(body).call
    except _UNREADABLE:
        return None
