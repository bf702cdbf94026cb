"""The sparse index of a segment, version 1: where to begin looking for an offset or a time.

It is a hint. Whatever is missing, short or damaged in it is made again by walking the segment's batch
headers, so it is never synced, and a reader checks the batch it was led to. All integers are little-endian.

    header
     0   4s   "TRIX"
     4   u16  version (1)
     6   u16  0
     8   i64  base offset of the segment
    16   u32  crc32c of the 16 bytes above

    entry, about one for every `index_bytes` of batches
     0   i64  base offset of a batch
     8   i64  its position in the segment file
    16   i64  highest max timestamp (ms) of all batches before it in the segment
    24   u32  crc32c of the 24 bytes above, continued from the header's

The time is of the batches *before* the entry, so that a look-up by time can start at the last entry whose
time is too low without missing one.
"""

from __future__ import annotations

import contextlib
import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from trine.log.disk import Disk, File

MAGIC: Final = b"TRIX"
VERSION: Final = 1
HEADER: Final = struct.Struct("<4sHHqI")
HEADER_BYTES: Final = 20
ENTRY: Final = struct.Struct("<qqqI")
ENTRY_BYTES: Final = 28
assert HEADER.size == HEADER_BYTES
assert ENTRY.size == ENTRY_BYTES

NO_TIME: Final = -(2**63)
"""Lower than any time: nothing stands before the first batch."""


class Index:
    """Three parallel arrays, sorted by all of them; entries are only ever added at the end."""

    __slots__ = ("_header", "_seed", "base_offset", "offsets", "positions", "times")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("q")
        self.positions = array("q")
        self.times = array("q")
        head = HEADER.pack(MAGIC, VERSION, 0, base_offset, 0)[:16]
        self._seed = crc32c(head)
        self._header = head + struct.pack("<I", self._seed)

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def end(self) -> int:
        """The position of the last entry: from here on nothing is indexed."""
        return self.positions[-1] if self.positions else 0

    def add(self, offset: int, position: int, time_before_ms: int) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        self.times.append(time_before_ms)

    def position_of(self, offset: int) -> tuple[int, int]:
        """The base offset and position of the last indexed batch that begins at or before `offset`."""
        at = bisect_right(self.offsets, offset) - 1
        return (self.offsets[at], self.positions[at]) if at >= 0 else (self.base_offset, 0)

    def position_before(self, time_ms: int) -> tuple[int, int]:
        """The base offset and position from which on the first batch with a max time >= `time_ms` can be."""
        at = bisect_left(self.times, time_ms) - 1
        return (self.offsets[at], self.positions[at]) if at >= 0 else (self.base_offset, 0)

    def cut(self, position: int) -> None:
        """Drops the entries at `position` and beyond."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:], self.positions[keep:], self.times[keep:]

    def encode(self, first: int = 0) -> bytes:
        """The stored form from entry `first` on; with the header when that is the very first."""
        out = bytearray() if first else bytearray(self._header)
        for at in range(first, len(self.offsets)):
            entry = ENTRY.pack(self.offsets[at], self.positions[at], self.times[at], 0)[:24]
            out += entry + struct.pack("<I", crc32c(entry, self._seed))
        return bytes(out)

    @staticmethod
    def bytes_of(count: int) -> int:
        """Where entry number `count` stands in the file."""
        return HEADER_BYTES + count * ENTRY_BYTES

    def load(self, data: Buffer, length: int) -> bool:
        """Takes the stored entries up to the first that is off; False when something was off.

        `length` is how much of the segment there is: what points beyond it is left over from a longer one.
        """
        view = memoryview(data)
        if view[:HEADER_BYTES] != self._header:
            return False
        body = view[HEADER_BYTES:]
        last_offset, last_position, last_time = self.base_offset - 1, -1, NO_TIME
        whole = len(body) // ENTRY_BYTES * ENTRY_BYTES
        start = 0
        for offset, position, time_ms, crc in ENTRY.iter_unpack(body[:whole]):
            if crc32c(body[start : start + 24], self._seed) != crc or position >= length:
                return False
            if offset <= last_offset or position <= last_position or time_ms < last_time:
                return False
            self.add(offset, position, time_ms)
            last_offset, last_position, last_time = offset, position, time_ms
            start += ENTRY_BYTES
        return whole == len(body)


class IndexFile:
    """Where an index is kept. A refused write costs nothing: the entries are written the next time."""

    __slots__ = ("_disk", "_file", "_path", "_written")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._written = 0
        """Entries in the file."""

    def load(self, base_offset: int, length: int) -> Index:
        """What is right of the stored index; the file is cut where it is not."""
        index = Index(base_offset)
        if self._disk.exists(self._path):
            whole = index.load(self._disk.read(self._path), length)
            self._written = len(index)
            if not whole:
                self._truncate(Index.bytes_of(len(index)) if len(index) else 0)
        return index

    def write(self, index: Index) -> None:
        """Adds the entries that are not in the file yet."""
        first = self._written
        if first == len(index):
            return
        try:
            self._opened().pwrite(Index.bytes_of(first) if first else 0, index.encode(first))
        except OSError:
            return
        self._written = len(index)

    def cut(self, count: int) -> None:
        """Entries from number `count` on are to be written again; until then they point beyond the end."""
        self._written = min(self._written, count)

    def reset(self) -> None:
        self._written = 0
        if self._disk.exists(self._path):
            self._truncate(0)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self._path, create=True)
        return self._file

    def _truncate(self, size: int) -> None:
        with contextlib.suppress(OSError):  # stale entries are found out by what they point at
            self._opened().truncate(size)
