"""The write-ahead journal: one stream of entries for all logs of a broker, so that one sync covers them all.

An entry holds parts for several logs and is kept whole or not at all. `append` gives the lsn just past the
entry; `sync(lsn)` returns when all up to there is on the medium. Formats: journal_format. Where the stream
ends after a crash: journal_recovery. Files: journal_files.

Threads. `append`, `flush`, `cut` and `close` have one caller at a time (the broker's lock); `sync` may be
called by any number of threads at any time (journal_sync).

Two ways to write, because they cost differently (measured): a store through a map takes less than a
microsecond for 200 bytes but ten times longer than pwrite for 100 KB; the first one after a sync faults, and
makes the next sync take more than twice as long. So small entries nobody waits to have synced go through
the map when there was no sync for a while, all others through pwrite. The page cache makes both the same bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from trine.log.disk import Buffer, Disk, WritableMap, telling_disk_full
from trine.log.journal_files import FOLDER, JournalFile, JournalFiles
from trine.log.journal_format import (
    BEHIND_MAX,
    CRC,
    ENTRY_BYTES,
    ENTRY_REST,
    ENTRY_REST_ONE,
    HEADER_BYTES,
    PADDING,
    PART,
    PART_BYTES,
    Parts,
    pack_end,
)
from trine.log.journal_recovery import Recovery
from trine.log.journal_sync import GroupCommit
from trine.model.durability import Level
from trine.model.errors import DiskFull, MessageTooLarge, StoreFailed
from trine.model.limits import ENTRY_BYTES_MAX, KIB, MIB

ONE_HEAD: Final = ENTRY_BYTES + PART_BYTES
UNSYNCED_BEFORE_MAP: Final = 64
"""Small entries after a sync that are written as if another one were near."""
_pack_crc = CRC.pack
_pack_one = ENTRY_REST_ONE.pack
_MEMORY, _WRITTEN = Level.MEMORY, Level.WRITTEN


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    file_bytes: int = 64 * MIB
    chunk_bytes: int = 4 * MIB
    """Zeros are written ahead of the entries this much at a time."""
    reserve_bytes: int = 1 * MIB
    """Room that only entries appended with `reserve=True` may use: acks can be recorded on a full disk."""
    queue_bytes_max: int = 1 * MIB
    """Entries of level MEMORY that wait in the process before they are written."""
    mapped_bytes_max: int = 2 * KIB
    """Entries up to this size are stored through the map."""
    spares_max: int = 4

    @property
    def entry_bytes_max(self) -> int:
        return min(ENTRY_BYTES_MAX, self.file_bytes - HEADER_BYTES - ENTRY_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStatistics:
    appends: int
    end_lsn: int
    written_lsn: int
    synced_lsn: int
    files: int
    spare_files: int
    syncs: int
    sync_seconds: float
    sync_seconds_max: float


class Journal:
    """Replay it to its end first (`replay`), then append."""

    def __init__(self, disk: Disk, settings: JournalSettings | None = None) -> None:
        self._settings = settings or JournalSettings()
        self._disk = disk
        self._folder = JournalFiles(
            disk,
            file_bytes=self._settings.file_bytes,
            chunk_bytes=self._settings.chunk_bytes,
            spares_max=self._settings.spares_max,
        )
        self._small_max = self._settings.mapped_bytes_max - ONE_HEAD
        self._recovery: Recovery | None = None
        self._commits = GroupCommit(disk)
        # The writer's own: changed only under the broker's lock.
        self._file: JournalFile | None = None
        self._next: JournalFile | None = None
        self._live: deque[JournalFile] = deque()  # all files with live entries; the last is self._file
        self._map: WritableMap = memoryview(bytearray())
        self._first_lsn = 0
        self._end = 0
        self._queue: list[bytes] = []
        self._queued_bytes = 0
        self._appends = 0
        self._mapped_syncs = 0  # how many syncs there were when the map was last known to be the shorter way
        self._seen_syncs = 0
        self._unsynced = 0  # entries since the last sync seen
        self._scarce = False  # the disk was full: entries that may use the reserve do so without asking again

    # -- opening ---------------------------------------------------------------------------------------------

    def replay(self, from_lsn: int = 0) -> Iterator[tuple[int, Parts]]:
        """(lsn past the entry, its parts) of all that was kept. Exhausted, the journal can be appended to."""
        assert self._recovery is None, "a journal is replayed once"
        try:
            self._recovery = Recovery(self._folder, from_lsn)
            yield from self._recovery.entries()
            self._start(self._recovery)
        except OSError as error:
            raise self.fail(f"reading {self._disk.describe(FOLDER)} failed: {error}") from error

    def expected_end(self, from_lsn: int) -> int:
        """About where `replay` will end, to tell how far it is: all files but the last are full."""
        first_lsns = self._folder.first_lsns
        if not first_lsns:
            return from_lsn
        mark = self._folder.read_mark()
        known = max(mark.synced_lsn if mark is not None else 0, first_lsns[-1])
        return known if known > from_lsn else first_lsns[-1] + self._settings.file_bytes

    def _start(self, recovery: Recovery) -> None:
        """Go on where the recovered stream ends."""
        self._live.extend(recovery.files)
        self._end = recovery.end_lsn
        last = self._live[-1] if self._live else None
        with telling_disk_full(self._disk.describe(FOLDER), self._settings.chunk_bytes):
            if last is None or self._end >= last.end_lsn:
                last = self._folder.create(self._end, HEADER_BYTES)
                self._live.append(last)
                last.file.sync()
                self._end += HEADER_BYTES
            self._commits.start(self._end, self._folder.open_mark(self._end))
        self._use(last)
        self._set_limit()

    def _use(self, file: JournalFile) -> None:
        self._file = file
        self._first_lsn = file.first_lsn
        self._map = file.file.map_write(file.filled)
        self._commits.track(file)

    # -- appending -------------------------------------------------------------------------------------------

    @property
    def end_lsn(self) -> int:
        """Just past the last entry appended, written or not."""
        return self._end

    @property
    def written_lsn(self) -> int:
        """All below is in the system's hands."""
        return self._commits.written

    @property
    def synced_lsn(self) -> int:
        """All below is on the medium."""
        return self._commits.synced

    @property
    def appends(self) -> int:
        return self._appends

    def append(self, parts: Sequence[tuple[int, Buffer]], level: Level, reserve: bool = False) -> int:
        """Add an entry and give the lsn just past it.

        On return it has reached `level`, except SYNCED: it is written then, and the caller goes on to `sync`,
        outside its lock. Raises DiskFull with nothing changed.
        """
        if len(parts) == 1:
            ((log_id, data),) = parts
            length = len(data)
            lsn = self._end
            end = lsn + ((length + 39) & -8)  # 39: the heads of entry and part, rounded up
            commits = self._commits
            if length <= self._small_max and end <= commits.limit:
                head = _pack_one(length + 8, lsn, 1, lsn - commits.synced, log_id, length)
                rest = b"".join((head, data, PADDING[-length & 7]))
                if level is _WRITTEN and not self._queue and commits.syncs == self._mapped_syncs:
                    at = lsn - self._first_lsn
                    self._map[at : at + end - lsn] = _pack_crc(crc32c(rest)) + rest
                    self._appends += 1
                    self._end = commits.written = end
                    return end
                return self._put(_pack_crc(crc32c(rest)) + rest, level)
        return self._append_any(parts, level, reserve)

    def _append_any(self, parts: Sequence[tuple[int, Buffer]], level: Level, reserve: bool) -> int:
        self.check()
        assert parts, "an entry has at least one part"
        body_bytes = sum(len(data) for _, data in parts) + PART_BYTES * len(parts)
        size = ENTRY_BYTES + ((body_bytes + 7) & -8)
        if size > self._settings.entry_bytes_max:
            raise MessageTooLarge(
                f"One change of {size:,} bytes does not fit a journal entry, which holds up to "
                f"{self._settings.entry_bytes_max:,}. Publish fewer messages at once, or smaller ones."
            )
        if self._end + size > self._commits.limit:
            self._make_room(size, reserve)
        behind = min(self._end - self._commits.synced, BEHIND_MAX)
        buffers: list[Buffer] = [ENTRY_REST.pack(body_bytes, self._end, len(parts), behind)]
        for log_id, data in parts:
            buffers.append(PART.pack(log_id, len(data)))
            buffers.append(data)
        buffers.append(PADDING[-body_bytes & 7])
        if size <= self._settings.mapped_bytes_max or level is _MEMORY:
            rest = b"".join(buffers)
            return self._put(_pack_crc(crc32c(rest)) + rest, level)
        crc = 0
        for buffer in buffers:
            crc = crc32c(buffer, crc)
        buffers[0] = _pack_crc(crc) + buffers[0]
        self.flush()
        self._write(self._end, buffers)
        self._appends += 1
        self._end += size
        self._commits.written = self._end
        return self._end

    def _put(self, entry: bytes, level: Level) -> int:
        """A ready small entry: queue it, or write it after what is queued."""
        end = self._end + len(entry)
        if level is _MEMORY:
            self._queue.append(entry)
            self._queued_bytes += len(entry)
            self._end = end
            self._appends += 1
            if self._queued_bytes >= self._settings.queue_bytes_max:
                self.flush()
            return end
        if self._queue:
            self.flush()
        if level is _WRITTEN and self._map_is_shorter():
            at = self._end - self._first_lsn
            self._map[at : at + len(entry)] = entry
        else:
            self._write(self._end, [entry])
        self._appends += 1
        self._end = self._commits.written = end
        return end

    def _map_is_shorter(self) -> bool:
        syncs = self._commits.syncs
        if syncs != self._mapped_syncs:
            if syncs != self._seen_syncs:
                self._seen_syncs = syncs
                self._unsynced = 0
            self._unsynced += 1
            if self._unsynced <= UNSYNCED_BEFORE_MAP:
                return False
            self._mapped_syncs = syncs
        return True

    def flush(self) -> None:
        """Hand the queued entries of level MEMORY to the system."""
        if self._queue:
            self.check()
            self._write(self._commits.written, [b"".join(self._queue)])
            self._commits.written += self._queued_bytes
            self._queue.clear()
            self._queued_bytes = 0

    def _write(self, lsn: int, buffers: Sequence[Buffer]) -> None:
        assert self._file is not None
        try:
            if len(buffers) == 1:
                self._file.file.pwrite(lsn - self._first_lsn, buffers[0])
            else:
                self._file.file.pwritev(lsn - self._first_lsn, buffers)
        except OSError as error:
            raise self.fail(f"writing {self._disk.describe(self._file.path)} failed: {error}") from error

    # -- room ------------------------------------------------------------------------------------------------

    def _make_room(self, size: int, reserve: bool) -> None:
        """Have `size` bytes at the end of the journal, and the reserve behind them.

        What may use the reserve does so only when the disk is full: as long as it is whole, all entries that fit
        take the short way.
        """
        if not (reserve and self._scarce):
            try:
                self._grow(size, self._settings.reserve_bytes)
                self._scarce = False
                return
            except DiskFull:
                if not reserve:
                    raise
                self._scarce = True
        self._grow(size, 0)

    def _grow(self, size: int, kept: int) -> None:
        file, settings = self._file, self._settings
        assert file is not None
        needed = self._end - self._first_lsn + size + ENTRY_BYTES
        try:
            with telling_disk_full(self._disk.describe(FOLDER), max(size + kept, settings.chunk_bytes)):
                if needed > file.capacity:
                    self._prepare_next(HEADER_BYTES + size + ENTRY_BYTES + kept)
                    self._roll()
                elif file.fill(needed + kept, settings.chunk_bytes):
                    self._map = file.file.map_write(file.filled)
                if needed <= file.capacity < needed + kept:
                    self._prepare_next(HEADER_BYTES + kept)
        except OSError as error:
            raise self.fail(f"making room in {self._disk.describe(FOLDER)} failed: {error}") from error
        finally:
            self._set_limit()

    def _prepare_next(self, size: int) -> None:
        assert self._file is not None
        if self._next is None:
            self._next = self._folder.create(self._file.end_lsn, size)
        else:
            self._next.fill(size, self._settings.chunk_bytes)

    def _roll(self) -> None:
        assert self._next is not None
        self.flush()
        self._write(self._end, [pack_end(self._end, self._commits.synced)])
        self._live.append(self._next)
        self._use(self._next)
        self._end = self._commits.written = self._first_lsn + HEADER_BYTES
        self._next = None

    def _set_limit(self) -> None:
        assert self._file is not None
        spare = self._next.filled - HEADER_BYTES if self._next is not None else 0
        kept = max(0, self._settings.reserve_bytes - spare)
        limit = self._first_lsn + self._file.filled - ENTRY_BYTES - kept
        # The other bound keeps the distance to the synced lsn within its field of the entry.
        self._commits.set_limit(min(limit, self._commits.synced + BEHIND_MAX - MIB))

    # -- syncing ---------------------------------------------------------------------------------------------

    def sync(self, lsn: int) -> None:
        """Return when all below `lsn` is on the medium. From any thread.

        The entry must have been appended at a level above MEMORY, or flushed since.
        """
        self._commits.sync(lsn)

    def fail(self, reason: str) -> StoreFailed:
        """Refuse everything from now on; gives the error to raise."""
        return self._commits.fail(reason)

    def check(self) -> None:
        """Raises StoreFailed if something failed before: nothing may be believed to be on the medium then."""
        self._commits.check()
        assert self._file is not None, "replay the journal to its end before using it"

    # -- the end of files, and of all ------------------------------------------------------------------------

    def cut(self, lsn: int) -> None:
        """All below `lsn` is in a durable checkpoint: files wholly below are used again."""
        self._scarce = False
        while len(self._live) > 1 and self._live[0].end_lsn <= lsn:
            file = self._live.popleft()
            self._commits.untrack(file)
            if not self._folder.retire(file):
                self._commits.close_files([file])

    def release_spares(self) -> bool:
        """Delete the spare files, because the disk is full; tells whether there were any."""
        released = self._folder.release_spares()
        self._commits.close_files(released)
        return bool(released)

    def close(self) -> None:
        """Write and sync what is there, and say in the mark that the end is clean."""
        try:
            if self._file is not None and self._commits.failure is None:
                self.flush()
                self.sync(self._end)
                self._commits.say_clean()
        finally:
            self._commits.close()
            self._close_files()

    def _close_files(self) -> None:
        self._map = memoryview(bytearray())
        opened = self._live or (self._recovery.files if self._recovery is not None else ())
        for file in opened:
            file.file.close()
        self._live.clear()
        if self._next is not None:
            self._next.file.close()
            self._next = None
        self._folder.close()

    def statistics(self) -> JournalStatistics:
        commits = self._commits
        return JournalStatistics(
            appends=self._appends,
            end_lsn=self._end,
            written_lsn=commits.written,
            synced_lsn=commits.synced,
            files=len(self._live),
            spare_files=self._folder.spare_count,
            syncs=commits.syncs,
            sync_seconds=commits.seconds,
            sync_seconds_max=commits.seconds_max,
        )
