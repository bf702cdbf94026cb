"""A topic: its partitions, groups, schedule and dedup window, and the way in for messages.

`admission` is: check the message, look into the dedup window, choose the partition, wait for its time or go to the
log. All of a publish becomes one journal entry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c

from trine.broker.batches import check_batch
from trine.broker.dedup import DedupWindow, content_id
from trine.broker.entry import Entry
from trine.broker.group import GroupState
from trine.broker.metadata import PACK, ArchiveMoved, BucketCreated, TopicMeta
from trine.broker.partition import Partition
from trine.broker.schedule import Over, Schedule, hour_of, pack_over
from trine.log import batch
from trine.log.packing import COMPRESSIONS, chunks
from trine.model import limits
from trine.model.durability import Level
from trine.model.errors import EmptyBatch, InvalidOption, TopicFull, UnknownPartition
from trine.model.ids import ScheduleId
from trine.model.message import (
    H_DEDUP,
    H_PARTITION,
    H_PUBLISHED,
    H_SCHEDULE,
    I64,
    Draft,
    Outgoing,
    Place,
    Published,
    draft,
)
from trine.model.options import TopicConfig
from trine.model.partitioning import partition_of
from trine.queue.rows import pack_place

if TYPE_CHECKING:
    from trine.broker.engine import Engine

Sequenced = tuple[tuple[int, int], int, int]
"""An idempotent producer's batch: (producer id, epoch), partition, first sequence."""


