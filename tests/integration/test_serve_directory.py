"""A data directory that several processes use at once: one server has it, found or started, and it ends by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import trine
from tests.integration.serving import Serving
from trine.model import errors
from trine.spark import local

ASK = "import sys; from trine.spark.local import serve_directory; print(serve_directory(sys.argv[1]))"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a topic; whatever serves it is gone at the end."""
    monkeypatch.setattr(local, "IDLE", "1s")
    path = tmp_path / "data"
    with trine.open(str(path)) as broker:
        broker.create_topic("orders", partitions=1).publish("a")
    yield path
    until(lambda: not (path / local.ADDRESS_FILE).exists())
    for process in local._servers:
        process.wait(30)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def test_processes_that_ask_at_once_are_given_one_server(folder: Path) -> None:
    asking = [
        subprocess.Popen([sys.executable, "-c", ASK, str(folder)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = {process.communicate(timeout=60)[0].strip() for process in asking}
    assert len(answers) == 1
    with trine.connect(answers.pop()) as broker:
        assert [one.value for one in broker.topic("orders").read()] == [b"a"]


def test_it_stays_while_somebody_is_connected_and_then_lets_go(folder: Path) -> None:
    with trine.connect(local.serve_directory(str(folder))) as broker:
        told = json.loads((folder / local.ADDRESS_FILE).read_bytes())
        time.sleep(2)  # twice as long as it would stay alone
        assert broker.topic("orders").offsets() == {0: (0, 1)}
        os.kill(told["pid"], 0)
    until(lambda: not (folder / local.ADDRESS_FILE).exists())
    with trine.open(str(folder)) as again:
        assert again.topic("orders").offsets() == {0: (0, 1)}


def test_one_that_is_stopping_is_waited_for(folder: Path) -> None:
    with Serving(folder) as server:
        with trine.connect(server.url) as broker:
            broker.topic("orders").publish("b")
        os.kill(server.pid, 15)
        with trine.connect(local.serve_directory(str(folder))) as broker:
            assert [one.value for one in broker.topic("orders").read()] == [b"a", b"b"]


def test_a_file_that_a_killed_server_left_is_passed_over(folder: Path) -> None:
    with Serving(folder) as server:
        server.kill()
        assert (folder / local.ADDRESS_FILE).exists()
        with trine.connect(local.serve_directory(str(folder))) as broker:
            assert broker.topic("orders").offsets() == {0: (0, 1)}


def test_a_program_that_has_it_open_is_named(folder: Path) -> None:
    with trine.open(str(folder)), pytest.raises(errors.Locked, match=str(os.getpid())):
        local.serve_directory(str(folder))
