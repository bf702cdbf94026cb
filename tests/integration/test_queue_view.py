"""The queue view through the public interface, on simulated time."""

from __future__ import annotations

import pytest

import trine
from trine import Outgoing, SimulatedClock
from trine.model import errors


def values(messages: tuple[trine.Message, ...]) -> list[bytes | None]:
    return [message.value for message in messages]


def test_every_group_sees_every_message_once(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=3)
    topic.publish_many([b"%d" % i for i in range(100)])
    for name in ("a", "b"):
        with topic.group(name).consumer("m") as consumer:
            got = consumer.receive(max=1000)
            assert sorted(map(int, values(got))) == list(range(100))
            assert consumer.ack(got) == 100
            assert consumer.receive(max=10) == ()
        assert topic.group(name).lag().count == 0


def test_nack_comes_back_after_its_delay_and_not_before(broker: trine.Broker, clock: SimulatedClock) -> None:
    topic = broker.create_topic("t")
    topic.publish(b"x")
    consumer = topic.group("g").consumer("m")
    (message,) = consumer.receive()
    message.nack(delay="30s")
    clock.advance("29999ms")
    assert consumer.receive() == ()
    clock.advance("1ms")
    (again,) = consumer.receive()
    assert (again.value, again.attempt) == (b"x", 2)


def test_backoff_grows_and_is_capped(broker: trine.Broker, clock: SimulatedClock) -> None:
    topic = broker.create_topic("t")
    topic.publish(b"x")
    options = {"first_ms": 1000, "factor": 2.0, "cap_ms": 3000, "jitter": 0.0}
    consumer = topic.group("g", backoff=options, max_deliveries=10).consumer("m")
    waits = []
    for _ in range(5):
        (message,) = consumer.receive(wait="1h")
        began = clock.now_ms()
        message.nack()
        (message,) = consumer.receive(wait="1h")
        waits.append(clock.now_ms() - began)
        message.nack(delay=0)
    assert waits == [1000, 3000, 3000, 3000, 3000]


def test_lease_expiry_redelivers_and_the_old_receipt_is_stale(
    broker: trine.Broker, clock: SimulatedClock
) -> None:
    topic = broker.create_topic("t")
    topic.publish(b"x")
    group = topic.group("g", lease="10s", backoff={"first_ms": 0, "jitter": 0.0})
    one, two = group.consumer("one"), group.consumer("two")
    (message,) = one.receive()
    clock.advance("9s")
    message.extend("10s")
    clock.advance("9s")
    assert two.receive() == ()
    clock.advance("1s")
    with pytest.raises(errors.LeaseExpired):
        message.ack()
    (again,) = two.receive()
    assert again.attempt == 2
    with pytest.raises(errors.StaleReceipt, match="two"):
        message.ack()
    again.ack()
    with pytest.raises(errors.StaleReceipt):
        again.ack()


def test_extending_one_message_of_a_run(broker: trine.Broker, clock: SimulatedClock) -> None:
    topic = broker.create_topic("t", partitions=1)
    topic.publish_many([b"%d" % i for i in range(5)])
    consumer = topic.group("g", lease="10s", backoff={"first_ms": 0, "jitter": 0.0}).consumer("m")
    got = consumer.receive(max=5)
    got[2].extend("60s")
    clock.advance("11s")
    assert [m.offset for m in consumer.receive(max=5)] == [0, 1, 3, 4]
    got[2].ack()


def test_max_deliveries_then_dead_letter_with_reason_and_headers(broker: trine.Broker) -> None:
    topic = broker.create_topic("t")
    receipt = topic.publish(b"poison", key="k", headers={"trace": b"1"})
    consumer = topic.group("g", max_deliveries=3).consumer("m")
    for attempt in (1, 2, 3):
        (message,) = consumer.receive(wait="1h")
        assert message.attempt == attempt
        message.nack(delay=0, reason="boom")
    assert consumer.receive(wait="1h") == ()
    (letter,) = topic.dead_letters()
    assert (letter.value, letter.key, letter.attempts, letter.group) == (b"poison", b"k", 3, "g")
    assert letter.origin == receipt.message_id
    assert "boom" in letter.reason
    assert letter.headers["trace"] == b"1"
    assert topic.group("g").lag().count == 0


