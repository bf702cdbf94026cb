"""Batches that producers made: what is looked at before they are stored as they are.

The checksum and the header are checked, the records are not: they are the producer's, as they are in Kafka's log. A
batch whose records cannot be read costs its own messages and nobody else's: they are settled as gone.
"""

from __future__ import annotations

from trine.log import batch
from trine.model import limits
from trine.model.errors import InvalidInput, InvalidOption, MessageTooLarge, UnknownLane
from trine.model.options import TopicConfig

FOREIGN_BITS = 0x30 | batch.BLOCK
"""Transactional and control batches are Kafka's business, blocks are the broker's own."""


def check_batch(data: bytearray, config: TopicConfig) -> int:
    """How many messages a batch has that this topic takes, or the error that says why it does not."""
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
    if producer_id >= 0:
        raise InvalidInput(
            "a numbered batch is not stored as it is; send its messages one by one with a sequence"
        )
    size = len(data)
    if count > limits.BATCH_MESSAGES_MAX or size > limits.BATCH_BYTES_MAX + limits.VALUE_BYTES_MAX:
        raise MessageTooLarge(
            f"the batch has {count} messages and {size} bytes; "
            f"{limits.BATCH_MESSAGES_MAX} and {limits.BATCH_BYTES_MAX} are the most"
        )
    lane = (marks & batch.LANE_MASK) >> batch.LANE_SHIFT
    if lane >= len(config.lanes):
        raise UnknownLane(f"there is no lane number {lane}; this topic has: {', '.join(config.lanes)}")
    compression = marks & batch.COMPRESSION_MASK
    if compression and not batch.available(compression):
        raise InvalidOption("the batch's compression cannot be read here; use none or gzip")
    wants_ttl = config.ttl_ms is not None and not marks & batch.HAS_TTL
    if marks & batch.HAS_DEDUP or config.dedup_by_content or wants_ttl:
        raise InvalidOption(
            "dedup ids, and a topic's own ttl or dedup_by_content, need messages one by one: send them so"
        )
    if size > config.message_bytes_max:
        _check_values(data, config)
    return count


def _check_values(data: bytearray, config: TopicConfig) -> None:
    largest = max(len(record.value or b"") for record in batch.decode(data))
    if largest > config.message_bytes_max:
        raise MessageTooLarge(
            f"a value has {largest} bytes; this topic takes {config.message_bytes_max}: "
            "store large content elsewhere and publish a reference"
        )
