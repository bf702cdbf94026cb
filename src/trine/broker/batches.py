"""Batches that producers made: what is looked at before they are stored as they are.

The checksum and the header are checked, the records are not: they are the producer's, as they are in Kafka's log. A
batch whose records cannot be read costs its own messages and nobody else's: they are settled as gone.
"""

from __future__ import annotations

from trine.log import batch
from trine.log.batch import Header
from trine.model import limits
from trine.model.errors import InvalidInput, InvalidOption, MessageTooLarge, UnknownLane
from trine.model.options import TopicConfig

FOREIGN_BITS = 0x30 | batch.BLOCK
"""Transactional and control batches are Kafka's business, blocks are the broker's own."""


def check_batch(data: bytearray, config: TopicConfig) -> Header:
    """The header of a batch this topic takes, or the error that says why not."""
    if not batch.check(data):
        raise InvalidInput(
            "this is not a record batch of version 2, or it was damaged on the way; send it again"
        )
    header = batch.read_header(data)
    if header.attributes & FOREIGN_BITS or not 0 < header.count == header.last_offset_delta + 1:
        raise InvalidInput(
            "a batch is of plain records, as many as its offsets, neither transactional nor of control"
        )
    if header.producer_id >= 0:
        raise InvalidInput(
            "a numbered batch is not stored as it is; send its messages one by one with a sequence"
        )
    if (
        header.count > limits.BATCH_MESSAGES_MAX
        or header.size > limits.BATCH_BYTES_MAX + limits.VALUE_BYTES_MAX
    ):
        raise MessageTooLarge(
            f"the batch has {header.count} messages and {header.size} bytes; "
            f"{limits.BATCH_MESSAGES_MAX} and {limits.BATCH_BYTES_MAX} are the most"
        )
    if header.lane >= len(config.lanes):
        raise UnknownLane(f"there is no lane number {header.lane}; this topic has: {', '.join(config.lanes)}")
    if not batch.available(header.compression):
        raise InvalidOption("the batch's compression cannot be read here; use none or gzip")
    if header.has_dedup or config.dedup_by_content or (config.ttl_ms is not None and not header.has_ttl):
        raise InvalidOption(
            "dedup ids, and a topic's own ttl or dedup_by_content, need messages one by one: send them so"
        )
    if header.size > config.message_bytes_max:
        _check_values(data, config)
    return header


def _check_values(data: bytearray, config: TopicConfig) -> None:
    largest = max(len(record.value or b"") for record in batch.decode(data))
    if largest > config.message_bytes_max:
        raise MessageTooLarge(
            f"a value has {largest} bytes; this topic takes {config.message_bytes_max}: "
            "store large content elsewhere and publish a reference"
        )
