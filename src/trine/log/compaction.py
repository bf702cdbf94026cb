"""Key compaction: of every key only the last record stays, in the sealed segments of a log.

    begin   (under the lock)   which segments, and what the rest of the log says about keys
    clean   (without it)       reads the sealed files, writes cleaned ones beside them
    finish  (under the lock)   swaps them in; the old files become obsolete with the next checkpoint
    compact                    all three in one go

What stays: the last record of its key; records without a key; a tombstone (a key without a value) until it is
older than `tombstone_ms`, so that readers who lag behind still learn of the deletion; blocks, untouched; and
the last batch of an idempotent producer, without records if need be. Offsets never change, and nothing here
deletes a file that a checkpoint may name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from trine.log.batch import CHECKED_FROM, Header, StoredRecord, decode, read_header, rewrite
from trine.log.disk import telling_disk_full
from trine.log.index import NO_TIME
from trine.log.saved import SavedSegment, fresh_name, generation_of
from trine.log.scan import CHUNK_BYTES, Damaged, read_batches
from trine.log.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trine.log.disk import Disk
    from trine.log.log import Log

WRITE_BYTES: Final = CHUNK_BYTES
"""A cleaned segment is written in pieces of this size."""


class Cleaning(NamedTuple):
    """What `begin` found: enough to work without the log."""

    disk: Disk
    folder: str
    sealed: list[SavedSegment]
    segment_bytes: int
    latest: dict[bytes, int]
    """Last offset by key in what is not sealed."""
    producers: dict[int, int]
    """Last base offset by producer id in what is not sealed."""


class Cleaned(NamedTuple):
    """Segments that follow each other, and what takes their place."""

    old: list[str]
    new: list[SavedSegment]
    records_dropped: int


def latest_by_key(log: Log, from_offset: int, to_offset: int) -> dict[bytes, int]:
    """The last offset of every key in [from_offset, to_offset), tombstones too."""
    latest: dict[bytes, int] = {}
    for data in _batches(log, from_offset, to_offset):
        if not read_header(data).is_block:
            for record in decode(data):
                if record.key is not None and from_offset <= record.offset < to_offset:
                    latest[record.key] = record.offset
    return latest


def compact(log: Log, *, now_ms: int, tombstone_ms: int) -> int:
    """Cleans the sealed segments of a log; how many records were dropped."""
    cleaning = begin(log)
    return finish(log, cleaning, clean(cleaning, now_ms=now_ms, tombstone_ms=tombstone_ms))


def begin(log: Log, below: int | None = None) -> Cleaning:
    """`below`: only segments that end at or before this offset are cleaned."""
    sealed = log.sealed()
    if below is not None:
        sealed = [saved for saved in sealed if saved.next_offset <= below]
    boundary = sealed[-1].next_offset if sealed else log.next_offset
    latest: dict[bytes, int] = {}
    producers: dict[int, int] = {}
    if sealed:
        for data in _batches(log, boundary, log.next_offset):
            _note(data, latest, producers)
    return Cleaning(log.disk, log.path, sealed, log.segment_bytes, latest, producers)


def clean(cleaning: Cleaning, *, now_ms: int, tombstone_ms: int) -> list[Cleaned]:
    """Writes the cleaned segments; on an error those written so far are deleted again."""
    latest, producers = _keys(cleaning)

    def keep(record: StoredRecord) -> bool:
        key = record.key
        if key is None:
            return True
        if latest[key] != record.offset:
            return False
        return record.value is not None or now_ms - record.timestamp <= tombstone_ms

    def last_word(header: Header) -> bool:
        return header.producer_id >= 0 and producers[header.producer_id] == header.base_offset

    done: list[Cleaned] = []
    try:
        for group in _groups(cleaning.sealed, cleaning.segment_bytes):
            cleaned = _clean_group(cleaning, group, keep, last_word)
            if cleaned is not None:
                done.append(cleaned)
    except BaseException:
        discard(cleaning, done)
        raise
    return done


def finish(log: Log, cleaning: Cleaning, done: Sequence[Cleaned]) -> int:
    """Swaps all of it in, or nothing when the segments are no longer what they were (retention, a cut)."""
    if log.sealed()[: len(cleaning.sealed)] != cleaning.sealed:
        discard(cleaning, done)
        return 0
    for cleaned in done:
        log.replace(cleaned.old, cleaned.new)
    return sum(cleaned.records_dropped for cleaned in done)


def discard(cleaning: Cleaning, done: Iterable[Cleaned]) -> None:
    """Deletes what `clean` wrote and nobody names."""
    for cleaned in done:
        for segment in cleaned.new:
            cleaning.disk.delete(f"{cleaning.folder}/{segment.name}")


# ------------------------------------------------------------ pass 1


def _keys(cleaning: Cleaning) -> tuple[dict[bytes, int], dict[int, int]]:
    latest: dict[bytes, int] = {}
    producers: dict[int, int] = {}
    for saved in cleaning.sealed:
        for data in _stored(cleaning, saved):
            _note(data, latest, producers)
    latest.update(cleaning.latest)
    producers.update(cleaning.producers)
    return latest, producers


def _note(data: bytes, latest: dict[bytes, int], producers: dict[int, int]) -> None:
    header = read_header(data)
    if header.is_block:
        return
    if header.producer_id >= 0:
        producers[header.producer_id] = header.base_offset
    for record in decode(data):
        if record.key is not None:
            latest[record.key] = record.offset


def _batches(log: Log, offset: int, end: int) -> Iterator[bytes]:
    while offset < end:
        found = log.read(offset)
        for data in found:
            header = read_header(data)
            if header.base_offset >= end:
                return
            yield data
            offset = header.next_offset
        if not found:
            return


def _stored(cleaning: Cleaning, saved: SavedSegment) -> Iterator[bytes]:
    """The batches of a sealed segment, through a file handle of our own."""
    segment = Segment.restore(cleaning.disk, cleaning.folder, saved, CHUNK_BYTES)
    file = segment.file
    offset, position = saved.base_offset, 0
    try:
        while position < saved.length:
            found, offset, position = read_batches(
                file, segment, position, offset, False, offset, CHUNK_BYTES, 1
            )
            yield from found
    except Damaged as damage:
        raise segment.corrupt(*(segment.damage() or (damage.position, damage.what))) from None
    finally:
        file.close()


# ------------------------------------------------------------ pass 2


def _groups(sealed: list[SavedSegment], segment_bytes: int) -> Iterator[list[SavedSegment]]:
    """Neighbours that fit into one segment together are cleaned into one."""
    group: list[SavedSegment] = []
    size = 0
    for saved in sealed:
        if group and size + saved.length > segment_bytes:
            yield group
            group, size = [], 0
        group.append(saved)
        size += saved.length
    if group:
        yield group


def _clean_group(
    cleaning: Cleaning,
    group: list[SavedSegment],
    keep: Callable[[StoredRecord], bool],
    last_word: Callable[[Header], bool],
) -> Cleaned | None:
    """One new segment of a group; None when there is nothing to gain."""
    generation = max(generation_of(saved.name) for saved in group) + 1
    name = fresh_name(cleaning.disk, cleaning.folder, group[0].base_offset, generation)
    writer = _Writer(cleaning, name, group[0].base_offset)
    dropped, changed = 0, len(group) > 1
    try:
        for saved in group:
            for data in _stored(cleaning, saved):
                header = read_header(data)
                kept: bytes | bytearray | None = data
                if not header.is_block:
                    kept = rewrite(data, keep, may_vanish=not last_word(header))
                if kept is not data:
                    changed = changed or kept is None or len(kept) < len(data)
                    dropped += header.count - (0 if kept is None else read_header(kept).count)
                if kept is not None:
                    writer.add(bytes(kept))
        saved_new = writer.finish()
    except BaseException:
        writer.abandon()
        raise
    if not changed:
        writer.abandon()
        return None
    return Cleaned([saved.name for saved in group], [saved_new] if saved_new else [], dropped)


class _Writer:
    """Writes one cleaned segment; its index is made when it is first read."""

    def __init__(self, cleaning: Cleaning, name: str, base_offset: int) -> None:
        self._disk = cleaning.disk
        self._path = f"{cleaning.folder}/{name}"
        self._saved = SavedSegment(name, base_offset, 0, NO_TIME, NO_TIME, base_offset, 0, True)
        self._file = cleaning.disk.open(self._path, create=True)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._length = 0
        self._heads_crc = 0
        self._first_time_ms = self._max_time_ms = NO_TIME
        self._next_offset = base_offset

    def add(self, data: bytes) -> None:
        header = read_header(data)
        if self._next_offset == self._saved.base_offset and not self._length and not self._pending:
            self._first_time_ms = header.base_time_ms
        self._max_time_ms = max(self._max_time_ms, header.max_time_ms)
        self._heads_crc = crc32c(data[:CHECKED_FROM], self._heads_crc)
        self._next_offset = header.next_offset
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        with telling_disk_full(self._path, self._pending_bytes):
            self._file.pwritev(self._length, self._pending)
        self._length += self._pending_bytes
        self._pending, self._pending_bytes = [], 0

    def finish(self) -> SavedSegment | None:
        """The written segment; None, and no file, when nothing was put in."""
        self._write()
        self._file.close()
        if not self._length:
            self._disk.delete(self._path)
            return None
        return SavedSegment(
            self._saved.name,
            self._saved.base_offset,
            self._length,
            self._first_time_ms,
            self._max_time_ms,
            self._next_offset,
            self._heads_crc,
            True,
        )

    def abandon(self) -> None:
        self._file.close()
        if self._disk.exists(self._path):
            self._disk.delete(self._path)
