"""What a closed store gives back when it is opened again, on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

import trine
from trine import SimulatedClock
from trine.model import errors


def test_everything_durable_is_there_again(tmp_path: Path) -> None:
    clock = SimulatedClock()
    path = str(tmp_path / "data")
    with trine.open(path, clock=clock) as broker:
        topic = broker.create_topic("t", partitions=2, lanes=("high", "low"))
        topic.publish_many([b"%d" % i for i in range(50)], priority="low")
        topic.publish(b"first", priority="high", dedup_id="d")
        topic.publish(b"later", delay="2d", dedup_id="e")
        broker.create_cron("c", topic="t", expression="@daily", value=b"")
        group = topic.group("g", order="none", max_deliveries=2)
        consumer = group.consumer("m")
        got = consumer.receive(max=20)
        consumer.ack(got[:10])
        got[10].reject("bad")
        got[11].nack(delay="1h")
        group.pause("maintenance")
        reader = topic.reader("r")
        reader.read(max=7)
        reader.commit()
        positions = reader.positions
        producer = broker.producer("p")
        producer.publish_many("t", [b"n"], partition=0, sequence=0)
        job = broker.redrive("t")
    with trine.open(path, clock=clock) as broker:
        topic = broker.topic("t")
        assert topic.publish(b"first", dedup_id="d").duplicate
        assert topic.publish(b"later", dedup_id="e").duplicate
        assert [one.value for one in topic.schedules()] == [b"later"]
        assert [cron.name for cron in broker.crons()] == ["c"]
        group = topic.group("g")
        assert group.describe().paused == "maintenance"
        assert group.lag().count == 52 - 11
        group.resume()
        consumer = group.consumer("m")
        attempts = sorted(message.attempt for message in consumer.receive(max=100))
        assert attempts == [1] * 32 + [2] * 8
        assert topic.reader("r").positions == positions
        assert broker.producer("p").next_sequence("t", 0) == 1
        assert broker.resume_redrive(job.id).run()["moved"] == 1
        assert topic.dead_letters() == []
        clock.advance("3d")
        broker.tick()
        assert [one.value for one in topic.schedules()] == []
        assert broker.verify() > 0


def test_a_store_is_open_once(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with trine.open(path), pytest.raises(errors.Locked, match="data"):
        trine.open(path)
    trine.open(path).close()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    trine.open(str(path)).close()
    (path / "format").write_text((path / "format").read_text().replace("1", "2"))
    with pytest.raises(errors.NewerFormat, match="newer"):
        trine.open(str(path))
