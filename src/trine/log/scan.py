"""Checked ways along the batches of one file: walk the headers, read, scrub.

Each takes a `Bounds` (what is known of the file) and raises `Damaged` at the first batch that cannot be as
it is. The caller turns that into `Corrupt` once it knows that the index did not lead it astray.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from crc32c import crc32c

from trine.log.batch import (
    CHECKED_FROM,
    HEADER,
    HEADER_BYTES,
    LENGTH_BYTES,
    MAGIC,
    Fields,
    Header,
    read_header,
)
from trine.model.limits import KIB, MIB

if TYPE_CHECKING:
    from trine.log.disk import File

CHUNK_BYTES: Final = 1 * MIB
"""One read of a walk along the headers: large enough that the call does not count."""

HEAD: Final = struct.Struct(">qiibIhi")
"""Base offset, length, epoch, magic, crc, attributes, last offset delta: what a walk needs of a header."""

_unpack_header: Final = HEADER.unpack_from

READ_BYTES_MIN: Final = 16 * KIB
"""The least a reader fetches at once: about what lies between two entries of the index."""

EARLY_END: Final = "the file ends within a batch header"
BAD_CHECKSUM: Final = "the batch's checksum is wrong"


class Damaged(Exception):
    """The batch at `position` is not as it should be."""

    def __init__(self, position: int, what: str) -> None:
        super().__init__(what)
        self.position = position
        self.what = what


class Bounds(Protocol):
    """What is known of a file of batches without reading it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def flushed_offset(self) -> int:
        """The offset after the last batch in the file."""

    @property
    def length(self) -> int:
        """How many bytes of the file count."""

    @property
    def gaps(self) -> bool:
        """Whether offsets may be missing between batches."""


def check_head(
    bounds: Bounds, position: int, expected: int, exact: bool, base: int, size: int, magic: int, delta: int
) -> None:
    """Whether such a batch can stand at `position`, after one that ended before offset `expected`."""
    if magic != MAGIC:
        raise Damaged(position, f"a batch of magic {magic}, not {MAGIC}")
    if size < HEADER_BYTES or position + size > bounds.length:
        raise Damaged(position, f"a batch of {size} bytes that does not fit the file's {bounds.length}")
    if base < expected or (base > expected and (exact or not bounds.gaps)):
        raise Damaged(position, f"a batch of offset {base} where {expected} was expected")
    if delta < 0 or base + delta >= bounds.flushed_offset:
        raise Damaged(
            position, f"a batch up to offset {base + delta} in a file up to {bounds.flushed_offset}"
        )


def walk_checked(
    file: File, bounds: Bounds, position: int, expected: int, *, exact: bool = False
) -> Iterator[list[tuple[int, Fields]]]:
    """Positions and headers of checked batches from `position` on, a chunk of them at a time.

    A million small batches take about a second this way: nothing is made of a header but its fields.
    """
    end, flushed = bounds.length, bounds.flushed_offset
    size = HEADER_BYTES
    while position < end:
        chunk = file.pread(position, min(max(CHUNK_BYTES, size), end - position))
        if len(chunk) < HEADER_BYTES:
            raise Damaged(position, EARLY_END)
        view = memoryview(chunk)
        found: list[tuple[int, Fields]] = []
        at, last = 0, len(chunk) - HEADER_BYTES
        while at <= last:
            fields: Fields = _unpack_header(chunk, at)
            base, size, delta = fields[0], fields[1] + LENGTH_BYTES, fields[6]
            after = at + size
            if (
                base != expected
                or fields[3] != MAGIC
                or size < HEADER_BYTES
                or delta < 0
                or base + delta >= flushed
                or position + after > end
            ):
                check_head(bounds, position + at, expected, exact, base, size, fields[3], delta)
            if after > len(chunk):
                break
            if crc32c(view[at + CHECKED_FROM : after]) != fields[4]:
                raise Damaged(position + at, BAD_CHECKSUM)
            found.append((position + at, fields))
            expected = base + delta + 1
            exact = False
            at = after
        if not found and size <= len(chunk):
            raise Damaged(position, EARLY_END)
        yield found
        position += at
    _check_end(bounds, position, expected)


