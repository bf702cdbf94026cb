"""Bodies of the hot commands: fixed fields and batches as they are stored. Little-endian; MessagePack is for the rest.

PUBLISH, to the server:

    0   u8   durability: 0 memory, 1 written, 2 synced, 255 the topic's own
    1   u8   0
    2   u16  length of the topic's name
    4   u32  version of the topic's metadata the batches were made by
    8   u32  how long to wait for room in a full topic, ms
   12   u32  number of batches
   16        the topic's name, then for each batch
        u32  partition, 0xFFFFFFFF for the server to choose
        u32  size of the batch in bytes, then the batch (a Kafka record batch, version 2)

PUBLISH, the reply:

    0   u8   durability reached: 0 memory, 1 written, 2 synced
    1   u8   0
    2   u16  0
    4   u32  number of batches, then for each
        u32  partition
        u32  number of messages
        i64  offset of the first

RECEIVE, to the server (the reply is a delivery):

    0   u32  session
    4   u32  the most messages to lease
    8   u32  how long to wait for the first, ms

DELIVERY, a reply to RECEIVE or a push:

    0   u32  session
    4   u32  number of runs, then for each
        u32  partition
        u8   lane
        u8   0
        u16  attempt
        i64  lease
        i64  offset of the first message
        u32  number of messages
        i64  deadline of the lease, ms since the epoch
        u32  size of the batches that hold the run, in bytes
             after all runs, the batches of each, one after the other; they may hold more than the run

ACK, to the server:

    0   u32  session
    4   u32  number of runs, then for each
        u32  partition
        i64  lease
        i64  offset of the first message
        u32  number of messages

ACK and SETTLE, the reply:

    0   u32  number of messages settled
    4   u8   durability reached

SETTLE, to the server:

    0   u32  session
    4   u8   what: 1 nack, 2 reject, 3 extend
    5   u8   0
    6   u16  length of the reason
    8   i64  delay of a nack (-1: the group's backoff), duration of an extend, ms
   16        the reason, then u32 number of runs and the runs as in ACK

START, to the server (deliveries are pushed from now on), and CREDIT (more of them may be; it has no reply):

    0   u32  session
    4   u32  credits: messages that may be pushed beyond those pushed so far
    8   u32  the most messages in one delivery (START only)

STOP, to the server (the reply follows the last delivery):

    0   u32  session

READ, to the server:

    0   u32  partition
    4   u32  how long to wait for something, ms
    8   i64  offset of the first message wanted
   16   u32  the most bytes of batches
   20   u16  length of the topic's name, then the name

READ, the reply:

    0   i64  first offset of the log
    8   i64  next offset of the log
   16        batches, one after the other; the first may begin before the offset asked for
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from trine.model.durability import Level
from trine.model.errors import InvalidInput, MessageTooLarge
from trine.model.limits import FRAME_ITEMS_MAX, REASON_CHARS_MAX
from trine.wire.frames import WireError

SERVER_CHOOSES: Final = 0xFFFF_FFFF
TOPICS_OWN: Final = 255
"""The durability the topic is configured with."""
NACK: Final = 1
REJECT: Final = 2
EXTEND: Final = 3

_PUBLISH: Final = struct.Struct("<BBHIII")
_BATCH: Final = struct.Struct("<II")
_PUBLISHED: Final = struct.Struct("<BBHI")
_PLACED: Final = struct.Struct("<IIq")
_RECEIVE: Final = struct.Struct("<III")
_DELIVERY: Final = struct.Struct("<II")
_RUN: Final = struct.Struct("<IBBHqqIqI")
_HELD: Final = struct.Struct("<IqqI")
_SETTLED: Final = struct.Struct("<IB")
_SETTLE: Final = struct.Struct("<IBBHq")
_START: Final = struct.Struct("<III")
_CREDIT: Final = struct.Struct("<II")
_U32: Final = struct.Struct("<I")
_READ: Final = struct.Struct("<IIqIH")
_RANGE: Final = struct.Struct("<qq")
_U32_MAX: Final = 0xFFFF_FFFF
_WAITS_MAX: Final = _U32_MAX
"""Seven weeks: who wants to wait longer asks again."""
assert (_PUBLISH.size, _RUN.size, _HELD.size, _SETTLE.size, _READ.size) == (16, 40, 24, 16, 22)

Bytes = bytes | bytearray | memoryview
Held = tuple[int, int, int, int]
"""(partition, lease, first offset, count): what is settled."""


class Publish(NamedTuple):
    topic: str
    durability: int
    version: int
    wait_ms: int
    batches: list[tuple[int, memoryview]]


class Run(NamedTuple):
    partition: int
    lane: int
    attempt: int
    lease: int
    first: int
    count: int  # type: ignore[assignment]
    deadline_ms: int
    batches: memoryview


class Settle(NamedTuple):
    session: int
    what: int
    delay_ms: int
    reason: str
    held: list[Held]


class Read(NamedTuple):
    topic: str
    partition: int
    offset: int
    bytes_max: int
    wait_ms: int


def write_publish(
    topic: str, durability: int, version: int, wait_ms: int, batches: Sequence[tuple[int, Bytes]]
) -> list[Bytes]:
    name = _utf8(topic, "a topic's name")
    _countable(len(batches), "batches")
    try:
        head = _PUBLISH.pack(durability, 0, len(name), version, min(wait_ms, _WAITS_MAX), len(batches))
        parts: list[Bytes] = [head + name]
        for partition, data in batches:
            parts.append(_BATCH.pack(partition, len(data)))
            parts.append(data)
    except struct.error as error:
        raise _out_of_range(error) from error
    return parts


def read_publish(body: memoryview) -> Publish:
    try:
        durability, zero, length, version, wait_ms, count = _PUBLISH.unpack_from(body)
        position = _PUBLISH.size + length
        topic = str(_slice(body, _PUBLISH.size, length), "utf-8")
        _believe(count, _BATCH.size, body)
        if zero or (durability > Level.SYNCED and durability != TOPICS_OWN):
            raise WireError(f"a PUBLISH asks for durability {durability}, or a byte that must be 0 is not")
        batches = []
        for _ in range(count):
            partition, size = _BATCH.unpack_from(body, position)
            position += _BATCH.size
            batches.append((partition, _slice(body, position, size)))
            position += size
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"a PUBLISH is not what it should be: {error}") from error
    _at_end(body, position)
    return Publish(topic, durability, version, wait_ms, batches)


def write_published(durability: int, placed: Sequence[tuple[int, int, int]]) -> bytes:
    """`placed`: (partition, count, first offset) of each batch."""
    return _PUBLISHED.pack(durability, 0, 0, len(placed)) + b"".join(_PLACED.pack(*one) for one in placed)


def read_published(body: memoryview) -> tuple[int, list[tuple[int, int, int]]]:
    try:
        durability, zero, zeros, count = _PUBLISHED.unpack_from(body)
        _believe(count, _PLACED.size, body)
        placed = list(_PLACED.iter_unpack(_slice(body, _PUBLISHED.size, count * _PLACED.size)))
    except struct.error as error:
        raise WireError(f"a reply to PUBLISH is not what it should be: {error}") from error
    if durability > Level.SYNCED or zero or zeros:
        raise WireError(
            f"a reply to PUBLISH tells of durability {durability}, or a byte that must be 0 is not"
        )
    _at_end(body, _PUBLISHED.size + count * _PLACED.size)
    return durability, placed


def write_receive(session: int, most: int, wait_ms: int) -> bytes:
    try:
        return _RECEIVE.pack(session, most, min(wait_ms, _WAITS_MAX))
    except struct.error as error:
        raise _out_of_range(error) from error


def read_receive(body: memoryview) -> tuple[int, int, int]:
    return _whole(_RECEIVE, body)  # type: ignore[return-value]


def write_delivery(
    session: int, runs: Sequence[tuple[int, int, int, int, int, int, int, Sequence[Bytes]]]
) -> list[Bytes]:
    """`runs`: (partition, lane, attempt, lease, first, count, deadline_ms, batches)."""
    heads = [_DELIVERY.pack(session, len(runs))]
    batches: list[Bytes] = []
    for partition, lane, attempt, lease, first, count, deadline, some in runs:
        heads.append(
            _RUN.pack(partition, lane, 0, attempt, lease, first, count, deadline, sum(map(len, some)))
        )
        batches += some
    return [b"".join(heads), *batches]


def read_delivery(body: memoryview) -> tuple[int, list[Run]]:
    try:
        session, count = _DELIVERY.unpack_from(body)
        position = _DELIVERY.size + count * _RUN.size
        _believe(count, _RUN.size, body)
        runs = []
        for fields in _RUN.iter_unpack(_slice(body, _DELIVERY.size, count * _RUN.size)):
            partition, lane, zero, attempt, lease, first, messages, deadline, size = fields
            if zero:
                raise WireError("a byte of a DELIVERY that must be 0 is not")
            batches = _slice(body, position, size)
            runs.append(Run(partition, lane, attempt, lease, first, messages, deadline, batches))
            position += size
    except struct.error as error:
        raise WireError(f"a DELIVERY is not what it should be: {error}") from error
    _at_end(body, position)
    return session, runs


def write_ack(session: int, held: Iterable[Held]) -> bytes:
    runs = _held(held)
    return b"".join((_DELIVERY.pack(session, len(runs)), *runs))


def read_ack(body: memoryview) -> tuple[int, list[Held]]:
    try:
        session, count = _DELIVERY.unpack_from(body)
        _believe(count, _HELD.size, body)
        held = list(_HELD.iter_unpack(_slice(body, _DELIVERY.size, count * _HELD.size)))
    except struct.error as error:
        raise WireError(f"an ACK is not what it should be: {error}") from error
    _at_end(body, _DELIVERY.size + count * _HELD.size)
    return session, held


def write_settled(count: int, durability: int) -> bytes:
    return _SETTLED.pack(count, durability)


def read_settled(body: memoryview) -> tuple[int, int]:
    count, durability = _whole(_SETTLED, body)
    if durability > Level.SYNCED:
        raise WireError(f"messages were settled with durability {durability}, which there is not")
    return count, durability


def write_settle(session: int, what: int, delay_ms: int, reason: str, held: Iterable[Held]) -> bytes:
    """The reason is cut as the ledger would cut it."""
    text = _utf8(reason[:REASON_CHARS_MAX], "a reason")
    runs = _held(held)
    try:
        head = _SETTLE.pack(session, what, 0, len(text), delay_ms)
    except struct.error as error:
        raise _out_of_range(error) from error
    return b"".join((head, text, _U32.pack(len(runs)), *runs))


def read_settle(body: memoryview) -> Settle:
    try:
        session, what, zero, length, delay_ms = _SETTLE.unpack_from(body)
        position = _SETTLE.size + length
        reason = str(_slice(body, _SETTLE.size, length), "utf-8")
        (count,) = _U32.unpack_from(body, position)
        _believe(count, _HELD.size, body)
        position += _U32.size
        held = list(_HELD.iter_unpack(_slice(body, position, count * _HELD.size)))
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"a SETTLE is not what it should be: {error}") from error
    if zero or not NACK <= what <= EXTEND:
        raise WireError(
            f"a SETTLE wants {what}, which is no nack, reject or extend, or a byte that must be 0 is not"
        )
    _at_end(body, position + count * _HELD.size)
    return Settle(session, what, delay_ms, reason, held)


def write_start(session: int, credits: int, most: int) -> bytes:
    return _START.pack(session, min(credits, _U32_MAX), most)


def read_start(body: memoryview) -> tuple[int, int, int]:
    return _whole(_START, body)  # type: ignore[return-value]


def write_credit(session: int, credits: int) -> bytes:
    return _CREDIT.pack(session, min(credits, _U32_MAX))


def read_credit(body: memoryview) -> tuple[int, int]:
    return _whole(_CREDIT, body)  # type: ignore[return-value]


def write_stop(session: int) -> bytes:
    return _U32.pack(session)


def read_stop(body: memoryview) -> int:
    return _whole(_U32, body)[0]


def write_read(topic: str, partition: int, offset: int, bytes_max: int, wait_ms: int) -> bytes:
    name = _utf8(topic, "a topic's name")
    try:
        return (
            _READ.pack(partition, min(wait_ms, _WAITS_MAX), offset, min(bytes_max, _U32_MAX), len(name))
            + name
        )
    except struct.error as error:
        raise _out_of_range(error) from error


def read_read(body: memoryview) -> Read:
    try:
        partition, wait_ms, offset, bytes_max, length = _READ.unpack_from(body)
        topic = str(_slice(body, _READ.size, length), "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"a READ is not what it should be: {error}") from error
    _at_end(body, _READ.size + length)
    return Read(topic, partition, offset, bytes_max, wait_ms)


def write_range(first: int, following: int) -> bytes:
    """The head of a reply to READ; the batches follow it."""
    return _RANGE.pack(first, following)


def read_range(body: memoryview) -> tuple[int, int, memoryview]:
    if len(body) < _RANGE.size:
        raise WireError("a reply to READ is too short")
    first, following = _RANGE.unpack_from(body)
    return first, following, body[_RANGE.size :]


def _held(held: Iterable[Held]) -> list[bytes]:
    try:
        runs = [_HELD.pack(*one) for one in held]
    except struct.error as error:
        raise _out_of_range(error) from error
    _countable(len(runs), "runs of messages")
    return runs


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} has a letter that is none in Unicode (position {error.start})") from error


def _countable(count: int, what: str) -> None:
    if count > FRAME_ITEMS_MAX:
        raise MessageTooLarge(f"{count} {what} do not fit one frame: pass at most {FRAME_ITEMS_MAX} at once")


def _out_of_range(error: struct.error) -> InvalidInput:
    return InvalidInput(f"a number is out of range, or no whole number ({error}): correct the call")


def _slice(body: memoryview, position: int, size: int) -> memoryview:
    if position + size > len(body):
        raise WireError(f"a length of {size} lies: {max(len(body) - position, 0)} bytes are left")
    return body[position : position + size]


def _believe(count: int, size: int, body: memoryview) -> None:
    """A count is checked before anything is made of it."""
    if count > FRAME_ITEMS_MAX or count * size > len(body):
        raise WireError(
            f"a count of {count} lies, or is more than a frame may have: it holds {len(body)} bytes, "
            f"and at most {FRAME_ITEMS_MAX} items are taken"
        )


def _whole(fields: struct.Struct, body: memoryview) -> tuple[int, ...]:
    if len(body) != fields.size:
        raise WireError(f"a body of {len(body)} bytes came where {fields.size} were due")
    return fields.unpack(body)


def _at_end(body: memoryview, position: int) -> None:
    if position != len(body):
        raise WireError(f"a body of {len(body)} bytes came where {position} were due")
