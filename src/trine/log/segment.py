"""A segment: one file of batches back to back, a tail of batches not yet handed to it, and a sparse index.

    segment file    batches as in batch.py, one after the other, up to the saved length
    index file      as in index.py

A segment file has no header of its own: its name and the log's saved state say what is in it, and every Kafka
tool can read it. The saved state also holds `heads_crc`, a crc32c over the first 21 bytes of every batch: it
guards the offset and the epoch, which the batch's own checksum leaves out.

Corruption is blamed in one way, however it was met: the segment is checked from its beginning, and the first
batch that is wrong is named. When none is, the index was wrong, and is made again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from trine.log.batch import (
    CHECKED_FROM,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    Fields,
    Header,
    header_of,
    read_header,
)
from trine.log.disk import telling_disk_full
from trine.log.index import NO_TIME, Index, IndexFile
from trine.log.saved import TO_DO, SavedSegment, index_name
from trine.log.scan import Damaged, read_batches, scrub, walk, walk_checked
from trine.model.errors import Corrupt

if TYPE_CHECKING:
    from trine.log.disk import Disk, File

HINTS_MAX: Final = 64
"""Remembered positions of sequential readers per segment."""


class Segment:
    """One file and its tail. Everything up to `length` is in the file, the rest in `tail`."""

    __slots__ = (
        "_disk",
        "_file",
        "_hints",
        "_index",
        "_index_bytes",
        "_index_file",
        "_indexed_to",
        "_view",
        "base_offset",
        "dirty",
        "first_time_ms",
        "flushed_offset",
        "folder",
        "gaps",
        "heads_crc",
        "length",
        "max_time_ms",
        "name",
        "next_offset",
        "size",
        "tail",
        "tail_bases",
        "tail_positions",
    )

    def __init__(self, disk: Disk, folder: str, name: str, base_offset: int, index_bytes: int) -> None:
        self._disk = disk
        self.folder = folder
        self.name = name
        self.base_offset = base_offset
        self._index_bytes = index_bytes
        self.length = 0
        """Bytes in the file."""
        self.size = 0
        """Bytes in the file and the tail."""
        self.next_offset = base_offset
        self.flushed_offset = base_offset
        """The next offset as far as the file goes."""
        self.first_time_ms = NO_TIME
        self.max_time_ms = NO_TIME
        self.heads_crc = 0
        self.gaps = False
        self.dirty = False
        """Written to since the last sync."""
        self.tail: list[bytes] = []
        self.tail_bases: list[int] = []
        self.tail_positions: list[int] = []
        self._file: File | None = None
        self._view: memoryview | None = None
        self._hints: dict[int, int] = {}
        self._index: Index | None = Index(base_offset)
        self._index_file = IndexFile(disk, self.index_path)
        self._indexed_to = 0

    @classmethod
    def restore(cls, disk: Disk, folder: str, saved: SavedSegment, index_bytes: int) -> Segment:
        segment = cls(disk, folder, saved.name, saved.base_offset, index_bytes)
        segment.length = segment.size = segment._indexed_to = saved.length
        segment.next_offset = segment.flushed_offset = saved.next_offset
        segment.first_time_ms = saved.first_time_ms
        segment.max_time_ms = saved.max_time_ms
        segment.heads_crc = saved.heads_crc
        segment.gaps = saved.gaps
        segment._index = None
        return segment

    def saved(self) -> SavedSegment:
        assert not self.tail, "flush before saving"
        return SavedSegment(
            self.name,
            self.base_offset,
            self.length,
            self.first_time_ms,
            self.max_time_ms,
            self.next_offset,
            self.heads_crc,
            self.gaps,
        )

    # ------------------------------------------------------------ files

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def index_path(self) -> str:
        return f"{self.folder}/{index_name(self.name)}"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def let_go(self) -> File | None:
        """Closes the index file and hands over the open segment file, for the caller to close."""
        file, self._file, self._view = self._file, None, None
        self._index_file.close()
        return file

    def corrupt(self, position: int, what: str) -> Corrupt:
        return Corrupt(self._disk.describe(self.path), position, what, TO_DO)

    # ------------------------------------------------------------ writing

    def add(
        self, data: bytes, base_offset: int, next_offset: int, base_time_ms: int, max_time_ms: int
    ) -> int:
        """Puts a placed batch at the end of the tail; its position."""
        position = self.size
        if position - self._indexed_to >= self._index_bytes:
            self._index_to_write().add(base_offset, position, self.max_time_ms)
            self._indexed_to = position
        if base_offset != self.next_offset:
            self.gaps = True
        if position == 0:
            self.first_time_ms = base_time_ms
        if max_time_ms > self.max_time_ms:
            self.max_time_ms = max_time_ms
        self.heads_crc = crc32c(data[:CHECKED_FROM], self.heads_crc)
        self.tail.append(data)
        self.tail_bases.append(base_offset)
        self.tail_positions.append(position)
        self.size = position + len(data)
        self.next_offset = next_offset
        return position

    def flush(self) -> int:
        """Hands the tail to the file in one write; the bytes written. On an error the tail stays as it is."""
        if not self.tail:
            return 0
        if self._file is None:
            self._file = self._disk.open(self.path, create=not self.length)
        index = self._index_to_write()
        size = self.size - self.length
        with telling_disk_full(self.path, size):
            self._file.pwritev(self.length, self.tail)
        self.length += size
        self.flushed_offset = self.next_offset
        self.dirty = True
        self.tail.clear()
        self.tail_bases.clear()
        self.tail_positions.clear()
        self._index_file.write(index)
        return size

    def cut(self, offset: int) -> None:
        """Ends the segment before the batch that begins at `offset`; the file keeps its bytes."""
        heads, position, next_offset = 0, 0, self.base_offset
        first_time = max_time = NO_TIME
        whole = list(self.headers(self.base_offset))
        self.gaps = False
        for at, header in whole:
            if header.base_offset >= offset:
                break
            assert header.next_offset <= offset, f"offset {offset} is within a batch"
            heads = crc32c(self.read_at(at, CHECKED_FROM), heads)
            first_time = header.base_time_ms if at == 0 else first_time
            max_time = max(max_time, header.max_time_ms)
            self.gaps = self.gaps or header.base_offset != next_offset
            position, next_offset = at + header.size, header.next_offset
        self.index.cut(position)
        self._index_file.cut(len(self.index))
        keep = sum(1 for at in self.tail_positions if at < position)
        del self.tail[keep:], self.tail_bases[keep:], self.tail_positions[keep:]
        self.length = min(self.length, position)
        self.size, self.next_offset, self.heads_crc = position, next_offset, heads
        self.first_time_ms, self.max_time_ms = first_time, max_time
        self.flushed_offset = min(self.flushed_offset, next_offset)
        self._hints.clear()

    # ------------------------------------------------------------ the index

    @property
    def index(self) -> Index:
        """Loaded when first asked for, and made whole from the headers where it is not."""
        if self._index is None:
            index = self._index_file.load(self.base_offset, self.length)
            try:
                self._extend(index)
            except Damaged:
                self.rebuild_index()
            else:
                self._take_index(index)
            assert self._index is not None
        return self._index

    def _index_to_write(self) -> Index:
        """The index, loaded before the file grows over what stale entries of a longer file would point at."""
        if self._index is None:
            try:
                return self.index
            except Corrupt:  # a matter for readers, who will meet it too; writing must go on
                self._index_file.reset()
                self._index = Index(self.base_offset)
        return self._index

    def rebuild_index(self) -> None:
        """Makes the index anew from the headers in the file."""
        index = Index(self.base_offset)
        self._hints.clear()
        self._index_file.reset()
        try:
            self._extend(index)
        except Damaged as damage:
            raise self.corrupt(*self._blame(damage)) from None
        self._take_index(index)

    def _take_index(self, index: Index) -> None:
        self._index = index
        self._indexed_to = index.end
        self._index_file.write(index)

    def _extend(self, index: Index) -> None:
        """Walks the headers from the last entry on, in the file, and adds the entries that are missing."""
        highest = index.times[-1] if len(index) else NO_TIME
        base = index.offsets[-1] if len(index) else self.base_offset
        for at, header in walk(self.file, self, index.end, base, exact=len(index) > 0):
            if at - index.end >= self._index_bytes:
                index.add(header.base_offset, at, highest)
            highest = max(highest, header.max_time_ms)

    # ------------------------------------------------------------ reading

    def _locate(self, offset: int) -> tuple[int, int, bool]:
        """Where to begin looking in the file: the offset expected there, the position, if it is exact."""
        hint = self._hints.get(offset)
        if hint is not None:
            return offset, hint, False
        base, position = self.index.position_of(offset)
        return base, position, position > 0

    def read_file(self, offset: int, bytes_max: int, least: int) -> list[bytes]:
        """Checked batches in the file that end at or after `offset`: up to `bytes_max`, `least` at least."""
        try:
            return self._read_file(offset, bytes_max, least)
        except Damaged:
            found = self.damage()
            if found is not None:
                raise self.corrupt(*found) from None
            self.rebuild_index()
        return self._read_file(offset, bytes_max, least)

    def _read_file(self, offset: int, bytes_max: int, least: int) -> list[bytes]:
        base, at, exact = self._locate(offset)
        out, following, position = read_batches(self.file, self, at, base, exact, offset, bytes_max, least)
        if position < self.length:
            if len(self._hints) >= HINTS_MAX:
                self._hints.clear()
            self._hints[following] = position
        return out

    def read_tail(self, offset: int, bytes_max: int, least: int) -> list[bytes]:
        """As `read_file`, from the tail."""
        at = max(bisect_right(self.tail_bases, offset) - 1, 0)
        if self.tail and read_header(self.tail[at]).last_offset < offset:
            at += 1
        out: list[bytes] = []
        for data in islice(self.tail, at, None):
            bytes_max -= len(data)
            if bytes_max < 0 and len(out) >= least:
                break
            out.append(data)
        return out

    def headers(self, offset: int, time_ms: int | None = None) -> Iterator[tuple[int, Header]]:
        """Positions and headers of the batches that end at or after `offset`, file then tail.

        With `time_ms` the walk may also leave out batches that are all older.
        """
        if self.length and offset < self.flushed_offset:
            try:
                yield from self._headers_file(offset, time_ms)
            except Damaged as damage:
                raise self.corrupt(*self._blame(damage)) from None
        for position, data in zip(self.tail_positions, self.tail, strict=True):
            header = read_header(data)
            if header.last_offset >= offset:
                yield position, header

    def _headers_file(self, offset: int, time_ms: int | None) -> Iterator[tuple[int, Header]]:
        base, position = self._start(offset, time_ms)
        if position:
            head = self.file.pread(position, HEADER_BYTES)
            if len(head) < HEADER_BYTES or head[MAGIC_AT] != MAGIC or read_header(head).base_offset != base:
                self.rebuild_index()
                base, position = self._start(offset, time_ms)
        for found in walk_checked(self.file, self, position, base, exact=position > 0):
            for at, fields in found:
                if fields[0] + fields[6] >= offset:
                    yield at, header_of(fields)

    def fields(self) -> Iterator[list[tuple[int, Fields]]]:
        """Positions and header fields of all batches, checked, file then tail: the quick way through many."""
        if self.length:
            try:
                yield from walk_checked(self.file, self, 0, self.base_offset)
            except Damaged as damage:
                raise self.corrupt(*self._blame(damage)) from None
        yield [
            (position, HEADER.unpack_from(data))
            for position, data in zip(self.tail_positions, self.tail, strict=True)
        ]

    def _start(self, offset: int, time_ms: int | None) -> tuple[int, int]:
        start = self.index.position_of(offset)
        return start if time_ms is None else max(start, self.index.position_before(time_ms))

    def read_at(self, position: int, size: int) -> bytes:
        """Bytes by position, from the mapped file or the tail; not checked."""
        if position < 0 or position + size > self.size:
            raise ValueError(f"bytes {position} to {position + size} of a segment of {self.size}")
        out = b""
        if position < self.length:
            if self._view is None or len(self._view) < min(position + size, self.length):
                self._view = memoryview(self.file.view())
            out = bytes(self._view[position : min(position + size, self.length)])
            if len(out) == size:
                return out
        at = bisect_right(self.tail_positions, position + len(out)) - 1
        while len(out) < size:
            data = self.tail[at]
            start = position + len(out) - self.tail_positions[at]
            out += data[start : start + size - len(out)]
            at += 1
        return out

    # ------------------------------------------------------------ checking

    def damage(self) -> tuple[int, str] | None:
        """Checks the file's batches one by one: position and kind of the first that is wrong."""
        try:
            for _ in self.scrub():
                pass
        except Damaged as damage:
            return damage.position, damage.what
        return None

    def _blame(self, damage: Damaged) -> tuple[int, str]:
        return self.damage() or (damage.position, damage.what)

    def scrub(self) -> Iterator[int]:
        """Checks every byte of the file; yields how far it came; raises Damaged."""
        return scrub(self.file, self, self.heads_crc, self.tail)
