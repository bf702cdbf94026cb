"""Upkeep: the content stays the same, and who reads an old version goes on reading it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trine
from tests.integration.serving import Serving
from tests.integration.spark.test_archive import delta_places, publish, rows_of
from trine.model.errors import Conflict, InvalidOption, TrineError
from trine.spark import archive as archiving
from trine.spark.delta import Table
from trine.spark.place import Place
from trine.spark.upkeep import compact, expire, latest, sweep, vacuum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


def test_files_are_merged_swept_and_expired_and_the_content_stays(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=2)
    for seed in range(4):
        publish(topic, 100, seed=seed)
        archiving.archive(spark, place, [topic_name], path)
    before = rows_of(archiving.read(spark, path))
    old = Table.open(path)
    reader = archiving.read_files(spark, old)  # of the version before
    leftover = Path(path, old.files()[0].path).with_name("part-leftover.parquet")
    leftover.write_bytes(b"of a killed task")

    done = compact(spark, path)
    assert (done.merged, done.made, done.rows) == (len(old.files()), 1, 400)
    assert rows_of(reader) == before
    assert rows_of(archiving.read(spark, path)) == before
    assert rows_of(archiving.read(spark, path, version=old.version)) == before
    assert len(delta_places(path)) == 400
    assert compact(spark, path).merged == 0
    with pytest.raises(Conflict, match="meanwhile"):
        old.replace(old.files(), old.files())

    assert vacuum(path) == []  # all of it is young
    assert leftover.exists()
    assert rows_of(reader) == before
    with pytest.raises(InvalidOption, match="too young"):
        vacuum(path, older_than="1m")
    past = time.time() - 8 * 86_400
    os.utime(leftover, (past, past))
    assert [Path(one).name for one in vacuum(path, dry_run=True)] == [leftover.name]
    vacuum(path)
    assert not leftover.exists()
    assert len(sweep(Table.open(path), 0, dry_run=False)) == done.merged
    assert rows_of(archiving.read(spark, path)) == before

    _, newest = expire(path, older_than="1d")
    table = Table.open(path)
    assert table.version == newest
    assert table.offsets(topic_name, [0, 1]) == {n: end for n, (_, end) in topic.offsets().items()}
    publish(topic, 10, seed=9)
    assert archiving.archive(spark, place, [topic_name]).messages == 10
    assert len(delta_places(path)) == 410


def test_the_latest_of_each_key(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=2)
    for value in (b"1", b"2", b"3"):
        for key in ("a", "b", "c"):
            topic.publish(value, key=key)
    topic.publish(None, key="b")
    topic.publish(b"without a key")
    archiving.archive(spark, place, [topic_name], path)
    found = {bytes(row.key): bytes(row.value) for row in latest(spark, path, topic_name).collect()}
    assert found == {b"a": b"3", b"c": b"3"}
    assert latest(spark, path, topic_name, tombstones=True).count() == 3


def test_a_broker_killed_while_it_is_read(spark: SparkSession, tmp_path: Path, path: str) -> None:
    with Serving(tmp_path / "data") as server:
        place = Place(server.url)
        with trine.connect(server.url) as broker:
            topic = broker.create_topic("orders", partitions=2)
            for _ in range(30):
                topic.publish_many([b"x" * 100] * 10_000, durability="written")
        ended = threading.Event()
        killed: list[int] = []

        def kill() -> None:
            """When the first file is there, tasks are in the middle of reading."""
            while not (found := list(Path(path).rglob("part-*.parquet"))):
                if ended.wait(0.001):
                    return
            killed.append(len(found))
            server.kill()
            server.start()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            archiving.archive(spark, place, ["orders"], path, max_offsets=150_000)
        except TrineError:  # whoever was in the middle of a call may be told that it was lost
            killer.join()
            archiving.archive(spark, place, ["orders"], path)
        finally:
            ended.set()
            killer.join()
        assert killed, "it was over before the broker was killed"
        with trine.connect(server.url) as broker:
            ends = broker.topic("orders").offsets()
        assert delta_places(path) == sorted(
            ("orders", n, at) for n, (_, end) in ends.items() for at in range(end)
        )
