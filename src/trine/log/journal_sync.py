"""Group commit: one sync for everybody who waits, and what the journal's writer shares with those threads.

    writer (one at a time, under the broker's lock)        any thread, without the lock
    ─────────────────────────────────────────────────      ──────────────────────────────────────────────
    track(file) before the first byte goes into it         sync(lsn): the first one leads, syncs all files
    written = lsn after the bytes went to the system       with writes up to `written`, stores the mark and
    limit is read before each append                       moves `synced`; the others wait and look again

A sync that failed is never tried again: the system may have dropped the pages, and would report success.
After `fail`, everything is refused until the broker is reopened.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable

from trine.log.disk import Disk, File, WritableMap
from trine.log.journal_files import MARK_PATH, JournalFile
from trine.log.journal_format import Mark, pack_mark
from trine.model.errors import StoreFailed


class GroupCommit:
    """`written` and `limit` are the writer's to set; `limit` also falls to -1 when something failed."""

    __slots__ = (
        "_condition",
        "_disk",
        "_mark",
        "_mark_file",
        "_syncing",
        "_to_close",
        "_unsynced",
        "failure",
        "limit",
        "seconds",
        "seconds_max",
        "synced",
        "syncs",
        "written",
    )

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._condition = threading.Condition()
        self.written = 0
        """All below is in the system's hands."""
        self.synced = 0
        """All below is on the medium."""
        self.limit = -1
        """Up to this lsn an append need not think: there is room, and nothing has failed."""
        self.failure: str | None = None
        self.syncs = 0
        self.seconds = 0.0
        self.seconds_max = 0.0
        self._unsynced: deque[JournalFile] = deque()
        self._syncing = False
        self._to_close: list[JournalFile] = []
        self._mark_file: File | None = None
        self._mark: WritableMap = memoryview(bytearray())

    def start(self, lsn: int, mark_file: File) -> None:
        """All below `lsn` is synced, and `mark_file` says so."""
        self.written = self.synced = lsn
        self._mark_file = mark_file
        self._mark = mark_file.map_write(mark_file.size())

    # -- the writer's side -----------------------------------------------------------------------------------

    def track(self, file: JournalFile) -> None:
        """Sync this file too from now on; the one before it is complete."""
        with self._condition:
            self._unsynced.append(file)

    def untrack(self, file: JournalFile) -> None:
        """What is in this file need not be synced any more."""
        with self._condition:
            if file in self._unsynced:
                self._unsynced.remove(file)

    def close_files(self, files: Iterable[JournalFile]) -> None:
        """Close them now, or when the thread that syncs at this moment is done: it may be syncing one."""
        with self._condition:
            self._to_close += files
            if not self._syncing:
                self._close_now()

    def _close_now(self) -> None:
        while self._to_close:
            self._to_close.pop().file.close()

    def set_limit(self, limit: int) -> None:
        with self._condition:
            self.limit = limit if self.failure is None else -1

    # -- everybody's side ------------------------------------------------------------------------------------

    def sync(self, lsn: int) -> None:
        """Return when all below `lsn`, which must have been written, is on the medium."""
        if self.synced >= lsn:
            return
        mine = False
        try:
            with self._condition:
                while self._syncing and self.synced < lsn:
                    self._condition.wait()
                if self.synced >= lsn:
                    return
                self.check()
                assert lsn <= self.written, "sync of an entry that was not written: flush first"
                mine = self._syncing = True  # in this order: an interrupt in between must not leave it set
            self._lead()
        finally:
            if mine:
                with self._condition:
                    self._syncing = False
                    self._close_now()
                    self._condition.notify_all()

    def _lead(self) -> None:
        # In this order: a file is tracked before `written` points into it.
        target = self.written
        with self._condition:
            files = tuple(self._unsynced)
        begin = time.perf_counter()
        path = ""
        try:
            for file in files:
                path = file.path
                file.file.sync()
            self._advance(target, files, time.perf_counter() - begin)
        except OSError as error:
            raise self.fail(f"syncing {self._disk.describe(path)} failed: {error}") from error

    def _advance(self, target: int, files: tuple[JournalFile, ...], took: float) -> None:
        with self._condition:
            self._mark[:] = pack_mark(Mark(target, clean=False))
            self.synced = target
            for file in files[:-1]:  # each has a successor, so it was complete before this sync began
                if file in self._unsynced:
                    self._unsynced.remove(file)
            self.syncs += 1
            self.seconds += took
            self.seconds_max = max(self.seconds_max, took)

    # -- failing and closing ---------------------------------------------------------------------------------

    def fail(self, reason: str) -> StoreFailed:
        """Refuse everything from now on; gives the error to raise."""
        with self._condition:
            self.failure = self.failure or reason
            self.limit = -1
        return self._refusal()

    def _refusal(self) -> StoreFailed:
        return StoreFailed(
            f"The store stopped, because {self.failure}. What was answered as synced is safe; check the "
            "disk, then close and reopen the broker."
        )

    def check(self) -> None:
        if self.failure is not None:
            raise self._refusal()

    def say_clean(self) -> None:
        """Store durably that the journal ends at what is synced, and that nothing stands beyond."""
        assert self._mark_file is not None
        with self._condition:
            while self._syncing:
                self._condition.wait()
            assert self.synced == self.written, "sync before the clean end"
            self._mark[:] = pack_mark(Mark(self.synced, clean=True))
        try:
            self._mark_file.sync()
        except OSError as error:
            raise self.fail(f"syncing {self._disk.describe(MARK_PATH)} failed: {error}") from error

    def close(self) -> None:
        """Refuse everything from now on, wait for a sync under way, and let go of the mark."""
        self.fail("it was closed")
        with self._condition:
            while self._syncing:
                self._condition.wait()
            self._close_now()
        self._mark = memoryview(bytearray())
        if self._mark_file is not None:
            self._mark_file.close()
            self._mark_file = None
