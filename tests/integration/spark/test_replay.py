"""Replay over the seam of archive and log: nothing twice, nothing left out, wherever it goes to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trine
from tests.integration.spark.test_archive import publish
from trine.model.errors import InvalidInput, InvalidOption, NotFound
from trine.spark import replay as replaying
from trine.spark.archive import archive
from trine.spark.replay import Choice, replay, replay_to_group, replay_to_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trine.spark.place import Place


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


@pytest.fixture
def aged(
    spark: SparkSession, place: Place, broker: trine.Broker, topic_name: str, path: str
) -> tuple[trine.Topic, dict[str, trine.StoredMessage]]:
    """A topic of which some is deleted and archived, some is archived and in the log, and some only in the log."""
    topic = broker.create_topic(
        topic_name, partitions=2, segment_bytes=4096, retention_bytes=8192, archive=path
    )
    for seed in range(20):
        publish(topic, 50, seed=seed)
    everything = {one.id: one for one in topic.read(max=10_000)}
    archive(spark, place, [topic_name], path)
    broker.apply_retention()
    for seed in range(20, 24):
        publish(topic, 50, seed=seed)
    everything |= {one.id: one for one in topic.read(max=10_000)}
    broker.apply_retention()  # now rather than at any moment of the test
    starts = topic.offsets()
    assert any(first > 0 for first, _ in starts.values())
    assert len(everything) == 1200
    return topic, everything


def same(one: trine.StoredMessage, other: trine.StoredMessage) -> bool:
    words = (
        "id",
        "key",
        "value",
        "headers",
        "timestamp_ms",
        "priority",
        "expires_ms",
        "dedup_id",
        "producer",
    )
    return all(getattr(one, word) == getattr(other, word) for word in words)


def test_archive_and_log_are_one(
    spark: SparkSession, place: Place, aged: tuple, broker: trine.Broker
) -> None:
    topic, everything = aged
    found = list(replay(spark, place, Choice(topic.name)))
    assert sorted(one.id for one in found) == sorted(everything)
    assert all(same(one, everything[one.id]) for one in found)
    order = [(one.timestamp_ms, one.partition, one.offset) for one in found]
    assert order == sorted(order)
    logged = {one.id for one in topic.read(max=10_000)}
    assert {one.id for one in replay(spark, place, Choice(topic.name, include_deleted=False))} == logged
    deleted = {one.id for one in replay(spark, place, Choice(topic.name), only_deleted=True)}
    assert deleted == set(everything) - logged


def test_by_offset_time_key_and_sql(spark: SparkSession, place: Place, aged: tuple) -> None:
    topic, everything = aged

    def ids(**words: object) -> set[str]:
        return {one.id for one in replay(spark, place, Choice(topic.name, **words))}  # type: ignore[arg-type]

    def wanted(test: object) -> set[str]:
        return {id for id, one in everything.items() if test(one)}  # type: ignore[operator]

    middle = sorted(one.timestamp_ms for one in everything.values())[600]
    stamp = next(one.timestamp for one in everything.values() if one.timestamp_ms == middle)
    assert ids(partition=1, from_offset=10, to_offset=500) == wanted(
        lambda one: one.partition == 1 and 10 <= one.offset < 500
    )
    assert ids(from_time=stamp) == wanted(lambda one: one.timestamp_ms >= middle)
    assert ids(to_time=stamp) == ids(as_of=stamp) == wanted(lambda one: one.timestamp_ms < middle)
    assert ids(key="k7") == wanted(lambda one: one.key == b"k7")
    assert ids(key=b"\xff\x00") == wanted(lambda one: one.key == b"\xff\x00")
    assert ids(where="priority = 'high' and offset % 2 = 0") == wanted(
        lambda one: one.priority == "high" and one.offset % 2 == 0
    )
    with pytest.raises(InvalidInput, match="nonsense"):
        ids(where="nonsense = 1")


def test_to_a_topic_and_again_after_being_cut_off(
    spark: SparkSession, place: Place, aged: tuple, broker: trine.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, everything = aged
    copy = broker.create_topic(f"{topic.name}-copy", partitions=3)
    with monkeypatch.context() as patch:
        # Cut off at the last moment: all was sent, and the producers' names were not given up.
        patch.setattr("trine.client.sync.Broker.forget_producers", _cut_off)
        with pytest.raises(KeyboardInterrupt):
            replay_to_topic(spark, place, Choice(topic.name), copy.name)
    done = replay_to_topic(spark, place, Choice(topic.name), copy.name)
    assert (done.messages, done.stored_before, done.missing) == (1200, 1200, {})

    def content(some: list[trine.StoredMessage]) -> list[tuple]:
        return sorted(
            (one.key or b"", one.value or b"", one.value is None, one.priority, one.expires_ms is None)
            for one in some
        )

    assert content(copy.read(max=10_000)) == content(list(everything.values()))
    replay_to_topic(spark, place, Choice(topic.name, key="k7"), copy.name)  # on purpose, and another choice
    with pytest.raises(InvalidOption, match="into itself"):
        replay_to_topic(spark, place, Choice(topic.name), topic.name)


def _cut_off(*_: object) -> None:
    raise KeyboardInterrupt


def test_to_a_group(spark: SparkSession, place: Place, aged: tuple, broker: trine.Broker) -> None:
    topic, everything = aged
    with pytest.raises(NotFound, match="no group"):
        replay_to_group(spark, place, Choice(topic.name), "audit")
    group = topic.create_group("audit", start="earliest")
    with group.consumer("c") as consumer:
        while messages := consumer.receive(max=500):
            consumer.ack(messages)
    other = topic.create_group("other", start="latest")
    done = replay_to_group(spark, place, Choice(topic.name), "audit")
    logged = topic.read(max=10_000)
    assert done.redelivered > 0
    assert done.messages == len(everything) - len(logged)
    beside = broker.topic(replaying.replay_topic_name(topic.name, "audit"))
    assert done.to == beside.name
    with beside.group("audit").consumer("c") as consumer:
        got = 0
        while messages := consumer.receive(max=500):
            consumer.ack(messages)
            got += len(messages)
    assert got == done.messages
    assert other.lag().count == 0
