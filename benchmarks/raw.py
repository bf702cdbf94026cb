"""The limits: the same bytes given to the file system by the shortest way there is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path


class RawFile:
    """A file of zeros, written ahead as the journal is, to append to."""

    def __init__(self, path: Path, ahead_bytes: int = 0) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._lock = threading.Lock()
        self._ahead = ahead_bytes
        self._at = 0
        zeros = bytes(1 << 20)
        for position in range(0, ahead_bytes, len(zeros)):
            os.pwrite(self._fd, zeros, position)
        os.fsync(self._fd)

    def append(self, data: bytes | bytearray) -> None:
        with self._lock:
            at = self._at
            self._at += len(data)
        os.pwrite(self._fd, data, at % self._ahead if self._ahead else at)

    def append_synced(self, data: bytes | bytearray) -> None:
        self.append(data)
        os.fdatasync(self._fd)

    def restart(self) -> None:
        """Empties the file, so that every round writes fresh pages."""
        os.ftruncate(self._fd, 0)
        self._at = 0

    def close(self) -> None:
        os.close(self._fd)


def in_threads(count: int, work: Callable[[], object]) -> None:
    """Runs the same work in several threads at once, to the end of all of them."""
    if count == 1:
        work()
        return
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
