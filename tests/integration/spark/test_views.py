"""The ledger, the schedule and the dead letters as tables; their schemas as they are documented."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import trine
from tests.integration.spark.lives import MESSAGES, SCHEDULED, live
from trine.model.errors import InvalidOption, UnknownGroup, UnknownTopic
from trine.queue.rows import BLOCK_HEAD, Kind, Row, pack_block, unpack_block
from trine.spark.errors import plain
from trine.spark.ledger import EXPAND, Ledger, expand
from trine.spark.place import Place
from trine.spark.views import VIEWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DOCS = Path(__file__).parents[3] / "docs" / "tables.md"


def load(spark: SparkSession, place: Place, topic: str, view: str, **options: str) -> DataFrame:
    reader = spark.read.format("trine").options(**place.options()).option("view", view)
    return reader.option("subscribe", topic).options(**options).load()


def test_each_schema_is_the_documented_one() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name, view in VIEWS.items():
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        documented = re.findall(r"^\| `(\w+)` \| ([\w<>:, ]+) \|", section, re.MULTILINE)
        assert documented == [(field.name, field.dataType.simpleString()) for field in view.schema.fields], (
            name
        )


def test_a_ledger_is_a_table(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str
) -> None:
    live(broker, topic_name)
    found = load(spark, place, topic_name, "deliveries")
    assert found.schema == VIEWS["deliveries"].schema
    rows = found.collect()
    counts = Counter((row.group, row.event) for row in rows)
    assert counts == {
        ("audit", "delivered"): MESSAGES,
        ("audit", "acked"): MESSAGES,
        ("work", "delivered"): 9,
        ("work", "acked"): 6,
        ("work", "nacked"): 1,
        ("work", "dead_lettered"): 1,
        ("work", "returned"): 1,
    }
    life = sorted((row for row in rows if row.group == "work" and row.offset == 1), key=lambda row: row.row)
    assert [(row.event, row.attempt) for row in life] == [
        ("delivered", 1),
        ("nacked", 1),
        ("delivered", 2),
        ("acked", 2),
    ]
    assert [row.member for row in life] == ["w-1"] * 4
    assert life[1].reason == "not now"
    assert life[0].lease == life[1].lease != life[2].lease == life[3].lease
    assert life[0].until > life[0].at
    assert life[3].until is None
    (buried,) = (row for row in rows if row.event == "dead_lettered")
    assert (buried.message_id, buried.to) == (f"{topic_name}/0/6", f"{topic_name}.dlq/0/0")
    assert (buried.reason, buried.priority) == ("broken order", "normal")
    trace = broker.trace(f"{topic_name}/0/1")
    assert [event.at_ms for event in trace.events if event.group == "work"] == [
        int(row.at.timestamp() * 1000 + 0.5) for row in life
    ]


def test_one_group_of_a_ledger(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str
) -> None:
    live(broker, topic_name)
    assert load(spark, place, topic_name, "deliveries", group="audit").count() == 2 * MESSAGES
    with pytest.raises(UnknownGroup, match="no group 'nobody'"), plain():
        load(spark, place, topic_name, "deliveries", group="nobody").count()


def test_a_ledger_of_many_blocks(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str
) -> None:
    """Acked one by one, out of order: a row a message, more than one block has room for."""
    count = 4_000
    topic = broker.create_topic(topic_name, partitions=1)
    topic.publish_many([b"x"] * count)
    with topic.group("g").consumer("m") as consumer:
        got: list[Any] = []
        while len(got) < count:
            got += consumer.receive(max=count - len(got), wait="5s")
        for start in (0, 1):
            consumer.ack(got[start::2])
    rows = load(spark, place, topic_name, "deliveries").select("offset", "event", "lease", "row").collect()
    by_event = Counter(row.event for row in rows)
    assert by_event == {"delivered": count, "acked": count}
    assert {row.offset for row in rows if row.event == "acked"} == set(range(count))
    numbers = {row.row for row in rows}
    assert numbers == set(range(len(numbers)))
    leased = {(row.offset, row.lease) for row in rows if row.event == "delivered"}
    assert leased == {(row.offset, row.lease) for row in rows if row.event == "acked"}


def test_long_runs_are_spread_out_in_pieces() -> None:
    count = EXPAND * 2 + 7
    rows = [
        Row(Kind.DELIVERED, 1, 1, 1, 0, 1_000, 5, count, 31_000, -1),
        Row(Kind.SEEK, 0, 0, 0, 0, 2_000, 3, 0, 0, -1),
        Row(Kind.ACKED, 9, 1, 1, 2, 3_000, 5, 2, 0, 100),
    ]
    names = ["m", "why"]
    head = BLOCK_HEAD.pack(3, 5 + count - 1, len(names))
    packed = pack_block(b"".join(_packed(row) for row in rows), names)
    assert packed.startswith(head)
    batches = list(expand(Ledger("t", 2, "g", ("high", "normal", "low")), 100, unpack_block(packed)))
    assert sum(batch.num_rows for batch in batches) == count + 3
    offsets = np.concatenate([batch["offset"].to_numpy() for batch in batches])
    assert (offsets[:count] == np.arange(5, 5 + count)).all()
    assert offsets[count:].tolist() == [3, 5, 6]
    last = batches[-1].to_pylist()[-3:]
    assert [row["event"] for row in last] == ["seek", "acked", "acked"]
    assert [row["lease"] for row in last] == [None, 100, 100]
    assert [row["row"] for row in last] == [101, 102, 102]
    assert last[2]["reason"] == "why"
    assert last[2]["priority"] is None
    assert batches[0].to_pylist()[0]["lease"] == 100


def _packed(row: Row) -> bytes:
    from trine.queue.rows import ROW

    return ROW.pack(*row)


def test_the_schedule_is_a_table(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str
) -> None:
    live(broker, topic_name)
    found = load(spark, place, topic_name, "schedule")
    assert found.schema == VIEWS["schedule"].schema
    rows = found.collect()
    assert {row.schedule_id for row in rows} == {one.id for one in broker.topic(topic_name).schedules()}
    assert len(rows) == SCHEDULED
    assert {(bytes(row.key), bytes(row.value), row.priority) for row in rows} == {
        (b"later", b"later", "normal")
    }
    assert all((row.due - row.published).total_seconds() == pytest.approx(3600, abs=1) for row in rows)


def test_dead_letters_are_a_table(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=2)
    assert load(spark, place, topic_name, "dead_letters").count() == 0
    for number in range(6):
        topic.publish(f"v{number}", key=f"k{number}", headers={"h": "1"}, priority="high")
    with topic.group("g").consumer("m") as consumer:
        seen = 0
        while seen < 6:
            some = consumer.receive(max=6, wait="5s")
            consumer.reject(some, reason="no good")
            seen += len(some)
    found = load(spark, place, topic_name, "dead_letters")
    assert found.schema == VIEWS["dead_letters"].schema
    rows = found.collect()
    listed = {one.id: one for one in topic.dead_letters()}
    assert {row.message_id for row in rows} == set(listed)
    for row in rows:
        one = listed[row.message_id]
        assert (row.origin, row.group, row.reason) == (one.origin, "g", "no good")
        assert (row.attempts, row.member, row.priority, row.state) == (1, "m", "high", "waiting")
        assert (bytes(row.key), bytes(row.value)) == (one.key, one.value)
        assert [(header.key, bytes(header.value)) for header in row.headers] == [("h", b"1")]
        assert int(row.failed_at.timestamp() * 1000 + 0.5) == one.failed_ms
    broker.redrive(topic_name, key="k1").run()
    found = load(spark, place, topic_name, "dead_letters")  # what was planned before is as it was then
    assert Counter(row.state for row in found.collect()) == {"waiting": 5, "redriven": 1}
    topic.purge_dead_letters()
    assert Counter(row.state for row in found.collect()) == {"purged": 5, "redriven": 1}
    assert load(spark, place, topic_name, "dead_letters", group="other").count() == 0


def test_bad_options_are_told_in_a_sentence(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str
) -> None:
    broker.create_topic(topic_name)
    with pytest.raises(InvalidOption, match="no option 'startingoffsets'"), plain():
        load(spark, place, topic_name, "deliveries", startingOffsets="earliest").count()
    with (
        pytest.raises(InvalidOption, match="there is no view 'ledger'; known are messages, deliveries"),
        plain(),
    ):
        load(spark, place, topic_name, "ledger").count()
    with pytest.raises(UnknownTopic), plain():
        load(spark, place, "no-such-topic", "schedule").count()
