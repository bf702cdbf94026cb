"""What Spark's commands tell the broker of their runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import trine
from tests.integration.spark.lives import MESSAGES, live
from trine.model.errors import TrineError
from trine.spark import archive as archiving
from trine.spark import runs
from trine.spark.replay import Choice, replay_to_group, replay_to_topic
from trine.spark.report import report
from trine.spark.runs import telling
from trine.spark.traces import traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trine.spark.place import Place


def last(broker: trine.Broker, kind: str, topic: str) -> Any:
    return broker.run(next(one.id for one in broker.runs(kind) if topic in one.topics))


def test_archive_replay_and_traces_tell_what_they_did(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str, tmp_path: Path
) -> None:
    topic = broker.create_topic(topic_name, partitions=2)
    topic.publish_many([f"{n}" for n in range(50)])
    topic.create_group("g")
    done = archiving.archive(spark, place, [topic_name], str(tmp_path / "lake"))
    run = last(broker, "archive", topic_name)
    assert (run.state, run.rows, run.name) == ("ended", 50, done.path)
    assert json.loads(run.summary)["commits"] == done.commits

    broker.create_topic(f"{topic_name}-copy", partitions=2)
    choice = Choice(topic_name)
    replay_to_topic(spark, place, choice, f"{topic_name}-copy")
    run = last(broker, "replay", f"{topic_name}-copy")
    assert (run.state, run.rows) == ("ended", 50)
    replay_to_group(spark, place, choice, "g")
    run = last(broker, "replay", topic_name)
    assert run.name == f"{topic_name} to group g"
    assert json.loads(run.summary)["redelivered"] == 0

    made = traces(spark, place, [topic_name])
    run = last(broker, "traces", topic_name)
    assert json.loads(run.summary)["rows"] == made.rows


def test_a_report_leaves_its_numbers(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str
) -> None:
    live(broker, topic_name)
    made = report(spark, place, [topic_name], window="10s")
    run = last(broker, "report", topic_name)
    assert json.loads(run.summary)["acked"] == made.summary["acked"]
    assert run.report is not None
    kept = json.loads(run.report)
    assert sum(row[1] for row in kept["published"]) == MESSAGES
    assert sum(row[2] for row in kept["flow"]) == made.summary["acked"]
    assert sum(row[3] for row in kept["flow"]) == made.summary["failed"]
    assert {row["group"] for row in kept["groups"]} == {"audit", "work"}
    assert {row["reason"] for row in kept["reasons"]} == {"broken order", "not now", "member closed"}
    windows = [row[0] for row in kept["lag"]]
    assert windows == sorted(windows)
    assert all(window % 10_000 == 0 for window in windows)


def test_a_run_that_fails_says_why(broker: trine.Broker, place: Place, topic_name: str) -> None:
    broker.create_topic(topic_name)
    for error, sentence in (
        (TrineError("no such column"), "no such column"),
        (KeyboardInterrupt(), "interrupted"),
        (ValueError("off"), "ValueError: off"),
    ):
        with pytest.raises(type(error)), telling(place, "traces", "x", [topic_name]):
            raise error
        run = last(broker, "traces", topic_name)
        assert (run.state, run.error) == ("failed", sentence)


def test_a_long_run_says_that_it_is_alive(
    broker: trine.Broker, place: Place, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(topic_name)
    monkeypatch.setattr(runs, "BEAT_SECONDS", 0.01)
    with telling(place, "archive", "x", [topic_name]) as run:
        run.rows = 7
        while last(broker, "archive", topic_name).rows != 7:
            assert run._beating is not None
            assert run._beating.is_alive()
    assert last(broker, "archive", topic_name).state == "ended"


def test_more_numbers_than_are_kept_are_left_out(broker: trine.Broker, place: Place, topic_name: str) -> None:
    broker.create_topic(topic_name)
    with telling(place, "report", "x", [topic_name]) as run:
        run.report = {"x": "y" * 100_000}
        run.summary = {"x": "y" * 100_000}
    ended = last(broker, "report", topic_name)
    assert (ended.state, ended.summary, ended.has_report) == ("ended", "{}", False)
