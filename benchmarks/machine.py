"""The machine and the moment: a number without them says nothing."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import trine

NOT_A_DISK = frozenset({"tmpfs", "ramfs"})


def facts(folder: Path) -> dict[str, str | int | float]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count() or 0,
        "cpu": _cpu(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": platform.release(),
        "filesystem": filesystem(folder),
        "trine": trine.__version__,
    }


def caption(facts: dict[str, str | int | float]) -> str:
    return (
        f"{facts['cpus']} CPUs, {facts['cpu']}, load {facts['load']} at the start, Python {facts['python']}, "
        f"{facts['filesystem']}, Linux {facts['system']}, {facts['date']}"
    )


def filesystem(folder: Path) -> str:
    """The kind of file system a folder is on: of the mount points above it, the nearest one's."""
    here = folder.resolve()
    found, kind = -1, "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, this, *_ = line.split()
        if here.is_relative_to(point) and len(point) >= found:
            found, kind = len(point), this
    return kind


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
