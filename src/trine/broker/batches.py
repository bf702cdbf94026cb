"""Batches that producers made: what is looked at before they are stored as they are.

Nothing is encoded again, but everything is looked at: the checksum, the header, and the records. What the log has must
be readable by everybody, for ever, and headers of the broker's own must be the broker's. Values of one length, without
keys and headers, are looked at all at once.
"""

from __future__ import annotations

from trine.log import alike, batch
from trine.log.batch import HEADER_BYTES, StoredRecord
from trine.log.unpacking import unpacks_within
from trine.model import limits
from trine.model.errors import InvalidInput, InvalidOption, MessageTooLarge, UnknownLane
from trine.model.ids import check_name
from trine.model.message import H_EXPIRES, H_PRODUCER, I64, RESERVED
from trine.model.options import TopicConfig

FOREIGN_BITS = 0x30 | batch.BLOCK
"""Transactional and control batches are Kafka's business, blocks are the broker's own."""

UNPACKED_BYTES_MAX = limits.BATCH_BYTES_MAX + limits.VALUE_BYTES_MAX
"""A batch with all its records unpacked: what producers split above, and room for one value more."""


def check_batch(data: bytearray, config: TopicConfig, *, numbered: bool = False) -> int:
    """How many messages a batch has that this topic takes, or the error that says why it does not.

    `numbered`: it is an idempotent producer's, and goes the way of those.
    """
    fields = batch.checked(data)
    if fields is None:
        raise InvalidInput(
            "this is not a record batch of version 2, or it was damaged on the way; send it again"
        )
    _, _, _, _, _, marks, delta, _, _, producer_id, _, _, count = fields
    if marks & FOREIGN_BITS or not 0 < count == delta + 1:
        raise InvalidInput(
            "a batch is of plain records, as many as its offsets, neither transactional nor of control"
        )
    if (producer_id >= 0) is not numbered:
        raise InvalidInput(
            "the batch has no producer and sequence; publish it plainly"
            if numbered
            else "a numbered batch is sent as one: by its producer, with a sequence"
        )
    size = len(data)
    if count > limits.BATCH_MESSAGES_MAX or size > UNPACKED_BYTES_MAX:
        raise MessageTooLarge(
            f"the batch has {count} messages and {size} bytes; "
            f"{limits.BATCH_MESSAGES_MAX} and {limits.BATCH_BYTES_MAX} are the most"
        )
    lane = (marks & batch.LANE_MASK) >> batch.LANE_SHIFT
    if lane >= len(config.lanes):
        raise UnknownLane(f"there is no lane number {lane}; this topic has: {', '.join(config.lanes)}")
    wants_ttl = config.ttl_ms is not None and not marks & batch.HAS_TTL
    if marks & batch.HAS_DEDUP or config.dedup_by_content or wants_ttl:
        raise InvalidOption(
            "dedup ids, and a topic's own ttl or dedup_by_content, need messages one by one: send them so"
        )
    _check_records(data, marks, count, config)
    return count


def _check_records(data: bytearray, marks: int, count: int, config: TopicConfig) -> None:
    compression = marks & batch.COMPRESSION_MASK
    if compression:
        if not batch.available(compression):
            raise InvalidOption("the batch's compression cannot be read here; use none or gzip")
        if not unpacks_within(memoryview(data)[HEADER_BYTES:], compression, UNPACKED_BYTES_MAX):
            raise MessageTooLarge(
                f"the batch cannot be unpacked, or is above {UNPACKED_BYTES_MAX} bytes then; send smaller ones"
            )
    elif count >= batch.ALIKE_MIN and (size := alike.size_of(data, HEADER_BYTES, count)) is not None:
        _check_size(size, config)
        return
    first = batch.read_header(data).base_offset
    records = batch.decode(data)
    if [record.offset for record in records] != list(range(first, first + count)):
        raise InvalidInput(
            "the records of a batch are numbered one after the other from 0, as many as it says"
        )
    for record in records:
        if record.value is not None:
            _check_size(len(record.value), config)
        if record.key is not None and len(record.key) > limits.KEY_BYTES_MAX:
            raise MessageTooLarge(f"a key has {len(record.key)} bytes; {limits.KEY_BYTES_MAX} are allowed")
        if record.headers:
            _check_headers(record)


def _check_size(size: int, config: TopicConfig) -> None:
    if size > config.message_bytes_max:
        raise MessageTooLarge(
            f"a value has {size} bytes; this topic takes {config.message_bytes_max}: "
            "store large content elsewhere and publish a reference"
        )


def _check_headers(record: StoredRecord) -> None:
    total = 0
    for name, value in record.headers:
        total += len(name) + len(value or b"")
        if not name.startswith(RESERVED):
            continue
        if name == H_EXPIRES and value is not None and len(value) == I64.size:
            continue
        if name == H_PRODUCER and value is not None:
            check_name(value.decode(errors="replace"), "producer")
            continue
        raise InvalidOption(f"header {name!r}: names that begin with {RESERVED!r} are the broker's own")
    if len(record.headers) > limits.HEADERS_MAX + 2 or total > limits.HEADER_BYTES_MAX + 256:
        raise MessageTooLarge(
            f"a message has {len(record.headers)} headers of {total} bytes; "
            f"{limits.HEADERS_MAX} and {limits.HEADER_BYTES_MAX} are allowed"
        )
