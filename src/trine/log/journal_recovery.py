"""Reading the journal after a start, and deciding where it ends.

The rule. Entries are read one after the other from the checkpoint's lsn. Let H be the first lsn where no
whole entry of this stream stands, and P the highest lsn known to have been promised as synced:

    P = max(the mark, the checkpoint's lsn, what entries beyond H say was synced when they were written)

    1  H < P                                      Corrupt: a synced entry is damaged. Nothing is cut.
    2  the mark is unreadable, and a whole entry  Corrupt: the hole may be in what was promised.
       of this stream stands beyond H
    3  otherwise                                  The journal ends at H; what stands beyond is wiped.

Why case 3 loses nothing that was promised: a sync covers all that was written before it, so an entry at H
that had been synced would be below the mark. The mark is stored after each sync without being synced
itself; a power cut can bring back an older one, so it may be too low, never too high. Entries carry the
synced lsn of the time they were written, which raises P again. What remains: the medium damages the last
synced entry, nothing was written after it, and the mark was lost in the same power cut; no record of the
promise is left then.

Why entries may stand beyond H without damage: after a power cut, unsynced pages have reached the medium in
any order. They were never promised as synced; keeping them would break the order of the stream, so they
are wiped, and the wipe is synced before the first new entry: else a new entry could end where an old one
begins, and revive it.

After a kill the system still has every write, so H is the end of what was written (or a half-made last
entry).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trine.log.journal_files import JournalFile, JournalFiles, path_of
from trine.log.journal_format import (
    ENTRY_BYTES,
    HEADER_BYTES,
    VERSION,
    Entry,
    Mark,
    Parts,
    entries_beyond,
    heads_from,
    read_entry,
    read_header,
    read_parts,
)
from trine.model.errors import Corrupt, NewerFormat

TO_DO: Final = (
    "Keep a copy of the data directory, then restore it from a backup or a replica; Trine does not cut away "
    "what it promised to keep"
)


class Recovery:
    """One pass over the journal. After `entries` is exhausted, `end_lsn` and `files` say where to go on."""

    def __init__(self, folder: JournalFiles, from_lsn: int) -> None:
        self._folder = folder
        self._disk = folder.disk
        self._from_lsn = from_lsn
        self._mark = folder.read_mark()
        self.end_lsn = from_lsn
        self.files: list[JournalFile] = []
        """Open files with live entries, in order; the last one holds `end_lsn`, unless none does yet."""

    def entries(self) -> Iterator[tuple[int, Parts]]:
        """(lsn past the entry, its parts), exactly those the journal keeps."""
        first_lsn = self._first_file()
        if first_lsn is None:
            return
        while first_lsn in self._folder.first_lsns:
            data = memoryview(self._disk.read(path_of(first_lsn)))
            header = read_header(data)
            if header is not None and header.version > VERSION:
                raise NewerFormat(
                    f"{self._disk.describe(path_of(first_lsn))} has journal format {header.version}; this "
                    f"Trine reads up to {VERSION}. Open it with the newer Trine that wrote it."
                )
            if header is None or header.first_lsn != first_lsn:
                self._end(first_lsn, 0, data)
                return
            if self._from_lsn >= first_lsn + header.file_bytes:
                raise self._missing(self._from_lsn - (self._from_lsn - first_lsn) % header.file_bytes)
            self.files.append(self._folder.open(first_lsn, header.file_bytes))
            position = max(self._from_lsn - first_lsn, HEADER_BYTES)
            while (entry := read_entry(data, position, first_lsn)) is not None and not entry.is_end:
                position = entry.end
                yield first_lsn + position, read_parts(data, entry)
            if entry is None:
                self._end(first_lsn, position, data)
                return
            first_lsn += header.file_bytes
        self._end(first_lsn, 0, memoryview(b""))

    def _first_file(self) -> int | None:
        """The file that holds the checkpoint's lsn; None if the journal is new."""
        older = [first_lsn for first_lsn in self._folder.first_lsns if first_lsn <= self._from_lsn]
        if older:
            for first_lsn in older[:-1]:
                self._folder.retire_unopened(first_lsn)
            return older[-1]
        if self._from_lsn == 0 and not self._folder.first_lsns and self._mark is None:
            return None
        raise self._missing(self._from_lsn)

    def _missing(self, first_lsn: int) -> Corrupt:
        what = f"the journal file that holds lsn {self._from_lsn}, where the last checkpoint ends, is missing"
        return Corrupt(self._disk.describe(path_of(first_lsn)), 0, what, TO_DO)

    def _end(self, first_lsn: int, position: int, data: memoryview) -> None:
        """No whole entry stands at `position` of this file: apply the rule."""
        hole = first_lsn + position
        later = [lsn for lsn in self._folder.first_lsns if lsn > first_lsn]
        beyond: list[Entry] = []
        if self._mark != Mark(hole, clean=True):  # after a clean close nothing can stand beyond
            beyond.extend(entries_beyond(data, position, first_lsn))
            self._judge(first_lsn, position, beyond, later)
            self._wipe(first_lsn, position, data)
        for lsn in later:
            self._folder.forget(lsn)
        for file in self.files:
            file.file.sync()  # after a kill they may hold writes that were never synced
        self.end_lsn = hole

    def _judge(self, first_lsn: int, position: int, beyond: list[Entry], later: list[int]) -> None:
        promised = max(self._mark.synced_lsn if self._mark else 0, self._from_lsn)
        found = bool(beyond)
        for entry in beyond:
            promised = max(promised, entry.synced_before(first_lsn))
        for lsn in later:
            for entry in entries_beyond(memoryview(self._disk.read(path_of(lsn))), 0, lsn):
                found = True
                promised = max(promised, entry.synced_before(lsn))
        where = self._disk.describe(path_of(first_lsn))
        hole = first_lsn + position
        if hole < promised:
            what = f"no valid entry stands here (lsn {hole}), but all up to lsn {promised} was synced"
            raise Corrupt(where, position, what, TO_DO)
        if found and self._mark is None:
            what = (
                f"no valid entry stands here (lsn {hole}), but valid ones follow, and the journal's mark is "
                "missing or damaged"
            )
            raise Corrupt(where, position, what, TO_DO)

    def _wipe(self, first_lsn: int, position: int, data: memoryview) -> None:
        """Make sure that nothing at or beyond the end can be read as an entry, now or later.

        Every head with the lsn of its place goes, whether its entry is whole or not: the power cut may have
        shortened the file within an entry that ends in zeros, and filling the file with zeros would make it
        whole again. For the same reason the last bytes go, in which only part of a head may stand.
        """
        if not position:
            if first_lsn in self._folder.first_lsns:
                self._folder.forget(first_lsn)
            return
        file = self.files[-1].file
        for head in heads_from(data, position, first_lsn):
            file.pwrite(head, bytes(min(ENTRY_BYTES, len(data) - head)))
        ragged = max(position, (len(data) & -8) - ENTRY_BYTES)
        if ragged < len(data):
            file.pwrite(ragged, bytes(len(data) - ragged))
