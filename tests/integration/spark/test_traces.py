"""Traces: the tables against what the broker itself says of each message."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import trine
from tests.integration.spark.lives import MESSAGES, live
from trine.model.errors import UnknownTopic
from trine.spark.place import Place
from trine.spark.traces import TABLES, traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows_of(path: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(path / table)).to_pyarrow_table().to_pylist()
    return found


def test_every_life_is_what_the_broker_says(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str, tmp_path: Path
) -> None:
    live(broker, topic_name)
    late = broker.topic(topic_name).create_group("late", start="latest")
    broker.topic(topic_name).publish("eleventh", key="k")
    told: list[str] = []
    summary = traces(
        spark,
        place,
        [topic_name],
        str(tmp_path),
        stuck_after="0s",
        progress=lambda what, done, total: told.append(what),
    )
    assert summary.topics == (topic_name,)
    assert set(summary.rows) == set(TABLES)
    assert told[-1] == "done"
    lives = rows_of(tmp_path, "lives")
    assert len(lives) == summary.rows["lives"] == 3 * (MESSAGES + 1)
    for one in lives:
        life = broker.trace(one["message_id"]).groups[one["group"]]
        assert (one["state"], one["deliveries"]) == (life.state, life.deliveries), one
        assert one["settle_ms"] == life.latency_ms
    messages = {row["offset"]: row for row in rows_of(tmp_path, "messages")}
    assert len(messages) == MESSAGES + 1
    assert dict(messages[6]["states"]) == {"work": "dead-lettered", "audit": "acked", "late": "skipped"}
    assert (messages[0]["key"], messages[0]["size"], messages[0]["producer"]) == (b"k0", 10, "shop")
    attempts = [row for row in rows_of(tmp_path, "attempts") if row["group"] == "work" and row["offset"] == 1]
    assert [
        (row["attempt"], row["outcome"], row["reason"])
        for row in sorted(attempts, key=lambda row: row["attempt"])
    ] == [
        (1, "nacked", "not now"),
        (2, "acked", None),
    ]
    assert all(row["duration_ms"] >= 0 for row in attempts)
    latencies = {row["group"]: row for row in summary.latencies}
    assert (latencies["audit"]["acked"], latencies["work"]["dead_lettered"]) == (MESSAGES, 1)
    assert latencies["audit"]["ack_p50_ms"] <= latencies["audit"]["ack_p99_ms"]
    stuck = {(row["group"], row["offset"]) for row in rows_of(tmp_path, "stuck")}
    assert {("work", 7), ("work", 8), ("work", 9), ("late", 10)} <= stuck
    assert {row["offset"] for row in rows_of(tmp_path, "poison")} == {6}
    assert late.lag().count == 1


@pytest.mark.slow
def test_a_second_run_replaces_the_tables_in_one_version_each(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str, tmp_path: Path
) -> None:
    live(broker, topic_name)
    first = traces(spark, place, [topic_name], str(tmp_path))
    second = traces(spark, place, [topic_name], str(tmp_path))
    assert second.rows == first.rows
    assert second.versions == {name: version + 1 for name, version in first.versions.items()}
    assert len(rows_of(tmp_path, "messages")) == MESSAGES
    assert traces(spark, place, [topic_name]).rows == first.rows


def test_an_unknown_topic_is_refused(spark: SparkSession, place: Place) -> None:
    with pytest.raises(UnknownTopic):
        traces(spark, place, ["no-such-topic"])
