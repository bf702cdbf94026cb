"""Walks: the records of one partition, oldest or newest first, for searches that stop after a while and go on later.

A walk reads a chunk of the log at a time, under the engine's lock; decoding and comparing is done without it. A batch
in which nothing can match is passed over undecoded: what is looked for stands in it as it is, unless it is compressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from trine.broker.partition import Partition
from trine.log import batch
from trine.log.batch import StoredRecord
from trine.log.log import Log
from trine.model.errors import UnknownTopic
from trine.model.limits import KIB
from trine.model.message import RESERVED

CHUNK_BYTES: Final = 128 * KIB
"""Read with the lock held once: well below a millisecond. A larger batch comes whole."""
STEP_MAX: Final = 512
"""Messages a step backward aims at."""


class Wanted(NamedTuple):
    """What a record must have; None: anything will do."""

    text: bytes | None = None
    """In the key, the value or a header's value; lower-case, as capitals of ASCII do not matter."""
    key: bytes | None = None
    header: tuple[str, bytes | None] | None = None
    """A name, and its value if that matters."""
    from_ms: int | None = None
    to_ms: int | None = None

    def fits(self, record: StoredRecord) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        if self.from_ms is not None and record.timestamp < self.from_ms:
            return False
        if self.to_ms is not None and record.timestamp >= self.to_ms:
            return False
        if self.header is not None:
            name, value = self.header
            if not any(one == name and (value is None or value == has) for one, has in record.headers):
                return False
        return self.text is None or self._has_text(record, self.text)

    def _has_text(self, record: StoredRecord, text: bytes) -> bool:
        if record.value is not None and text in record.value.lower():
            return True
        if record.key is not None and text in record.key.lower():
            return True
        return any(
            has is not None and text in has.lower()
            for name, has in record.headers
            if not name.startswith(RESERVED)
        )

    def may_be_in(self, data: bytes) -> bool:
        """Whether a batch is worth decoding."""
        if batch.read_header(data).compression:
            return True
        if self.key is not None and self.key not in data:
            return False
        if self.header is not None:
            name, value = self.header
            if name.encode() not in data or (value is not None and value not in data):
                return False
        return self.text is None or self.text in data.lower()


class Step(NamedTuple):
    """One record that was looked at, or a batch that was passed over. Orders by time, as walks are merged by it."""

    at_ms: int
    partition: int
    offset: int
    """Of the record; of a batch, where a walk that is here has got to."""
    looked_at: int
    """How many messages this step passes."""
    record: StoredRecord | None
    """If it fits."""


def forward(partition: Partition, start: int, end: int, wanted: Wanted) -> Iterator[Step]:
    """From `start` on, oldest first. A step's offset is where to go on: the first one not passed."""
    position = start
    while position < end:
        stored = _read(partition, position)
        if not stored:
            return
        for data in stored:
            header = batch.read_header(data)
            if not wanted.may_be_in(data):
                looked = min(header.next_offset, end) - max(header.base_offset, position)
                yield Step(header.base_time_ms, partition.number, min(header.next_offset, end), looked, None)
                continue
            for record in batch.decode(data):
                if not position <= record.offset < end:
                    continue
                if wanted.to_ms is not None and record.timestamp >= wanted.to_ms:
                    return
                found = record if wanted.fits(record) else None
                yield Step(record.timestamp, partition.number, record.offset + 1, 1, found)
        position = batch.read_header(stored[-1]).next_offset


def backward(partition: Partition, start: int, end: int, wanted: Wanted) -> Iterator[Step]:
    """Down from `end`, which is not included, to `start`, newest first. A step's offset is the last one passed."""
    position = end
    while position > start:
        stored = _read_before(partition, position, start)
        if not stored:
            return
        for data in reversed(stored):
            header = batch.read_header(data)
            if not wanted.may_be_in(data):
                looked = min(header.next_offset, position) - max(header.base_offset, start)
                yield Step(header.max_time_ms, partition.number, max(header.base_offset, start), looked, None)
                continue
            for record in reversed(batch.decode(data)):
                if start <= record.offset < position:
                    found = record if wanted.fits(record) else None
                    yield Step(record.timestamp, partition.number, record.offset, 1, found)
        position = batch.read_header(stored[0]).base_offset


def _read(partition: Partition, position: int) -> list[bytes]:
    engine = partition.topic.engine
    with engine.lock:
        _check_there(partition)
        return partition.log.read(position, CHUNK_BYTES)


def _read_before(partition: Partition, position: int, start: int) -> list[bytes]:
    """The batches that lie just before an offset, about a chunk of them; none if there are none from `start` on."""
    engine = partition.topic.engine
    with engine.lock:
        _check_there(partition)
        log = partition.log
        start = max(start, log.start_offset)
        usual = max(log.size_bytes // max(log.next_offset - log.start_offset, 1), 1)
        step = min(max(CHUNK_BYTES // usual, 1), STEP_MAX)
        while True:
            at = max(position - step, start)
            found = _between(log, at, position)
            if found or at <= start:
                return found
            step *= 2  # compaction left a gap here


def _between(log: Log, at: int, position: int) -> list[bytes]:
    found: list[bytes] = []
    while at < position:
        stored = log.read(at, CHUNK_BYTES)
        if not stored:
            break
        for data in stored:
            if batch.read_header(data).base_offset >= position:
                return found
            found.append(data)
        at = batch.read_header(stored[-1]).next_offset
    return found


def _check_there(partition: Partition) -> None:
    topic = partition.topic
    topic.engine.check_open()
    if topic.engine.topics.get(topic.name) is not topic:
        raise UnknownTopic(f"topic {topic.name!r} was deleted")
