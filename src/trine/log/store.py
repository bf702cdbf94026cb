"""All logs of one data directory behind one journal.

    format          the version of the directory
    lock            held while a broker has the directory open
    checkpoint.a/b  see checkpoint
    journal/        see journal
    logs/           a folder for each log, where the caller says

The order of things, which makes recovery exact:

    commit      the change is in the journal, then the caller applies it to the logs and its own state
    checkpoint  begin, locked: tails to files, note the lsn; finish, unlocked: sync the files, write the
                manifest; complete, locked: cut the journal, delete what the manifest no longer names
    open        logs go back to the lengths the manifest names, the caller applies the journal since its lsn

Nothing a durable manifest names is deleted or cut, so any crash leaves either the old checkpoint with its
journal or the new one with its own. The store does not know what is in an entry or in the state.

Locking is the caller's: one lock around everything but `sync` and `finish_checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from trine.log.checkpoint import Manifest, ManifestLog, read_checkpoint, write_checkpoint
from trine.log.disk import Buffer, Disk
from trine.log.journal import Journal, JournalSettings, JournalStatistics
from trine.log.journal_format import Parts
from trine.log.log import Log, Unsynced
from trine.model.durability import Level
from trine.model.errors import Corrupt, DiskFull, InvalidOption, NewerFormat
from trine.model.limits import MIB, TAIL_BYTES_MAX

FORMAT: Final = 1
FORMAT_PATH: Final = "format"
FORMAT_WORDS: Final = "trine data directory, format "
BEFORE_FORMAT: Final = frozenset({"lock", f"{FORMAT_PATH}.tmp", "checkpoint.a", "checkpoint.b", "lost+found"})
"""What may stand in a folder without a format file: a store that was being made, one that lost it, a new disk."""
LOGS: Final = "logs"
Progress = Callable[[str, int, int], None]
"""Told while a store is opened: which step ("logs", "journal", "topics"), how much of it is done, of how much."""
REPLAY_BYTES_PER_SECOND: Final = 1e9
REPLAY_SECONDS_PER_ENTRY: Final = 4e-6
"""Measured; what a restart costs decides when a checkpoint is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    journal: JournalSettings = field(default_factory=JournalSettings)
    tail_bytes_max: int = TAIL_BYTES_MAX
    """Of one log, before it is flushed."""
    tails_bytes_max: int = 64 * MIB
    """Of all logs together, before all are flushed."""
    look_bytes: int = 1 * MIB
    """Tails are looked at each time the journal has grown by this much."""
    replay_seconds_max: float = 0.4
    journal_bytes_max: int = 256 * MIB


@dataclass(slots=True, kw_only=True, eq=False)
class Checkpoint:
    """One under way, handed from `begin_checkpoint` to `finish_checkpoint` to `complete_checkpoint`."""

    generation: int
    manifest: Manifest
    files: list[Unsynced]
    obsolete: list[str]
    dropped: list[Log]
    appends: int
    durable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatistics:
    journal: JournalStatistics
    logs: int
    tail_bytes: int
    checkpoint_generation: int
    checkpoint_lsn: int
    bytes_since_checkpoint: int
    entries_since_checkpoint: int


