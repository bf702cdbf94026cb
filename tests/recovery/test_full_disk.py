"""A disk that is full, and one that fails.

Full: publishes are refused with nothing stored, settling goes on while the reserve lasts, and all goes on by
itself when there is room. Failed: nothing is accepted any more, and a reopen recovers what was answered.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
from pathlib import Path

import pytest

import trine
from trine.broker.opening import open_store
from trine.log.disk import Disk
from trine.log.journal import JournalSettings
from trine.log.simulated_disk import SimulatedDisk
from trine.log.store import StoreSettings
from trine.model.clock import SimulatedClock
from trine.model.errors import DiskFull, StoreFailed, TrineError
from trine.model.limits import KIB, MIB

SETTINGS = StoreSettings(
    journal=JournalSettings(file_bytes=128 * KIB, chunk_bytes=16 * KIB, reserve_bytes=32 * KIB),
    tail_bytes_max=16 * KIB,
    look_bytes=16 * KIB,
    journal_bytes_max=256 * KIB,
)


def opened(disk: Disk | None, path: str = "", *, clock: bool = True) -> trine.Broker:
    """On simulated time, or (clock=False) with the housekeeper's own thread."""
    chosen = SimulatedClock() if clock else None
    return trine.Broker(*open_store(path, disk=disk, clock=chosen, seed=1, settings=SETTINGS))


def prepared(broker: trine.Broker) -> trine.Topic:
    if not broker.topics():
        broker.create_topic("orders", partitions=1).create_group("billing", lease="1h")
    return broker.topic("orders")


def value_of(number: int) -> bytes:
    return f"{number}-".encode() * 200


def publish_until_refused(topic: trine.Topic, stored: list[int]) -> DiskFull:
    """`stored` gets the number of every message that was answered."""
    for number in range(len(stored), 100_000):
        try:
            receipt = topic.publish(value_of(number))
        except DiskFull as error:
            return error
        assert receipt.offset == number
        stored.append(number)
    raise AssertionError("the disk was never full")


def check(topic: trine.Topic, stored: list[int]) -> None:
    found: list[bytes | None] = []
    while some := topic.read(partition=0, from_offset=len(found), max=1000):
        found += [one.value for one in some]
    assert found == [value_of(number) for number in stored]


def test_publishes_are_refused_and_nothing_of_them_is_stored():
    disk = SimulatedDisk()
    broker = opened(disk)
    topic = prepared(broker)
    disk.quota_bytes = disk.used_bytes() + 1 * MIB
    stored: list[int] = []
    error = publish_until_refused(topic, stored)
    assert len(stored) > 100
    assert "The disk is full" in str(error)
    assert "publishing resumes by itself" in str(error)
    for _ in range(50):
        with pytest.raises(DiskFull):
            topic.publish(value_of(0))
        with pytest.raises(DiskFull):
            topic.publish_many([value_of(0)] * 3)
        with pytest.raises(DiskFull):
            topic.publish(value_of(0), delay=60)
    assert topic.schedules() == []
    check(topic, stored)
    again = opened(disk.crash(kill=True))
    check(again.topic("orders"), stored)


def test_settling_goes_on_while_the_reserve_lasts_and_publishing_when_there_is_room():
    disk = SimulatedDisk()
    broker = opened(disk)
    topic = prepared(broker)
    disk.quota_bytes = disk.used_bytes() + 1 * MIB
    stored: list[int] = []
    publish_until_refused(topic, stored)
    consumer = topic.group("billing").consumer("worker")
    acked = []
    for message in consumer.receive(max=100):
        message.ack()
        acked.append(message.offset)
    assert len(acked) == 100
    disk.quota_bytes += 1 * MIB
    publish_until_refused(topic, stored)
    check(topic, stored)
    after = opened(disk.crash(kill=True))
    check(after.topic("orders"), stored)
    left = after.topic("orders").group("billing").consumer("worker").receive(max=10_000)
    assert [message.offset for message in left] == stored[len(acked) :]


def test_a_transaction_on_a_full_disk_happens_not_at_all():
    disk = SimulatedDisk()
    broker = opened(disk)
    topic = prepared(broker)
    broker.create_topic("invoices", partitions=1)
    disk.quota_bytes = disk.used_bytes() + 1 * MIB
    stored: list[int] = []
    publish_until_refused(topic, stored)
    (message,) = topic.group("billing").consumer("worker").receive()
    with pytest.raises(DiskFull), broker.transaction() as transaction:
        transaction.ack(message)
        transaction.publish("invoices", value_of(0) * 20)
    assert broker.topic("invoices").read() == []
    message.ack()  # it is still held