def walk(
    file: File, bounds: Bounds, position: int, expected: int, *, exact: bool = False
) -> Iterator[tuple[int, Header]]:
    """The headers from `position` on, where offset `expected` is; with `exact` it must be just that one."""
    end = bounds.length
    chunk, chunk_at = b"", position
    while position < end:
        within = position - chunk_at
        if within + HEADER_BYTES > len(chunk):
            chunk = file.pread(position, min(CHUNK_BYTES, end - position))
            chunk_at, within = position, 0
            if len(chunk) < HEADER_BYTES:
                raise Damaged(position, EARLY_END)
        header = read_header(chunk, within)
        base, size, delta = header.base_offset, header.size, header.last_offset_delta
        check_head(bounds, position, expected, exact, base, size, chunk[within + 16], delta)
        yield position, header
        position += size
        expected = base + delta + 1
        exact = False
    _check_end(bounds, position, expected)


def read_batches(
    file: File,
    bounds: Bounds,
    position: int,
    expected: int,
    exact: bool,
    offset: int,
    bytes_max: int,
    least: int,
) -> tuple[list[bytes], int, int]:
    """Checked batches that end at or after `offset`, looked for from `position` on.

    At most `bytes_max` bytes of them, but at least one if `least` is 1. Also gives where it stopped: the next
    offset and its position.
    """
    end = bounds.length
    out: list[bytes] = []
    left = bytes_max
    chunk, chunk_at = b"", position
    unpack = HEAD.unpack_from
    while position < end:
        within = position - chunk_at
        if within + HEADER_BYTES > len(chunk):
            chunk = file.pread(position, min(max(left, READ_BYTES_MIN), end - position))
            chunk_at, within = position, 0
            if len(chunk) < HEADER_BYTES:
                raise Damaged(position, EARLY_END)
        base, length, _, magic, crc, _, delta = unpack(chunk, within)
        size = length + LENGTH_BYTES
        if base != expected or magic != MAGIC or size < HEADER_BYTES or delta < 0 or position + size > end:
            check_head(bounds, position, expected, exact, base, size, magic, delta)
        exact = False
        if base + delta >= offset:
            if size > left and len(out) >= least:
                return out, base, position
            if within + size > len(chunk):
                chunk = file.pread(position, size)
                chunk_at, within = position, 0
            data = chunk[within : within + size]
            if len(data) != size or crc32c(memoryview(data)[CHECKED_FROM:]) != crc:
                raise Damaged(position, BAD_CHECKSUM)
            out.append(data)
            left -= size
        position += size
        expected = base + delta + 1
    _check_end(bounds, position, expected)
    return out, expected, position


def scrub(file: File, bounds: Bounds, heads_crc: int, tail: Iterable[bytes] = ()) -> Iterator[int]:
    """Checks every byte; yields how far it came. `heads_crc` is over the batches of the file and `tail`."""
    position, previous, expected, heads = 0, 0, bounds.base_offset, 0
    end = min(bounds.length, file.size())
    while position < end:
        chunk = file.pread(position, min(CHUNK_BYTES, end - position))
        within = 0
        while within + HEADER_BYTES <= len(chunk):
            base, length, _, magic, crc, _, delta = HEAD.unpack_from(chunk, within)
            size = length + LENGTH_BYTES
            at = position + within
            if bounds.gaps and base < expected:
                raise Damaged(previous, f"the batch here or the next, of offset {base}, has a wrong offset")
            check_head(bounds, at, expected, False, base, size, magic, delta)
            if within + size > len(chunk):
                if within:
                    break
                chunk = file.pread(position, size)
            checked = memoryview(chunk)[within + CHECKED_FROM : within + size]
            if len(checked) != size - CHECKED_FROM or crc32c(checked) != crc:
                raise Damaged(at, BAD_CHECKSUM)
            heads = crc32c(chunk[within : within + CHECKED_FROM], heads)
            previous, expected = at, base + delta + 1
            within += size
        if within == 0:
            raise Damaged(position, EARLY_END)
        position += within
        yield position
    if position < bounds.length:
        raise Damaged(position, f"the file ends here, {bounds.length - position} bytes early")
    _check_end(bounds, previous, expected)
    for data in tail:
        heads = crc32c(data[:CHECKED_FROM], heads)
    if heads != heads_crc:
        raise Damaged(0, "the offset or the epoch of some batch in the file was changed")


def _check_end(bounds: Bounds, position: int, expected: int) -> None:
    if expected != bounds.flushed_offset:
        raise Damaged(position, f"the file ends at offset {expected}, not at {bounds.flushed_offset}")
