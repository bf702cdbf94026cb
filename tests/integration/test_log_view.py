"""The log view through the public interface: read, readers, retention, compaction, purge, on simulated time."""

from __future__ import annotations

import pytest

import trine
from trine import Outgoing, SimulatedClock
from trine.model import errors


def test_the_same_key_lands_where_kafka_puts_it(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=100)
    # Values of Kafka's own tests of murmur2, as (hash & 0x7fffffff) % 100.
    for key, murmur in (
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
    ):
        assert topic.publish(b"", key=key).partition == (murmur & 0x7FFFFFFF) % 100


def test_read_by_offset_and_by_time(broker: trine.Broker, clock: SimulatedClock) -> None:
    topic = broker.create_topic("t", partitions=2)
    times = []
    for i in range(20):
        times.append(clock.now_ms())
        topic.publish(b"%d" % i, partition=i % 2)
        clock.advance("1s")
    assert [m.value for m in topic.read(partition=1, from_offset=3, max=2)] == [b"7", b"9"]
    between = topic.read(from_time=times[5] / 1000, to_time=times[9] / 1000)
    assert [m.value for m in between] == [b"5", b"6", b"7", b"8"]
    assert [m.value for m in topic.last(3)] == [b"17", b"18", b"19"]
    assert topic.offsets() == {0: (0, 10), 1: (0, 10)}
    with pytest.raises(errors.InvalidOption, match="partition="):
        topic.read(from_offset=1)
    with pytest.raises(errors.UnknownPartition):
        topic.read(partition=2)


def test_reader_positions_are_committed(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=2)
    topic.publish_many([b"%d" % i for i in range(10)])
    reader = topic.reader("audit")
    first = reader.read(max=4)
    reader.commit()
    reader.read(max=100)
    again = topic.reader("audit")
    assert len(first) + len(again.read(max=100)) == 10
    assert again.read() == []
    again.seek(offset=0)
    assert len(again.read(max=100)) == 10


def test_retention_waits_for_groups_unless_told_otherwise(
    broker: trine.Broker, clock: SimulatedClock
) -> None:
    for name, waits in (("patient", True), ("strict", False)):
        topic = broker.create_topic(
            name, partitions=1, retention="1h", segment_bytes=4096, retention_waits_for_groups=waits
        )
        group = topic.group("g")
        consumer = group.consumer("m")
        consumer.receive()
        for _ in range(20):
            topic.publish_many([b"x" * 500] * 4)
        got = consumer.receive(max=40)
        consumer.ack(got)
        clock.advance("2h")
        topic.publish(b"fresh")
        broker.apply_retention()
        first, last = topic.offsets()[0]
        if waits:
            assert 0 < first <= 40
            assert group.lag().count == 81 - 40
        else:
            assert first > 40
            assert group.lag().count == last - first


def test_compaction_keeps_the_last_of_each_key(broker: trine.Broker, clock: SimulatedClock) -> None:
    topic = broker.create_topic(
        "t", partitions=1, compact=True, segment_bytes=4096, retention=None, tombstone="1h"
    )
    for i in range(200):
        topic.publish(b"%d" % i + b"." * 200, key=b"k%d" % (i % 5))
    topic.publish(None, key=b"k0")
    for _ in range(40):
        topic.publish(b"." * 200, key=b"filler")
    broker.tick()
    broker.checkpoint()
    broker.apply_retention()
    found = topic.read(max=10_000)
    latest = {m.key: m.value for m in found}
    assert latest[b"k0"] is None
    assert latest[b"k4"] is not None
    assert latest[b"k4"].startswith(b"199.")
    assert len(found) < 100
    with topic.group("g").consumer("m") as consumer:
        got = consumer.receive(max=1000)
        assert [m.offset for m in got] == [m.offset for m in found]
        assert topic.group("g").lag().count == len(got)
    clock.advance("2h")
    broker.apply_retention()
    assert all(m.key != b"k0" for m in topic.read(max=10_000))


