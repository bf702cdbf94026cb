"""Rows become messages: every column, exactly once, and refused in one sentence where they cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trine
from tests.integration.serving import Serving
from trine.model import errors
from trine.spark.errors import plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trine.spark.place import Place

ROOT = Path(__file__).parents[3]


def test_every_column_is_written(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=3)
    due = datetime.now(UTC) + timedelta(hours=1)
    rows = [
        (b"k1", b"v1", [("a", b"1"), ("b", b"")], None, "high", None, None, None, None, "shop"),
        (None, b"v2", None, 2, None, None, None, 60_000, None, None),
        (b"k3", None, None, None, "low", None, None, None, None, None),
        (b"k4", b"v4", None, None, None, 3_600_000, None, None, None, None),
        (b"k5", b"v5", None, None, None, None, due, None, None, None),
        (b"k6", b"v6", None, None, None, None, None, None, "d-6", None),
        (b"k6", b"v6 again", None, None, None, None, None, None, "d-6", None),
    ]
    schema = (
        "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int, priority string, "
        "delay bigint, deliver_at timestamp, ttl bigint, dedup_id string, producer string"
    )
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    frame.write.format("trine").options(**place.options()).option("topic", topic_name).mode("append").save()
    stored = {one.key or b"": one for one in topic.read(max=100)}
    assert set(stored) == {b"k1", b"", b"k3", b"k6"}
    assert stored[b"k1"].headers == {"a": b"1", "b": b"", "trine-producer": b"shop"}
    assert (stored[b"k1"].priority, stored[b"k1"].producer) == ("high", "shop")
    assert (stored[b""].partition, stored[b""].value) == (2, b"v2")
    expires = stored[b""].expires_ms
    assert expires is not None
    assert 50_000 < expires - stored[b""].timestamp_ms <= 60_000  # it counts from when the row was sent
    assert (stored[b"k3"].value, stored[b"k3"].priority) == (None, "low")
    assert (stored[b"k6"].value, stored[b"k6"].dedup_id) == (b"v6", "d-6")
    assert len(topic.schedules()) == 2


def test_a_topic_column_and_strings(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str
) -> None:
    names = [f"{topic_name}-{end}" for end in "ab"]
    for name in names:
        broker.create_topic(name, partitions=2)
    frame = spark.range(1000).selectExpr(
        f"if(id % 2 = 0, '{names[0]}', '{names[1]}') as topic", "cast(id as string) as key", "concat('v', id) as value",
        "map('n', cast(cast(id as string) as binary)) as headers",
    )  # fmt: skip
    frame.write.format("trine").options(**place.options()).mode("append").save()
    for index, name in enumerate(names):
        found = {int((one.key or b"-1").decode()): one.value for one in broker.topic(name).read(max=1000)}
        assert found == {n: f"v{n}".encode() for n in range(index, 1000, 2)}


def test_what_was_read_can_be_written(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str
) -> None:
    a, b = (broker.create_topic(f"{topic_name}-{end}", partitions=3) for end in "ab")
    a.publish_many([f"{n}" for n in range(500)])
    a.publish("keyed", key="k", headers={"h": "1"}, priority="high")
    frame = (
        spark.read.format("trine")
        .options(**place.options())
        .options(subscribe=a.name, includeHeaders="true")
        .load()
    )
    broker.forget_producers("spark.")  # other tests' streams that have no next epoch
    frame.write.format("trine").options(**place.options()).option("topic", b.name).mode("append").save()
    told = [
        sorted((one.key or b"", one.value, one.priority, tuple(one.headers)) for one in topic.read(max=1000))
        for topic in (a, b)
    ]
    assert told[0] == told[1]
    assert broker.forget_producers("spark.") == 0, "the names of a finished write are given up"


@pytest.mark.parametrize(
    ("select", "options", "kind", "sentence"),
    [
        (["id"], {"topic": "x"}, errors.InvalidInput, "needs a column 'value'"),
        (["'v' as value"], {}, errors.InvalidInput, "say where to write"),
        (["id as value"], {"topic": "x"}, errors.InvalidInput, "must be binary or string"),
        (["'v' as value", "1 as clef"], {"topic": "x"}, errors.InvalidInput, "no column 'clef'"),
        (["'v' as value"], {"topic": "no-such"}, errors.UnknownTopic, "no topic 'no-such'"),
        (["'v' as value", "'no-such' as topic"], {}, errors.UnknownTopic, "no topic 'no-such'"),
        (["'v' as value"], {"topic": "x", "tpoic": "y"}, errors.InvalidOption, "no option 'tpoic'"),
    ],
)
def test_bad_rows_are_one_sentence(
    spark: SparkSession,
    place: Place,
    select: list[str],
    options: dict[str, str],
    kind: type[errors.TrineError],
    sentence: str,
) -> None:
    frame = spark.range(3).selectExpr(*select)
    with pytest.raises(kind, match=sentence), plain():
        frame.write.format("trine").options(**place.options()).options(**options).mode("append").save()


def test_a_row_that_does_not_fit(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str
) -> None:
    broker.create_topic(topic_name, partitions=2)
    writer = spark.range(1).selectExpr("'v' as value", "7 as partition").write.format("trine")
    with pytest.raises(errors.UnknownPartition, match="names partition 7"), plain():
        writer.options(**place.options()).option("topic", topic_name).mode("append").save()
    writer = spark.range(1).selectExpr("'v' as value", "'urgent' as priority").write.format("trine")
    with pytest.raises(errors.UnknownLane, match="no lane 'urgent'"), plain():
        writer.options(**place.options()).option("topic", topic_name).mode("append").save()
    with pytest.raises(errors.InvalidOption, match="only appended"), plain():
        spark.range(1).selectExpr("'v' as value").write.format("trine").options(**place.options()).option(
            "topic", topic_name
        ).mode("overwrite").save()


COPY = """
import sys
from trine.spark import Place, spark_session
url, source, target, checkpoint = sys.argv[1:]
spark = spark_session("local[2]", conf={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"})
stream = (spark.readStream.format("trine").options(**Place(url).options())
    .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="4000").load())
query = (stream.selectExpr("key", "value").writeStream.format("trine").options(**Place(url).options())
    .option("topic", target).option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
print("started", flush=True)
query.awaitTermination()
print("done", flush=True)
"""


@pytest.mark.parametrize(
    "goals",
    [
        pytest.param((9_000,), id="once"),
        pytest.param((1, 8_001, 15_000, 29_000), id="often", marks=pytest.mark.slow),
    ],
)
def test_a_stream_killed_in_the_middle_writes_nothing_twice(
    broker: trine.Broker, server: Serving, topic_name: str, tmp_path: Path, goals: tuple[int, ...]
) -> None:
    """kill -9 of the whole job, each time when so much has arrived, then on to the end."""
    count = 20_000 if len(goals) == 1 else 40_000
    source = broker.create_topic(f"{topic_name}-a", partitions=2)
    target = broker.create_topic(f"{topic_name}-b", partitions=3)
    for start in range(0, count, 5000):
        source.publish_many([{"value": f"{n}", "key": f"{n % 100}"} for n in range(start, start + 5000)])
    script = tmp_path / "copy_stream.py"
    script.write_text(COPY)
    command = [
        sys.executable,
        str(script),
        server.url,
        source.name,
        target.name,
        str(tmp_path / "checkpoint"),
    ]

    def arrived() -> int:
        return sum(following - first for first, following in target.offsets().values())

    for goal in goals:
        with (tmp_path / "job.log").open("wb") as log:
            job = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + 120
        while arrived() < goal:
            assert job.poll() is None, (tmp_path / "job.log").read_text()
            assert time.monotonic() < end, "the job does not get on"
            time.sleep(0.005)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    before = arrived()
    assert before < count, "it was over before it was killed"
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    values: list[int] = []
    for number in range(3):
        offset = 0
        while some := target.read(partition=number, from_offset=offset, max=20_000):
            values += [int((one.value or b"-1").decode()) for one in some]
            offset = some[-1].offset + 1
    assert len(values) == count
    assert sorted(values) == list(range(count))
