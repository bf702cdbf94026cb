"""Members of a group come, go and fall silent: what moves, what stays, and what happens to their messages."""

from __future__ import annotations

import pytest

import trine
from trine import Outgoing, SimulatedClock
from trine.model import errors


def fill(topic: trine.Topic, each: int) -> None:
    partitions = len(topic.offsets())
    topic.publish_many(
        [Outgoing(value=b"%d" % i, partition=i % partitions) for i in range(each * partitions)]
    )


def test_only_what_must_move_moves(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=6)
    group = topic.group("g", order="partition")
    a, b, c = (group.consumer(name) for name in "abc")
    for consumer in (a, b, c):
        consumer.heartbeat()
    before = {consumer.name: set(consumer.partitions) for consumer in (a, b, c)}
    assert sorted(map(len, before.values())) == [2, 2, 2]
    d = group.consumer("d")
    d.heartbeat()
    after = {consumer.name: set(consumer.partitions) for consumer in (a, b, c, d)}
    assert sum(len(before[name] - after[name]) for name in before) == 1
    d.close()
    assert {name: len(set(x.partitions)) for name, x in zip("abc", (a, b, c), strict=True)} == dict.fromkeys(
        "abc", 2
    )


def test_a_moving_partition_waits_for_its_old_owner(broker: trine.Broker, clock: SimulatedClock) -> None:
    topic = broker.create_topic("t", partitions=2)
    fill(topic, 3)
    group = topic.group("g", order="partition", move_wait="1s")
    a = group.consumer("a")
    held = a.receive(max=6)
    assert {message.partition for message in held} == set(a.partitions) == {0, 1}
    b = group.consumer("b")
    assert b.receive(max=10) == ()
    moving = ({0, 1} - set(a.partitions)).pop()
    assert b.partitions == ()
    for message in held:
        message.ack()
    assert b.partitions == (moving,)
    fill(topic, 1)
    got = b.receive(max=10)
    assert {message.partition for message in got} == {moving}


def test_a_slow_owner_loses_its_leases_after_the_bounded_wait(
    broker: trine.Broker, clock: SimulatedClock
) -> None:
    topic = broker.create_topic("t", partitions=2)
    fill(topic, 2)
    group = topic.group("g", order="partition", move_wait="1s")
    a, b = group.consumer("a"), group.consumer("b")
    held = a.receive(max=4)
    assert len(held) == 4
    assert b.receive(max=10) == ()
    clock.advance("1s")
    got = b.receive(max=10)
    assert len(got) == 2
    moved = {message.offset for message in got}
    lost = [message for message in held if message.partition == got[0].partition]
    assert {message.offset for message in lost} == moved
    assert all(message.attempt == 1 for message in got)
    with pytest.raises(errors.StaleReceipt, match="'b'"):
        lost[0].ack()
    for message in held:
        if message.partition != got[0].partition:
            message.ack()


def test_a_silent_member_is_given_up_and_its_messages_count_as_tried(
    broker: trine.Broker, clock: SimulatedClock
) -> None:
    topic = broker.create_topic("t", partitions=2)
    fill(topic, 1)
    group = topic.group("g", member_timeout="10s", lease="1h")
    dying = group.consumer("dying", heartbeat="manual")
    assert len(dying.receive(max=10)) == 2
    living = group.consumer("living", heartbeat="manual")
    for _ in range(3):
        clock.advance("5s")
        living.heartbeat()
        broker.tick()
    assert [member.name for member in group.members()] == ["living"]
    assert [message.attempt for message in living.receive(max=10)] == [2, 2]


def test_more_members_than_partitions_work_when_order_allows(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=1)
    fill(topic, 10)
    for order, working in (("none", 4), ("key", 4), ("partition", 1)):
        group = topic.group(order, order=order)
        consumers = [group.consumer(f"m{i}") for i in range(4)]
        assert sum(bool(consumer.receive(max=1)) for consumer in consumers) == working


def test_nobody_idles_while_others_have_too_much(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=2)
    group = topic.group("g")
    a, b = group.consumer("a"), group.consumer("b")
    a.heartbeat()
    b.heartbeat()
    (own,) = b.partitions
    topic.publish_many([Outgoing(value=b"x", partition=1 - own)] * 10)
    assert len(b.receive(max=4)) == 4
    assert len(a.receive(max=10)) == 6


def test_the_history_tells_what_happened(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=2)
    group = topic.group("g")
    with group.consumer("a") as a:
        a.heartbeat()
        with group.consumer("b") as b:
            b.heartbeat()
    told = [event.why for event in group.describe().rebalances]
    assert told == ["a joined", "b joined", "b left", "a left"]
