"""The commands on Spark as people use them: what they show, how they are refused, and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

import trine
from tests.integration.serving import Serving
from trine.model.errors import InvalidOption
from trine.spark import Place, charts
from trine.spark.archive import archive
from trine.spark.delta import Table
from trine.spark.errors import sentence_of
from trine.spark.java import Said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SECONDS = 300.0
"""Generous: Spark takes long to start on a loaded machine."""
NOBODY = "spark://127.0.0.1:9"


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "trine.cli", *words]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("archive", "no-such-topic", "--to", "archive"), 3, "there is no topic 'no-such-topic'"),
        (("archive", "status", "no-such-topic"), 3, "there is no topic 'no-such-topic'"),
        (("replay", "no-such-topic"), 3, "there is no topic 'no-such-topic'"),
        (("replay", "any", "--from-time", "whenever"), 2, "'whenever' is not a time"),
        (("report", "no-such-topic"), 3, "there is no topic 'no-such-topic'"),
        (("report", "--out", "report.pdf"), 2, "report.pdf is neither a page"),
        (("pipeline", "run", "no-such-file.yaml"), 2, "no-such-file.yaml: there is no such file"),
        (("sql", "select 1", "--master", NOBODY), 4, f"no Spark master answers at {NOBODY}"),
    ],
)
def test_what_is_off_is_told_before_spark_is_started(
    server: Serving, words: tuple[str, ...], code: int, said: str
) -> None:
    found = run("--server", server.url, *words)
    assert found.returncode == code
    assert said in found.stderr
    assert "Traceback" not in found.stderr
    assert found.stdout == ""


def test_java_is_not_heard_when_all_is_well(
    server: Serving, broker: trine.Broker, topic_name: str, tmp_path: Path
) -> None:
    broker.create_topic(topic_name, partitions=1).publish_many([{"value": str(n)} for n in range(10)])
    found = run("--server", server.url, "archive", topic_name, "--to", str(tmp_path / "archive"))
    assert found.stderr == ""
    assert found.stdout.startswith("10 messages archived in ")
    assert "1 file, 1 commit: " in found.stdout
    assert found.returncode == 0


def test_following_shows_how_far_it_is_and_ends_at_ctrl_c(
    server: Serving, broker: trine.Broker, topic_name: str, tmp_path: Path
) -> None:
    broker.create_topic(topic_name, partitions=1).publish("one")
    looked_at, stderr = pty.openpty()
    words = command("--server", server.url, "archive", topic_name, "--to", str(tmp_path / "archive"), "-F")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=stderr) as process:
        os.close(stderr)
        try:
            shown = _until(looked_at, b"1 archived so far, waiting for more")
            assert b"starting Spark" in shown
            process.send_signal(signal.SIGINT)
            last = _until(looked_at, b"the same command goes on there")
            assert b"Traceback" not in last
            assert process.wait(WAIT_SECONDS) == 130
        finally:
            process.kill()
            os.close(looked_at)


def _until(terminal: int, words: bytes) -> bytes:
    """What a terminal shows up to these words."""
    shown, deadline = b"", time.monotonic() + WAIT_SECONDS
    while words not in shown:
        assert time.monotonic() < deadline, shown[-2000:]
        try:
            shown += os.read(terminal, 65_536)
        except OSError:  # the command has ended
            pytest.fail(f"{words!r} was not shown: {shown[-2000:]!r}")
    return shown


def test_of_java_that_does_not_start_the_reason_is_kept() -> None:
    source, sink = os.pipe()
    said = Said(source)
    os.write(
        sink,
        b"WARNING: Using incubator modules: jdk.incubator.vector\n"
        b'Exception in thread "main" org.apache.spark.SparkException: there is no such master\n'
        b"\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1140)\n",
    )
    os.close(sink)
    assert said.last_words() == "there is no such master"


def test_what_java_says_later_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    source, sink = os.pipe()
    said = Said(source)
    os.write(sink, b'Setting default log level to "FATAL".\nthe disk is full\n')
    os.close(sink)
    said.last_words()
    said.pass_on()
    assert capfd.readouterr().err == "the disk is full\n"


def test_of_an_error_of_java_its_message_is_told() -> None:
    error = Exception(
        "An error occurred while calling o1.x.\n: java.lang.IllegalStateException: it is closed\n\tat"
    )
    assert sentence_of(error) == "it is closed"


def test_an_archive_is_not_made_in_the_place_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidOption, match="is not a directory"):
        Table.open_or_make(str(file))


def test_windows_in_which_nothing_was_published_are_drawn_empty() -> None:
    start = pd.Timestamp("2026-01-14 15:00:00")
    windows = [start, start + pd.Timedelta(minutes=3)]
    published = pd.DataFrame({"topic": "orders", "window": windows, "messages": [60, 120]})
    figure = charts.throughput(published, 60.0)
    [area] = figure.axes[0].collections
    heights = {point[1] for path in area.get_paths() for point in path.vertices}
    assert heights == {0.0, 1.0, 2.0}
    middle = pd.Timestamp(start + pd.Timedelta(seconds=90))
    assert not any(path.contains_point((_days(middle), 0.5)) for path in area.get_paths())


def _days(at: pd.Timestamp) -> float:
    """As matplotlib counts time."""
    return float(at.timestamp()) / 86_400


def test_a_group_reads_from_a_snapshot_what_the_log_has_deleted_too(
    spark: SparkSession, place: Place, server: Serving, broker: trine.Broker, topic_name: str, tmp_path: Path
) -> None:
    lake = str(tmp_path / "archive")
    topic = broker.create_topic(
        topic_name, partitions=1, segment_bytes=4096, retention_bytes=8192, archive=lake
    )
    for start in range(0, 500, 50):
        topic.publish_many([f"{n:0100}" for n in range(start, start + 50)])
    archive(spark, place, [topic_name], lake)
    broker.apply_retention()
    first, end = topic.offsets()[0]
    assert 0 < first < end == 500
    words = ("--from-snapshot", "2026-01-01", "--include-deleted", "--max", "500", "--ack", "auto", "--json")
    found = run("--server", server.url, "consume", topic_name, "--group", "audit", *words)
    assert found.returncode == 0, found.stderr
    shown = [json.loads(line) for line in found.stdout.splitlines()]
    assert [int(one["value"]) for one in shown] == list(range(500))
    assert topic.group("audit").lag().count == 0