def test_purge_alter_and_delete(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=1)
    topic.publish_many([b"x"] * 10)
    group = topic.group("g")
    consumer = group.consumer("m")
    held = consumer.receive(max=3)
    assert topic.purge() == 10
    assert group.lag().count == 0
    with pytest.raises(errors.StaleReceipt):
        held[0].ack()
    topic.alter(partitions=3, retention="1d")
    topic.publish_many([Outgoing(value=b"y", partition=n) for n in range(3)])
    assert len(consumer.receive(max=10)) == 3
    with pytest.raises(errors.InvalidOption, match="fewer partitions"):
        topic.alter(partitions=1)
    topic.delete()
    with pytest.raises(errors.UnknownTopic):
        topic.publish(b"z")
    with pytest.raises(errors.UnknownTopic):
        consumer.receive()
    broker.create_topic("t").publish(b"again")


def test_scheduled_messages_are_listed_moved_and_cancelled(
    broker: trine.Broker, clock: SimulatedClock
) -> None:
    topic = broker.create_topic("t", partitions=1)
    ids = [topic.publish(b"%d" % i, delay=f"{i}h").message_id for i in range(1, 6)]
    assert [one.value for one in topic.schedules()] == [b"1", b"2", b"3", b"4", b"5"]
    broker.cancel(ids[1])
    broker.reschedule(ids[4], delay="30m")
    first = topic.schedules()[0]
    assert (first.id, first.value) == (ids[4], b"5")
    broker.reschedule(ids[4], delay="150m")
    consumer = topic.group("g").consumer("m")
    seen = []
    while got := consumer.receive(max=10, wait="6h"):
        seen += [(m.value, m.schedule_id, clock.now_ms()) for m in got]
        consumer.ack(got)
    start = trine.SimulatedClock().now_ms()
    assert [(value, schedule_id) for value, schedule_id, _ in seen] == [
        (b"1", ids[0]), (b"5", ids[4]), (b"3", ids[2]), (b"4", ids[3]),
    ]  # fmt: skip
    assert [at - start for _, _, at in seen] == [3_600_000, 9_000_000, 10_800_000, 14_400_000]
    with pytest.raises(errors.UnknownSchedule, match="delivered"):
        broker.cancel(ids[0])
    with pytest.raises(errors.UnknownSchedule, match="cancelled"):
        broker.cancel(ids[1])
    with pytest.raises(errors.UnknownSchedule, match="delivered"):
        broker.reschedule(ids[4], delay=1)


def test_cron_fires_on_time_once(broker: trine.Broker, clock: SimulatedClock) -> None:
    topic = broker.create_topic("t", partitions=1)
    broker.create_cron("hourly", topic="t", expression="@hourly", value=b"tick", headers={"a": "b"})
    consumer = topic.group("g").consumer("m")
    times = []
    for _ in range(3):
        (message,) = consumer.receive(wait="2h")
        assert message.headers["trine-cron"] == b"hourly"
        times.append(clock.now_ms())
        message.ack()
    assert [time % 3_600_000 for time in times] == [0, 0, 0]
    clock.advance("10h")
    broker.tick()
    assert len(consumer.receive(max=10)) == 1
    broker.delete_cron("hourly")
    assert broker.crons() == []
    with pytest.raises(errors.InvalidCron):
        broker.create_cron("bad", topic="t", expression="61 * * * *", value=b"")


def test_a_message_moved_twice_into_far_hours_is_still_found(
    broker: trine.Broker, clock: SimulatedClock
) -> None:
    topic = broker.create_topic("t", partitions=1)
    waiting = topic.publish(b"x", delay="1d").message_id
    for delay in ("3d", "5d", "2d", "5d"):
        broker.reschedule(waiting, delay=delay)
    assert [(one.id, one.due_ms - clock.now_ms()) for one in topic.schedules()] == [(waiting, 5 * 86_400_000)]
    broker.reschedule(waiting, delay="4d")
    broker.cancel(waiting)
    assert topic.schedules() == []
    with pytest.raises(errors.UnknownSchedule, match="cancelled"):
        broker.cancel(waiting)
