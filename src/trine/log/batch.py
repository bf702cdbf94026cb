"""The batch: Kafka's record batch, version 2, with Trine's marks in the attribute bits Kafka leaves unused.

On the wire, on disk and in memory a batch is these bytes; the broker places it (offset and epoch) and never
re-encodes it. All integers are big-endian.

     0   i64  base offset            set by `place`; not under the checksum
     8   i32  batch length           bytes after this field (size - 12); not under the checksum
    12   i32  leader epoch           set by `place`; not under the checksum
    16   i8   magic (2)
    17   u32  crc32c                 of all bytes from 21 on
    21   i16  attributes
    23   i32  last offset delta
    27   i64  base timestamp, ms
    35   i64  max timestamp, ms
    43   i64  producer id            -1: none
    51   i16  producer epoch         -1: none
    53   i32  base sequence          -1: none
    57   i32  record count
    61   ...  records (compressed together when the attributes say so), or the payload of a block

    attribute bits
     0-2   compression (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)
     3     APPEND_TIME  the records' time is the max timestamp (Kafka's)
     4     transactional (Kafka's)
     5     control (Kafka's)
     8-11  lane
    12     HAS_TTL      some record carries a ttl header
    13     HAS_DEDUP    some record carries a dedup header
    14     BLOCK        the payload is opaque rows (a ledger's or a schedule's), not Kafka records

The records are written and read by the compiled codec of `aiokafka`; no other module touches it. What this
module refuses to do: look into keys, values or headers to decide anything.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from aiokafka.codec import has_gzip, has_lz4, has_snappy, has_zstd
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder
from cramjam import DecompressionError
from crc32c import crc32c

from trine.log import alike
from trine.model.errors import EmptyBatch, InvalidInput, InvalidOption

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
Fields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""A header as it is stored, field by field."""
assert HEADER.size == HEADER_BYTES

LENGTH_BYTES: Final = 12
"""The base offset and the length itself: what the batch length does not count."""

MAGIC: Final = 2
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CHECKED_FROM: Final = 21
ATTRIBUTES_AT: Final = 21
BASE_TIME_AT: Final = 27
MAX_TIME_AT: Final = 35

APPEND_TIME: Final = 1 << 3
"""Kafka's: the time of every record is the header's greatest, set by the broker."""

HAS_TTL: Final = 1 << 12
HAS_DEDUP: Final = 1 << 13
BLOCK: Final = 1 << 14
LANE_SHIFT: Final = 8
LANE_MASK: Final = 0x0F00
COMPRESSION_MASK: Final = 0x07

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_CODECS: Final = {
    GZIP: ("gzip", has_gzip),
    SNAPPY: ("snappy", has_snappy),
    LZ4: ("lz4", has_lz4),
    ZSTD: ("zstd", has_zstd),
}
ALIKE_MIN: Final = 64
"""Records from which on it pays to look whether they are alike; so many have more bytes than below."""
ALIKE_BYTES_MIN: Final = HEADER_BYTES + ALIKE_MIN * 8
_BUILDER_BYTES_MAX: Final = 2**31 - 1
"""The compiled builder refuses records above its size; batches are limited before they come here."""

_MALFORMED: Final = (
    CorruptRecordException, DecompressionError, EOFError, OSError, ValueError, struct.error, zlib.error,
)  # fmt: skip
"""What the codec and its decompressors raise when records are not what they should be."""
_NO_HEADER: Final = bytes(HEADER_BYTES)
_PLACE: Final = struct.Struct(">qii")
_CRC: Final = struct.Struct(">I")
_MAX_TIME: Final = struct.Struct(">q")
_TIMES: Final = struct.Struct(">qq")
_NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []

NO_HEADERS: Final[tuple[tuple[str, bytes | None], ...]] = ()
"""Shared by all records without headers."""

Record = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""time_ms, key, value, headers: what `encode` takes."""


class StoredRecord(msgspec.Struct, gc=False):
    """What `decode` gives: a record with its absolute offset.

    Thousands of these are alive at a time; the garbage collector passes over them, as they can be in no cycle.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Header(msgspec.Struct, frozen=True, gc=False):
    """The 61 bytes before the records; `size` counts them too."""

    base_offset: int
    size: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_time_ms: int
    max_time_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def lane(self) -> int:
        return (self.attributes & LANE_MASK) >> LANE_SHIFT

    @property
    def has_ttl(self) -> bool:
        return bool(self.attributes & HAS_TTL)

    @property
    def has_dedup(self) -> bool:
        return bool(self.attributes & HAS_DEDUP)

    @property
    def is_block(self) -> bool:
        return bool(self.attributes & BLOCK)

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK


