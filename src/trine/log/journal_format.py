"""The bytes of the journal, version 1. Pure: nothing here opens a file.

An lsn is a byte position in the endless stream of all journal files; a file named after its first lsn `F`
holds the stream from `F` on, so that the byte of lsn `L` stands at `L - F` in it. All numbers are little
endian.

File header, 64 bytes, at the start of every file:

     0   8s   magic `TRINEJNL`
     8   u32  format version (1)
    12   u32  header bytes (64)
    16   u64  first lsn of this file
    24   u64  bytes this file may hold; the next file begins at first lsn + this
    32   28x  zeros
    60   u32  crc32c of the 60 bytes before

Entry, a multiple of 8 bytes, never across two files:

     0   u32  crc32c of all that follows, padding included
     4   u32  length of the body, without padding
     8   u64  lsn of this entry: bytes of a recycled file have an older one, so they never pass for live
    16   u32  number of parts; 0 is an END entry: the rest of this file is unused, the next file goes on
    20   u32  how far behind this lsn the synced lsn was when this was written; 2^32-1: that far or further
    24        body: per part  u32 log id | u32 length | bytes
     .        zeros up to a multiple of 8

Mark, 28 bytes, file `mark`: up to where the journal is known to be synced.

     0   8s   magic `TRINEMRK`
     8   u32  format version (1)
    12   u32  1 after a clean close, else 0
    16   u64  synced lsn
    24   u32  crc32c of the 24 bytes before
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from crc32c import crc32c

from trine.log.disk import Buffer

VERSION: Final = 1
HEADER_MAGIC: Final = b"TRINEJNL"
MARK_MAGIC: Final = b"TRINEMRK"
HEADER: Final = struct.Struct("<8sIIQQ28x")
CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = HEADER.size + CRC.size
ENTRY: Final = struct.Struct("<IIQII")
ENTRY_BYTES: Final = ENTRY.size
ENTRY_REST: Final = struct.Struct("<IQII")
"""The entry's head without the crc, which is known last."""
ENTRY_REST_ONE: Final = struct.Struct("<IQIIII")
"""The same, joined with the head of the only part."""
PART: Final = struct.Struct("<II")
PART_BYTES: Final = PART.size
MARK: Final = struct.Struct("<8sIIQ")
MARK_BYTES: Final = MARK.size + CRC.size
BEHIND_MAX: Final = 0xFFFF_FFFF
PADDING: Final = tuple(bytes(count) for count in range(8))
SCAN_WORDS: Final = 512 * 1024
assert (HEADER_BYTES, ENTRY_BYTES, PART_BYTES, MARK_BYTES) == (64, 24, 8, 28)

Parts: TypeAlias = list[tuple[int, memoryview]]


class Header(NamedTuple):
    version: int
    first_lsn: int
    file_bytes: int


class Mark(NamedTuple):
    synced_lsn: int
    clean: bool


class Entry(NamedTuple):
    """An entry whose checksum and lsn are right. `end` is the position just past it."""

    position: int
    end: int
    body_bytes: int
    part_count: int
    behind: int

    @property
    def is_end(self) -> bool:
        return self.part_count == 0

    def synced_before(self, first_lsn: int) -> int:
        """The lsn that was synced when this entry was written; 0 if it does not say."""
        return 0 if self.behind == BEHIND_MAX else first_lsn + self.position - self.behind


def pack_header(first_lsn: int, file_bytes: int) -> bytes:
    head = HEADER.pack(HEADER_MAGIC, VERSION, HEADER_BYTES, first_lsn, file_bytes)
    return head + CRC.pack(crc32c(head))


def read_header(data: Buffer) -> Header | None:
    """The header, or None if these bytes are not one."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, _, first_lsn, file_bytes = HEADER.unpack_from(data)
    (crc,) = CRC.unpack_from(data, HEADER.size)
    if magic != HEADER_MAGIC or crc != crc32c(memoryview(data)[: HEADER.size]):
        return None
    return Header(version, first_lsn, file_bytes)


def pack_mark(mark: Mark) -> bytes:
    head = MARK.pack(MARK_MAGIC, VERSION, mark.clean, mark.synced_lsn)
    return head + CRC.pack(crc32c(head))


def read_mark(data: Buffer) -> Mark | None:
    if len(data) < MARK_BYTES:
        return None
    magic, version, clean, synced_lsn = MARK.unpack_from(data)
    (crc,) = CRC.unpack_from(data, MARK.size)
    if magic != MARK_MAGIC or version != VERSION or crc != crc32c(memoryview(data)[: MARK.size]):
        return None
    return Mark(synced_lsn, bool(clean))


def pack_end(lsn: int, synced_lsn: int) -> bytes:
    rest = ENTRY_REST.pack(0, lsn, 0, min(lsn - synced_lsn, BEHIND_MAX))
    return CRC.pack(crc32c(rest)) + rest


def read_entry(data: memoryview, position: int, first_lsn: int) -> Entry | None:
    """The entry at `position`, or None if no whole entry with this very lsn stands there."""
    if position + ENTRY_BYTES > len(data):
        return None
    crc, body_bytes, lsn, part_count, behind = ENTRY.unpack_from(data, position)
    if lsn != first_lsn + position:
        return None
    end = position + ENTRY_BYTES + ((body_bytes + 7) & -8)
    if end > len(data) or crc32c(data[position + CRC.size : end]) != crc:
        return None
    return Entry(position, end, body_bytes, part_count, behind)


def read_parts(data: memoryview, entry: Entry) -> Parts:
    """What an entry holds: (log id, bytes) in the order they were given."""
    parts: Parts = []
    position = entry.position + ENTRY_BYTES
    for _ in range(entry.part_count):
        log_id, length = PART.unpack_from(data, position)
        position += PART_BYTES
        parts.append((log_id, data[position : position + length]))
        position += length
    assert position == entry.position + ENTRY_BYTES + entry.body_bytes, (
        "an entry's parts do not fill its body"
    )
    return parts


def heads_from(data: memoryview, position: int, first_lsn: int) -> Iterator[int]:
    """Where, at or after `position`, a head stands that carries the lsn of its place, whole entry or not.

    Entries stand at multiples of 8 and their lsn is known from where they stand, so one comparison of all
    words finds them.
    """
    aligned = len(data) & -8
    for start in range(max(position, HEADER_BYTES), aligned, SCAN_WORDS * 8):
        count = min(SCAN_WORDS, (aligned - start) // 8)
        words = np.frombuffer(data, dtype="<u8", count=count, offset=start)
        expected = np.arange(count, dtype=np.uint64) * np.uint64(8) + np.uint64(first_lsn + start - 8)
        for index in np.flatnonzero(words == expected).tolist():
            if (head := start + 8 * index - 8) >= position:
                yield head


def entries_beyond(data: memoryview, position: int, first_lsn: int) -> Iterator[Entry]:
    """Whole entries of this very stream anywhere after `position`, which need not follow one another."""
    for head in heads_from(data, position, first_lsn):
        if head > position and (entry := read_entry(data, head, first_lsn)) is not None:
            yield entry
