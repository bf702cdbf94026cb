"""The examples run to their end, and so does every code sample of the documentation: they cannot rot."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PRINTED = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RESULT = re.compile(r"^(\s*)(\S.*?)  # -> (.+)$", re.MULTILINE)


def samples(page: Path) -> str:
    """The Python of a page as one program, each block on its own lines; `x  # -> 1` becomes an assertion."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * text.count("\n")
    for block in _BLOCK.finditer(text):
        code = _RESULT.sub(lambda m: f"{m[1]}assert (it := repr({m[2]})) == {m[3]!r}, it", block[1])
        first = text.count("\n", 0, block.start()) + 1
        lines[first : first + code.count("\n")] = code.splitlines()
    return "\n".join(lines)


def tour(name: str, *arguments: str) -> str:
    # Wide, so that no sentence is broken over two lines; not a terminal, as in a pipe.
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "200", "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_tour_of_the_server_ends_well_and_shows_what_it_promises() -> None:
    shown = tour("server_tour.py", "--stay", "0.1")
    for sentence in (
        "published cake (key ann, delay 1s): orders@",
        "gave back soup (normal, attempt 1): the pot is still cold",
        "acked soup (normal, attempt 2)",
        '"this is not an order"',
        "REDELIVERED",
        "again since",
        "the log has 20,000",
        "archived 20,000 messages",
        "20,000 archived",
        "all the same",
        "sensor-3: 5,000 readings",
        'replayed from the archive: readings/1/0 {"n": 1,',
        "dead_lettered",
        "/docs",
        "the server has synced everything and left",
    ):
        assert sentence in shown
    served = [line for line in shown.splitlines() if "acked" in line]
    assert next(n for n, line in enumerate(served) if "ice (high" in line) < next(
        n for n, line in enumerate(served) if "rice (low" in line
    )


def test_the_tour_of_the_library_ends_well_and_shows_what_it_promises() -> None:
    shown = tour("embedded_tour.py")
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
        assert sentence in shown


@pytest.mark.parametrize(
    "page", [page for page in PAGES if samples(page).strip()], ids=lambda page: page.stem
)
def test_samples_of_the_documentation_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "sample"}
    try:
        exec(compile(samples(page), str(page), "exec"), names)
    finally:
        close = getattr(names.get("broker"), "close", None)
        if close is not None:
            close()
    printed = capsys.readouterr().out
    for shown in _PRINTED.findall(page.read_text(encoding="utf-8")):
        assert shown in printed