class Store:
    """Open it, apply what `replay` yields, then commit."""

    def __init__(self, disk: Disk, settings: StoreSettings) -> None:
        """Use `open`."""
        self._disk = disk
        self._settings = settings
        self._journal = Journal(disk, settings.journal)
        self.state: bytes | None = None
        """The application's state in the last checkpoint; None if there is none."""
        self._logs: dict[int, Log] = {}
        self._shapes: dict[int, tuple[int, bool]] = {}  # log id: segment_bytes, rolls
        self._paths: set[str] = set()
        self._dropped: list[Log] = []
        self._obsolete: list[str] = []
        self._touched: set[int] = set()
        self._end = 0
        self._look_at = 0
        self._generation = 0
        self._checkpoint_lsn = 0
        self._checkpoint_appends = 0
        self._checkpoint: Checkpoint | None = None

    @classmethod
    def open(
        cls, disk: Disk, *, settings: StoreSettings | None = None, progress: Progress | None = None
    ) -> Store:
        """Claim the directory, and bring its logs to the last checkpoint."""
        _check_ours(disk)
        disk.lock()
        try:
            check_format(disk)
            store = cls(disk, settings or StoreSettings())
        except BaseException:
            disk.unlock()
            raise
        try:
            store._restore(progress)
        except BaseException:
            store.close()
            raise
        return store

    def _restore(self, progress: Progress | None) -> None:
        found = read_checkpoint(self._disk)
        if found is None:
            return
        self._generation, manifest = found
        self.state = manifest.state
        self._checkpoint_lsn = manifest.lsn
        for done, entry in enumerate(manifest.logs):
            if progress is not None:
                progress("logs", done, len(manifest.logs))
            log = Log.restore(
                self._disk,
                entry.path,
                entry.saved,
                segment_bytes=entry.segment_bytes,
                rolls=entry.rolls,
                tidy=False,
            )
            self._add(entry.log_id, log, entry.segment_bytes, entry.rolls)
        for log in self._logs.values():  # after all were checked: files may have changed places
            log.tidy()

    def replay(self, progress: Progress | None = None) -> Iterator[tuple[int, Parts]]:
        """(lsn past the entry, its parts) since the checkpoint, for the caller to apply, to the end."""
        total = 0
        if progress is not None:
            total = self._journal.expected_end(self._checkpoint_lsn) - self._checkpoint_lsn
        tell_at = self._checkpoint_lsn
        for end, parts in self._journal.replay(self._checkpoint_lsn):
            if end >= tell_at and progress is not None:
                done = end - self._checkpoint_lsn
                progress("journal", done, max(total, done))
                tell_at = end + self._settings.look_bytes
            yield end, parts
            self._checkpoint_appends -= 1  # replayed again at the next start, like those still to come
            self._touched.update(log_id for log_id, _ in parts)
            self._end = end
            if end >= self._look_at:
                self._relieve(must=False)
        self._end = self._journal.end_lsn
        above = {path[:at] for path in self._paths for at, char in enumerate(path) if char == "/"}
        self._sweep(LOGS, above)
        if progress is not None:
            done = self._end - self._checkpoint_lsn
            progress("journal", done, done)

    def _sweep(self, folder: str, above: set[str]) -> None:
        """Delete folders of logs that no checkpoint and no journal entry knows: leftovers of a crash."""
        for name in self._disk.listdir(folder):
            path = f"{folder}/{name}"
            if path in above:
                self._sweep(path, above)
            elif path not in self._paths:
                self._disk.delete_tree(path)

    # -- logs ------------------------------------------------------------------------------------------------

    def log(self, log_id: int) -> Log:
        return self._logs[log_id]

    def create_log(self, log_id: int, path: str, *, segment_bytes: int, rolls: bool = True) -> Log:
        """A new log in the folder `logs/<path>`; or the one of this id, if the checkpoint already has it.

        The folder must be its own: no other log may have it, not even one dropped since the last checkpoint.
        """
        if log_id in self._logs:
            return self._logs[log_id]
        path = f"{LOGS}/{path}"
        assert path not in self._paths, f"{path} belongs to another log, or to a dropped one not yet deleted"
        self._disk.delete_tree(path)  # what a crash left: the journal has it all
        log = Log(self._disk, path, segment_bytes=segment_bytes, rolls=rolls)
        self._add(log_id, log, segment_bytes, rolls)
        return log

    def _add(self, log_id: int, log: Log, segment_bytes: int, rolls: bool) -> None:
        self._logs[log_id] = log
        self._shapes[log_id] = (segment_bytes, rolls)
        self._paths.add(log.path)

    def drop_log(self, log_id: int) -> None:
        """Forget a log now; its files go when a checkpoint without it is durable."""
        self._dropped.append(self._logs.pop(log_id))
        del self._shapes[log_id]
        self._touched.discard(log_id)

    # -- changes ---------------------------------------------------------------------------------------------

    def commit(self, parts: Sequence[tuple[int, Buffer]], level: Level, reserve: bool = False) -> int:
        """Journal a change before it is applied; gives the lsn for `sync`.

        Raises DiskFull with nothing changed; with `reserve` (acks, drops: what makes room) only when the
        journal's reserve is used up too.
        """
        if self._end >= self._look_at:
            self._relieve(must=not reserve)
        self._end = end = self._journal.append(parts, level, reserve)
        if len(parts) == 1:
            self._touched.add(parts[0][0])
        else:
            self._touched.update(log_id for log_id, _ in parts)
        return end

    @property
    def end_lsn(self) -> int:
        """Past everything committed so far."""
        return self._end

    @property
    def entry_bytes_max(self) -> int:
        """What one commit may hold."""
        return self._settings.journal.entry_bytes_max

    @property
    def written_lsn(self) -> int:
        """Everything below is in the system's hands."""
        return self._journal.written_lsn

    @property
    def synced_lsn(self) -> int:
        """Everything below survives a power cut."""
        return self._journal.synced_lsn

    def logs(self) -> list[Log]:
        return list(self._logs.values())

    def sync(self, lsn: int) -> None:
        """Return when all below `lsn` survives a power cut. From any thread, without the lock."""
        self._journal.sync(lsn)

    def flush_journal(self) -> None:
        """Hand entries committed at level MEMORY to the system."""
        self._journal.flush()

    def _relieve(self, must: bool) -> None:
        """Flush large tails, or (if this is a `must`) refuse.

        While the disk is full publishes are refused here, so that memory stays bounded. What is committed
        already is in the journal and in the tails, and the next call tries again.
        """
        try:
            self.flush_tails()
        except DiskFull:
            if must:
                raise
        else:
            self._look_at = self._end + self._settings.look_bytes

    def flush_tails(self, force: bool = False) -> None:
        """Hand the tails that are too large (with `force`: all) to the segment files."""
        logs = [self._logs[log_id] for log_id in self._touched if log_id in self._logs]
        if force or sum(log.tail_bytes for log in logs) > self._settings.tails_bytes_max:
            self._flush(logs)
            self._touched.clear()
        else:
            self._flush([log for log in logs if log.tail_bytes > self._settings.tail_bytes_max])

    def _flush(self, logs: list[Log]) -> None:
        for log in logs:
            try:
                try:
                    log.flush()
                except DiskFull:
                    if not self._journal.release_spares():
                        raise
                    log.flush()
            except OSError as error:
                raise self._journal.fail(
                    f"writing {self._disk.describe(log.path)} failed: {error}"
                ) from error

    # -- checkpoints -----------------------------------------------------------------------------------------

    def _entries(self) -> int:
        return self._journal.appends - self._checkpoint_appends

    def wants_checkpoint(self) -> bool:
        """Whether a restart would replay for too long, or the journal is too large."""
        size = self._end - self._checkpoint_lsn
        seconds = size / REPLAY_BYTES_PER_SECOND + self._entries() * REPLAY_SECONDS_PER_ENTRY
        return seconds > self._settings.replay_seconds_max or size > self._settings.journal_bytes_max

    def begin_checkpoint(self, state: bytes) -> Checkpoint:
        """Under the lock: everything applied so far, and the state that goes with it. Raises DiskFull."""
        assert self._checkpoint is None, "one checkpoint at a time"
        self._journal.check()
        self._flush([log for log in self._logs.values() if log.tail_bytes])
        self._touched.clear()
        self._journal.flush()
        if self._disk.free_bytes() < 2 * len(state) + MIB:
            self._journal.release_spares()
        files: list[Unsynced] = []
        entries: list[ManifestLog] = []
        for log_id, log in self._logs.items():
            segment_bytes, rolls = self._shapes[log_id]
            files += log.dirty_files()
            log.mark_clean()
            entries.append(ManifestLog(log_id, log.path, segment_bytes, rolls, log.saved()))
            self._obsolete += log.obsolete()
        self._generation += 1
        self._checkpoint = Checkpoint(
            generation=self._generation,
            manifest=Manifest(self._journal.end_lsn, entries, state),
            files=files,
            obsolete=list(self._obsolete),
            dropped=list(self._dropped),
            appends=self._journal.appends,
        )
        return self._checkpoint

    def finish_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Without the lock: the slow part. After DiskFull the checkpoint is void; begin another one later."""
        assert checkpoint is self._checkpoint
        try:
            # The journal too, though the logs have it all: then nothing below this lsn can be a hole.
            self._journal.sync(checkpoint.manifest.lsn)
            for file in checkpoint.files:
                file.sync()
            write_checkpoint(self._disk, checkpoint.manifest, checkpoint.generation)
        except OSError as error:
            where = self._disk.describe("")
            raise self._journal.fail(f"writing a checkpoint in {where} failed: {error}") from error
        else:
            checkpoint.durable = True
        finally:
            if not checkpoint.durable:
                self._checkpoint = None

    def complete_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Under the lock: give up what the manifest no longer needs."""
        assert checkpoint is self._checkpoint
        assert checkpoint.durable, "finish the checkpoint first"
        self._checkpoint = None
        self._checkpoint_lsn = checkpoint.manifest.lsn
        self._checkpoint_appends = checkpoint.appends
        try:
            self._journal.cut(checkpoint.manifest.lsn)
            for path in checkpoint.obsolete:
                self._disk.delete_tree(path)
            for log in checkpoint.dropped:
                log.close()
                self._disk.delete_tree(log.path)
                self._paths.discard(log.path)
        except OSError as error:
            raise self._journal.fail(f"cleaning {self._disk.describe('')} failed: {error}") from error
        del self._obsolete[: len(checkpoint.obsolete)]
        del self._dropped[: len(checkpoint.dropped)]

    def close(self) -> None:
        """Close all files and let go of the directory. Without a checkpoint before, the next open replays."""
        try:
            self._journal.close()
        finally:
            for log in (*self._logs.values(), *self._dropped):
                log.close()
            self._disk.unlock()

    @property
    def bytes_since_checkpoint(self) -> int:
        """What a restart would replay."""
        return self._end - self._checkpoint_lsn

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(
            journal=self._journal.statistics(),
            logs=len(self._logs),
            tail_bytes=sum(log.tail_bytes for log in self._logs.values()),
            checkpoint_generation=self._generation,
            checkpoint_lsn=self._checkpoint_lsn,
            bytes_since_checkpoint=self.bytes_since_checkpoint,
            entries_since_checkpoint=self._entries(),
        )


