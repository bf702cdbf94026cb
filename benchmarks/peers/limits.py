"""What the machine itself can do, measured beside the brokers: figures are held against it."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from benchmarks.raw import RawFile

APPENDS = 1_500
ROUNDS = 3


def of_the_disk(folder: Path) -> dict[str, object]:
    """Appends of 100 bytes, each followed by fdatasync, in a file that has its space already."""
    rates = []
    for _ in range(ROUNDS):
        path = folder / "limit"
        raw = RawFile(path, 16 << 20)
        begun = time.monotonic()
        for _ in range(APPENDS):
            raw.append_synced(b"v" * 100)
        rates.append(APPENDS / (time.monotonic() - begun))
        os.unlink(path)
    return {"fdatasyncs_per_s": {"runs": rates, "median": statistics.median(rates)}}