def test_a_checkpoint_on_a_full_disk_is_tried_again():
    disk = SimulatedDisk()
    broker = opened(disk)
    topic = prepared(broker)
    disk.quota_bytes = disk.used_bytes() + 600 * KIB
    stored: list[int] = []
    publish_until_refused(topic, stored)
    disk.quota_bytes = disk.used_bytes()
    for _ in range(3):
        with pytest.raises(DiskFull):
            broker.checkpoint()
    check(topic, stored)
    disk.quota_bytes += 8 * MIB
    broker.checkpoint()
    for number in range(len(stored), len(stored) + 200):
        topic.publish(value_of(number))
        stored.append(number)
    check(topic, stored)
    broker.close()
    check(opened(disk).topic("orders"), stored)


@pytest.mark.parametrize("spare", [0, 1, 100, 4 * KIB, 20 * KIB, 64 * KIB])
def test_opening_on_a_full_disk_works_or_says_so(spare):
    disk = SimulatedDisk()
    broker = opened(disk)
    topic = prepared(broker)
    disk.quota_bytes = disk.used_bytes() + 1 * MIB
    stored: list[int] = []
    publish_until_refused(topic, stored)
    for message in topic.group("billing").consumer("worker").receive(max=10):
        message.ack()
    dead = disk.crash(kill=True)
    dead.quota_bytes = dead.used_bytes() + spare
    try:
        after = opened(dead)
    except DiskFull:
        assert not dead._locked
    else:
        check(after.topic("orders"), stored)
        after._engine.store.close()
    dead.quota_bytes = None
    after = opened(dead)
    check(after.topic("orders"), stored)
    assert after.topic("orders").group("billing").lag().count == len(stored) - 10
    after.topic("orders").publish(b"goes on")
    after.close()


def test_closing_on_a_full_disk_lets_go_and_loses_nothing():
    disk = SimulatedDisk()
    broker = opened(disk)
    topic = prepared(broker)
    disk.quota_bytes = disk.used_bytes() + 600 * KIB
    stored: list[int] = []
    publish_until_refused(topic, stored)
    disk.quota_bytes = disk.used_bytes()
    broker.close()
    assert not disk._locked
    disk.quota_bytes = None
    check(opened(disk).topic("orders"), stored)


def test_the_running_broker_goes_on_by_itself(caplog):
    """With the housekeeper's thread: it meets the full disk too, warns, and lives."""
    caplog.set_level(logging.WARNING, logger="trine")
    disk = SimulatedDisk()
    broker = opened(disk, clock=False)
    topic = prepared(broker)
    disk.quota_bytes = disk.used_bytes() + 1 * MIB
    stored: list[int] = []
    publish_until_refused(topic, stored)
    topic.group("billing").consumer("worker").receive(max=10)
    disk.quota_bytes = disk.used_bytes()
    broker._housekeeper._next_checkpoint = 0
    broker._housekeeper.call()
    until(lambda: any("The disk is full" in record.message for record in caplog.records))
    disk.quota_bytes += 4 * MIB
    until(lambda: accepts(topic, stored))
    check(topic, stored)
    broker.close()


def accepts(topic: trine.Topic, stored: list[int]) -> bool:
    try:
        topic.publish(value_of(len(stored)))
    except DiskFull:
        return False
    stored.append(len(stored))
    return True