def _check_ours(disk: Disk) -> None:
    """Refuse, before anything is written, a folder that has other things in it than a store's."""
    names = disk.listdir("")
    if FORMAT_PATH in names or "journal" in names:
        return
    foreign = [name for name in names if name not in BEFORE_FORMAT]
    if foreign:
        some = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise InvalidOption(
            f"{disk.describe('')} is not a Trine data directory and not empty (it has {some}): choose an "
            "empty folder, or one that does not exist yet"
        )


def check_format(disk: Disk) -> None:
    """Know the directory's version before anything else in it is read."""
    where = disk.describe(FORMAT_PATH)
    if not disk.exists(FORMAT_PATH):
        if disk.exists("checkpoint.a") or disk.exists("journal"):
            to_do = "Restore it from a backup, or check that this is the right directory"
            raise Corrupt(where, 0, "the file that names the format is missing", to_do)
        disk.write_atomic(FORMAT_PATH, f"{FORMAT_WORDS}{FORMAT}\n".encode())
        return
    words = disk.read(FORMAT_PATH).decode(errors="replace").strip()
    version = words.removeprefix(FORMAT_WORDS)
    if not words.startswith(FORMAT_WORDS) or not version.isdecimal():
        to_do = f"It should say {FORMAT_WORDS + str(FORMAT)!r}; check that this is the right directory"
        raise Corrupt(where, 0, f"the file that names the format says {words[:60]!r}", to_do)
    if int(version) < FORMAT:
        to_do = f"This Trine writes and reads format {FORMAT}; check that this is the right directory"
        raise Corrupt(where, len(FORMAT_WORDS), f"there never was a format {version}", to_do)
    if int(version) > FORMAT:
        raise NewerFormat(
            f"{disk.describe('')} was written by a newer Trine, in format {version}; this one reads up to "
            f"{FORMAT}. Open it with that newer Trine, or choose another directory."
        )
