"""A log: an append-only sequence of placed batches in a folder of segments.

    append ─▶ tail (memory) ─ flush ─▶ segment files (page cache) ─ sync, by whoever checkpoints ─▶ medium

Durability is not this module's: the journal has every batch before it comes here. A checkpoint names the
segments and their lengths (`saved`), once what `dirty_files` gave is synced. Until the next one is durable,
nothing that the last one names is deleted or cut: such files are only listed (`obsolete`), and bytes below a
saved length are never written again. `restore` goes back to a checkpoint, and the journal is replayed on top.

Everything here is called under the broker's lock; the log has none of its own, and does not read the clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from trine.log.batch import Fields, Header, check, read_header
from trine.log.saved import OURS, SavedLog, SavedSegment, check_saved, cut_to_saved, fresh_name, index_name
from trine.log.scan import BAD_CHECKSUM, Damaged
from trine.log.segment import Segment
from trine.model.limits import KIB, MIB

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from trine.log.disk import Disk, File

__all__ = ["Log", "SavedLog", "SavedSegment", "Unsynced"]

OPEN_SEGMENTS_MAX: Final = 8
"""Sealed segments a log keeps open for its readers: slow groups must not use up all file handles."""


TOGETHER_BYTES_MAX: Final = 256 * KIB
"""Neighbours read by one call."""


class Unsynced(Protocol):
    """Something written to: a file, or a folder with new names in it."""

    def sync(self) -> None: ...


class _Folder:
    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def sync(self) -> None:
        self._disk.sync_dir(self._path)


class Log:
    """`next_offset` is the offset the next batch gets, `start_offset` the first that may be read."""

    def __init__(
        self, disk: Disk, path: str, *, segment_bytes: int, index_bytes: int = 16384, rolls: bool = True
    ) -> None:
        self.disk = disk
        self.path = path
        self.segment_bytes = segment_bytes
        self._index_bytes = index_bytes
        self._rolls = rolls
        self.start_offset = 0
        self.next_offset = 0
        self.tail_bytes = 0
        self.size_bytes = 0
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._recent: dict[str, Segment] = {}
        self._obsolete: list[str] = []
        self._handed_out: list[File] = []
        self._close_later: list[File] = []
        self._folder_dirty = False
        self._longer: list[SavedSegment] = []
        self._active = self._begin(0)

    @classmethod
    def restore(
        cls,
        disk: Disk,
        path: str,
        saved: SavedLog,
        *,
        segment_bytes: int,
        index_bytes: int = 16384,
        rolls: bool = True,
        tidy: bool = True,
    ) -> Log:
        """The log as a checkpoint knew it. Costs per segment, not per message.

        Without `tidy` the caller has to call it, before anything else is done with the log.
        """
        log = cls(disk, path, segment_bytes=segment_bytes, index_bytes=index_bytes, rolls=rolls)
        log._longer = [segment for segment in saved.segments if check_saved(disk, path, segment)]
        log._segments = [Segment.restore(disk, path, segment, index_bytes) for segment in saved.segments]
        log._bases = [segment.base_offset for segment in log._segments]
        log.start_offset = saved.start_offset
        log.next_offset = saved.next_offset
        log.size_bytes = sum(segment.length for segment in saved.segments)
        if log._segments and log._segments[-1].next_offset == saved.next_offset:
            log._active = log._segments[-1]
        else:
            log._active = log._begin(saved.next_offset)
        if tidy:
            log.tidy()
        return log

    def tidy(self) -> None:
        """Cuts and deletes what no checkpoint names; not before every file is known to be the right one."""
        for saved in self._longer:
            cut_to_saved(self.disk, self.path, saved)
        self._longer = []
        named = {name for one in self._segments if one.length for name in (one.name, index_name(one.name))}
        for name in self.disk.listdir(self.path):
            if name not in named and OURS.fullmatch(name):
                self.disk.delete(f"{self.path}/{name}")
        if not self._active.size:
            self._begin(self.next_offset)  # by the name that is free now

    # ------------------------------------------------------------ writing

    def append(self, data: Buffer, header: Header | None = None) -> int:
        """Adds a placed batch; its byte position in its segment. Gaps in the offsets are allowed."""
        if header is None:
            header = read_header(data)
        base = header.base_offset
        size = header.size
        assert base >= self.next_offset, f"a batch of offset {base} in a log that is at {self.next_offset}"
        active = self._active
        if not active.size:
            if base != active.base_offset:
                active = self._begin(base)
        elif active.size + size > self.segment_bytes and self._rolls:
            active = self._begin(base)
        stored = data if type(data) is bytes else bytes(data)
        assert len(stored) == size, "a batch and nothing else"
        self.next_offset = next_offset = base + header.last_offset_delta + 1
        self.tail_bytes += size
        self.size_bytes += size
        return active.add(stored, base, next_offset, header.base_time_ms, header.max_time_ms)

    def maybe_roll(self, now_ms: int, roll_ms: int) -> bool:
        """Seals the active segment when its first batch is older than `roll_ms`, for retention to take it."""
        active = self._active
        if not self._rolls or not active.size or now_ms - active.first_time_ms < roll_ms:
            return False
        self._begin(self.next_offset)
        return True

    def flush(self) -> None:
        """Hands the tail to the segment files. On an error what is left stays for the next flush."""
        if not self.tail_bytes:
            return
        for segment in self._unflushed():
            if not segment.length:
                self.disk.make_dirs(self.path)
                self._folder_dirty = True
            self.tail_bytes -= segment.flush()
            if segment is not self._active:
                self._used(segment)

    def _unflushed(self) -> list[Segment]:
        found = []
        for segment in reversed(self._segments):
            if segment.tail:
                found.append(segment)
            elif segment.length:
                break
        return found[::-1]

    def _begin(self, base_offset: int) -> Segment:
        """A new active segment; takes the place of one in which nothing was ever put."""
        if self._segments and not self._segments[-1].size:
            self._segments.pop()
            self._bases.pop()
        name = fresh_name(self.disk, self.path, base_offset)
        self._active = Segment(self.disk, self.path, name, base_offset, self._index_bytes)
        self._segments.append(self._active)
        self._bases.append(base_offset)
        return self._active

    # ------------------------------------------------------------ checkpoints

    def dirty_files(self) -> list[Unsynced]:
        """What must be synced before `saved` may be believed. Call `mark_clean` before the lock is let go."""
        for file in self._close_later:
            file.close()
        self._close_later = []
        dirty = [segment for segment in self._segments if segment.dirty]
        self._handed_out = [segment.file for segment in dirty]
        for segment in dirty:
            if segment is not self._active:
                self._used(segment)
        folder = [_Folder(self.disk, self.path)] if self._folder_dirty else []
        return [*self._handed_out, *folder]

    def mark_clean(self) -> None:
        """What `dirty_files` gave is being synced: only what is written from now on counts as dirty."""
        self._folder_dirty = False
        for segment in self._segments:
            segment.dirty = False

    def saved(self) -> SavedLog:
        assert not self.tail_bytes, "flush before saving"
        segments = [segment.saved() for segment in self._segments if segment.length]
        return SavedLog(self.start_offset, self.next_offset, segments)

    def obsolete(self) -> list[str]:
        """Takes the list of files that may be deleted once the next checkpoint is durable."""
        taken, self._obsolete = self._obsolete, []
        return taken

    # ------------------------------------------------------------ reading

    def read(self, offset: int, bytes_max: int = MIB) -> list[bytes]:
        """Stored batches from the one that covers `offset` (or the next there is) on, each of them checked.

        At least one if there is any, otherwise at most `bytes_max` bytes of them.
        """
        offset = max(offset, self.start_offset)
        out: list[bytes] = []
        left = bytes_max
        at = max(bisect_right(self._bases, offset) - 1, 0)
        while offset < self.next_offset:
            segment = self._segments[at]
            if offset >= segment.next_offset:
                at += 1
                continue
            if segment.length and offset < segment.flushed_offset:
                end = segment.flushed_offset
                found = segment.read_file(offset, left, not out)
                if segment is not self._active:
                    self._used(segment)
            else:
                end = segment.next_offset
                found = segment.read_tail(offset, left, not out)
            if not found:
                break
            out += found
            left -= sum(map(len, found))
            offset = read_header(found[-1]).next_offset
            if offset < end or left <= 0:
                break
        return out

    def batch_at(self, offset: int) -> bytes | None:
        """The batch that covers `offset`, or the next one after it."""
        found = self.read(offset, 1)
        return found[0] if found else None

    def read_at(self, position: int, size: int) -> bytes:
        """Bytes by position, of a log that does not roll; not checked."""
        assert not self._rolls, "positions are of one file: the log must not roll"
        return self._active.read_at(position, size)

    def read_batch(self, position: int, size: int) -> bytes:
        """The batch at a position, of a log that does not roll; checked."""
        data = self.read_at(position, size)
        if not check(data):
            raise self._active.corrupt(position, BAD_CHECKSUM)
        return data

    def read_batches(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """`read_batch` of many (position, size); neighbours are read together."""
        found: list[bytes] = []
        at = 0
        while at < len(places):
            start, size = places[at]
            until, end = at + 1, start + size
            while until < len(places) and places[until][0] == end and end - start < TOGETHER_BYTES_MAX:
                end += places[until][1]
                until += 1
            data = self.read_at(start, end - start)
            for position, size in places[at:until]:
                one = data[position - start : position - start + size]
                if not check(one):
                    raise self._active.corrupt(position, BAD_CHECKSUM)
                found.append(one)
            at = until
        return found

    def headers(self, from_offset: int | None = None) -> Iterator[tuple[int, Header]]:
        """Position in its segment and header of every batch from `from_offset` on; records are not read."""
        offset = self.start_offset if from_offset is None else max(from_offset, self.start_offset)
        for segment in self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]:
            if segment.next_offset > offset:
                yield from segment.headers(offset)

    def fields(self) -> Iterator[list[tuple[int, Fields]]]:
        """Position in its segment and header fields of every batch, checked: the quick way through very many."""
        for segment in self._segments:
            yield from segment.fields()

    def offset_at(self, time_ms: int) -> int:
        """The first offset of the first batch that has a record as young as `time_ms`; else `next_offset`."""
        for segment in self._segments:
            if segment.max_time_ms >= time_ms and segment.next_offset > self.start_offset:
                for _, header in segment.headers(self.start_offset, time_ms):
                    if header.max_time_ms >= time_ms:
                        return max(header.base_offset, self.start_offset)
        return self.next_offset

    def last_time_ms(self) -> int | None:
        """The time of the youngest record of the newest segment that has any."""
        for segment in reversed(self._segments):
            if segment.size:
                return segment.max_time_ms
        return None

    def sealed(self) -> list[SavedSegment]:
        """The segments nothing is added to any more and whose tail is flushed, oldest first."""
        return [segment.saved() for segment in self._segments[:-1] if not segment.tail]

    def verify(self) -> Iterator[tuple[str, int]]:
        """Checks every stored byte; yields file and bytes checked so far; raises Corrupt at what is wrong."""
        expected = 0
        for segment in list(self._segments):
            if segment.base_offset < expected:
                raise segment.corrupt(0, f"the segment begins at {segment.base_offset}, before {expected}")
            expected = segment.next_offset
            if not segment.length:
                continue
            try:
                for position in segment.scrub():
                    yield segment.path, position
            except Damaged as damage:
                raise segment.corrupt(damage.position, damage.what) from None
            finally:
                if segment is not self._active:
                    self._used(segment)

    # ------------------------------------------------------------ giving up data

    def segments_before(self, *, time_ms: int | None = None, bytes_max: int | None = None) -> int:
        """The offset up to which retention would delete: whole sealed segments, by age and by total size."""
        offset, left = self.start_offset, self.size_bytes
        for segment in self._segments[:-1]:
            too_old = time_ms is not None and segment.max_time_ms < time_ms
            left -= segment.size
            too_much = bytes_max is not None and left >= bytes_max
            if not too_old and not too_much:
                break
            offset = max(offset, segment.next_offset)
        return offset

    def retain(self, start_offset: int) -> None:
        """Moves the start up to `start_offset`; segments that are wholly below become obsolete."""
        if start_offset <= self.start_offset:
            return
        self.start_offset = start_offset = min(start_offset, self.next_offset)
        if self._active.size and start_offset == self.next_offset:
            self._begin(start_offset)
        below = 0
        while below < len(self._segments) - 1 and self._segments[below].next_offset <= start_offset:
            below += 1
        self._retire(0, below)

    def replace(self, old: Sequence[str], new: Sequence[SavedSegment]) -> None:
        """Puts cleaned segments, already written, in the place of sealed ones that follow each other."""
        names = [segment.name for segment in self._segments]
        first = names.index(old[0])
        last = first + len(old)
        assert names[first:last] == list(old), "the segments must follow each other"
        assert last < len(names), "the active segment is not replaced"
        fresh = [Segment.restore(self.disk, self.path, saved, self._index_bytes) for saved in new]
        for segment in fresh:
            segment.dirty = True
            self.size_bytes += segment.length
        self._folder_dirty = True
        self._retire(first, last)
        self._segments[first:first] = fresh
        self._bases[first:first] = [segment.base_offset for segment in fresh]

    def truncate_to(self, offset: int) -> None:
        """Drops everything from `offset` on, which must be where a batch begins.

        Files are not cut, as a checkpoint may name them in full: the segment ends earlier, a new one begins.
        """
        assert self._rolls, "a log of positions is not cut"
        if offset >= self.next_offset:
            return
        assert offset >= self.start_offset, "what is below the start is gone already"
        at = max(bisect_right(self._bases, offset) - 1, 0)
        if self._bases[at] < offset:
            segment = self._segments[at]
            size, tail = segment.size, segment.size - segment.length
            segment.cut(offset)
            self.size_bytes -= size - segment.size
            self.tail_bytes -= tail - (segment.size - segment.length)
            at += 1
        self._retire(at, len(self._segments))
        self.next_offset = offset
        self._begin(offset)

    def _retire(self, first: int, last: int) -> None:
        for segment in self._segments[first:last]:
            self.size_bytes -= segment.size
            self.tail_bytes -= segment.size - segment.length
            self._recent.pop(segment.name, None)
            self._let_go(segment)
            if segment.length:
                self._obsolete.append(segment.path)
                if self.disk.exists(segment.index_path):
                    self._obsolete.append(segment.index_path)
        del self._segments[first:last], self._bases[first:last]

    # ------------------------------------------------------------ open files

    def _used(self, segment: Segment) -> None:
        """Remembers a sealed segment as open, and closes the one not used for longest beyond the limit."""
        recent = self._recent
        recent.pop(segment.name, None)
        recent[segment.name] = segment
        if len(recent) > OPEN_SEGMENTS_MAX:
            for name, oldest in recent.items():
                if not oldest.dirty and oldest is not segment:
                    del recent[name]
                    self._let_go(oldest)
                    return

    def _let_go(self, segment: Segment) -> None:
        """Closes a segment's file, unless somebody may be syncing it at this moment."""
        file = segment.let_go()
        if file is None:
            return
        if any(file is other for other in self._handed_out):
            self._close_later.append(file)
        else:
            file.close()

    def close(self) -> None:
        self._handed_out = []
        for segment in self._segments:
            self._let_go(segment)
        for file in self._close_later:
            file.close()
        self._close_later, self._recent = [], {}
