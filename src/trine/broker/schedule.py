"""The schedule of a topic: messages that wait for their time, outside the log.

Each message is a batch of one record in the bucket of the hour it is due in; a bucket is a log of its own and the
place of a message in it (hour, row) is its schedule id. What is over (fired, cancelled, moved) is told by a block
in the same bucket, so a bucket explains itself and goes as a whole. Only near buckets are in memory, in a wheel
of (due, hour << 32 | row); far ones are a number until they come near.

A block's payload, version 1, little-endian:

    0   u8   kind (1 fired, 2 cancelled, 3 moved)
    1   i64  at, ms since the epoch
    9   u32  count
   13   u32  row, `count` times
        i64  fired: where it went (partition << 48 | offset); moved: the hour it went to; cancelled: 0; `count` times

A message that was moved keeps its id: its batch carries the first hour as producer id and the first row as base
sequence.
"""

from __future__ import annotations

import enum
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from pyroaring import BitMap64

from trine.log import batch
from trine.log.batch import Header, StoredRecord
from trine.log.log import Log
from trine.model.duration import HOUR_MS
from trine.model.ids import ScheduleId
from trine.model.message import H_DEDUP
from trine.queue.outlook import BEGINNING, Place, counts, upcoming
from trine.queue.timers import FOREVER, Longs
from trine.queue.wheel import Wheel

if TYPE_CHECKING:
    from trine.broker.topic import TopicState

_BLOCK: Final = struct.Struct("<BqI")
NEAR_MS: Final = HOUR_MS
"""A bucket is loaded this long before its hour begins."""
ROW_BITS: Final = 32
ROW_MASK: Final = (1 << ROW_BITS) - 1


class Over(enum.IntEnum):
    FIRED = 1
    CANCELLED = 2
    MOVED = 3


class Waiting(NamedTuple):
    """A scheduled message, as listed."""

    id: ScheduleId
    due_ms: int
    ref: int


class Bucket:
    """One hour's messages."""

    __slots__ = ("hour", "live", "loaded", "log", "log_id", "over", "places", "size_of")

    def __init__(self, hour: int, log_id: int, log: Log) -> None:
        self.hour = hour
        self.log_id = log_id
        self.log = log
        self.live = 0
        self.loaded = False
        self.over = BitMap64()
        self.places = array("q")
        """Byte position by row (rows of blocks included), once loaded."""
        self.size_of = array("i")


