"""Salvage: keep what is readable of a damaged segment file, and of a whole store with damaged segments.

Wherever no whole, undamaged batch begins, the file is searched for the next place where one does. Of the
batches that pass their own checksum, the longest row whose offsets rise is kept: the checksum leaves out the
offset, and one wrong offset must not cost all that follow. Where the checkpoint says that no offset was
missing, a batch must also fit what stands before and after it. The original is moved to `<name>.damaged`
and never deleted.

A store's journal is not salvaged: an entry may span many logs, and those after a lost one build upon it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from crc32c import crc32c

from trine.log.batch import CHECKED_FROM, HEADER_BYTES, MAGIC, MAGIC_AT, Header, check, read_header
from trine.log.checkpoint import COPIES, ManifestLog, read_checkpoint, unpack, write_checkpoint
from trine.log.index import NO_TIME
from trine.log.saved import SavedLog, SavedSegment, index_name
from trine.log.segment import Segment
from trine.log.store import FORMAT_PATH, check_format
from trine.model.errors import InvalidOption
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
    offsets: tuple[tuple[int, int], ...] = ()
    """Of each batch kept, the first offset and one past the last."""


def salvage_store(disk: Disk) -> list[str]:
    """Mends the segments of a closed store and its checkpoint; a line for each file, saying what was lost."""
    if not disk.exists(FORMAT_PATH):
        raise InvalidOption(f"there is no Trine data directory at {disk.describe('')}: check the path")
    disk.lock()
    try:
        check_format(disk)
        found = read_checkpoint(disk)
        if found is None:
            return []
        generation, manifest = found
        lines = [
            f"{disk.describe(path)}: written again from the other copy; nothing was lost."
            for path in COPIES
            if not disk.exists(path) or unpack(disk.read(path), disk.describe(path)) is None
        ]
        logs = [_mended(disk, log, lines) for log in manifest.logs]
        if lines:
            write_checkpoint(disk, msgspec.structs.replace(manifest, logs=logs), generation + 1)
        return lines
    finally:
        disk.unlock()


def _mended(disk: Disk, log: ManifestLog, lines: list[str]) -> ManifestLog:
    """The log as a checkpoint may name it after its damaged segments were salvaged."""
    saved = log.saved
    segments: list[SavedSegment] = []
    for segment in saved.segments:
        path = f"{log.path}/{segment.name}"
        if disk.exists(path):
            if not _damaged(disk, log.path, segment):
                segments.append(segment)
                continue
            salvaged = salvage_segment(disk, path, segment)
        else:
            salvaged = Salvaged(0, [], None)
        lines.append(f"{disk.describe(path)}: {_story(segment, salvaged, saved.start_offset)}")
        if salvaged.saved is not None:
            segments.append(salvaged.saved)
    next_offset = saved.next_offset
    if not log.rolls and segments:
        next_offset = segments[-1].next_offset  # such a log is one file: it cannot go on in another
    kept = SavedLog(saved.start_offset, next_offset, segments)
    return msgspec.structs.replace(log, saved=kept)


def _damaged(disk: Disk, folder: str, saved: SavedSegment) -> bool:
    segment = Segment.restore(disk, folder, saved, index_bytes=1)
    try:
        return segment.damage() is not None
    finally:
        if (file := segment.let_go()) is not None:
            file.close()


def _story(segment: SavedSegment, salvaged: Salvaged, start_offset: int) -> str:
    """What to tell of a mended file: the offsets that are gone, of those that could be read before."""
    missing = []
    expected = max(segment.base_offset, start_offset)
    for first, end in (*salvaged.offsets, (segment.next_offset, segment.next_offset)):
        if first > expected:
            missing.append(str(expected) if first == expected + 1 else f"{expected} to {first - 1}")
        expected = max(expected, end)
    kept = f"{salvaged.batches_kept} batches were kept"
    if not missing:
        return f"{kept}, and no offset was lost."
    some = " (some of them compaction had taken before)" if segment.gaps else ""
    what = "offset" if len(missing) == 1 and " " not in missing[0] else "offsets"
    return f"{kept}, {what} {', '.join(missing)} lost{some}."


def salvage_segment(disk: Disk, path: str, known: SavedSegment | None = None) -> Salvaged:
    """Rewrites the segment file at `path` with its good batches only; one without damage is left as it is.

    With `known`, what the checkpoint says of it, bytes beyond its length do not count.
    """
    folder, _, name = path.rpartition("/")
    data = disk.read(path)
    if known is not None:
        data = data[: known.length]
    base_offset = int(name.split(".")[0])
    kept, lost = _good_batches(data, base_offset, known)
    if lost:
        disk.rename(path, _aside(disk, path))
        if kept:
            disk.write_atomic(path, b"".join(kept))
        index_path = f"{folder}/{index_name(name)}" if folder else index_name(name)
        if disk.exists(index_path):
            disk.delete(index_path)
        disk.sync_dir(folder)
    heads = map(read_header, kept)
    offsets = tuple((head.base_offset, head.next_offset) for head in heads)
    return Salvaged(len(kept), lost, _saved(name, base_offset, kept) if kept else None, offsets)


def _aside(disk: Disk, path: str) -> str:
    """A name for the damaged original that takes no earlier one's place."""
    aside, number = f"{path}.damaged", 1
    while disk.exists(aside):
        number += 1
        aside = f"{path}.damaged.{number}"
    return aside


def _good_batches(
    data: bytes, base_offset: int, known: SavedSegment | None
) -> tuple[list[bytes], list[tuple[int, int]]]:
    found = list(_undamaged(data, base_offset))
    if known is not None and not known.gaps:
        found = _fitting(found, known)
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


def _fitting(found: list[tuple[int, Header]], known: SavedSegment) -> list[tuple[int, Header]]:
    """Without gaps, offsets follow from where batches stand: forward to the first damage, back to the last."""
    front, position, low = 0, 0, known.base_offset
    while front < len(found) and found[front][0] == position and found[front][1].base_offset == low:
        position += found[front][1].size
        low = found[front][1].next_offset
        front += 1
    back, position, high = len(found), known.length, known.next_offset
    while back > front:
        at, header = found[back - 1]
        if at + header.size != position or header.next_offset != high:
            break
        position, high = at, header.base_offset
        back -= 1
    between = [
        (at, header)
        for at, header in found[front:back]
        if header.base_offset >= low and header.next_offset <= high
    ]
    return [*found[:front], *between, *found[back:]]


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