def test_reject_batch_and_redrive_with_edit_rate_and_dry_run(
    broker: trine.Broker, clock: SimulatedClock
) -> None:
    topic = broker.create_topic("t")
    topic.publish_many([b"%d" % i for i in range(10)])
    consumer = topic.group("g").consumer("m")
    consumer.reject(consumer.receive(max=5), "bad json")
    consumer.reject(consumer.receive(max=5), "other")
    job = broker.redrive("t", reason="json", edit=lambda letter: {"value": (letter.value or b"") + b"!"})
    assert len(job.preview()) == 5
    assert len(topic.dead_letters()) == 10
    done = job.run()
    assert (done["state"], done["moved"]) == ("done", 5)
    assert [letter.reason for letter in topic.dead_letters()] == ["other"] * 5
    got = consumer.receive(max=10)
    assert len(got) == 5
    assert all((value or b"").endswith(b"!") for value in values(got))
    slow = broker.redrive("t", rate=2)
    began = clock.now_ms()
    assert slow.run()["moved"] == 5
    assert clock.now_ms() - began >= 2000
    assert topic.dead_letters() == []


def test_lanes_are_strict_without_weights(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=2)
    for priority in ("low", "normal", "high"):
        topic.publish_many([priority.encode()] * 10, priority=priority)
        topic.publish_many([priority.encode()] * 10, priority=priority)
    consumer = topic.group("g").consumer("m")
    got = [message.priority for _ in range(6) for message in consumer.receive(max=10)]
    assert got == ["high"] * 20 + ["normal"] * 20 + ["low"] * 20


def test_weights_let_the_low_lane_through(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=1)
    for priority in ("low", "normal", "high"):
        topic.publish_many([b"x"] * 1000, priority=priority)
    consumer = topic.group("g", lane_weights=(5, 3, 2)).consumer("m")
    got = [message.priority for message in consumer.receive(max=100)]
    assert [got.count(lane) for lane in ("high", "normal", "low")] == [50, 30, 20]
    singles = [consumer.receive()[0].priority for _ in range(100)]
    assert [singles.count(lane) for lane in ("high", "normal", "low")] == [50, 30, 20]


def test_key_order_one_at_a_time_in_order(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=2)
    topic.publish_many(
        [Outgoing(value=b"%s%d" % (k, i), key=k) for i in range(3) for k in (b"a", b"b", b"c")]
    )
    group = topic.group("g", order="key")
    one, two = group.consumer("one"), group.consumer("two")
    first = one.receive(max=10) + two.receive(max=10)
    assert sorted(values(first)) == [b"a0", b"b0", b"c0"]
    (a,) = [message for message in first if message.key == b"a"]
    a.nack(delay="10s")
    assert one.receive(max=10) + two.receive(max=10) == ()
    for message in first:
        if message.key != b"a":
            message.ack()
    assert sorted(values(one.receive(max=10) + two.receive(max=10))) == [b"b1", b"c1"]
    again = one.receive(max=10, wait="20s") or two.receive(max=10)
    assert values(again) == [b"a0"]


def test_partition_order_blocks_behind_a_failed_message(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=1)
    topic.publish_many([b"%d" % i for i in range(6)])
    consumer = topic.group("g", order="partition").consumer("m")
    got = consumer.receive(max=4)
    got[0].ack()
    got[1].nack(delay="5s")
    with pytest.raises(errors.StaleReceipt):
        got[2].ack()
    assert consumer.receive(max=10) == ()
    again = consumer.receive(max=10, wait="10s")
    assert values(again) == [b"1", b"2", b"3", b"4", b"5"]
    assert [message.attempt for message in again] == [2, 1, 1, 1, 1]


def test_pause_resume_seek_and_replay(broker: trine.Broker, clock: SimulatedClock) -> None:
    topic = broker.create_topic("t", partitions=1)
    topic.publish_many([b"%d" % i for i in range(5)])
    clock.advance("1m")
    middle = clock.now_ms()
    topic.publish_many([b"%d" % i for i in range(5, 10)])
    group = topic.create_group("g")
    consumer = group.consumer("m")
    group.pause()
    assert consumer.receive(max=10) == ()
    assert group.describe().paused == "paused by hand"
    group.resume()
    consumer.ack(consumer.receive(max=10))
    assert group.seek(time=middle / 1000) == {0: 5}
    assert values(consumer.receive(max=10)) == [b"5", b"6", b"7", b"8", b"9"]
    group.seek(to="latest")
    assert consumer.receive(max=10) == ()
    group.seek(offset=8, partition=0)
    got = consumer.receive(max=10)
    got[0].reject("no")
    got[1].ack()
    assert group.replay(failed=True) == 1
    (failed,) = consumer.receive(max=10)
    assert failed.value == b"8"
    failed.ack()
    assert group.replay(failed=True) == 0


def test_a_replay_runs_beside_live_traffic(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=1)
    topic.publish_many([b"old"] * 100)
    group = topic.group("g")
    consumer = group.consumer("m")
    consumer.ack(consumer.receive(max=100))
    topic.publish_many([b"new"] * 100)
    assert group.replay(to_time="2100-01-01") == 100
    got = values(consumer.receive(max=50))
    assert (got.count(b"new"), got.count(b"old")) == (40, 10)