def until(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within ten seconds"
        time.sleep(0.01)


# ------------------------------------------------------------ a real file system


@pytest.fixture
def small_disk(tmp_path):
    """A file system of four mebibytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    libc = ctypes.CDLL(None, use_errno=True)
    folder = tmp_path / "small"
    folder.mkdir()
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=4m"):
        pytest.skip(f"a tmpfs cannot be mounted here: {os.strerror(ctypes.get_errno())}")
    yield folder
    assert libc.umount2(os.fsencode(folder), 2) == 0  # MNT_DETACH


def test_a_real_full_disk(small_disk: Path):
    folder = small_disk / "data"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2 * MIB))
    broker = opened(None, str(folder), clock=False)
    topic = prepared(broker)
    stored: list[int] = []
    publish_until_refused(topic, stored)
    assert len(stored) > 100
    acked = 0
    for message in topic.group("billing").consumer("worker").receive(max=50):
        message.ack()
        acked += 1
    with pytest.raises(DiskFull):
        topic.publish(value_of(0) * 100)
    check(topic, stored)
    ballast.unlink()
    until(lambda: accepts(topic, stored))
    publish_until_refused(topic, stored)
    check(topic, stored)
    broker.close()
    again = opened(None, str(folder), clock=False)
    check(again.topic("orders"), stored)
    assert again.topic("orders").group("billing").lag().count == len(stored) - acked
    assert again.topic("orders").purge() == len(stored)
    until(lambda: room_again(again))
    again.close()


def room_again(broker: trine.Broker) -> bool:
    """Purging makes room once a checkpoint is durable."""
    try:
        broker.checkpoint()
        broker.topic("orders").publish(b"room again")
    except DiskFull:
        return False
    return True


# ------------------------------------------------------------ a disk that fails


def test_after_a_failed_sync_everything_is_refused_and_a_reopen_recovers():
    disk = SimulatedDisk()
    broker = opened(disk)
    topic = prepared(broker)
    consumer = topic.group("billing").consumer("worker")
    stored = list(range(20))
    for number in stored:
        topic.publish(value_of(number))
    messages = consumer.receive(max=10)
    messages[0].ack()
    disk.fail_sync = True
    with pytest.raises(StoreFailed) as caught:
        topic.publish(b"never answered")
    assert "close and reopen the broker" in str(caught.value)
    disk.fail_sync = False  # the disk seems well again: what it dropped meanwhile is not known
    calls = [
        lambda: topic.publish(b"x"),
        lambda: topic.publish(b"x", durability="written"),
        lambda: topic.publish_many([b"x", b"y"]),
        lambda: topic.publish(b"x", delay=5),
        lambda: messages[1].ack(),
        lambda: consumer.ack(messages[2:4]),
        lambda: consumer.nack(messages[4:5]),
        lambda: consumer.reject(messages[5:6]),
        lambda: consumer.receive(),
        lambda: broker.create_topic("more"),
        lambda: broker.checkpoint(),
    ]
    for call in calls:
        with pytest.raises(StoreFailed):
            call()
    with pytest.raises(TrineError):
        broker.close()
    assert not disk._locked, "a broker that failed can be closed"
    after = opened(disk.crash(keep_unsynced=False))
    found = [one.value for one in after.topic("orders").read(max=1000)]
    assert found == [value_of(number) for number in stored]
    left = after.topic("orders").group("billing").consumer("worker").receive(max=100)
    assert [one.offset for one in left] == stored[1:]


def test_a_failed_write_fails_the_store_too():
    disk = SimulatedDisk()
    broker = opened(disk)
    topic = prepared(broker)
    topic.publish(value_of(0))
    disk.fail_write = True
    with pytest.raises(StoreFailed):
        for number in range(1, 1000):
            topic.publish(value_of(number) * 10)
    with pytest.raises(StoreFailed):
        topic.publish(b"x")


def test_a_failed_checkpoint_fails_the_store_and_the_old_one_counts():
    disk = SimulatedDisk()
    broker = opened(disk)
    topic = prepared(broker)
    stored = list(range(50))
    for number in stored:
        topic.publish(value_of(number))
    disk.fail_sync = True
    with pytest.raises(StoreFailed):
        broker.checkpoint()
    disk.fail_sync = False
    for _ in range(2):  # a sync that succeeds after one that failed proves nothing
        with pytest.raises(StoreFailed):
            broker.checkpoint()
    with pytest.raises(StoreFailed):
        topic.publish(b"x")
    check(opened(disk.crash(keep_unsynced=False)).topic("orders"), stored)


def test_the_housekeeper_that_meets_a_failed_disk_tells_every_caller():
    disk = SimulatedDisk()
    broker = opened(disk, clock=False)
    topic = prepared(broker)
    topic.publish(value_of(0))
    disk.fail_sync = True
    broker._housekeeper._next_checkpoint = 0
    broker._housekeeper.call()
    until(lambda: broker._engine.failure is not None)
    disk.fail_sync = False
    with pytest.raises(StoreFailed):
        topic.publish(b"x")
    with pytest.raises(TrineError):
        broker.close()
    check(opened(disk.crash(keep_unsynced=False)).topic("orders"), [0])
