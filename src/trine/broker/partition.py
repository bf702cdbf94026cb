"""One partition: its log, its lanes and its producers; the owner through which all of them change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from trine.broker.producers import Producers, Sequence
from trine.log import batch
from trine.log.batch import Header, StoredRecord
from trine.log.log import Log
from trine.log.stored import Origin
from trine.model.duration import instant_ms
from trine.model.errors import InvalidOption
from trine.model.message import H_DEDUP, H_PUBLISHED, H_SCHEDULE, I64, Instant, Place
from trine.queue.lanes import Lanes, SavedLanes

if TYPE_CHECKING:
    from trine.broker.decoded import Decoded
    from trine.broker.topic import TopicState

LANE_RUNS_SAVED_MAX = 65_536
"""Lane runs a checkpoint keeps; beyond it they are found again by a walk over the batch headers."""


class SavedPartition(msgspec.Struct, array_like=True, frozen=True):
    lanes: SavedLanes | None
    producers: dict[int, Sequence]
    has_ttl: bool
    has_dedup: bool


class Partition:
    __slots__ = (
        "_decoded",
        "has_dedup",
        "has_ttl",
        "lanes",
        "log",
        "log_id",
        "number",
        "origin",
        "producers",
        "topic",
    )

    def __init__(self, topic: TopicState, number: int, log_id: int, log: Log, decoded: Decoded) -> None:
        self.topic = topic
        self.number = number
        self.log_id = log_id
        self.log = log
        self.lanes = Lanes(len(topic.config.lanes))
        self.origin = Origin(topic.name, number, topic.config.lanes)
        """What messages read from here know of it; made anew when the topic gets more lanes."""
        self.producers = Producers()
        self.has_ttl = False
        """Some message here has a time to live: receives must look before they deliver."""
        self.has_dedup = False
        """Some message here has a dedup id: only then recovery reads the window's messages again."""
        self._decoded = decoded

    def apply(self, data: bytes | bytearray, header: Header) -> None:
        """A placed batch becomes part of the log: live, and in recovery."""
        self.log.append(data, header)
        lane = header.lane
        self.lanes.add(lane, header.base_offset, header.last_offset_delta + 1)
        if lane not in self.topic.lanes_used:
            self.topic.use_lane(lane)
        if header.has_ttl:
            self.has_ttl = True
        if header.has_dedup:
            self.has_dedup = True
        if header.producer_id >= 0:
            self.producers.apply(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.count,
                header.base_offset,
            )

    def replay(self, payload: memoryview) -> None:
        data = bytes(payload)
        header = batch.read_header(data)
        self.apply(data, header)
        if header.has_dedup:
            self._note_dedup(data)

    def records(self, first: int, count: int) -> list[StoredRecord]:
        return self._decoded.records(self.log_id, self.log, first, count)

    def opened(self, first: int, count: int, least: int) -> bool:
        """Whether a run can be cut out of what was opened a moment ago, together with others, `least` in all."""
        like = self._decoded.alike(self.log_id, first, count)
        if like is not None:
            return least <= like.count
        return self._decoded.has(self.log_id, first, count, least)

    def cut(self, first: int, count: int, data: bytes | None) -> bytearray | None:
        """A run as a batch of its own, without a look at its messages: if they are alike, in `data` or one opened."""
        like = self._decoded.alike(self.log_id, first, count)
        if like is None and data is not None:
            like = self._decoded.open_alike(self.log_id, data)
        return None if like is None else like.cut(first, count)

    def record(self, offset: int) -> StoredRecord | None:
        found = self.records(offset, 1)
        return found[0] if found else None

    def keys(self, first: int, count: int) -> list[bytes | None]:
        """The keys of a run, None where there is no key or no message any more."""
        keys: list[bytes | None] = [None] * count
        for record in self.records(first, count):
            keys[record.offset - first] = record.key
        return keys

    def lane_of(self, offset: int) -> int:
        return self.lanes.lane_of(offset)

    def scan(self, from_offset: int, to_offset: int) -> Iterator[StoredRecord]:
        """All records of a range, a chunk at a time, past the cache: for searches over much of the log."""
        position = max(from_offset, self.log.start_offset)
        while position < to_offset:
            stored = self.log.read(position)
            if not stored:
                return
            for data in stored:
                for record in batch.decode(data):
                    if position <= record.offset < to_offset:
                        yield record
            position = batch.read_header(stored[-1]).next_offset

    def offset_at(self, time_ms: int) -> int:
        """The first offset whose message is not older than the time."""
        offset = self.log.offset_at(time_ms)
        for record in self.scan(offset, self.log.next_offset):
            if record.timestamp >= time_ms:
                return record.offset
        return self.log.next_offset

    def place_of(self, offset: int | None, time: Instant | None) -> int:
        """An offset or a time as an offset this partition has."""
        if (offset is None) == (time is None):
            raise InvalidOption("give an offset or a time, one of them")
        if time is not None:
            return self.offset_at(instant_ms(time))
        assert offset is not None
        return min(max(offset, self.log.start_offset), self.log.next_offset)

    def start_at(self, offset: int) -> None:
        """The log begins here now."""
        self.log.retain(offset)
        self.lanes.trim(offset)
        self._decoded.forget(self.log_id)

    # --- recovery

    def save(self) -> SavedPartition:
        lanes = self.lanes.save() if self.lanes.runs() <= LANE_RUNS_SAVED_MAX else None
        return SavedPartition(lanes, self.producers.save(), self.has_ttl, self.has_dedup)

    def restore(self, saved: SavedPartition) -> None:
        self.producers.restore(saved.producers)
        self.has_ttl = saved.has_ttl
        self.has_dedup = saved.has_dedup
        if saved.lanes is not None:
            self.lanes = Lanes.restore(saved.lanes, len(self.topic.config.lanes))
        else:
            for _, header in self.log.headers():
                self.lanes.add(header.lane, header.base_offset, header.last_offset_delta + 1)
        for lane in self.lanes.used():
            self.topic.use_lane(lane)

    def rebuild_dedup(self, since_ms: int) -> None:
        if not self.has_dedup:
            return
        position = self.log.offset_at(since_ms)
        while stored := self.log.read(position):
            for data in stored:
                header = batch.read_header(data)
                if header.has_dedup:
                    self._note_dedup(data)
                position = header.next_offset

    def _note_dedup(self, data: bytes) -> None:
        for record in batch.decode(data):
            headers = dict(record.headers)
            value = headers.get(H_DEDUP)
            if value is None:
                continue
            at = record.timestamp
            place: Place = (self.number, record.offset)
            scheduled, published = headers.get(H_SCHEDULE), headers.get(H_PUBLISHED)
            if scheduled is not None and published is not None:  # it was answered with the id it waited under
                at, place = int(I64.unpack(published)[0]), scheduled.decode()
            self.topic.dedup.note(value.decode(), at, place)