def read_header(buffer: Buffer, position: int = 0) -> Header:
    """The header of the batch that begins at `position`; it is taken at its word (see `check`)."""
    (offset, length, epoch, _, crc, attributes, delta, base_time, max_time, pid, pepoch, sequence, count) = (
        HEADER.unpack_from(buffer, position)
    )
    return Header(
        offset,
        length + LENGTH_BYTES,
        epoch,
        crc,
        attributes,
        delta,
        base_time,
        max_time,
        pid,
        pepoch,
        sequence,
        count,
    )


def header_of(fields: Fields) -> Header:
    """The header of fields as they are stored."""
    return Header(fields[0], fields[1] + LENGTH_BYTES, fields[2], *fields[4:])


def available(compression: int) -> bool:
    """Whether batches of this compression can be written and read here."""
    if compression == NONE:
        return True
    codec = _CODECS.get(compression)
    return codec is not None and codec[1]()


def encode_values(
    values: Sequence[bytes], time_ms: int, *, lane: int = 0, compression: int = NONE, size: int | None = None
) -> bytearray:
    """A batch of values alone, all of one time: the hot path of publish_many.

    `size` is their length, if all have the same.
    """
    if not values:
        raise EmptyBatch("a batch needs at least one message: pass one, or do not publish at all")
    if size is not None and not compression and len(values) <= alike.COUNT_MAX:
        data = alike.write(values, size, _NO_HEADER)
        HEADER.pack_into(
            data, 0, 0, len(data) - LENGTH_BYTES, -1, MAGIC, 0, lane << LANE_SHIFT,
            len(values) - 1, time_ms, time_ms, -1, -1, -1, len(values),
        )  # fmt: skip
        _sign(data)
        return data
    builder = _builder(compression, -1, -1, -1)
    append = builder.append
    headers = _NO_HEADERS
    for delta, value in enumerate(values):
        append(delta, time_ms, None, value, headers)
    return _built(builder, lane << LANE_SHIFT)


