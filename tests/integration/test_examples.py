"""The examples run to their end: what `make run` shows cannot rot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_tour_ends_well_and_shows_what_it_promises() -> None:
    # Wide, so that no sentence is broken over two lines; not a terminal, as in a pipe.
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "tour.py")],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "200", "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for sentence in (
        "duplicate of orders/",
        "coffee (key ann, low, attempt 2): acked",
        "tea is not on the menu",
        "stale_receipt",
        "killed by signal 9",
        "Answered publishes that are missing: 0.",
        "Acked messages that came back: 0.",
        "redrive-1: done, moved 1 of 1",
        "bytes are sound",
    ):
        assert sentence in done.stdout
