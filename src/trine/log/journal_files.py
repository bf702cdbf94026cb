"""The files of the journal folder: which there are, how they grow ahead of the writer, how they are used
again.

    journal/<first lsn, 16 hex digits>.journal   see journal_format
    journal/mark                                 up to where the journal is synced

A file grows by zeros, in chunks, before entries are written into it, so that syncing entries changes no
metadata and an entry that has room cannot run out of space. A file wholly below a checkpoint becomes a
spare and is later renamed to the next name; its old entries are told by their lsn. This module never reads
or writes entries.
"""

from __future__ import annotations

import re
from typing import Final

from trine.log.disk import Disk, File
from trine.log.journal_format import HEADER_BYTES, MARK_BYTES, Mark, pack_header, pack_mark, read_mark

FOLDER: Final = "journal"
MARK_PATH: Final = f"{FOLDER}/mark"
SUFFIX: Final = ".journal"
NAME: Final = re.compile(r"[0-9a-f]{16}\.journal")


def path_of(first_lsn: int) -> str:
    return f"{FOLDER}/{first_lsn:016x}{SUFFIX}"


class JournalFile:
    """One open journal file. Its size on disk is what has been filled with zeros or entries."""

    __slots__ = ("capacity", "file", "first_lsn", "path")

    def __init__(self, first_lsn: int, path: str, file: File, capacity: int) -> None:
        self.first_lsn = first_lsn
        self.path = path
        self.file = file
        self.capacity = capacity

    @property
    def filled(self) -> int:
        return min(self.file.size(), self.capacity)

    @property
    def end_lsn(self) -> int:
        """The first lsn of the file that follows."""
        return self.first_lsn + self.capacity

    def fill(self, size: int, chunk_bytes: int) -> bool:
        """Have at least `size` bytes (or all it can hold), a whole chunk at a time; tells whether it grew."""
        now = self.file.size()
        if now >= min(size, self.capacity):
            return False
        chunks = -(-(size - now) // chunk_bytes)
        self.file.allocate(now, min(now + chunks * chunk_bytes, self.capacity) - now)
        return True


class JournalFiles:
    """The folder, seen from the one journal that owns it."""

    def __init__(self, disk: Disk, *, file_bytes: int, chunk_bytes: int, spares_max: int) -> None:
        self.disk = disk
        self._file_bytes = file_bytes
        self._chunk_bytes = chunk_bytes
        self._spares_max = spares_max
        self._spares: list[JournalFile] = []
        disk.make_dirs(FOLDER)
        names = filter(NAME.fullmatch, disk.listdir(FOLDER))
        self.first_lsns = sorted(int(name.removesuffix(SUFFIX), 16) for name in names)
        """Of the files found at the start."""

    @property
    def spare_count(self) -> int:
        return len(self._spares)

    def read_mark(self) -> Mark | None:
        return read_mark(self.disk.read(MARK_PATH)) if self.disk.exists(MARK_PATH) else None

    def open_mark(self, synced_lsn: int) -> File:
        """Write the mark anew (a damaged one is replaced) and give it open.

        In place where there is one: it is less than a sector, and a full disk must not keep a broker from
        opening.
        """
        created = not self.disk.exists(MARK_PATH)
        file = self.disk.open(MARK_PATH, create=True)
        file.pwrite(0, pack_mark(Mark(synced_lsn, clean=False)))
        file.truncate(MARK_BYTES)
        file.sync()
        if created:
            self.disk.sync_dir(FOLDER)
        return file

    def open(self, first_lsn: int, capacity: int) -> JournalFile:
        path = path_of(first_lsn)
        return JournalFile(first_lsn, path, self.disk.open(path), capacity)

    def create(self, first_lsn: int, size: int) -> JournalFile:
        """The file beginning at `first_lsn`, a spare or a new one, with its header and at least `size` bytes.

        If there is no room for it, no trace of it remains.
        """
        path = path_of(first_lsn)
        if self._spares:
            spare = self._spares.pop()
            self.disk.rename(spare.path, path)
            made = JournalFile(first_lsn, path, spare.file, self._file_bytes)
        else:
            made = JournalFile(first_lsn, path, self.disk.open(path, create=True), self._file_bytes)
        try:
            made.fill(size, self._chunk_bytes)
            made.file.pwrite(0, pack_header(first_lsn, made.capacity))
        except OSError:
            made.file.close()
            self.disk.delete(path)
            raise
        self.disk.sync_dir(FOLDER)
        assert made.filled >= HEADER_BYTES
        return made

    def retire(self, file: JournalFile) -> bool:
        """Keep a file for later use, or delete it; in that case the caller still has to close it."""
        if len(self._spares) < self._spares_max and file.file.size() == self._file_bytes:
            self._spares.append(file)
            return True
        self.disk.delete(file.path)
        return False

    def retire_unopened(self, first_lsn: int) -> None:
        file = self.open(first_lsn, self._file_bytes)
        if not self.retire(file):
            file.file.close()

    def release_spares(self) -> list[JournalFile]:
        """Delete the spares; the caller still has to close them."""
        released, self._spares = self._spares, []
        for spare in released:
            self.disk.delete(spare.path)
        return released

    def forget(self, first_lsn: int) -> None:
        """Delete a file that lies beyond the end of the journal. It must not come back: its lsns will."""
        self.disk.delete(path_of(first_lsn))
        self.disk.sync_dir(FOLDER)

    def close(self) -> None:
        for spare in self._spares:
            spare.file.close()
        self._spares.clear()
