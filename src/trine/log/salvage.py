"""Salvage: keep what is readable of a damaged segment file.

Wherever no whole, undamaged batch begins, the file is searched for the next place where one does. Of the
batches that pass their own checksum, the longest row whose offsets rise is kept: the checksum leaves out the
offset, and one wrong offset must not cost all that follow. The original is moved to `<name>.damaged`
and never deleted. Lost offsets cannot be told from a gap, so the lost ranges are given in bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from trine.log.batch import CHECKED_FROM, HEADER_BYTES, MAGIC, MAGIC_AT, Header, check, read_header
from trine.log.index import NO_TIME
from trine.log.saved import SavedSegment, index_name
from trine.model.limits import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from trine.log.disk import Disk


class Salvaged(NamedTuple):
    """What became of a damaged segment; `saved` is what a checkpoint should say of it now."""

    batches_kept: int
    lost: list[tuple[int, int]]
    """Byte ranges of the original, first and one past the last."""
    saved: SavedSegment | None
    """None when nothing was readable."""


def salvage_segment(disk: Disk, path: str) -> Salvaged:
    """Rewrites the segment file at `path` with its good batches only; one without damage is left as it is."""
    folder, _, name = path.rpartition("/")
    data = disk.read(path)
    base_offset = int(name.split(".")[0])
    kept, lost = _good_batches(data, base_offset)
    if lost:
        disk.rename(path, _aside(disk, path))
        if kept:
            disk.write_atomic(path, b"".join(kept))
        index_path = f"{folder}/{index_name(name)}" if folder else index_name(name)
        if disk.exists(index_path):
            disk.delete(index_path)
        disk.sync_dir(folder)
    return Salvaged(len(kept), lost, _saved(name, base_offset, kept) if kept else None)


def _aside(disk: Disk, path: str) -> str:
    """A name for the damaged original that takes no earlier one's place."""
    aside, number = f"{path}.damaged", 1
    while disk.exists(aside):
        number += 1
        aside = f"{path}.damaged.{number}"
    return aside


def _good_batches(data: bytes, base_offset: int) -> tuple[list[bytes], list[tuple[int, int]]]:
    found = list(_undamaged(data, base_offset))
    kept: list[bytes] = []
    lost: list[tuple[int, int]] = []
    good_to = 0
    for position, header in _rising(found):
        if position > good_to:
            lost.append((good_to, position))
        good_to = position + header.size
        kept.append(data[position:good_to])
    if good_to < len(data):
        lost.append((good_to, len(data)))
    return kept, lost


def _undamaged(data: bytes, base_offset: int) -> Iterator[tuple[int, Header]]:
    """Position and header of everything that passes as a batch."""
    view = memoryview(data)
    position = 0
    while position + HEADER_BYTES <= len(data):
        header = read_header(view, position)
        whole = view[position : position + header.size] if header.size >= HEADER_BYTES else b""
        if header.size <= BATCH_BYTES_MAX and header.base_offset >= base_offset and check(whole):
            yield position, header
            position += header.size
            continue
        # The magic is the one byte of a header that is always the same: go to where the next could be.
        magic_at = data.find(MAGIC, position + MAGIC_AT + 1)
        if magic_at < 0:
            return
        position = magic_at - MAGIC_AT


def _rising(found: list[tuple[int, Header]]) -> list[tuple[int, Header]]:
    """The longest row of batches of which each begins after the one before it ended."""
    ends: list[int] = []  # the lowest next offset with which a row of this length can end
    last: list[int] = []  # and which batch that is
    before: list[int] = []
    for at, (_, header) in enumerate(found):
        length = bisect_right(ends, header.base_offset)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(header.next_offset)
            last.append(at)
        elif header.next_offset < ends[length]:
            ends[length], last[length] = header.next_offset, at
    row: list[tuple[int, Header]] = []
    at = last[-1] if last else -1
    while at >= 0:
        row.append(found[at])
        at = before[at]
    return row[::-1]


def _saved(name: str, base_offset: int, kept: list[bytes]) -> SavedSegment:
    headers = [read_header(batch) for batch in kept]
    heads_crc, expected, gaps = 0, base_offset, False
    max_time = NO_TIME
    for batch, header in zip(kept, headers, strict=True):
        heads_crc = crc32c(batch[:CHECKED_FROM], heads_crc)
        gaps = gaps or header.base_offset != expected
        expected = header.next_offset
        max_time = max(max_time, header.max_time_ms)
    length = sum(map(len, kept))
    return SavedSegment(
        name, base_offset, length, headers[0].base_time_ms, max_time, expected, heads_crc, gaps
    )
