"""Who may open a folder: one process at a time, of a version that knows it, and only a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trine
from trine.model.errors import Corrupt, InvalidOption, Locked, NewerFormat

HOLDER = """
import sys, trine
broker = trine.open(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def test_a_folder_held_by_another_process_is_locked_and_free_when_it_dies(tmp_path):
    folder = str(tmp_path / "data")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"open\n"
        before = everything(tmp_path)
        with pytest.raises(Locked, match=rf"process {holder.pid}\)") as caught:
            trine.open(folder)
        assert folder in str(caught.value)
        assert everything(tmp_path) == before
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    trine.open(folder).close()


def test_twice_in_one_process(tmp_path):
    with trine.open(str(tmp_path)), pytest.raises(Locked, match=rf"process {os.getpid()}\)"):
        trine.open(str(tmp_path))
    trine.open(str(tmp_path)).close()


def test_a_newer_format_is_refused_and_left_alone(tmp_path):
    trine.open(str(tmp_path)).close()
    path = tmp_path / "format"
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    before = everything(tmp_path)
    with pytest.raises(NewerFormat, match="newer Trine"):
        trine.open(str(tmp_path))
    assert everything(tmp_path) == before
    path.write_bytes(path.read_bytes().replace(b"2", b"1"))
    trine.open(str(tmp_path)).close()


@pytest.mark.parametrize("words", [b"", b"something else", b"trine data directory, format 0\n"])
def test_an_unreadable_format_is_corrupt(tmp_path, words):
    trine.open(str(tmp_path)).close()
    (tmp_path / "format").write_bytes(words)
    with pytest.raises(Corrupt, match="format"):
        trine.open(str(tmp_path))


def test_a_path_that_is_a_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"mine")
    for given in (path, path / "below"):
        with pytest.raises(InvalidOption, match="cannot be a data directory"):
            trine.open(str(given))
    assert path.read_bytes() == b"mine"


def test_a_folder_of_somebody_elses(tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_bytes(b"dear")
    (tmp_path / "notes.txt").write_bytes(b"mine")
    before = everything(tmp_path)
    with pytest.raises(InvalidOption, match=r"not a Trine data directory.*letters, notes\.txt") as caught:
        trine.open(str(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert everything(tmp_path) == before


def test_an_empty_folder_and_one_that_was_being_made(tmp_path):
    (tmp_path / "lock").write_bytes(b"")
    (tmp_path / "format.tmp").write_bytes(b"trine da")
    trine.open(str(tmp_path)).close()
    trine.open(str(tmp_path)).close()
