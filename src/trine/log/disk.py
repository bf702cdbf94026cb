"""The disk as the log room sees it: files and folders inside one data directory.

Everything that touches storage goes through `Disk` and `File`, so that the same journal, segments and
checkpoints run on a real directory (`RealDisk`), wholly in memory (`MemoryDisk`, for `:memory:`), and on a
disk that forgets, tears and fills up on command (`simulated_disk.SimulatedDisk`, for tests).

Paths are relative strings with `/` between names. A disk raises plain `OSError`; `telling_disk_full` is
the one place where "no space left" becomes `DiskFull`. This module knows nothing of what the bytes mean.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from trine.model.errors import DiskFull, InvalidOption, Locked

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What may be written: bytes with items of one byte."""

WritableMap: TypeAlias = mmap.mmap | memoryview
"""What `map_write` gives: slices of it can be assigned, and `struct.pack_into` accepts it."""

ZEROS: Final = bytes(1024 * 1024)
LOCK_PATH: Final = "lock"
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
IOV_MAX: Final = 1024
"""Linux takes at most this many buffers in one pwritev."""


class File(Protocol):
    """One open file. It has a single owner, so its size is known without asking the system."""

    def pread(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    def pwrite(self, position: int, data: Buffer) -> None:
        """Hand all of `data` to the system. If that fails, the file keeps its size."""

    def pwritev(self, position: int, buffers: Sequence[Buffer]) -> None:
        """The same for several buffers, one after the other, without joining them."""

    def sync(self) -> None:
        """fdatasync: returns when all that was written (or stored through a map) is on the medium."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Cut to `size`. Views taken before must not be read beyond it."""

    def allocate(self, position: int, size: int) -> None:
        """Write zeros, so that later syncs of this part touch no metadata and cannot run out of space."""

    def map_write(self, size: int) -> WritableMap:
        """The first `size` bytes as writable memory, coherent with pwrite; map again after the file grew."""

    def view(self) -> memoryview:
        """The file of the current size, read only. It stays valid, but shows no growth: take another then."""

    def close(self) -> None: ...


class Disk(Protocol):
    """One data directory."""

    def open(self, path: str, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty if there is no such folder."""

    def make_dirs(self, path: str) -> None: ...

    def delete(self, path: str) -> None: ...

    def delete_tree(self, path: str) -> None:
        """Delete a folder (or file) and all below; nothing happens if it is not there."""

    def rename(self, source: str, target: str) -> None:
        """Atomic, and durable on return."""

    def write_atomic(self, path: str, data: Buffer) -> None:
        """After a crash the file has either its old content or all of the new; durable on return."""

    def read(self, path: str) -> bytes: ...

    def free_bytes(self) -> int: ...

    def lock(self) -> None:
        """Claim the directory for this broker, or raise `Locked`."""

    def unlock(self) -> None: ...

    def describe(self, path: str) -> str:
        """The full path, for error messages."""

    def sync_dir(self, path: str) -> None:
        """Make creations, deletions and renames in a folder durable."""


@contextlib.contextmanager
def telling_disk_full(where: str, needed_bytes: int) -> Iterator[None]:
    """Turn "no space left" into `DiskFull`; every other error passes."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise DiskFull(
            f"The disk is full: {needed_bytes:,} bytes are needed for {where}. Nothing was lost and nothing "
            "of this call was stored. Free some space or shorten retention; publishing resumes by itself "
            "when there is room."
        ) from error


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


class RealFile:
    """A file descriptor."""

    __slots__ = ("_fd", "_size", "_view")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._size = os.fstat(fd).st_size
        self._view: memoryview | None = None

    def pread(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        while len(data) < size:  # a signal or a large read may cut it short before the end of the file
            more = os.pread(self._fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pwrite(self, position: int, data: Buffer) -> None:
        try:
            written = os.pwrite(self._fd, data, position)
            while written < len(data):
                written += os.pwrite(self._fd, memoryview(data)[written:], position + written)
        except OSError:
            self._undo_growth()
            raise
        if position + written > self._size:
            self._size = position + written

    def pwritev(self, position: int, buffers: Sequence[Buffer]) -> None:
        total = sum(map(len, buffers))
        if len(buffers) > IOV_MAX:
            self.pwrite(position, b"".join(buffers))
            return
        try:
            written = os.pwritev(self._fd, buffers, position)
        except OSError:
            self._undo_growth()
            raise
        if written < total:
            rest = memoryview(b"".join(buffers))[written:]
            self.pwrite(position + written, rest)
        elif position + total > self._size:
            self._size = position + total

    def _undo_growth(self) -> None:
        """A failed write may have left its first part behind; the size must stay what the owner believes."""
        if os.fstat(self._fd).st_size > self._size:
            os.ftruncate(self._fd, self._size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def size(self) -> int:
        return self._size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size
        self._view = None

    def allocate(self, position: int, size: int) -> None:
        before, end = self._size, position + size
        try:
            while position < end:
                step = min(len(ZEROS), end - position)
                self.pwrite(position, ZEROS if step == len(ZEROS) else memoryview(ZEROS)[:step])
                position += step
        except OSError:
            self._size = before
            self._undo_growth()
            raise

    def map_write(self, size: int) -> WritableMap:
        return mmap.mmap(self._fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

    def view(self) -> memoryview:
        if self._view is None or len(self._view) != self._size:
            # The old map is not closed here: it lives until the last reader lets go of its slices.
            mapped = mmap.mmap(self._fd, self._size, access=mmap.ACCESS_READ) if self._size else b""
            self._view = memoryview(mapped)
        return self._view

    def close(self) -> None:
        self._view = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """A directory of the file system."""

    def __init__(self, root: str | os.PathLike[str], *, create: bool = True) -> None:
        self._root = Path(root).absolute()
        try:
            if create:
                self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidOption(
                f"{self._root} cannot be a data directory ({error.strerror}): name a folder, or one that can "
                "be made"
            ) from error
        self._lock_fd = -1

    def open(self, path: str, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(self._root / path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return (self._root / path).exists()

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / path))
        except FileNotFoundError:
            return []

    def make_dirs(self, path: str) -> None:
        made = ""
        for name in path.split("/"):
            parent, made = made, f"{made}/{name}" if made else name
            if not (self._root / made).is_dir():
                (self._root / made).mkdir()
                self.sync_dir(parent)

    def delete(self, path: str) -> None:
        os.unlink(self._root / path)

    def delete_tree(self, path: str) -> None:
        full = self._root / path
        if full.is_dir():
            shutil.rmtree(full)
        elif full.exists():
            full.unlink()

    def rename(self, source: str, target: str) -> None:
        os.rename(self._root / source, self._root / target)
        self.sync_dir(parent_of(target))
        if parent_of(source) != parent_of(target):
            self.sync_dir(parent_of(source))

    def write_atomic(self, path: str, data: Buffer) -> None:
        temporary = f"{path}.tmp"
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        file = RealFile(os.open(self._root / temporary, flags, 0o644))
        try:
            file.pwrite(0, data)
            file.sync()
        except OSError:
            self.delete(temporary)
            raise
        finally:
            file.close()
        self.rename(temporary, path)

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def free_bytes(self) -> int:
        status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize

    def lock(self) -> None:
        fd = os.open(self._root / LOCK_PATH, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            who = f" (process {holder})" if holder.isdigit() else ""
            raise Locked(
                f"{self._root} is already open in another broker{who}. Stop that one, connect to it instead "
                "of opening its directory, or choose another directory."
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock_fd = fd

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            os.ftruncate(self._lock_fd, 0)
            os.close(self._lock_fd)  # closing releases the lock
            self._lock_fd = -1

    def describe(self, path: str) -> str:
        return str(self._root / path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(self._root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
