"""A disk in memory, for `:memory:` brokers and as the ground the simulated disk stands on.

Files are growing buffers; nothing outlives the object. `sync` has nothing to do here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from trine.log.disk import Buffer, File, WritableMap, parent_of
from trine.model.errors import Locked


class MemoryFile:
    """A buffer with room to grow. A larger buffer replaces it when it is full, so old views stay readable."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._buffer = bytearray()
        self._size = 0

    def pread(self, position: int, size: int) -> bytes:
        return bytes(memoryview(self._buffer)[position : min(position + size, self._size)])

    def pwrite(self, position: int, data: Buffer) -> None:
        end = position + len(data)
        if end > self._size:
            self._grow(end)
        memoryview(self._buffer)[position:end] = data

    def pwritev(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.pwrite(position, b"".join(buffers))

    def _grow(self, size: int) -> None:
        self._disk.take_room(size - self._size)
        if size > len(self._buffer):
            larger = bytearray(max(size, min(2 * size, size + 8 * 1024 * 1024), 512))
            larger[: self._size] = memoryview(self._buffer)[: self._size]
            self._buffer = larger
        self._size = size

    def sync(self) -> None:
        """Memory is all there is."""

    def size(self) -> int:
        return self._size

    def truncate(self, size: int) -> None:
        if size > self._size:
            self._grow(size)
            return
        self._disk.take_room(size - self._size)
        fresh = bytearray(size)  # a new one, so that bytes cut away do not return when the file grows again
        fresh[:] = memoryview(self._buffer)[:size]
        self._buffer, self._size = fresh, size

    def allocate(self, position: int, size: int) -> None:
        self.pwrite(position, bytes(size))

    def map_write(self, size: int) -> WritableMap:
        if size > self._size:
            raise ValueError(f"cannot map {size} bytes of a file of {self._size}")
        return memoryview(self._buffer)[:size]

    def view(self) -> memoryview:
        return memoryview(self._buffer)[: self._size].toreadonly()

    def close(self) -> None:
        """The disk keeps the content."""


class MemoryDisk:
    """A data directory in memory."""

    def __init__(self) -> None:
        self._files: dict[str, MemoryFile] = {}
        self._folders: set[str] = {""}
        self._locked = False

    def take_room(self, size: int) -> None:
        """Called before a file grows by `size` bytes (or shrinks, below zero). Memory has no quota."""

    def _new_file(self) -> MemoryFile:
        return MemoryFile(self)

    def _named(self, path: str) -> MemoryFile:
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(path))
        return file

    def open(self, path: str, create: bool = False) -> File:
        if create and path not in self._files:
            if parent_of(path) not in self._folders:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(path))
            self._link(path, self._new_file())
        return self._named(path)

    def _link(self, path: str, file: MemoryFile) -> None:
        self._files[path] = file

    def _unlink(self, path: str) -> MemoryFile:
        file = self._named(path)
        del self._files[path]
        return file

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def listdir(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        names = [*self._files, *(folder for folder in self._folders if folder)]
        return sorted({name[len(prefix) :].partition("/")[0] for name in names if name.startswith(prefix)})

    def make_dirs(self, path: str) -> None:
        while path:
            self._folders.add(path)
            path = parent_of(path)

    def delete(self, path: str) -> None:
        self.take_room(-self._unlink(path).size())

    def delete_tree(self, path: str) -> None:
        for name in [name for name in self._files if name == path or name.startswith(f"{path}/")]:
            self.delete(name)
        self._folders -= {name for name in self._folders if name == path or name.startswith(f"{path}/")}

    def rename(self, source: str, target: str) -> None:
        if target in self._files:
            self.delete(target)
        self._link(target, self._unlink(source))

    def write_atomic(self, path: str, data: Buffer) -> None:
        file = self._new_file()
        file.pwrite(0, data)
        file.sync()
        if path in self._files:
            self.delete(path)
        self._link(path, file)

    def read(self, path: str) -> bytes:
        file = self._named(path)
        return file.pread(0, file.size())

    def free_bytes(self) -> int:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def lock(self) -> None:
        if self._locked:
            raise Locked("This memory store is already open in another broker. Close that one first.")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    def describe(self, path: str) -> str:
        return f":memory:/{path}"

    def sync_dir(self, path: str) -> None:
        """Memory is all there is."""