class TopicState:
    def __init__(self, engine: Engine, name: str, meta: TopicMeta, now: int) -> None:
        self.engine = engine
        self.name = name
        self.meta = meta
        self.config: TopicConfig = meta.config
        self.partitions: list[Partition] = []
        self.groups: dict[str, GroupState] = {}
        self.dedup = DedupWindow(meta.config.dedup_window_ms)
        self.schedule = Schedule(self, now)
        self.room = threading.Condition(engine.lock)
        """Publishers that wait for room."""
        self.waiting_publishers = 0
        self.room_listeners: set[Callable[[], None]] = set()
        self.lanes_used: tuple[int, ...] = ()
        """Lanes that ever had a message: most topics use one of theirs, and receives look no further."""
        self._turn = 0
        self._known_room = 0
        """Messages that surely fit: the slowest group's lag is only counted when this is used up."""

    def now(self) -> int:
        return self.engine.clock.now_ms()

    @property
    def version(self) -> int:
        """A number that stands for the configuration, never 0: who makes batches for a topic says by which one."""
        return crc32c(PACK.encode(self.config)) | 1

    def partition(self, number: int) -> Partition:
        if not 0 <= number < len(self.partitions):
            raise UnknownPartition(
                f"topic {self.name!r} has partitions 0 to {len(self.partitions) - 1}, not {number}"
            )
        return self.partitions[number]

    # --- the way in

    def publish_packed(self, data: bytearray, level: Level) -> tuple[Published, int]:
        """The hot path: values alone, one batch, one partition; see `pack_values`."""
        with self.engine.lock:
            return self._append(data, None, level)

    def publish_one(self, message: Outgoing, level: Level) -> tuple[Published, int]:
        now = self.now()
        one = draft(message, self.config, now)
        if one.due_ms or one.dedup_id is not None or self.config.dedup_by_content:
            return self.publish_drafts([one], level)
        data = batch.encode_single(
            now, one.key, one.value, one.headers, lane=one.lane, flags=batch.HAS_TTL if one.flags_ttl else 0,
            compression=COMPRESSIONS[self.config.compression],
        )  # fmt: skip
        number = one.partition
        if number is None and one.key is not None:
            number = self.partition_of(one.key)
        with self.engine.lock:
            return self._append(data, number, level)

    def _append(self, data: bytearray, number: int | None, level: Level) -> tuple[Published, int]:
        run, lsn = self._store(data, number, level)
        return Published(self.name, self.engine.durability(level), run=run), lsn

    def _store(self, data: bytearray, number: int | None, level: Level) -> tuple[tuple[int, int, int], int]:
        """One batch into the journal and its log; answers (partition, first offset, count), and the lsn."""
        engine = self.engine
        engine.check_open()
        partition = self.partitions[self._sticky() if number is None else number]
        batch.place(data, partition.log.next_offset)
        header = batch.read_header(data)
        self.admit(header.count)
        lsn = engine.store.commit(((partition.log_id, data),), level)
        partition.apply(data, header)
        self.wake()
        return (partition.number, header.base_offset, header.count), lsn

    def publish_batches(
        self, batches: Sequence[tuple[int | None, bytearray]], level: Level
    ) -> tuple[list[tuple[int, int, int]], int]:
        """Stores batches as their producer made them; answers (partition, count, first offset) of each, and the lsn."""
        engine = self.engine
        with engine.lock:
            engine.check_open()
            now = self.now()
            if len(batches) == 1:
                ((number, data),) = batches
                check_batch(data, self.config)
                if number is not None:
                    self.partition(number)
                batch.stamp(data, now)
                (number, first, count), lsn = self._store(data, number, level)
                return [(number, count, first)], lsn
            entry = Entry()
            placed: list[tuple[int, int, int]] = []
            sticky = -1
            total = 0
            for number, data in batches:
                count = check_batch(data, self.config)
                total += count
                if number is None:
                    sticky = self._sticky() if sticky < 0 else sticky
                    number = sticky
                partition = self.partition(number)
                batch.stamp(data, now)
                placed.append((number, count, entry.append(partition, data)))
            self.admit(total)
            entry.effects.append((self.wake, ()))
            return placed, engine.commit(entry, level)

    def set_archived(self, positions: dict[int, int]) -> int:
        for number, offset in positions.items():
            end = self.partition(number).log.next_offset
            if not 0 <= offset <= end:
                raise InvalidOption(
                    f"{self.name}/{number} has offsets up to {end}; {offset} cannot be archived yet"
                )
        entry = Entry()
        if positions:
            entry.meta(ArchiveMoved(self.name, positions, self.now()), self.engine.apply_meta)
        return self.engine.commit(entry, Level.SYNCED, reserve=True)

    def publish_drafts(
        self, drafts: Sequence[Draft], level: Level, sequence: Sequenced | None = None
    ) -> tuple[Published, int]:
        engine = self.engine
        with engine.lock:
            engine.check_open()
            now = self.now()
            if sequence is not None:
                return self._publish_numbered(drafts, level, sequence, now)
            entry = Entry()
            places, duplicates = self.add(entry, drafts, now)
            lsn = engine.commit(entry, level) if entry.parts else engine.store.end_lsn
            return Published(self.name, engine.durability(level), places=places, duplicates=duplicates), lsn

    def publish_numbered_batch(self, data: bytearray, number: int, level: Level) -> tuple[Published, int]:
        """A batch as an idempotent producer made it, with his id, epoch and sequence in its header."""
        with self.engine.lock:
            self.engine.check_open()
            count = check_batch(data, self.config, numbered=True)
            header = batch.read_header(data)
            producer = header.producer_id, header.producer_epoch
            found = self._stored_before(level, (producer, number, header.base_sequence), count)
            if found is not None:
                return found
            batch.stamp(data, self.now())
            return self._store_numbered(data, number, count, level)

    def _stored_before(self, level: Level, sequence: Sequenced, count: int) -> tuple[Published, int] | None:
        """The answer to a numbered batch that is stored already; None if it is the next one."""
        (producer_id, epoch), number, first = sequence
        engine = self.engine
        engine.check_producer(producer_id, epoch)
        stored = self.partition(number).producers.check(producer_id, epoch, first, count)
        if stored is None:
            return None
        places: list[Place] = [(number, stored + index if stored >= 0 else -1) for index in range(count)]
        durability = engine.durability(level)
        published = Published(self.name, durability, places=places, duplicates=frozenset(range(count)))
        return published, engine.store.end_lsn

    def _store_numbered(
        self, data: bytearray, number: int, count: int, level: Level
    ) -> tuple[Published, int]:
        self.admit(count)
        entry = Entry()
        offset = entry.append(self.partition(number), data)
        entry.effects.append((self.wake, ()))
        lsn = self.engine.commit(entry, level)
        return Published(self.name, self.engine.durability(level), run=(number, offset, count)), lsn

    def _publish_numbered(
        self, drafts: Sequence[Draft], level: Level, sequence: Sequenced, now: int
    ) -> tuple[Published, int]:
        """An idempotent producer's batch: one partition, numbered, stored once."""
        (producer_id, epoch), number, first = sequence
        found = self._stored_before(level, sequence, len(drafts))
        if found is not None:
            return found
        if len({one.lane for one in drafts}) > 1 or any(one.due_ms for one in drafts):
            raise InvalidOption(
                "a numbered batch is of one lane and without delays; publish the others on their own"
            )
        data = batch.encode(
            [(now, one.key, one.value, one.headers) for one in drafts],
            lane=drafts[0].lane,
            flags=batch.HAS_TTL if any(one.flags_ttl for one in drafts) else 0,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=first,
            compression=COMPRESSIONS[self.config.compression],
        )
        return self._store_numbered(data, number, len(drafts), level)

    def add(self, entry: Entry, drafts: Sequence[Draft], now: int) -> tuple[list[Place], frozenset[int]]:
        """Puts messages into an entry; answers where each one goes. Transactions and publishes share this."""
        if not drafts:
            raise EmptyBatch("there is nothing to publish: give at least one message")
        places: list[Place | None] = [None] * len(drafts)
        first_with: dict[str, int] = {}
        twins: dict[int, int] = {}
        targets: dict[tuple[int, int], list[int]] = {}
        scheduled: dict[int, list[int]] = {}
        sticky = -1
        fresh = 0
        for index, one in enumerate(drafts):
            if one.dedup_id is None and self.config.dedup_by_content:
                one.dedup_id = content_id(one.key, one.value)
                one.headers.append((H_DEDUP, one.dedup_id.encode()))
            if one.dedup_id is not None:
                known = self.dedup.place_of(one.dedup_id, now)
                if known is not None:
                    places[index] = known
                    twins[index] = index
                    continue
                if one.dedup_id in first_with:
                    twins[index] = first_with[one.dedup_id]
                    continue
                first_with[one.dedup_id] = index
            fresh += 1
            if one.due_ms > now:
                scheduled.setdefault(hour_of(one.due_ms), []).append(index)
                continue
            number = one.partition
            if number is None:
                if one.key is not None:
                    number = self.partition_of(one.key)
                else:
                    sticky = self._sticky() if sticky < 0 else sticky
                    number = sticky
            targets.setdefault((number, one.lane), []).append(index)
        if first_with:
            self.dedup.check_room(len(first_with), now)
        self.admit(fresh)
        for (number, lane), indexes in targets.items():
            self._add_batches(entry, self.partitions[number], lane, drafts, indexes, places, now)
        for hour, indexes in scheduled.items():
            self._add_scheduled(entry, hour, drafts, indexes, places, now)
        for dedup_id, index in first_with.items():
            entry.effects.append((self.dedup.note, (dedup_id, now, places[index])))
        for index, twin in twins.items():
            places[index] = places[twin]
        if targets:
            entry.effects.append((self.wake, ()))
        assert all(place is not None for place in places)
        return places, frozenset(twins)  # type: ignore[return-value]

    def _add_batches(
        self,
        entry: Entry,
        partition: Partition,
        lane: int,
        drafts: Sequence[Draft],
        indexes: list[int],
        places: list[Place | None],
        now: int,
    ) -> None:
        for chunk in chunks(drafts, indexes):
            flags = 0
            for index in chunk:
                one = drafts[index]
                flags |= (batch.HAS_TTL if one.flags_ttl else 0) | (batch.HAS_DEDUP if one.dedup_id else 0)
            data = batch.encode(
                [(now, drafts[index].key, drafts[index].value, drafts[index].headers) for index in chunk],
                lane=lane,
                flags=flags,
                compression=COMPRESSIONS[self.config.compression],
            )
            offset = entry.append(partition, data)
            for step, index in enumerate(chunk):
                places[index] = (partition.number, offset + step)

    def _add_scheduled(
        self,
        entry: Entry,
        hour: int,
        drafts: Sequence[Draft],
        indexes: list[int],
        places: list[Place | None],
        now: int,
    ) -> None:
        pieces = []
        for index in indexes:
            one = drafts[index]
            if one.partition is not None:
                one.headers.append((H_PARTITION, I64.pack(one.partition)))
            flags = (batch.HAS_TTL if one.flags_ttl else 0) | (batch.HAS_DEDUP if one.dedup_id else 0)
            data = batch.encode_single(now, one.key, one.value, one.headers, lane=one.lane, flags=flags)
            pieces.append((data, one.due_ms))
        row = self.put_waiting(entry, hour, pieces)
        for step, index in enumerate(indexes):
            places[index] = str(ScheduleId(self.name, hour, row + step))

    def put_waiting(self, entry: Entry, hour: int, pieces: list[tuple[bytearray, int]]) -> int:
        """Puts batches of one record, with their due times, into an hour; answers the first one's row."""
        log_id, first = self.open_bucket(entry, hour)
        for row, (data, due) in enumerate(pieces, first):
            batch.set_max_time(data, due)
            batch.place(data, row)
        entry.reserve(log_id, first + len(pieces))
        whole = b"".join(data for data, _ in pieces)
        entry.payload(log_id, whole, self._apply_scheduled, hour, whole)
        return first

    def open_bucket(self, entry: Entry, hour: int) -> tuple[int, int]:
        """(log id, next row) of an hour's bucket; a new one is created with the entry."""
        bucket = self.schedule.buckets.get(hour)
        if bucket is not None:
            return bucket.log_id, entry.next_offset(bucket.log_id, bucket.log.next_offset)
        log_id = entry.new_buckets.get((self.name, hour))
        if log_id is None:
            log_id = entry.new_buckets[self.name, hour] = self.engine.new_log_id()
            entry.meta(BucketCreated(self.name, hour, log_id), self.engine.apply_meta)
        return log_id, entry.next_offset(log_id, 0)

    def _apply_scheduled(self, hour: int, data: bytes | bytearray) -> None:
        self.schedule.apply(self.schedule.buckets[hour], data)
        self.engine.scheduled()

    def fire(self, now: int) -> int:
        """Moves what is due into the log: one entry, so each message arrives exactly once."""
        taken = self._fitting(self.schedule.due(now, limits.SCHEDULE_FIRE_MAX))
        if not taken:
            return 0
        try:
            self._fire(taken, now)
        except BaseException:
            self.schedule.restore_due(taken)
            raise
        return len(taken)

    def _fitting(self, due: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The first of these that fit one entry together; the others go back to wait for the next one."""
        room = self.engine.store.entry_bytes_max // 2
        for index, (_, ref) in enumerate(due):
            bucket, row = self.schedule.at(ref)
            room -= bucket.size_of[row]
            if room < 0 and index:
                self.schedule.restore_due(due[index:])
                return due[:index]
        return due

    def _fire(self, taken: list[tuple[int, int]], now: int) -> None:
        entry = Entry()
        schedule = self.schedule
        sticky = self._sticky()
        targets: dict[tuple[int, int], list[tuple[int, batch.Record]]] = {}
        refs = [ref for _, ref in taken]
        for ref, stored in zip(refs, schedule.batches(refs), strict=True):
            record = batch.decode(stored)[0]
            key, headers = record.key, list(record.headers)
            number = self._chosen_partition(headers) if headers else None
            if number is None:
                number = sticky if key is None else self.partition_of(key)
            headers.append((H_SCHEDULE, schedule.name_of(ref)))
            headers.append((H_PUBLISHED, I64.pack(record.timestamp)))
            marks = batch.attributes(stored)
            target = targets.get((number, marks))
            if target is None:
                target = targets[number, marks] = []
            target.append((ref, (now, key, record.value, headers)))
        over: dict[int, tuple[list[int], list[int]]] = {}
        for (number, marks), found in targets.items():
            data = batch.encode(
                [record for _, record in found],
                lane=(marks & batch.LANE_MASK) >> batch.LANE_SHIFT,
                flags=marks & (batch.HAS_TTL | batch.HAS_DEDUP),
                compression=COMPRESSIONS[self.config.compression],
            )
            offset = entry.append(self.partitions[number], data)
            for step, (ref, _) in enumerate(found):
                bucket, row = schedule.at(ref)
                rows, places = over.setdefault(bucket.hour, ([], []))
                rows.append(row)
                places.append(pack_place(number, offset + step))
        for hour, (rows, places) in over.items():
            self.end_waits(entry, hour, Over.FIRED, rows, places, now)
        entry.effects.append((self.wake, ()))
        self.engine.commit(entry, self.engine.background_level)

    def _chosen_partition(self, headers: list[tuple[str, bytes | None]]) -> int | None:
        for index, (name, value) in enumerate(headers):
            if name == H_PARTITION and value is not None:
                del headers[index]
                return int(I64.unpack(value)[0]) % len(self.partitions)
        return None

    def end_waits(
        self, entry: Entry, hour: int, kind: Over, rows: list[int], targets: list[int], now: int
    ) -> None:
        log_id, row = self.open_bucket(entry, hour)
        block = batch.encode_block(
            pack_over(kind, now, rows, targets), base_offset=row, count=1, base_time_ms=now, max_time_ms=now
        )
        entry.reserve(log_id, row + 1)
        entry.payload(log_id, block, self._apply_scheduled, hour, block)

    def use_lane(self, lane: int) -> None:
        self.lanes_used = tuple(sorted({*self.lanes_used, lane}))

    # --- where a message goes, and whether there is room

    def partition_of(self, key: bytes) -> int:
        return partition_of(key, len(self.partitions))

    def _sticky(self) -> int:
        self._turn = (self._turn + 1) % len(self.partitions)
        return self._turn

    def admit(self, count: int) -> None:
        if count <= self._known_room:
            self._known_room -= count
            return
        depth = self.depth()
        room = self.config.depth_max - depth
        if count > room:
            raise TopicFull(
                f"topic {self.name!r} holds {depth} messages for its slowest group and takes "
                f"{self.config.depth_max}: publish with wait=, add consumers, or alter its depth_max"
            )
        self._known_room = room - count

    def depth(self) -> int:
        """Messages that wait for the slowest group, and those that wait for their time."""
        lags = (group.lag() for group in self.groups.values() if not group.config.ephemeral)
        return max(lags, default=0) + len(self.schedule)

    def made_room(self) -> None:
        if self.waiting_publishers or self.room_listeners:
            self._known_room = 0
            self.room.notify_all()
            for listener in tuple(self.room_listeners):
                listener()

    def forget_room(self) -> None:
        self._known_room = 0

    def wake(self) -> None:
        for group in self.groups.values():
            group.version += 1
            if group.waiting or group.listeners:
                group.wake()
        engine = self.engine
        engine.version += 1
        if engine.readers_waiting or engine.reader_listeners:
            engine.wake_readers()

    # --- numbers

    def counts(self) -> dict[str, int]:
        return {
            "messages": sum(one.log.next_offset - one.log.start_offset for one in self.partitions),
            "bytes": sum(one.log.size_bytes for one in self.partitions),
            "scheduled": len(self.schedule),
            "depth": self.depth(),
        }
