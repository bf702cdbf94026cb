"""What the archive has, as the broker knows it: retention waits for it, and it survives."""

from __future__ import annotations

from pathlib import Path

import pytest

import trine
from tests.integration.serving import Serving
from trine.model import errors
from trine.queue.rows import Kind, unpack_block

DAY_S = 24 * 3600


def test_retention_waits_for_the_archive() -> None:
    clock = trine.SimulatedClock()
    with trine.open(":memory:", clock=clock) as broker:
        topic = broker.create_topic(
            "orders", partitions=2, retention="1h", segment_bytes=4096, archive="/lake"
        )
        for number in range(40):
            topic.publish(bytes(1000), partition=number % 2)
        clock.advance(DAY_S)
        broker.apply_retention()
        assert topic.offsets() == {0: (0, 20), 1: (0, 20)}, "nothing is archived yet"
        topic.set_archived({0: 9})
        broker.apply_retention()
        first = topic.offsets()[0][0]
        assert 0 < first <= 9
        assert topic.offsets()[1][0] == 0
        topic.set_archived({0: 3})
        assert topic.archived() == {0: 9, 1: 0}, "it never goes back"
        topic.alter(archive=None)
        broker.apply_retention()
        assert topic.offsets()[1][0] > 9


def test_compaction_leaves_what_the_archive_lacks() -> None:
    clock = trine.SimulatedClock()
    with trine.open(":memory:", clock=clock) as broker:
        topic = broker.create_topic(
            "t", partitions=1, compact=True, retention=None, segment_bytes=4096, archive="/lake"
        )
        for _ in range(20):
            topic.publish(bytes(1000), key="k")
        clock.advance(120)
        broker.tick()
        assert len(topic.read()) == 20, "nothing is archived yet"
        topic.set_archived({0: 8})
        clock.advance(120)
        broker.tick()
        left = [one.offset for one in topic.read()]
        assert len(left) < 20
        assert left[-12:] == list(range(8, 20))


def test_another_archive_has_nothing_yet_and_a_purge_asks_nobody() -> None:
    with trine.open(":memory:") as broker:
        topic = broker.create_topic("orders", partitions=1, archive="/lake")
        topic.publish_many(["a", "b"])
        topic.set_archived({0: 2})
        assert topic.describe().archived == {0: 2}
        topic.alter(retention="1h")
        assert topic.archived() == {0: 2}
        topic.alter(archive="/other")
        assert topic.archived() == {0: 0}
        assert topic.purge() == 2
        topic.alter(archive=None)
        assert topic.describe().archived == {}


def test_what_cannot_be_archived_is_refused() -> None:
    with trine.open(":memory:") as broker:
        topic = broker.create_topic("orders", partitions=1)
        topic.publish("a")
        with pytest.raises(errors.InvalidOption, match="cannot be archived yet"):
            topic.set_archived({0: 2})
        with pytest.raises(errors.UnknownPartition):
            topic.set_archived({1: 0})
        with pytest.raises(errors.InvalidOption, match="archive is a path"):
            topic.alter(archive="")


def test_it_survives_kill_and_is_forgotten_with_the_topic(tmp_path: Path) -> None:
    with Serving(tmp_path / "data") as server:
        with trine.connect(server.url) as broker:
            topic = broker.create_topic("orders", partitions=2, archive="/lake")
            topic.publish_many(["a", "b"], partition=1)
            topic.set_archived({1: 2})
        server.kill()
        server.start()
        with trine.connect(server.url) as broker:
            topic = broker.topic("orders")
            assert topic.archived() == {0: 0, 1: 2}
            assert topic.describe().config.archive == "/lake"
            topic.delete()
            assert broker.create_topic("orders", partitions=2).archived() == {0: 0, 1: 0}


def test_a_ledger_can_be_read_as_it_is_stored(tmp_path: Path) -> None:
    with Serving(tmp_path / "data") as server, trine.connect(server.url) as broker:
        topic = broker.create_topic("orders", partitions=1)
        topic.publish_many([f"{n}" for n in range(10)])
        group = topic.group("billing")
        with group.consumer("w") as consumer:
            consumer.ack(consumer.receive(max=10))
        blocks, _, more = group.ledger(0)
        assert not more
        rows = [row for one in blocks for row in unpack_block(one).rows.tolist()]
        assert [(row[0], row[6], row[7]) for row in rows] == [(Kind.DELIVERED, 0, 10), (Kind.ACKED, 0, 10)]


def test_a_numbered_batch_is_stored_once_also_after_a_kill(tmp_path: Path) -> None:
    from trine.log import batch

    with Serving(tmp_path / "data") as server, trine.connect(server.url) as broker:
        broker.create_topic("orders", partitions=1)
        producer = broker.producer("bulk")
        number, epoch = producer._meta
        data = batch.encode(
            [(0, b"k", f"{n}".encode(), []) for n in range(100)],
            producer_id=number, producer_epoch=epoch, base_sequence=0,
        )  # fmt: skip
        first = producer.publish_batch("orders", 0, data)
        assert (first.durability, first[0].offset, len(first), first[0].duplicate) == (
            "synced",
            0,
            100,
            False,
        )
        server.kill()
        server.start()
        again = producer.publish_batch("orders", 0, data)
        assert (again[99].offset, again[99].duplicate) == (99, True)
        assert producer.next_sequence("orders", 0) == 100
        assert broker.topic("orders").offsets() == {0: (0, 100)}
        gap = batch.encode([(0, None, b"x", [])], producer_id=number, producer_epoch=epoch, base_sequence=200)
        with pytest.raises(errors.OutOfOrder):
            producer.publish_batch("orders", 0, gap)
        with pytest.raises(errors.InvalidInput, match="no producer"):
            producer.publish_batch("orders", 0, batch.encode([(0, None, b"x", [])]))
        broker.producer("bulk")
        with pytest.raises(errors.ProducerFenced):
            producer.publish_batch("orders", 0, data)


def test_a_directory_is_served_while_somebody_needs_it(tmp_path: Path) -> None:
    from trine.spark.local import serve_directory

    folder = str(tmp_path / "data")
    with trine.open(folder) as broker:
        broker.create_topic("orders", partitions=1).publish("a")
        with pytest.raises(errors.Locked, match="no server could be started"):
            serve_directory(folder)
    address = serve_directory(folder)
    assert serve_directory(folder) == address
    with trine.connect(address) as broker:
        assert [one.value for one in broker.topic("orders").read()] == [b"a"]
    with pytest.raises(errors.NotFound, match="no data directory"):
        serve_directory(str(tmp_path / "nowhere"))
    with Serving(tmp_path / "other") as server:
        assert serve_directory(str(tmp_path / "other")) == server.url
        server.kill()
        assert serve_directory(str(tmp_path / "other")) != server.url