class Schedule:
    def __init__(self, topic: TopicState, now: int) -> None:
        self._topic = topic
        self._topic_name = topic.name.encode()
        self._wheel = Wheel(now)
        self.buckets: dict[int, Bucket] = {}
        self._origin: dict[int, ScheduleId] = {}
        """First ids of moved messages, by where they are now."""
        self._leaving: set[int] = set()
        """Taken off the wheel, and on their way into the log."""

    def __len__(self) -> int:
        return sum(bucket.live for bucket in self.buckets.values())

    # --- questions

    def next_due(self) -> int | None:
        """When something may be due, or a bucket must be loaded: never later than that."""
        loads = [
            bucket.hour * HOUR_MS - NEAR_MS
            for bucket in self.buckets.values()
            if bucket.live and not bucket.loaded
        ]
        due = self._wheel.next_due()
        if due is not None:
            loads.append(due)
        return min(loads, default=None)

    def record(self, bucket: Bucket, row: int) -> StoredRecord:
        return batch.decode(self._data(bucket, row))[0]

    def header(self, bucket: Bucket, row: int) -> Header:
        return batch.read_header(self._data(bucket, row))

    def batches(self, refs: Sequence[int]) -> list[bytes]:
        """The stored batches of references, in their order."""
        by_hour: dict[int, list[int]] = {}
        for index, ref in enumerate(refs):
            by_hour.setdefault(ref >> ROW_BITS, []).append(index)
        found: list[bytes] = [b""] * len(refs)
        for hour, indexes in by_hour.items():
            bucket = self.buckets[hour]
            places, sizes = bucket.places, bucket.size_of
            rows = [refs[index] & ROW_MASK for index in indexes]
            stored = bucket.log.read_batches([(places[row], sizes[row]) for row in rows])
            for index, data in zip(indexes, stored, strict=True):
                found[index] = data
        return found

    def at(self, ref: int) -> tuple[Bucket, int]:
        """The hour and the row a reference of the wheel stands for."""
        return self.buckets[ref >> ROW_BITS], ref & ROW_MASK

    def id_of(self, ref: int) -> ScheduleId:
        known = self._origin.get(ref)
        return known if known is not None else ScheduleId(self._topic.name, ref >> ROW_BITS, ref & ROW_MASK)

    def name_of(self, ref: int) -> bytes:
        """`id_of`, spelled out."""
        if ref in self._origin:
            return str(self._origin[ref]).encode()
        return b"%s@%d-%d" % (self._topic_name, ref >> ROW_BITS, ref & ROW_MASK)

    def waiting(self, limit: int, after: Place = BEGINNING, before_ms: int = FOREVER) -> list[Waiting]:
        """What waits, soonest first: what lies beyond a place (due, ref) and is due before a time."""
        found: list[Waiting] = []
        while len(found) < limit:
            # Hours that are far are not in memory: each is loaded when all before it has been given.
            far = self._next_unloaded(after[0])
            until = before_ms if far is None else min(before_ms, far.hour * HOUR_MS)
            due, refs = upcoming(self._wheel, after, limit - len(found), until)
            found += [
                Waiting(self.id_of(ref), at, ref) for at, ref in zip(due.tolist(), refs.tolist(), strict=True)
            ]
            if found:
                after = (found[-1].due_ms, found[-1].ref)
            if len(found) >= limit or far is None or until >= before_ms:
                break
            self.load(far)
        return found

    def _next_unloaded(self, from_ms: int) -> Bucket | None:
        hours = [
            hour
            for hour, bucket in self.buckets.items()
            if bucket.live and not bucket.loaded and (hour + 1) * HOUR_MS > from_ms
        ]
        return self.buckets[min(hours)] if hours else None

    def load_near(self, before_ms: int, most: int) -> int:
        """Loads hours before a time, the nearest first, as long as they have no more than so many messages; answers how
        many were loaded."""
        loaded = 0
        while (bucket := self._next_unloaded(-1)) is not None:
            if bucket.hour * HOUR_MS >= before_ms or loaded + bucket.live > most:
                break
            loaded += bucket.live
            self.load(bucket)
        return loaded

    def outlook(self, edges: Longs) -> tuple[list[int], list[tuple[int, int]]]:
        """How many are due before the first of these times, between each two, and from the last one on; and of the
        hours that are not in memory, of which no more is known, (hour, how many)."""
        far = [
            (hour, bucket.live) for hour, bucket in self.buckets.items() if bucket.live and not bucket.loaded
        ]
        return counts(self._wheel, edges), far

    def due(self, now: int, most: int) -> list[tuple[int, int]]:
        """(due, ref) of messages to be delivered now, in order. They leave the wheel; `restore_due` puts them back."""
        for bucket in self.buckets.values():
            if bucket.live and not bucket.loaded and bucket.hour * HOUR_MS - NEAR_MS <= now:
                self.load(bucket)
        if (soonest := self._wheel.next_due()) is None or soonest > now:
            return []
        due, refs = self._wheel.take_due(now, most)
        taken = list(zip(due.tolist(), refs.tolist(), strict=True))
        self._leaving.update(ref for _, ref in taken)
        return taken

    def restore_due(self, taken: Iterable[tuple[int, int]]) -> None:
        for due, ref in taken:
            self._leaving.discard(ref)
            self._wheel.add(due, ref)

    # --- apply: the same live and in recovery

    def apply(self, bucket: Bucket, data: bytes | bytearray | memoryview) -> None:
        """Batches of a bucket, back to back: messages that wait, or blocks that say what is over."""
        view = memoryview(data)
        position = 0
        while position < len(view):
            header = batch.read_header(view, position)
            one = bytes(view[position : position + header.size])
            place = bucket.log.append(one, header)
            self._take_in(bucket, place, header, one)
            position += header.size

    def replay(self, bucket: Bucket, payload: memoryview) -> None:
        self.apply(bucket, payload)
        position = 0
        while position < len(payload):
            header = batch.read_header(payload, position)
            if header.has_dedup:
                record = batch.decode(bytes(payload[position : position + header.size]))[0]
                for name, value in record.headers:
                    if name == H_DEDUP and value is not None:
                        first = (bucket.hour, header.base_offset)
                        if header.producer_id >= 0:  # it was moved, and keeps its id
                            first = (header.producer_id, header.base_sequence)
                        place = str(ScheduleId(self._topic.name, *first))
                        self._topic.dedup.note(value.decode(), record.timestamp, place)
            position += header.size

    def _take_in(self, bucket: Bucket, place: int, header: Header, data: bytes) -> None:
        if header.is_block:
            _, _, rows, _ = unpack_over(batch.block_payload(data))
            bucket.live -= len(rows)
        else:
            bucket.live += 1
        if bucket.loaded:
            self._index(bucket, place, header, data)
        elif bucket.hour * HOUR_MS - NEAR_MS <= self._topic.now():
            self.load(bucket)

    def _index(self, bucket: Bucket, place: int, header: Header, data: bytes | None) -> None:
        while len(bucket.places) < header.base_offset:
            bucket.places.append(0)
            bucket.size_of.append(0)
        bucket.places.append(place)
        if header.is_block:
            bucket.size_of.append(0)
            stored = data if data is not None else bucket.log.read_batch(place, header.size)
            _, _, rows, _ = unpack_over(batch.block_payload(stored))
            for row in rows.tolist():
                bucket.over.add(row)
                ref = bucket.hour << ROW_BITS | row
                if ref in self._leaving:
                    self._leaving.discard(ref)
                else:
                    self._wheel.discard(ref)
                self._origin.pop(ref, None)
            return
        bucket.size_of.append(header.size)
        ref = bucket.hour << ROW_BITS | header.base_offset
        if header.producer_id >= 0:
            first = ScheduleId(self._topic.name, header.producer_id, header.base_sequence)
            self._origin[ref] = first
        self._wheel.add(header.max_time_ms, ref)

    def load(self, bucket: Bucket) -> None:
        """Reads a bucket into the wheel: only what still waits."""
        if bucket.loaded:
            return
        places, size_of = array("q"), array("i")
        blocks, rows, dues = [], [], []
        moved: dict[int, ScheduleId] = {}
        for chunk in bucket.log.fields():
            for position, (row, length, _, _, _, marks, _, _, due, hour, _, first_row, _) in chunk:
                while len(places) < row:
                    places.append(0)
                    size_of.append(0)
                places.append(position)
                if marks & batch.BLOCK:
                    size_of.append(0)
                    blocks.append((position, length + batch.LENGTH_BYTES))
                    continue
                size_of.append(length + batch.LENGTH_BYTES)
                rows.append(row)
                dues.append(due)
                if hour >= 0:
                    moved[bucket.hour << ROW_BITS | row] = ScheduleId(self._topic.name, hour, first_row)
        over = BitMap64()
        for position, size in blocks:
            _, _, ended, _ = unpack_over(batch.block_payload(bucket.log.read_batch(position, size)))
            over.update(ended.tolist())
        if over:
            waiting = [(due, row) for due, row in zip(dues, rows, strict=True) if row not in over]
            dues, rows = [due for due, _ in waiting], [row for _, row in waiting]
        # All of it could be read: only now it counts.
        bucket.loaded = True
        bucket.places, bucket.size_of, bucket.over, bucket.live = places, size_of, over, len(rows)
        self._origin.update(moved)
        refs = np.asarray(rows, dtype=np.int64) | np.int64(bucket.hour << ROW_BITS)
        self._wheel.add_many(np.asarray(dues, dtype=np.int64), refs)

    def drop(self, hour: int) -> None:
        del self.buckets[hour]

    def finished(self, before_ms: int) -> Iterator[int]:
        """Hours whose messages are all over, and whose end lies before a time."""
        for hour, bucket in self.buckets.items():
            if not bucket.live and (hour + 1) * HOUR_MS <= before_ms:
                yield hour

    def _data(self, bucket: Bucket, row: int) -> bytes:
        return bucket.log.read_batch(bucket.places[row], bucket.size_of[row])


def hour_of(due_ms: int) -> int:
    return due_ms // HOUR_MS


def pack_over(kind: Over, at: int, rows: list[int], targets: list[int]) -> bytes:
    return b"".join(
        (
            _BLOCK.pack(kind, at, len(rows)),
            np.asarray(rows, dtype="<u4").tobytes(),
            np.asarray(targets, dtype="<i8").tobytes(),
        )
    )


def unpack_over(payload: memoryview) -> tuple[Over, int, np.ndarray, np.ndarray]:
    kind, at, count = _BLOCK.unpack_from(payload)
    rows = np.frombuffer(payload, dtype="<u4", count=count, offset=_BLOCK.size)
    targets = np.frombuffer(payload, dtype="<i8", count=count, offset=_BLOCK.size + 4 * count)
    return Over(kind), at, rows, targets
