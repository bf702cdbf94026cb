"""kill -9 of whoever archives, at several places: no message is lost, none is there twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from deltalake import DeltaTable

import trine
from tests.integration.serving import Serving

WORKER = Path(__file__).with_name("archive_worker.py")
MESSAGES = 80_000
RUN_SECONDS = 240.0
"""Generous: Spark starts slowly on a loaded machine."""


def places(path: str) -> list[tuple[int, int]]:
    table = DeltaTable(path).to_pyarrow_table(columns=["partition", "offset"])
    return sorted(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True))


class Archiving:
    """A topic, its archive, and processes that archive it and are killed."""

    def __init__(self, folder: Path, server: Serving, broker: trine.Broker) -> None:
        self.path = str(folder / "archive")
        self._server = server
        self.topic = broker.create_topic("orders", partitions=2)
        for start in range(0, MESSAGES, 10_000):
            values = [f"{n:099d}".encode() for n in range(start, start + 10_000)]
            self.topic.publish_many(values, durability="written")

    def work(self, when: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, str(WORKER), self._server.url, self.path, "orders", when]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def killed(self, when: str) -> None:
        assert self.work(when).wait(RUN_SECONDS) == -signal.SIGKILL

    def files(self) -> set[Path]:
        return set(Path(self.path).rglob("part-*.parquet"))

    def check_to_the_end(self) -> None:
        assert self.work("never").wait(RUN_SECONDS) == 0
        ends = self.topic.offsets()
        assert places(self.path) == sorted((n, at) for n, (_, end) in ends.items() for at in range(end))
        assert self.topic.archived() == {n: end for n, (_, end) in ends.items()}
        values = DeltaTable(self.path).to_pyarrow_table(columns=["value"]).column("value").to_pylist()
        assert sorted(values) == [f"{n:099d}".encode() for n in range(MESSAGES)]


@pytest.fixture
def archiving(tmp_path: Path) -> Iterator[Archiving]:
    with Serving(tmp_path / "data") as server, trine.connect(server.url) as broker:
        yield Archiving(tmp_path, server, broker)


def test_killed_between_files_and_commit(archiving: Archiving) -> None:
    """In the second round the files are written, and the commit never comes."""
    archiving.killed("before-commit")
    assert len(places(archiving.path)) == 20_000
    table = {Path(one).name for one in DeltaTable(archiving.path).file_uris()}
    assert {one.name for one in archiving.files()} - table, "files that belong to no commit"
    archiving.check_to_the_end()


@pytest.mark.slow
def test_killed_between_commit_and_telling_the_broker(archiving: Archiving) -> None:
    archiving.killed("after-commit")
    assert len(places(archiving.path)) == 20_000
    assert sum(archiving.topic.archived().values()) == 0
    archiving.check_to_the_end()


@pytest.mark.slow
def test_killed_while_files_are_being_written(archiving: Archiving) -> None:
    process = archiving.work("never")
    try:
        while not archiving.files():
            assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    archiving.check_to_the_end()
