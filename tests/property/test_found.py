"""What the state machines (and the reading that went before them) have found, each as a plain test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import trine
from tests.property.world import World
from trine.broker.opening import open_store
from trine.log.memory_disk import MemoryDisk
from trine.model.errors import DiskFull, StoreFailed
from trine.model.limits import MIB
from trine.queue.lanes import Lanes
from trine.queue.ledger import Ledger
from trine.queue.rows import Kind, Row
from trine.queue.selection import Pick, Selection


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clock() -> trine.SimulatedClock:
    return trine.SimulatedClock()


@pytest.fixture
def roomy(clock: trine.SimulatedClock) -> Iterator[trine.Broker]:
    """With a journal of the usual size."""
    with trine.open(":memory:", clock=clock, seed=0) as broker:
        yield broker


def test_a_message_named_twice_in_one_ack_ends_its_lease_once(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    topic.publish_many([b"a", b"b", b"c"])
    group = topic.group("g")
    consumer = group.consumer("m")
    first, second, third = consumer.receive(3)
    assert consumer.ack([first, first]) == 1
    assert group.ack([second.receipt, second.receipt]) == 1
    assert group.lag().in_flight == 1
    third.ack()
    assert group.lag().count == group.lag().in_flight == 0


@pytest.mark.parametrize("order", ["none", "key", "partition"])
def test_a_message_named_twice_in_one_nack_comes_back_once(world: World, order: str) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    topic.publish_many([b"a", b"b", b"c"])
    consumer = topic.group("g", order=order).consumer("m")
    first, *_ = consumer.receive(3)
    consumer.nack([first, first], delay=0)
    assert topic.group("g").lag().in_flight == (0 if order == "partition" else 2)
    again = consumer.receive(10)
    assert len(again) == (3 if order == "partition" else 1)


def test_a_message_named_twice_in_a_transaction_is_acked_once(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    topic.publish_many([b"a", b"b", b"c"])
    first, second, third = topic.group("g").consumer("m").receive(3)
    with world.broker.transaction() as transaction:
        transaction.ack(first)
        transaction.ack([first, second])
    assert topic.group("g").lag().in_flight == 1
    third.ack()
    assert topic.group("g").lag().count == 0


def test_a_message_at_its_last_delivery_does_not_keep_the_broker_from_opening(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    topic.publish(b"poison")
    assert topic.group("g", max_deliveries=1).consumer("m").receive()
    world.crash(None)
    assert [one.value for one in world.broker.topic("t").dead_letters()] == [b"poison"]


def test_retries_do_not_use_up_the_room_they_need(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    topic.publish_many([b"a", b"b", b"c"])
    consumer = topic.group("g", in_flight_max=2).consumer("m")
    found = consumer.receive(10)
    assert len(found) == 2
    consumer.nack(found, delay=1)
    assert not consumer.receive(10), "a third one would be more than two in memory"
    world.clock.advance(1)
    again = consumer.receive(10)
    assert [one.value for one in again] == [b"a", b"b"]
    consumer.ack(again)
    assert [one.value for one in consumer.receive(10)] == [b"c"]


def test_a_lease_extended_twice_to_one_instant_is_returned_once(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    topic.publish_many([b"a", b"b"])
    consumer = topic.group("g", max_deliveries=1).consumer("m")
    found = consumer.receive(2)
    consumer.extend(found, 10)
    consumer.extend(found, 10)
    world.clock.advance(11)
    world.broker.tick()
    assert len(topic.dead_letters()) == 2


@pytest.mark.parametrize("call", ["close", "duplicate", "seek"])
def test_what_waits_in_memory_is_written_when_somebody_waits_for_the_disk(world: World, call: str) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    group = topic.group("g", durability="memory")
    consumer = group.consumer("m")
    consumer.receive()
    topic.publish(b"a", dedup_id="x", durability="memory")
    if call == "close":
        consumer.close()
    elif call == "duplicate":
        assert topic.publish(b"a", dedup_id="x").duplicate
    else:
        group.seek(to="latest")
    world.crash(1)
    assert [one.value for one in world.broker.topic("t").read()] == [b"a"]


def test_a_group_that_is_given_key_order_later_settles_what_was_in_flight(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    topic.publish_many([b"a", b"b", b"c", b"d"], key="k")
    group = topic.group("g")
    consumer = group.consumer("m")
    first, second = consumer.receive(2)
    group.alter(order="key")
    first.ack()
    assert not consumer.receive(5), "another of the key is in flight"
    second.ack()
    assert [one.value for one in consumer.receive(5)] == [b"c"]


def test_a_store_that_failed_can_be_closed_and_opened_again(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    world.disk.fail_sync = True
    with pytest.raises(StoreFailed):
        topic.publish(b"a")
    world.disk.fail_sync = False
    with pytest.raises(StoreFailed):
        world.broker.close()
    world.broker = world._open()
    assert world.broker.topic("t").publish(b"b").durability == "synced"


def test_a_full_disk_does_not_keep_a_broker_from_closing(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    published = 0
    world.disk.quota_bytes = world.disk.used_bytes()
    with pytest.raises(DiskFull):
        while True:
            topic.publish(bytes(500))
            published += 1
    world.broker.close()
    world.disk.quota_bytes = None
    world.broker = world._open()
    assert len(world.broker.topic("t").read()) == published


def test_a_scheduled_dedup_id_keeps_its_window_and_its_answer_over_a_crash(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1, dedup_window="5m")
    first = topic.publish(b"a", dedup_id="x", delay="4m")
    world.clock.advance("4m")
    world.broker.tick()
    assert topic.publish(b"a", dedup_id="x").message_id == first.message_id
    world.crash(None)
    topic = world.broker.topic("t")
    assert topic.publish(b"a", dedup_id="x").message_id == first.message_id
    world.clock.advance("1m")
    assert not topic.publish(b"a", dedup_id="x").duplicate


def test_a_dedup_id_used_anew_in_an_earlier_partition_is_still_known_after_a_crash(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=2, dedup_window="10s")
    topic.publish(b"old", dedup_id="x", partition=1)
    world.clock.advance("9s")
    topic.publish(b"between", partition=1)
    world.clock.advance("1s")
    second = topic.publish(b"new", dedup_id="x", partition=0)
    assert not second.duplicate
    world.crash(None)
    assert world.broker.topic("t").publish(b"new", dedup_id="x").message_id == second.message_id


def test_a_moved_message_keeps_the_id_its_duplicates_are_answered_with(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    first = topic.publish(b"a", dedup_id="x", delay="2h")
    world.broker.reschedule(first.message_id, delay="70m")
    world.crash(None)
    assert world.broker.topic("t").publish(b"a", dedup_id="x").message_id == first.message_id


def test_a_message_moved_twice_is_found_after_a_restart(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    waiting = topic.publish(b"a", delay="3h").message_id
    world.broker.reschedule(waiting, delay="70m")
    world.broker.reschedule(waiting, delay="5h")
    world.close()
    world.broker.cancel(waiting)
    assert world.broker.topic("t").schedules() == []


@pytest.mark.parametrize("hours", [(6,), (2, 6), (9, 2, 6)])
def test_a_moved_message_is_found_when_its_first_hour_is_gone(world: World, hours: tuple[int, ...]) -> None:
    topic = world.broker.create_topic("t", partitions=1, retention="1m")
    waiting = topic.publish(b"a", delay="5m").message_id
    for hour in hours:
        world.broker.reschedule(waiting, delay=f"{hour}h")
    world.clock.advance("4h")
    world.broker.tick()
    assert [one.id for one in topic.schedules()] == [waiting]
    world.broker.reschedule(waiting, delay="1h")
    world.broker.cancel(waiting)
    assert topic.schedules() == []


@pytest.mark.parametrize("nacked", [(1, 3), (3, 1), (1, 2, 3)])
def test_in_order_several_failures_of_one_lease_call_the_followers_back_once(
    world: World, nacked: tuple[int, ...]
) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    topic.publish_many([b"0", b"1", b"2", b"3", b"4"])
    group = topic.group("g", order="partition")
    consumer = group.consumer("m")
    found = consumer.receive(5)
    consumer.nack([found[index] for index in nacked], delay=0)
    assert group.lag().in_flight == 1
    found[0].ack()
    assert [one.value for one in consumer.receive(5)] == [b"1", b"2", b"3", b"4"]


def test_in_order_a_dead_letter_in_the_same_call_does_not_hide_the_followers(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    topic.publish_many([b"0", b"1", b"2"])
    group = topic.group("g", order="partition", max_deliveries=2)
    consumer = group.consumer("m")
    first, _, third = consumer.receive(3)
    third.nack(delay=0)
    (third,) = consumer.receive(3)
    consumer.nack([first, third], delay=0)
    assert [one.value for one in consumer.receive(3)] == [b"0", b"1"]


def test_a_consumer_of_this_process_is_alive_however_late_it_is_noticed(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=1)
    topic.publish(b"a")
    consumer = topic.group("g", lease="1h", member_timeout="5s").consumer("m")
    (message,) = consumer.receive()
    world.clock.advance("1m")
    world.broker.tick()
    message.ack()


def test_a_replay_of_a_key_finds_it_in_every_partition(world: World) -> None:
    topic = world.broker.create_topic("t", partitions=3)
    for partition in range(3):
        topic.publish(b"a", key="k", partition=partition)
    group = topic.group("g")
    consumer = group.consumer("m")
    for _ in range(3):
        consumer.ack(consumer.receive(10))
    assert group.lag().count == 0
    assert group.replay(key="k") == 3
    assert len(world.broker.search("t", key="k")) == 3


def test_due_messages_take_as_many_entries_as_they_need(
    roomy: trine.Broker, clock: trine.SimulatedClock
) -> None:
    topic = roomy.create_topic("t", partitions=1)
    for _ in range(5):
        topic.publish(bytes(8 * MIB), delay="1s")
    clock.advance("2s")
    roomy.tick()
    assert topic.describe().messages == 5


def test_dead_letters_take_as_many_entries_as_they_need(clock: trine.SimulatedClock) -> None:
    disk = MemoryDisk()
    broker = trine.Broker(*open_store("x", clock=clock, seed=0, disk=disk))
    topic = broker.create_topic("t", partitions=1)
    for _ in range(5):
        topic.publish(bytes(8 * MIB))
    consumer = topic.group("g", max_deliveries=1).consumer("m")
    assert len(consumer.receive(10)) == 5
    clock.advance("1m")
    broker.tick()
    assert len(topic.dead_letters()) == 5
    assert broker.redrive("t").run()["moved"] == 5
    assert len(consumer.receive(10)) == 5
    broker.close()
    broker = trine.Broker(*open_store("x", clock=clock, seed=0, disk=disk))
    assert len(broker.topic("t").dead_letters()) == 5
    broker.close()


def test_expired_dead_letters_take_as_many_entries_as_they_need(
    roomy: trine.Broker, clock: trine.SimulatedClock
) -> None:
    topic = roomy.create_topic("t", partitions=2, dead_letter_expired=True)
    for _ in range(8):
        topic.publish(bytes(8 * MIB), ttl="1s")
    clock.advance("2s")
    assert not topic.group("g").consumer("m").receive(10)
    assert len(topic.dead_letters()) == 8


def test_a_lease_cut_by_retention_still_ends() -> None:
    ledger = Ledger()

    def write(*rows: Row) -> None:
        ledger.commit(rows, ledger.change(rows))

    write(Row(Kind.DELIVERED, 0, 1, 0, 0, 0, 0, 3, 100, -1))
    for offset, until in enumerate((150, 200, 200)):
        write(Row(Kind.EXTENDED, 0, 1, 0, 0, 0, offset, 1, until, 0))
    assert ledger.next_deadline() == 150
    ledger.raise_floor(1)
    assert ledger.next_deadline() == 200
    assert [runs for _, runs in ledger.overdue(200)] == [[(1, 2)]]


def test_a_replay_that_cannot_use_its_share_leaves_it_to_live_work() -> None:
    ledger, lanes = Ledger(), Lanes(2)
    keys = [b"a", None, None, None, None, b"a"]
    lanes.add(0, 0, 2)
    lanes.add(1, 2, 4)
    selection = Selection(ledger, lanes, "key", lambda first, count: keys[first : first + count])

    def write(*rows: Row) -> None:
        ledger.commit(rows, ledger.change(rows))

    write(Row(Kind.SEEK, 0, 0, 0, 0, 0, 1, 0, 0, -1), Row(Kind.REOPENED, 0, 0, 0, 0, 0, 0, 1, 0, -1))
    assert selection.pick(1, 5, 0) == [Pick(2, 4, 1)]
    assert selection.pick(0, 1, 0) == [Pick(1, 1, 1)]  # the replayed message's key is busy: the next one goes
