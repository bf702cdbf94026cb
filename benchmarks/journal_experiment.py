"""Bytes written twice, or one sync a log? The question behind the journal, asked of the bare file system.

    journal   one entry for all logs is appended to one file, which is synced; the logs are written through the
              page cache, and synced in the background (here: by a thread, every 64 MiB, its time included)
    direct    each log is appended to and synced on its own, one after the other, before the answer

All files are written ahead with zeros, so that a sync writes no metadata in either way.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from benchmarks.bench import Bench, medians

LOGS = 6
CHECKPOINT_BYTES = 64 << 20
AHEAD_BYTES = 128 << 20
SIZES = ((200, "200 B"), (16 << 10, "16 KiB"), (1 << 20, "1 MiB"))


def run(bench: Bench) -> None:
    folder = bench.folder()
    ahead = bench.size(AHEAD_BYTES, 16 << 20)
    files = [_ahead(folder / f"{number}", ahead) for number in range(LOGS + 1)]
    for size, name in SIZES:
        for touched in (1, LOGS):
            _compare(bench, files, ahead, size, name, touched)
    for fd in files:
        os.close(fd)
    bench.remove(folder)


def _compare(bench: Bench, files: list[int], ahead: int, size: int, name: str, touched: int) -> None:
    journal, *logs = files
    logs = logs[:touched]
    data = os.urandom(size)
    steps = bench.size(12 if size >= 1 << 20 else 100, 2)

    def journalled() -> None:
        since = 0
        syncs: list[threading.Thread] = []
        for step in range(steps):
            at = step * size % (ahead - size * touched)
            os.pwritev(journal, [data] * touched, at)
            os.fdatasync(journal)
            for log in logs:
                os.pwrite(log, data, at)
            since += size * touched
            if since >= CHECKPOINT_BYTES:
                since = 0
                syncs.append(threading.Thread(target=_sync, args=(logs,)))
                syncs[-1].start()
        for thread in syncs:
            thread.join()
        _sync(logs)

    def direct() -> None:
        for step in range(steps):
            for log in logs:
                os.pwrite(log, data, step * size % (ahead - size))
                os.fdatasync(log)

    ours, other = medians(bench.rounds, journalled, direct)
    of = "1 log" if touched == 1 else f"{touched} logs"
    bench.add(
        workload=f"journal: {name} to each of {of}, one fdatasync", durability="synced", value=steps / ours,
        unit="changes/s", limit="each log synced directly", limit_value=steps / other,
        note=f"{steps * size * touched / ours / 2**20:,.1f} against "
        f"{steps * size * touched / other / 2**20:,.1f} MiB/s",
    )  # fmt: skip


def _sync(logs: list[int]) -> None:
    for log in logs:
        os.fdatasync(log)


def _ahead(path: Path, size: int) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    zeros = bytes(1 << 20)
    for position in range(0, size, len(zeros)):
        os.pwrite(fd, zeros, position)
    os.fsync(fd)
    return fd
