"""A disk for tests: it knows what was synced, and forgets, tears, fills up and fails on command.

Each file has two images: what the system's page cache holds (reads see it) and what is on the medium.
`sync` copies the first to the second. Stores through a map land in the first, as pwrites do.

After a power cut (`crash(rng)`) every 512-byte sector that differs between the images is, at random, the
old or the new one; the file's length is the old one, the new one or one between. Changes of names in a
folder (create, rename, delete) that were not followed by `sync_dir` survive as a random prefix, in order,
per folder. After a kill (`crash(kill=True)`) the page cache is still there, and what was not synced is
still not synced.
"""

from __future__ import annotations

import errno
import os
import random
from typing import Final

from trine.log.disk import Buffer, parent_of
from trine.log.memory_disk import MemoryDisk, MemoryFile

SECTOR_BYTES: Final = 512


class SimulatedFile(MemoryFile):
    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk)
        self._simulation = disk
        self.medium = b""

    def sync(self) -> None:
        if self._simulation.fail_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._simulation.syncs += 1
        self.medium = self.pread(0, self.size())

    def after_kill(self, disk: SimulatedDisk) -> SimulatedFile:
        file = SimulatedFile(disk)
        file._load(self.pread(0, self.size()))
        file.medium = self.medium
        return file

    def after_power_cut(self, disk: SimulatedDisk, rng: random.Random, keep: bool | None) -> SimulatedFile:
        file = SimulatedFile(disk)
        file.medium = self._torn(rng, keep)
        file._load(file.medium)
        return file

    def _torn(self, rng: random.Random, keep: bool | None) -> bytes:
        old, new = self.medium, self.pread(0, self.size())
        if keep is not None or old == new:
            return new if keep or old == new else old
        low, high = sorted((len(old), len(new)))
        size = rng.choice((low, high, rng.randint(low, high)))
        old, new = old.ljust(size, b"\0")[:size], new.ljust(size, b"\0")[:size]
        chance = rng.random()
        torn = bytearray(old)
        for start in range(0, size, SECTOR_BYTES):
            end = start + SECTOR_BYTES
            if rng.random() < chance:
                torn[start:end] = new[start:end]
        return bytes(torn)

    def _load(self, data: bytes) -> None:
        self._buffer, self._size = bytearray(data), len(data)


class SimulatedDisk(MemoryDisk):
    """`quota_bytes`, `fail_sync` and `fail_write` can be set at any time; `syncs` counts what succeeded."""

    def __init__(self) -> None:
        super().__init__()
        self.quota_bytes: int | None = None
        self.fail_sync = False
        self.fail_write = False
        self.syncs = 0
        self._durable: dict[str, MemoryFile] = {}
        self._pending: dict[str, list[tuple[str, MemoryFile | None]]] = {}

    # -- room ------------------------------------------------------------------------------------------------

    def used_bytes(self) -> int:
        return sum(file.size() for file in self._files.values())

    def take_room(self, size: int) -> None:
        if size <= 0:
            return
        if self.fail_write:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.quota_bytes is not None and self.used_bytes() + size > self.quota_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def free_bytes(self) -> int:
        return 1 << 40 if self.quota_bytes is None else max(0, self.quota_bytes - self.used_bytes())

    # -- names -----------------------------------------------------------------------------------------------

    def _new_file(self) -> MemoryFile:
        return SimulatedFile(self)

    def _link(self, path: str, file: MemoryFile) -> None:
        super()._link(path, file)
        self._pending.setdefault(parent_of(path), []).append((path, file))

    def _unlink(self, path: str) -> MemoryFile:
        file = super()._unlink(path)
        self._pending.setdefault(parent_of(path), []).append((path, None))
        return file

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.sync_dir(parent_of(source))
        self.sync_dir(parent_of(target))

    def write_atomic(self, path: str, data: Buffer) -> None:
        if self.fail_write:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().write_atomic(path, data)
        self.sync_dir(parent_of(path))

    def sync_dir(self, path: str) -> None:
        if self.fail_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        for name, file in self._pending.pop(path, []):
            self._settle(self._durable, name, file)

    @staticmethod
    def _settle(names: dict[str, MemoryFile], name: str, file: MemoryFile | None) -> None:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file

    def describe(self, path: str) -> str:
        return f"simulated/{path}"

    # -- crashes ---------------------------------------------------------------------------------------------

    def write_back(self, rng: random.Random) -> None:
        """What the system does when it likes: put some dirty sectors on the medium."""
        for file in self._files.values():
            assert isinstance(file, SimulatedFile)
            file.medium = file._torn(rng, None)

    def crash(
        self, rng: random.Random | None = None, keep_unsynced: bool | None = None, *, kill: bool = False
    ) -> SimulatedDisk:
        """The disk the next process finds: after a kill, or else after a power cut."""
        after = SimulatedDisk()
        after.quota_bytes = self.quota_bytes
        after._folders = set(self._folders)
        if kill:
            twins = {id(file): self._simulated(file).after_kill(after) for file in self._all_files()}
            after._files = {name: twins[id(file)] for name, file in self._files.items()}
            after._durable = {name: twins[id(file)] for name, file in self._durable.items()}
            after._pending = {
                folder: [(name, None if file is None else twins[id(file)]) for name, file in changes]
                for folder, changes in self._pending.items()
            }
            return after
        assert rng is not None or keep_unsynced is not None, "a power cut needs randomness or a decision"
        dice = rng or random.Random(0)
        names = dict(self._durable)
        for changes in self._pending.values():
            kept = dice.randint(0, len(changes)) if keep_unsynced is None else len(changes) * keep_unsynced
            for name, file in changes[:kept]:
                self._settle(names, name, file)
        for name, file in names.items():
            after._files[name] = self._simulated(file).after_power_cut(after, dice, keep_unsynced)
        after._durable = dict(after._files)
        return after

    def _all_files(self) -> list[MemoryFile]:
        pending = (file for changes in self._pending.values() for _, file in changes if file is not None)
        return [*self._files.values(), *self._durable.values(), *pending]

    @staticmethod
    def _simulated(file: MemoryFile) -> SimulatedFile:
        assert isinstance(file, SimulatedFile)
        return file
