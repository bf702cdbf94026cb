"""What a checkpoint keeps of a log, and how the files it names are called.

<base offset, 20 digits>.log                 a segment
<base offset, 20 digits>.<generation>.log    one written anew, by compaction or after a cut
(the same).index                             its sparse index
(the same).log.damaged                       what salvage put aside; never touched again
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from trine.log.batch import HEADER_BYTES, MAGIC, MAGIC_AT, read_header
from trine.model.errors import Corrupt

if TYPE_CHECKING:
    from trine.log.disk import Disk

TO_DO: Final = "Restore the file from a backup, or keep what is readable of it with trine.salvage(data_dir)"

OURS: Final = re.compile(r"\d{20}(\.\d+)?\.(log|index)")
"""Names of files a log may delete when no checkpoint names them."""


class SavedSegment(msgspec.Struct, array_like=True, frozen=True):
    """A segment: `length` bytes of the file count, whatever is beyond."""

    name: str
    base_offset: int
    length: int
    first_time_ms: int
    max_time_ms: int
    next_offset: int
    heads_crc: int
    """crc32c over the first 21 bytes of every batch."""
    gaps: bool
    """Whether offsets may be missing between its batches."""


class SavedLog(msgspec.Struct, array_like=True, frozen=True):
    """A log: its segments with something in them, oldest first."""

    start_offset: int
    next_offset: int
    segments: list[SavedSegment]


def segment_name(base_offset: int, generation: int = 0) -> str:
    return f"{base_offset:020d}.{generation}.log" if generation else f"{base_offset:020d}.log"


def generation_of(name: str) -> int:
    parts = name.split(".")
    return int(parts[1]) if len(parts) == 3 else 0


def index_name(name: str) -> str:
    return name.removesuffix(".log") + ".index"


def fresh_name(disk: Disk, folder: str, base_offset: int, generation: int = 0) -> str:
    """A name no file has: one that is obsolete keeps its name until it is deleted."""
    while disk.exists(f"{folder}/{segment_name(base_offset, generation)}"):
        generation += 1
    return segment_name(base_offset, generation)


def check_saved(disk: Disk, folder: str, saved: SavedSegment) -> bool:
    """Whether a segment file goes on beyond its saved length; Corrupt when it is shorter or begins otherwise."""
    path = f"{folder}/{saved.name}"
    where = disk.describe(path)
    if not disk.exists(path):
        raise Corrupt(where, 0, "the segment file is missing", TO_DO)
    file = disk.open(path)
    try:
        size = file.size()
        head = file.pread(0, HEADER_BYTES)
    finally:
        file.close()
    if size < saved.length:
        what = f"the segment file ends here, {saved.length - size} bytes early"
        raise Corrupt(where, size, what, TO_DO)
    if len(head) < HEADER_BYTES or head[MAGIC_AT] != MAGIC:
        raise Corrupt(where, 0, "the file does not begin with a batch", TO_DO)
    base = read_header(head).base_offset
    if base < saved.base_offset or (base > saved.base_offset and not saved.gaps):
        raise Corrupt(where, 0, f"a batch of offset {base} where {saved.base_offset} was expected", TO_DO)
    return size > saved.length


def cut_to_saved(disk: Disk, folder: str, saved: SavedSegment) -> None:
    """Cuts a segment file to its saved length: what is beyond comes again from the journal."""
    file = disk.open(f"{folder}/{saved.name}")
    try:
        file.truncate(saved.length)
    finally:
        file.close()