def encode(
    records: Sequence[Record],
    *,
    lane: int = 0,
    flags: int = 0,
    compression: int = NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch of records with keys, headers and times of their own; offsets count from 0 until `place`."""
    if not records:
        raise EmptyBatch("a batch needs at least one message: pass one, or do not publish at all")
    builder = _builder(compression, producer_id, producer_epoch, base_sequence)
    append = builder.append
    for delta, (time_ms, key, value, headers) in enumerate(records):
        append(delta, time_ms, key, value, headers if type(headers) is list else list(headers))
    return _built(builder, lane << LANE_SHIFT | flags)


def encode_again(records: Sequence[StoredRecord], lane: int) -> bytearray:
    """Some records of a batch as a batch of their own."""
    time_ms = records[0].timestamp
    values: list[bytes] = []
    for record in records:
        if record.key is not None or record.headers or record.value is None or record.timestamp != time_ms:
            return encode([(one.timestamp, one.key, one.value, one.headers) for one in records], lane=lane)
        values.append(record.value)
    return encode_values(values, time_ms, lane=lane, size=alike.common_size(values))


def encode_single(
    time_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]] | None = None,
    *,
    lane: int = 0,
    flags: int = 0,
    compression: int = NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch of one record."""
    builder = _builder(compression, producer_id, producer_epoch, base_sequence)
    builder.append(0, time_ms, key, value, _NO_HEADERS if headers is None else headers)
    return _built(builder, lane << LANE_SHIFT | flags)


def encode_block(
    payload: Buffer, *, base_offset: int, count: int, base_time_ms: int, max_time_ms: int, flags: int = 0
) -> bytearray:
    """A placed batch whose payload is opaque: `count` rows of a ledger or a schedule, one offset each."""
    assert count > 0, "a block without rows has no offset of its own"
    body = memoryview(payload).cast("B")
    data = bytearray(HEADER_BYTES + len(body))
    HEADER.pack_into(
        data, 0, base_offset, len(data) - LENGTH_BYTES, 0, MAGIC, 0, BLOCK | flags, count - 1,
        base_time_ms, max_time_ms, -1, -1, -1, count,
    )  # fmt: skip
    data[HEADER_BYTES:] = body
    _sign(data)
    return data


def place(data: bytearray, base_offset: int, epoch: int = 0) -> None:
    """Gives the batch its offset and epoch, which the checksum leaves out so that this costs nothing."""
    _PLACE.pack_into(data, 0, base_offset, len(data) - LENGTH_BYTES, epoch)


def set_max_time(data: bytearray, max_time_ms: int) -> None:
    """Lets the header say another greatest time than the records: a scheduled message's due time."""
    _MAX_TIME.pack_into(data, MAX_TIME_AT, max_time_ms)
    _sign(data)


def stamp(data: bytearray, time_ms: int) -> None:
    """All records take this time: the broker's, whatever the clock of the producer said."""
    data[ATTRIBUTES_AT + 1] |= APPEND_TIME
    _TIMES.pack_into(data, BASE_TIME_AT, time_ms, time_ms)
    _sign(data)


def attributes(data: bytes) -> int:
    """Lane, flags and compression of a batch, without the rest of its header."""
    return data[ATTRIBUTES_AT] << 8 | data[ATTRIBUTES_AT + 1]


def check(data: Buffer) -> bool:
    """Whether these bytes are one whole, undamaged batch."""
    return checked(data) is not None


def checked(data: Buffer) -> Fields | None:
    """The header's fields, if these bytes are one whole, undamaged batch."""
    view = memoryview(data)
    size = len(view)
    if size < HEADER_BYTES:
        return None
    fields: Fields = HEADER.unpack_from(view)
    _, length, _, magic, crc, _, delta, _, _, _, _, _, count = fields
    whole = (
        length == size - LENGTH_BYTES
        and magic == MAGIC
        and 0 <= count <= delta + 1
        and crc32c(view[CHECKED_FROM:]) == crc
    )
    return fields if whole else None


def decode(data: Buffer) -> list[StoredRecord]:
    """The records with their absolute offsets; the bytes are believed to have passed `check`."""
    like = alike_in(data)
    if like is not None:
        return like.records(like.base_offset, like.count)
    try:
        return [
            StoredRecord(one.offset, one.timestamp, one.key, one.value, one.headers or NO_HEADERS)
            for one in DefaultRecordBatch(data)
        ]
    except UnsupportedCodecError:
        raise _unavailable(read_header(data).compression) from None
    except _MALFORMED as error:
        raise InvalidInput(
            f"the batch's checksum is right but its records are malformed ({error}): its producer is at fault"
        ) from error


def decode_some(data: Buffer, first: int, end: int) -> list[StoredRecord]:
    """Those of the records whose offsets are from `first` to below `end`."""
    like = alike_in(data)
    if like is not None:
        low = max(first, like.base_offset)
        return like.records(low, min(end, like.base_offset + like.count) - low)
    return [record for record in decode(data) if first <= record.offset < end]


class Alike(NamedTuple):
    """A batch of values of one length, without keys, headers and gaps: any part of it is read without the rest."""

    data: bytes | bytearray | memoryview
    base_offset: int
    count: int  # type: ignore[assignment]
    size: int
    time_ms: int
    lane: int

    def values(self, first: int, count: int) -> list[bytes]:
        """From the offset `first` on."""
        return alike.read_some(
            self.data, HEADER_BYTES, self.count, self.size, first - self.base_offset, count
        )

    def records(self, first: int, count: int) -> list[StoredRecord]:
        values = self.values(first, count)
        offsets = range(first, first + count)
        return list(
            map(StoredRecord, offsets, repeat(self.time_ms), repeat(None), values, repeat(NO_HEADERS))
        )

    def cut(self, first: int, count: int) -> bytearray:
        """A part of it as a batch of its own."""
        data = encode_values(self.values(first, count), self.time_ms, lane=self.lane, size=self.size)
        place(data, first)
        return data


def alike_in(data: Buffer) -> Alike | None:
    """The batch, if it is of enough values, and they are alike."""
    view: bytes | bytearray | memoryview = data if isinstance(data, bytes | bytearray) else memoryview(data)
    if len(view) <= ALIKE_BYTES_MIN:
        return None
    base, _, _, _, _, marks, delta, base_time, max_time, _, _, _, count = HEADER.unpack_from(view)
    if marks & (COMPRESSION_MASK | BLOCK) or count < ALIKE_MIN or delta != count - 1:
        return None
    size = alike.size_of(view, HEADER_BYTES, count)
    if size is None:
        return None
    time_ms = max_time if marks & APPEND_TIME else base_time
    return Alike(view, base, count, size, time_ms, (marks & LANE_MASK) >> LANE_SHIFT)


def columns(
    data: Buffer,
) -> tuple[
    list[int], list[int], list[bytes | None], list[bytes | None], list[Sequence[tuple[str, bytes | None]]]
]:
    """The records as lists, for readers of tables: absolute offsets, times, keys, values, headers."""
    try:
        records = list(DefaultRecordBatch(data))
    except UnsupportedCodecError:
        raise _unavailable(read_header(data).compression) from None
    except _MALFORMED as error:
        raise InvalidInput(
            f"the batch's checksum is right but its records are malformed ({error}): its producer is at fault"
        ) from error
    return (
        [one.offset for one in records],
        [one.timestamp for one in records],
        [one.key for one in records],
        [one.value for one in records],
        [one.headers for one in records],
    )


def block_payload(data: Buffer) -> memoryview:
    """The opaque rows of a BLOCK batch, not copied."""
    return memoryview(data)[HEADER_BYTES:]


def rewrite(
    data: bytes, keep: Callable[[StoredRecord], bool], *, may_vanish: bool = True
) -> bytes | bytearray | None:
    """The same batch with only the records `keep` wants, for compaction.

    Offsets and their range, the records' times, producer fields, lane, flags, compression and epoch stay; the
    header's times become those of what is kept. The very same object comes back when everything is kept, None
    when nothing is, or a batch of no records (`may_vanish=False`: the last word of an idempotent producer).
    """
    header = read_header(data)
    records = decode(data)
    kept = [record for record in records if keep(record)]
    if len(kept) == len(records):
        return data
    if not kept and may_vanish:
        return None
    builder = _builder(header.compression, header.producer_id, header.producer_epoch, header.base_sequence)
    for record in kept:
        builder.append(
            record.offset - header.base_offset,
            record.timestamp,
            record.key,
            record.value,
            list(record.headers),
        )
    fresh: bytearray = builder.build()
    compression = read_header(fresh).compression
    place(fresh, header.base_offset, header.leader_epoch)
    struct.pack_into(
        ">hi",
        fresh,
        CHECKED_FROM,
        header.attributes & ~COMPRESSION_MASK | compression,
        header.last_offset_delta,
    )
    if not kept:
        struct.pack_into(">qq", fresh, 27, header.base_time_ms, header.max_time_ms)
    elif header.max_time_ms != max(record.timestamp for record in records):
        _MAX_TIME.pack_into(fresh, MAX_TIME_AT, header.max_time_ms)  # it was set apart: see set_max_time
    _sign(fresh)
    return fresh


def _builder(
    compression: int, producer_id: int, producer_epoch: int, base_sequence: int
) -> DefaultRecordBatchBuilder:
    if compression and not available(compression):
        raise _unavailable(compression)
    return DefaultRecordBatchBuilder(
        MAGIC, compression, 0, producer_id, producer_epoch, base_sequence, _BUILDER_BYTES_MAX
    )


def _built(builder: DefaultRecordBatchBuilder, marks: int) -> bytearray:
    """The finished bytes, with lane and flags put into the attributes when there are any."""
    data: bytearray = builder.build()
    if marks:
        assert 0 <= marks < 1 << 15, "lane and flags stand in bits 8 to 14"
        data[21] |= marks >> 8
        _sign(data)
    return data


def _sign(data: bytearray) -> None:
    _CRC.pack_into(data, CRC_AT, crc32c(memoryview(data)[CHECKED_FROM:]))


def _unavailable(compression: int) -> InvalidOption:
    name = _CODECS[compression][0] if compression in _CODECS else f"number {compression}"
    return InvalidOption(
        f"compression {name} is not available here: install the package cramjam, or use none or gzip"
    )
