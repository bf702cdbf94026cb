"""The archive: what is in it is what is in the log, once, whatever happens on the way."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import trine
from trine.model.errors import Conflict, InvalidOption, NotFound, OffsetOutOfRange
from trine.spark import archive as archiving
from trine.spark.archive_verify import DIFFERS, verify
from trine.spark.columns import NAMES
from trine.spark.delta import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trine.spark.place import Place


def outgoing(dice: random.Random, number: int) -> trine.Outgoing:
    options: dict[str, Any] = {}
    if dice.random() < 0.5:
        options["headers"] = {f"h{n}": dice.randbytes(dice.randrange(5)) for n in range(dice.randrange(4))}
    if dice.random() < 0.3:
        options["priority"] = dice.choice(["high", "normal", "low"])
    if dice.random() < 0.2:
        options["ttl"] = dice.choice(["1h", "2d", "90m"])
    if dice.random() < 0.1:
        options["dedup_id"] = f"d{number}-{dice.random()}"
    if dice.random() < 0.7:
        options["key"] = dice.choice([b"", b"\xff\x00", f"k{dice.randrange(50)}".encode()])
    value = dice.choice([None, b"", dice.randbytes(dice.randrange(200)), f"v{number}".encode()])
    return trine.Outgoing(value=value, **options)


def publish(topic: trine.Topic, count: int, *, seed: int = 1) -> None:
    dice = random.Random(seed)
    for start in range(0, count, 1000):
        topic.publish_many([outgoing(dice, start + n) for n in range(min(1000, count - start))])


def log_rows(spark: SparkSession, place: Place, topic: str) -> list[tuple[Any, ...]]:
    reader = spark.read.format("trine").options(**place.options()).option("includeHeaders", "true")
    return rows_of(reader.option("subscribe", topic).load())


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    assert tuple(frame.columns) == NAMES
    return [tuple(row) for row in frame.orderBy("topic", "partition", "offset").collect()]


def delta_places(path: str) -> list[tuple[str, int, int]]:
    """What deltalake's own reader sees."""
    table = DeltaTable(path).to_pyarrow_table(columns=["topic", "partition", "offset"])
    return sorted(
        zip(*(table.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


def test_ten_thousand_random_messages_are_archived_as_they_are(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str
) -> None:
    seed = 4
    topic = broker.create_topic(topic_name, partitions=3)
    publish(topic, 6000, seed=seed)
    first = archiving.archive(spark, place, [topic_name], path, max_offsets=2500)
    assert (first.messages, first.commits) == (6000, 3)
    publish(topic, 4000, seed=seed + 1)
    second = archiving.archive(spark, place, [topic_name])  # the topic knows its archive
    assert second.messages == 4000
    assert archiving.archive(spark, place, [topic_name]).commits == 0

    logged = log_rows(spark, place, topic_name)
    assert len(logged) == 10_000
    assert rows_of(archiving.read(spark, path)) == logged
    assert delta_places(path) == [(row[2], row[3], row[4]) for row in logged]
    assert topic.describe().config.archive == path
    assert topic.archived() == {n: end for n, (_, end) in topic.offsets().items()}
    [verdict] = verify(spark, place, [topic_name])
    assert verdict.sound
    assert (verdict.archived, verdict.compared) == (10_000, 10_000)
    spans = [info["trine.offsets"] for info in DeltaTable(path).history() if "trine.offsets" in info]
    assert len(spans) == 4
    [state] = [one for one in archiving.status(place) if one["topic"] == topic_name]
    assert (state["messages"], state["waiting"]) == (10_000, 0)


def test_retention_deletes_only_what_is_archived_and_the_archive_keeps_it(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str
) -> None:
    topic = broker.create_topic(  # the server's own retention runs at any moment: it waits from the beginning
        topic_name, partitions=1, segment_bytes=4096, retention_bytes=8192, archive=path
    )
    for seed in range(10):
        publish(topic, 50, seed=seed)
    before = log_rows(spark, place, topic_name)
    broker.apply_retention()
    assert topic.offsets()[0] == (0, 500)
    archiving.archive(spark, place, [topic_name], path)
    for seed in range(10, 20):
        publish(topic, 50, seed=seed)
    broker.apply_retention()
    first, _ = topic.offsets()[0]
    assert 0 < first <= 500
    archiving.archive(spark, place, [topic_name])
    broker.apply_retention()
    assert topic.offsets()[0][0] > 500
    whole = rows_of(archiving.read(spark, path))
    assert [row[4] for row in whole] == list(range(1000))
    assert whole[: len(before)] == before
    [verdict] = verify(spark, place, [topic_name])
    assert verdict.sound
    assert verdict.compared < verdict.archived == 1000


def test_of_two_archivers_one_is_refused(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=1)
    publish(topic, 300)
    slow = archiving._Archiver(spark, place, broker, [topic_name], path, 1000, False)
    slow.begin()
    write = slow._write

    def overtaken(wanted: Any) -> Any:
        files = write(wanted)
        archiving.archive(spark, place, [topic_name], path)
        return files

    slow._write = overtaken  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="another archiver"):
        slow.round(slow.spans())
    assert [place[2] for place in delta_places(path)] == list(range(300))


def test_a_topic_made_anew_is_noticed(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str
) -> None:
    publish(broker.create_topic(topic_name, partitions=1), 20)
    archiving.archive(spark, place, [topic_name], path)
    broker.delete_topic(topic_name)
    topic = broker.create_topic(topic_name, partitions=1)
    for _ in range(2):  # shorter than the archive, then longer
        with pytest.raises(Conflict, match="made anew"):
            archiving.archive(spark, place, [topic_name], path)
        publish(topic, 30)
    assert len(delta_places(path)) == 20


def test_gaps_are_an_error_unless_allowed_and_are_recorded(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=1)
    publish(topic, 10)
    archiving.archive(spark, place, [topic_name], path)
    publish(topic, 10)
    topic.purge()
    publish(topic, 10)
    with pytest.raises(OffsetOutOfRange, match="--allow-gaps"):
        archiving.archive(spark, place, [topic_name])
    summary = archiving.archive(spark, place, [topic_name], allow_gaps=True)
    assert summary.gaps == {topic_name: {0: (10, 20)}}
    assert Table.open(path).gaps(topic_name) == {0: [(10, 20)]}
    assert [place[2] for place in delta_places(path)] == [*range(10), *range(20, 30)]
    [verdict] = verify(spark, place, [topic_name])
    assert verdict.sound


def test_verify_finds_a_tampered_table(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=1)
    topic.publish_many([f"v{n}".encode() for n in range(50)])
    archiving.archive(spark, place, [topic_name], path)
    [file] = Table.open(path).files()
    uri = str(Path(path, file.path))
    rows = pq.ParquetFile(uri).read()
    values = rows.column("value").to_pylist()
    values[7] = b"forged"
    number = rows.schema.get_field_index("value")
    pq.write_table(rows.set_column(number, rows.schema.field(number), [values]), uri)
    [verdict] = verify(spark, place, [topic_name])
    assert verdict.faults == {DIFFERS: 1}
    assert verdict.examples == {DIFFERS: [f"{topic_name}/0/7"]}
    pq.write_table(rows.slice(0, 40), uri)
    [verdict] = verify(spark, place, [topic_name])
    assert verdict.faults == {
        "rows lost or added in files": 10,
        "holes in the archive": 10,
        "missing in the archive": 10,
    }


def test_continuously_until_told_to_stop(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=1)
    publish(topic, 10)
    stop = threading.Event()
    seen: list[float] = []

    def progress(what: str, done: float, total: float | None) -> None:
        if total is None:  # it waits for more
            if not seen:
                publish(topic, 5)
            seen.append(done)
            if done == 15 or len(seen) > 600:
                stop.set()

    summary = archiving.archive(
        spark, place, [topic_name], path, continuously=True, trigger="100ms", stop=stop, progress=progress
    )
    assert (summary.messages, summary.commits) == (15, 2)


def test_one_run_ends_where_the_log_ended_when_it_began(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=2)
    publish(topic, 10)

    def busy(what: str, done: float, total: float | None) -> None:
        publish(topic, 5)

    summary = archiving.archive(spark, place, [topic_name], path, progress=busy)
    assert (summary.messages, summary.commits) == (10, 1)
    assert archiving.archive(spark, place, [topic_name], path).messages > 0


def test_as_of_and_bad_input(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str, tmp_path: Path
) -> None:
    topic = broker.create_topic(topic_name, partitions=1)
    publish(topic, 10)
    archiving.archive(spark, place, [topic_name], path)
    middle = topic.read(partition=0, from_offset=5, max=1)[0].timestamp
    earlier = [one for one in topic.read(partition=0) if one.timestamp < middle]
    assert archiving.read(spark, path, as_of=middle).count() == len(earlier)
    assert archiving.read(spark, path, [topic_name], as_of="2020-01-01").count() == 0
    assert archiving.read(spark, path, ["other"]).count() == 0
    with pytest.raises(NotFound, match="no archive at"):
        archiving.read(spark, str(tmp_path / "none"))
    with pytest.raises(InvalidOption, match="is archived at"):
        archiving.archive(spark, place, [topic_name], str(tmp_path / "elsewhere"))
    with pytest.raises(NotFound):
        archiving.archive(spark, place, ["unknown"], path)