def test_breaker_pauses_the_group_and_says_so(broker: trine.Broker) -> None:
    topic = broker.create_topic("t")
    topic.publish_many([b"x"] * 100)
    group = topic.group("g", breaker={"share": 0.5, "window_ms": 60_000, "least": 10})
    consumer = group.consumer("m")
    while got := consumer.receive(max=5):
        consumer.reject(got, "down")
    assert len(topic.dead_letters()) == 10
    assert "breaker" in (group.describe().paused or "")
    group.resume()
    assert consumer.receive(max=5)


def test_ttl_expires_and_can_be_buried(broker: trine.Broker, clock: SimulatedClock) -> None:
    for name, buried in (("plain", False), ("buried", True)):
        topic = broker.create_topic(name, dead_letter_expired=buried)
        topic.publish(b"old", ttl="10s")
        topic.publish(b"new", ttl="1h")
        clock.advance("10s")
        consumer = topic.group("g").consumer("m")
        assert values(consumer.receive(max=10)) == [b"new"]
        assert len(topic.dead_letters()) == buried


def test_subscriptions_filters_and_retained_messages(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", retained=True)
    for i in range(3):
        topic.publish(b"a%d" % i, key="a", headers={"kind": "x"})
    topic.publish(b"b0", key="b", headers={"kind": "y"})
    topic.publish(b"c0", key="c")
    topic.publish(None, key="c")
    with (
        topic.subscribe() as everything,
        topic.subscribe("only-y", durable=True, headers={"kind": "y"}) as only,
    ):
        assert sorted(values(everything.receive(max=10))) == [b"a2", b"b0"]
        topic.publish(b"b1", key="b", headers={"kind": "y"})
        assert values(everything.receive(max=10)) == [b"b1"]
        assert sorted(values(only.receive(max=10))) == [b"b0", b"b1"]
    assert [group.name for group in topic.groups()] == ["only-y"]


def test_auto_ack_is_at_most_once(broker: trine.Broker) -> None:
    topic = broker.create_topic("t")
    topic.publish(b"x")
    group = topic.group("g", auto_ack=True)
    with group.consumer("m") as consumer:
        (message,) = consumer.receive()
        assert message.value == b"x"
    assert group.lag().count == 0


def test_close_returns_leases_without_counting_them(broker: trine.Broker) -> None:
    topic = broker.create_topic("t")
    topic.publish(b"x")
    group = topic.group("g", max_deliveries=1)
    with group.consumer("one") as one:
        assert one.receive()
    (again,) = group.consumer("two").receive()
    assert again.attempt == 1


def test_backpressure_refuses_and_waits(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=1, depth_max=10)
    consumer = topic.group("g").consumer("m")
    consumer.receive()
    topic.publish_many([b"x"] * 10)
    with pytest.raises(errors.TopicFull, match="depth_max"):
        topic.publish(b"one more")
    with pytest.raises(errors.TopicFull):
        topic.publish(b"one more", wait="1s")
    consumer.ack(consumer.receive(max=4))
    topic.publish_many([b"y"] * 4)
    with pytest.raises(errors.TopicFull):
        topic.publish(b"one more")


def test_in_flight_is_bounded(broker: trine.Broker) -> None:
    topic = broker.create_topic("t")
    topic.publish_many([b"x"] * 100)
    consumer = topic.group("g", in_flight_max=30).consumer("m")
    assert len(consumer.receive(max=20)) == 20
    assert len(consumer.receive(max=20)) == 10
    assert consumer.receive(max=20) == ()


def test_transaction_acks_and_publishes_together(broker: trine.Broker) -> None:
    source, target = broker.create_topic("in"), broker.create_topic("out")
    source.publish(b"1")
    consumer = source.group("g").consumer("m")
    (message,) = consumer.receive()
    with pytest.raises(RuntimeError), broker.transaction() as transaction:
        transaction.ack(message)
        transaction.publish("out", b"never")
        raise RuntimeError
    assert target.read() == []
    with broker.transaction() as transaction:
        transaction.ack(message)
        transaction.publish("out", b"once", key="k")
    assert [m.value for m in target.read()] == [b"once"]
    assert source.group("g").lag().count == 0
    assert transaction.published["out"][0].durability == "memory"
    with pytest.raises(errors.StaleReceipt), broker.transaction() as again:
        again.ack(message)
        again.publish("out", b"twice")
    assert len(target.read()) == 1


def test_queue_is_a_topic_with_its_one_group(broker: trine.Broker) -> None:
    queue = broker.create_queue("jobs", lease="5s", partitions=2)
    queue.publish(b"1")
    with broker.queue("jobs").consumer("w") as consumer:
        (job,) = consumer.receive()
        job.ack()
    assert queue.lag().count == 0
    with pytest.raises(errors.InvalidOption, match="not a queue"):
        broker.create_topic("plain")
        broker.queue("plain")


def test_idempotent_producer(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=1)
    producer = broker.producer("etl")
    first = producer.publish_many("t", [b"1", b"2"], partition=0, sequence=0)
    again = producer.publish_many("t", [b"1", b"2"], partition=0, sequence=0)
    assert again.message_ids == first.message_ids
    assert again[0].duplicate
    with pytest.raises(errors.OutOfOrder):
        producer.publish_many("t", [b"9"], partition=0, sequence=5)
    newer = broker.producer("etl")
    with pytest.raises(errors.ProducerFenced):
        producer.publish_many("t", [b"3"], partition=0, sequence=2)
    assert newer.next_sequence("t", 0) == 2
    newer.publish_many("t", [b"3"], partition=0, sequence=2)
    assert [m.value for m in topic.read()] == [b"1", b"2", b"3"]


def test_the_same_message_twice_in_a_call_counts_once(broker: trine.Broker) -> None:
    topic = broker.create_topic("t", partitions=1)
    topic.publish_many([b"%d" % i for i in range(8)])
    group = topic.group("g")
    consumer = group.consumer("m")
    a, b, c, d, e, f, g, h = consumer.receive(max=8)
    consumer.ack([a, b, a])
    consumer.nack([c, d, c, d], delay="1h")
    consumer.reject([e, e], "no")
    consumer.extend([f, f], "1m")
    group.ack([g.receipt, g.receipt])
    with broker.transaction() as transaction:
        transaction.ack([h, h])
        transaction.ack(h)
        transaction.publish("t", b"next")
    lag = group.lag()
    assert (lag.count, lag.in_flight, lag.retrying) == (4, 1, 2)
    assert len(topic.dead_letters()) == 1


def test_a_batch_that_was_acked_in_part_is_acked_for_the_rest(
    broker: trine.Broker, clock: SimulatedClock
) -> None:
    topic = broker.create_topic("t", partitions=1)
    topic.publish_many([b"%d" % i for i in range(6)])
    consumer = topic.group("g", lease="10s").consumer("m")
    got = consumer.receive(max=3)
    got[1].ack()
    assert consumer.ack(got) == 2
    assert consumer.ack(got) == 0
    late = consumer.receive(max=3)
    late[0].ack()
    clock.advance("11s")
    with pytest.raises(errors.LeaseExpired):
        consumer.ack(late)
    other = topic.group("other").consumer("m")
    with pytest.raises(errors.InvalidReceipt, match="another group"):
        consumer.ack(other.receive())


def test_two_consumers_of_one_name_are_one_member(broker: trine.Broker) -> None:
    topic = broker.create_topic("t")
    topic.publish(b"x")
    group = topic.group("g")
    first, second = group.consumer("m"), group.consumer("m")
    (message,) = first.receive()
    assert second.receive() == ()
    second.close()
    message.ack()
    with pytest.raises(errors.Closed):
        second.receive()


def test_a_deleted_group_is_not_created_again_behind_its_back(broker: trine.Broker) -> None:
    topic = broker.create_topic("t")
    consumer = topic.group("g").consumer("m")
    consumer.receive()
    topic.group("g").delete()
    with pytest.raises(errors.UnknownGroup, match="deleted"):
        consumer.receive()
    assert topic.groups() == []


def test_the_breaker_counts_what_is_dropped_without_a_dead_letter(broker: trine.Broker) -> None:
    topic = broker.create_topic("t")
    topic.publish_many([b"x"] * 100)
    group = topic.group("g", dead_letters=False, breaker={"share": 0.5, "window": "1m", "least": 10})
    consumer = group.consumer("m")
    while got := consumer.receive(max=5):
        consumer.reject(got, "down")
    assert "breaker" in (group.describe().paused or "")
    assert group.lag().count == 90


def test_a_topic_s_backoff_is_its_groups_unless_they_have_one(
    broker: trine.Broker, clock: SimulatedClock
) -> None:
    topic = broker.create_topic("t", backoff={"first": "5s", "jitter": 0.0})
    topic.publish(b"x")
    for name, options, wait_ms in (("a", {}, 5000), ("b", {"backoff": {"first": "2s", "jitter": 0.0}}, 2000)):
        consumer = topic.group(name, **options).consumer("m")
        (message,) = consumer.receive()
        began = clock.now_ms()
        message.nack()
        (again,) = consumer.receive(wait="1h")
        assert clock.now_ms() - began == wait_ms
        if name == "a":
            topic.alter(backoff={"first": "7s", "factor": 1.0, "jitter": 0.0})
            began = clock.now_ms()
            again.nack()
            assert consumer.receive(wait="1h")
            assert clock.now_ms() - began == 7000
