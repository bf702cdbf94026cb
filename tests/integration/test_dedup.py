"""A message sent twice is stored once, within the window: by id, by content, across a restart."""

from __future__ import annotations

from pathlib import Path

from tests.integration.conftest import OpenBroker
from trine import Outgoing, SimulatedClock


def test_within_the_window_the_first_place_is_answered(open_broker: OpenBroker) -> None:
    clock = SimulatedClock()
    with open_broker(":memory:", clock=clock) as broker:
        topic = broker.create_topic("t", dedup_window="1m")
        first = topic.publish(b"1", dedup_id="a")
        clock.advance("59s")
        again = topic.publish(b"other content", dedup_id="a")
        assert (again.message_id, again.duplicate) == (first.message_id, True)
        clock.advance("1s")
        later = topic.publish(b"2", dedup_id="a")
        assert (later.message_id != first.message_id, later.duplicate) == (True, False)
        assert [m.value for m in topic.read()] == [b"1", b"2"]


def test_twins_in_one_batch_and_scheduled_ones(open_broker: OpenBroker) -> None:
    clock = SimulatedClock()
    with open_broker(":memory:", clock=clock) as broker:
        topic = broker.create_topic("t")
        published = topic.publish_many(
            [
                Outgoing(value=b"a", dedup_id="1"),
                Outgoing(value=b"b", dedup_id="2"),
                Outgoing(value=b"c", dedup_id="1"),
            ]
        )
        assert [receipt.duplicate for receipt in published] == [False, False, True]
        assert published[2].message_id == published[0].message_id
        waiting = topic.publish(b"later", delay="1m", dedup_id="3")
        assert topic.publish(b"later", delay="2m", dedup_id="3").schedule_id == waiting.schedule_id
        assert len(topic.schedules()) == 1


def test_by_content(open_broker: OpenBroker) -> None:
    with open_broker(":memory:", clock=SimulatedClock()) as broker:
        topic = broker.create_topic("t", dedup_by_content=True)
        topic.publish(b"same", key="k")
        assert topic.publish(b"same", key="k").duplicate
        assert not topic.publish(b"same", key="other").duplicate
        assert [r.duplicate for r in topic.publish_many([b"x", b"y", b"x"])] == [False, False, True]


def test_the_window_survives_a_restart(tmp_path: Path, open_broker: OpenBroker) -> None:
    clock = SimulatedClock()
    path = str(tmp_path / "data")
    with open_broker(path, clock=clock) as broker:
        topic = broker.create_topic("t", dedup_window="10m", dedup_by_content=True)
        topic.publish(b"content")
        place = topic.publish(b"1", dedup_id="a").message_id
        waiting = topic.publish(b"2", dedup_id="b", delay="5d").message_id
        clock.advance("5m")
    with open_broker(path, clock=clock) as broker:
        topic = broker.topic("t")
        assert topic.publish(b"1", dedup_id="a").message_id == place
        assert topic.publish(b"2", dedup_id="b", delay="5d").message_id == waiting
        assert topic.publish(b"content").duplicate
        clock.advance("5m")
        assert not topic.publish(b"1", dedup_id="a").duplicate
        assert not topic.publish(b"2", dedup_id="b", delay="5d").duplicate


def test_lag_by_count_and_age(open_broker: OpenBroker) -> None:
    clock = SimulatedClock()
    with open_broker(":memory:", clock=clock) as broker:
        topic = broker.create_topic("t", partitions=2)
        topic.publish(b"old", partition=0, priority="high")
        clock.advance("90s")
        topic.publish_many([b"new"] * 3)
        group = topic.create_group("g")
        lag = group.lag()
        assert (lag.count, lag.age_ms, lag.lanes) == (4, 90_000, {"high": 1, "normal": 3, "low": 0})
        consumer = group.consumer("m")
        (old,) = consumer.receive(max=1)
        assert group.lag().in_flight == 1
        old.ack()
        assert (group.lag().count, group.lag().age_ms) == (3, 0)
