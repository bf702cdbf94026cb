"""Topics as tables: what is published is what Spark reads, in batches and as streams, and bad input is one sentence."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import trine
from tests.integration.serving import Serving
from trine.model import errors
from trine.spark.errors import explained, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trine.spark.place import Place

ROOT = Path(__file__).parents[3]


def read(spark: SparkSession, place: Place, topic: str, **options: str) -> DataFrame:
    return spark.read.format("trine").options(**place.options()).options(subscribe=topic, **options).load()


def random_messages(seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    found = []
    for number in range(count):
        one: dict[str, Any] = {
            "value": rng.choice([rng.randbytes(rng.randrange(200)), b"", f"wert-{number} ☃".encode()])
        }
        if rng.random() < 0.6:
            one["key"] = rng.choice([f"k{rng.randrange(50)}".encode(), rng.randbytes(8), b""])
        if rng.random() < 0.05:
            one["value"] = None
            one.setdefault("key", b"tombstone")
        if rng.random() < 0.3:
            one["headers"] = {f"h{n}": rng.randbytes(rng.randrange(9)) for n in range(rng.randrange(4))}
        if rng.random() < 0.3:
            one["priority"] = rng.choice(["high", "normal", "low"])
        if rng.random() < 0.1:
            one["ttl"] = "1h"
        if rng.random() < 0.1:
            one["producer"] = "shop"
        if rng.random() < 0.05:
            one["dedup_id"] = f"d{number}"
        found.append(one)
    return found


def test_every_type_and_header_comes_back(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str
) -> None:
    seed = 4
    topic = broker.create_topic(topic_name, partitions=3)
    sent = random_messages(seed, 2000)
    for start in range(0, len(sent), 97):
        topic.publish_many(sent[start : start + 97])
    topic.publish_many([b"x" * 100] * 300)  # alike: the short way
    stored = {one.id: one for one in topic.read(max=10_000)}
    rows = read(spark, place, topic_name, includeHeaders="true").collect()
    assert len(rows) == len(stored) == 2300
    for row in rows:
        one = stored.pop(row.message_id)
        assert (row.topic, row.partition, row.offset) == (one.topic, one.partition, one.offset)
        assert (None if row.key is None else bytes(row.key)) == one.key
        assert (None if row.value is None else bytes(row.value)) == one.value
        own = {name: raw for name, raw in one.headers.items() if not name.startswith("trine-")}
        assert {h.key: bytes(h.value) for h in row.headers} == own
        assert row.timestamp.replace(tzinfo=UTC) == one.timestamp
        assert (row.priority, row.producer, row.dedup_id) == (one.priority, one.producer, one.dedup_id)
        assert row.ttl == (None if one.expires_ms is None else one.expires_ms - one.timestamp_ms)


def test_the_documented_columns_are_the_columns(spark: SparkSession) -> None:
    from trine.spark.columns import MESSAGES

    text = (ROOT / "docs" / "spark.md").read_text()
    section = text.split("## Columns", 1)[1].split("\n## ", 1)[0]
    documented = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section, re.MULTILINE)
    assert documented == [(one.name, one.dataType.simpleString()) for one in MESSAGES.fields]


def test_offsets_and_times_choose_what_is_read(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=2)
    for number in range(10):
        topic.publish(f"{number}", partition=number % 2)
    times = [message.timestamp_ms for message in topic.read(partition=0)]
    middle = times[3]
    topic.publish_many([b"v" * 10] * 200, partition=1)

    def offsets(**options: str) -> list[tuple[int, int]]:
        return sorted(
            (row.partition, row.offset) for row in read(spark, place, topic_name, **options).collect()
        )

    start = json.dumps({topic_name: {"0": 3, "1": -2}})
    end = json.dumps({topic_name: {"0": -1, "1": 2}})
    assert offsets(startingOffsets=start, endingOffsets=end) == [(0, 3), (0, 4), (1, 0), (1, 1)]
    later = [place for place in offsets(startingTimestamp=str(middle)) if place[0] == 0]
    assert later == [(0, offset) for offset, at in enumerate(times) if at >= middle]
    assert offsets(endingTimestamp="0") == []
    inside = json.dumps({topic_name: {"0": 5, "1": 50}}), json.dumps({topic_name: {"0": 5, "1": 60}})
    assert offsets(startingOffsets=inside[0], endingOffsets=inside[1]) == [(1, n) for n in range(50, 60)]
    assert read(spark, place, topic_name, minPartitions="7").rdd.getNumPartitions() >= 7
    assert read(spark, place, topic_name, minPartitions="7").count() == 210
    narrow = read(spark, place, topic_name, columns="offset,value")
    assert narrow.columns == ["value", "offset"]


def test_patterns_and_assignments(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str
) -> None:
    for end in ("a", "b"):
        broker.create_topic(f"{topic_name}-{end}", partitions=2).publish("x", partition=1)
    source = spark.read.format("trine").options(**place.options())
    assert source.option("subscribePattern", f"{re.escape(topic_name)}-.*").load().count() == 2
    source = spark.read.format("trine").options(**place.options())
    assert source.option("assign", json.dumps({f"{topic_name}-a": [0]})).load().count() == 0


def test_filters_are_pushed_down(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str
) -> None:
    from trine.spark.source import PushingTopicReader

    topic = broker.create_topic(topic_name, partitions=3)
    for number in range(3):
        topic.publish_many([b"v" * 20] * 500, partition=number)
    frame = read(spark, place, topic_name)
    assert frame.filter("partition = 1 and offset >= 490 and offset < 495").count() == 5
    assert frame.filter("offset = 7").count() == 3
    assert frame.filter("offset > 498 and timestamp > timestamp'2020-01-01'").count() == 3
    assert frame.filter("timestamp < timestamp'2020-01-01'").count() == 0
    # What is asked for is all that is planned.
    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual

    reader = PushingTopicReader({**place.options(), "subscribe": topic_name}, ("value",))
    list(reader.pushFilters([EqualTo(("partition",), 2), GreaterThanOrEqual(("offset",), 450)]))
    (share,) = reader.partitions()
    assert (share.wanted.partition, share.wanted.start, share.wanted.end) == (2, 450, 500)  # type: ignore[attr-defined]


def test_the_plain_class_works_where_push_down_is_off(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str
) -> None:
    from trine.spark import TrineDataSource, register

    broker.create_topic(topic_name, partitions=1).publish("x")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        spark.dataSource.register(TrineDataSource)
        assert read(spark, place, topic_name).filter("offset = 0").count() == 1
    finally:
        register(spark)


def test_a_stream_goes_on_where_its_checkpoint_says(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, checkpoint: str, tmp_path: Path
) -> None:
    topic = broker.create_topic(topic_name, partitions=2)
    out = str(tmp_path / "out")

    def run() -> list[Any]:
        stream = (
            spark.readStream.format("trine").options(**place.options())
            .options(subscribe=topic_name, startingOffsets="earliest", maxOffsetsPerTrigger="30").load()
        )  # fmt: skip
        query = (
            stream.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return [one for one in query.recentProgress if one.numInputRows]

    for number in range(50):
        topic.publish(f"{number}", partition=number % 2)
    progress = run()
    assert [one.numInputRows for one in progress] == [30, 20]
    source = progress[0].sources[0]
    assert json.loads(source.endOffset) == {topic_name: {"0": 15, "1": 15}}
    assert json.loads(source.latestOffset) == {topic_name: {"0": 25, "1": 25}}  # the lag is the difference
    topic.publish_many([f"{number}" for number in range(50, 60)])
    run()
    values = sorted(int(row.value.decode()) for row in spark.read.parquet(out).collect())
    assert values == list(range(60))


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"subscribe": "no-such-topic"}, errors.UnknownTopic, "there is no topic 'no-such-topic'"),
        ({}, errors.InvalidOption, "exactly one of subscribe"),
        ({"subscribe": "a", "assign": "{}"}, errors.InvalidOption, "exactly one of subscribe"),
        ({"subscribe": "a", "startingOffset": "earliest"}, errors.InvalidOption, "no option 'startingoffset'"),
        ({"subscribe": "a", "startingOffsets": "{"}, errors.InvalidOption, "is no JSON"),
        ({"subscribe": "a", "startingOffsets": "latest"}, errors.InvalidOption, "for streams"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, errors.InvalidOption, "true or false"),
        ({"subscribe": "a", "columns": "valeu"}, errors.InvalidOption, "no column 'valeu'"),
        ({"subscribe": "a", "view": "lagoon"}, errors.InvalidOption, "no view 'lagoon'"),
        ({"subscribePattern": "("}, errors.InvalidOption, "no regular expression"),
        (
            {"subscribe": "a", "trine.servers": "127.0.0.1:1", "trine.timeout": "1s"},
            errors.Unreachable, "cannot be reached",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(
    spark: SparkSession, place: Place, options: dict[str, str], kind: type[errors.TrineError], sentence: str
) -> None:
    with pytest.raises(Exception, match=re.escape(sentence)) as caught:
        spark.read.format("trine").options(**{**place.options(), **options}).load().collect()
    told = str(caught.value)
    assert "Traceback" not in told
    assert "at org.apache" not in told
    assert len(told) < 600, told
    ours = explained(caught.value)
    assert type(ours) is kind
    assert sentence in str(ours)
    with pytest.raises(kind, match=re.escape(sentence)), plain():
        spark.read.format("trine").options(**{**place.options(), **options}).load().collect()


def test_offsets_that_are_gone(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=1)
    topic.publish_many(["a", "b", "c"])
    topic.purge()
    topic.publish("d")
    start = json.dumps({topic_name: {"0": 1}})
    with pytest.raises(errors.OffsetOutOfRange, match="startingOffsets says 1"), plain():
        read(spark, place, topic_name, startingOffsets=start).count()
    rows = read(spark, place, topic_name, startingOffsets=start, failOnDataLoss="false").collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [(3, b"d")]


def test_a_stream_whose_offsets_are_gone(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, checkpoint: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=1)
    topic.publish("a")

    def run(loss: str) -> int:
        stream = (
            spark.readStream.format("trine").options(**place.options())
            .options(subscribe=topic_name, startingOffsets="earliest", failOnDataLoss=loss).load()
        )  # fmt: skip
        query = (
            stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
            .trigger(availableNow=True).start()
        )  # fmt: skip
        with plain():
            query.awaitTermination()
        return sum(one.numInputRows for one in query.recentProgress)

    assert run("true") == 1
    topic.publish_many(["b", "c"])
    topic.purge()
    topic.publish("d")
    with pytest.raises(errors.OffsetOutOfRange, match="are not in the log"):
        run("true")
    assert run("false") == 1


def test_a_wrong_key_is_told(spark: SparkSession, tmp_path: Path) -> None:
    from trine.spark.place import Place

    keys = tmp_path / "keys.yaml"
    import subprocess
    import sys

    made = subprocess.run(
        [sys.executable, "-m", "trine.cli", "key", "create",
         "--keys-file", str(keys), "--role", "read-only", "--id", "r"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    key = re.search(r"trine_\S+", made.stdout)
    assert key is not None
    with Serving(tmp_path / "data", "--keys-file", str(keys)) as server:
        for given in (None, "trine_r_wrong"):
            with pytest.raises(errors.Denied), plain():
                read(spark, Place(server.url, given), "orders").count()
        with pytest.raises(errors.UnknownTopic), plain():
            read(spark, Place(server.url, key[0]), "orders").count()


def test_times_are_utc(spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str) -> None:
    topic = broker.create_topic(topic_name, partitions=1)
    topic.publish("x")
    (stored,) = topic.read()
    (row,) = read(spark, place, topic_name).selectExpr("cast(timestamp as string) as t").collect()
    assert datetime.fromisoformat(row.t).replace(tzinfo=UTC) == stored.timestamp
