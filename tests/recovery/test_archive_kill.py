"""kill -9 of whoever archives, at several places: no message is lost, none is there twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable

import trine
from tests.integration.serving import Serving

WORKER = Path(__file__).with_name("archive_worker.py")
RUN_SECONDS = 240.0
"""Generous: Spark starts slowly on a loaded machine."""


def places(path: str) -> list[tuple[int, int]]:
    table = DeltaTable(path).to_pyarrow_table(columns=["partition", "offset"])
    return sorted(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True))


def test_an_archiver_killed_anywhere_goes_on_at_its_last_commit(tmp_path: Path) -> None:
    path = str(tmp_path / "archive")
    with Serving(tmp_path / "data") as server, trine.connect(server.url) as broker:
        topic = broker.create_topic("orders", partitions=2)
        for start in range(0, 80_000, 10_000):
            values = [f"{n:099d}".encode() for n in range(start, start + 10_000)]
            topic.publish_many(values, durability="written")

        def work(when: str) -> subprocess.Popen[bytes]:
            words = [sys.executable, str(WORKER), server.url, path, "orders", when]
            return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def files() -> set[Path]:
            return set(Path(path).rglob("part-*.parquet"))

        # Two rounds are planned; in the second the files are written, and the commit never comes.
        assert work("before-commit").wait(RUN_SECONDS) == -signal.SIGKILL
        assert len(places(path)) == 20_000
        orphans = {one.name for one in files()} - {Path(one).name for one in DeltaTable(path).file_uris()}
        assert orphans

        # The commit came, and nobody told the broker of it.
        assert work("after-commit").wait(RUN_SECONDS) == -signal.SIGKILL
        assert len(places(path)) == 40_000
        assert sum(topic.archived().values()) == 20_000

        # While files are being written, whichever they are.
        seen = files()
        process = work("never")
        try:
            while not files() - seen:
                assert process.poll() is None
        finally:
            process.kill()
            process.wait()

        assert work("never").wait(RUN_SECONDS) == 0
        ends = topic.offsets()
        assert places(path) == sorted((n, at) for n, (_, end) in ends.items() for at in range(end))
        assert topic.archived() == {n: end for n, (_, end) in ends.items()}
        values = DeltaTable(path).to_pyarrow_table(columns=["value"]).column("value").to_pylist()
        assert sorted(values) == [f"{n:099d}".encode() for n in range(80_000)]
