"""Salvage: a damaged store opens again, all that was readable is there, and what was lost is told."""

from __future__ import annotations

import random
import re

import pytest

import trine
from tests.recovery.test_damage import build, close_quietly, flip, opened
from trine.log.batch import read_header
from trine.log.checkpoint import read_checkpoint
from trine.log.salvage import salvage_store
from trine.log.simulated_disk import SimulatedDisk
from trine.model.errors import Corrupt, InvalidOption, Locked


def damaged_file(error: Corrupt) -> str:
    return error.path.removeprefix("simulated/")


def segments_of(disk: SimulatedDisk, part: str) -> list[str]:
    return [path for path in sorted(disk._files) if part in path and path.endswith(".log")]


def batches_of(data: bytes) -> list[tuple[int, int, int]]:
    """(position, first offset, one past the last) of each batch."""
    found, position = [], 0
    while position < len(data):
        header = read_header(data, position)
        found.append((position, header.base_offset, header.next_offset))
        position += header.size
    return found


def contents(broker: trine.Broker, topic: str = "orders") -> dict[str, bytes | None]:
    return {one.id: one.value for one in broker.topic(topic).read(max=100_000)}


def waiting(broker: trine.Broker) -> set[bytes | None]:
    return {one.value for one in broker.topic("orders").schedules()}


def test_flip_in_a_sealed_segment_then_corrupt_then_salvage(tmp_path):
    """The whole way, on a real disk, as a user goes it."""
    folder = str(tmp_path / "data")
    with trine.open(folder) as broker:
        topic = broker.create_topic("orders", partitions=1, segment_bytes=4096)
        topic.create_group("billing")
        for number in range(100):
            topic.publish(f"{number}-".encode() * 50)
        consumer = topic.group("billing").consumer("worker")
        for message in consumer.receive(max=10):
            message.ack()
    path = sorted((tmp_path / "data").glob("logs/topics/orders/0-*/*.log"))[2]
    data = bytearray(path.read_bytes())
    position, first, end = batches_of(bytes(data))[3]
    assert end == first + 1
    data[position + 70] ^= 0x10
    path.write_bytes(data)

    with pytest.raises(Corrupt) as caught, trine.open(folder) as broker:
        broker.verify()
    assert caught.value.path == str(path)
    assert caught.value.position == position
    assert "trine.salvage" in caught.value.to_do

    (line,) = trine.salvage(folder)
    assert line.startswith(str(path))
    assert f"offset {first} lost" in line
    assert path.with_name(path.name + ".damaged").read_bytes() == data
    assert trine.salvage(folder) == []

    with trine.open(folder) as broker:
        assert broker.verify() > 10_000
        topic = broker.topic("orders")
        rest = [number for number in range(100) if number != first]
        assert [one.offset for one in topic.read(max=1000)] == rest
        assert [one.value for one in topic.read(max=1000)] == [f"{number}-".encode() * 50 for number in rest]
        with topic.group("billing").consumer("worker") as consumer:
            got = []
            while messages := consumer.receive(max=7):
                got += [one.offset for one in messages]
                consumer.ack(messages)
            assert got == [number for number in rest if number >= 10]
        assert topic.group("billing").lag().count == 0, "what is gone is settled as gone"
        assert topic.publish(b"goes on").offset == 100
    with trine.open(folder) as broker:
        assert broker.topic("orders").group("billing").lag().count == 1


@pytest.mark.parametrize("order", ["none", "key", "partition"])
def test_a_group_is_not_held_up_by_what_is_gone(order):
    disk = SimulatedDisk()
    broker = opened(disk)
    topic = broker.create_topic("jobs", partitions=1, segment_bytes=4096)
    topic.create_group("workers", order=order, lease="1h", max_deliveries=2)
    for number in range(60):
        topic.publish(f"{number}-".encode() * 40, key=f"k{number % 5}")
    held = topic.group("workers").consumer("worker").receive(max=30)  # leases on what will be lost
    assert held
    broker.checkpoint()
    dead = disk.crash(kill=True)
    close_quietly(broker)
    lost: set[int] = set()
    for path in segments_of(dead, "jobs/0-")[:3]:
        for position, first, end in batches_of(dead.read(path))[1:4]:
            flip(dead, path, position + 65, 0xFF)
            lost.update(range(first, end))
    lines = salvage_store(dead)
    assert len(lines) == 3
    broker = opened(dead)
    with broker.topic("jobs").group("workers").consumer("worker") as consumer:
        got = []
        while messages := consumer.receive(max=10):
            got += [one.offset for one in messages]
            consumer.ack(messages)
    assert sorted(got) == [number for number in range(60) if number not in lost]
    assert broker.topic("jobs").group("workers").lag().count == 0
    broker.close()


def test_any_damage_of_a_segment_costs_only_what_it_hit():
    whole = build()
    reference = opened(whole.crash(kill=True))
    before = {topic: contents(reference, topic) for topic in ("orders", "invoices", "orders.dlq")}
    scheduled = waiting(reference)
    close_quietly(reference)
    found = read_checkpoint(whole)
    assert found is not None
    lengths = {f"{log.path}/{one.name}": one.length for log in found[1].logs for one in log.saved.segments}
    rng = random.Random(11)
    for path, length in lengths.items():
        for _ in range(12):
            disk = whole.crash(kill=True)
            position = rng.randrange(length)
            kind = rng.choice(("flip", "cut", "delete"))
            if kind == "flip":
                flip(disk, path, position, rng.randrange(1, 256))
            elif kind == "cut":
                disk.open(path).truncate(position)
            else:
                disk.delete(path)
            try:
                check_salvaged(disk, path, before, scheduled)
            except BaseException as error:
                error.add_note(f"{kind} of {path} at {position}")
                raise


def check_salvaged(
    disk: SimulatedDisk, path: str, before: dict[str, dict[str, bytes | None]], scheduled: set[bytes | None]
) -> None:
    (line,) = salvage_store(disk)
    assert line.startswith(f"simulated/{path}: ")
    broker = opened(disk)
    assert broker.verify() > 0
    if "/groups/" in path:
        lost = {"orders": set(), "invoices": set(), "orders.dlq": set()}
    else:
        lost = {topic: set(before[topic]) - set(contents(broker, topic)) for topic in before}
    for topic, known in before.items():
        now = contents(broker, topic)
        assert now == {id: value for id, value in known.items() if id not in lost[topic]}
        if lost[topic]:
            assert f"/{topic}/" in path
            assert {int(id.rpartition("/")[2]) for id in lost[topic]} == told(line)
    if "/schedule/" in path:
        assert waiting(broker) <= scheduled
    else:
        assert waiting(broker) == scheduled
    for group in ("billing", "audit"):
        with broker.topic("orders").group(group).consumer("reader") as consumer:
            while messages := consumer.receive(max=100):
                consumer.ack(messages)
        assert broker.topic("orders").group(group).lag().count == 0
    broker.topic("orders").publish(b"later", delay=61)
    broker._engine.clock.advance("4h")
    broker.tick()
    assert b"later" in contents(broker).values()
    broker.close()
    opened(disk, 1_790_100_000_000).close()


def told(line: str) -> set[int]:
    """The offsets a line says were lost."""
    found = re.search(r"offsets? (.*) lost", line)
    offsets: set[int] = set()
    for part in found[1].split(", ") if found else []:
        first, _, last = part.partition(" to ")
        offsets.update(range(int(first), int(last or first) + 1))
    return offsets


def test_a_batch_with_a_changed_offset_does_not_take_anothers_place():
    disk = build()
    path = segments_of(disk, "orders/1-")[0]
    position, first, _ = batches_of(disk.read(path))[4]
    flip(disk, path, position + 7, first ^ (first + 1))  # now it says the next one's offset
    (line,) = salvage_store(disk)
    assert told(line) == {first}
    values = contents(opened(disk))
    assert f"orders/1/{first}" not in values
    assert f"orders/1/{first + 1}" in values


def test_a_damaged_copy_of_the_checkpoint_is_written_again():
    disk = build()
    flip(disk, "checkpoint.b", 50, 4)
    (line,) = salvage_store(disk)
    assert "checkpoint.b" in line
    assert disk.read("checkpoint.a") == disk.read("checkpoint.b")
    assert salvage_store(disk) == []
    opened(disk).close()


def test_a_sound_store_is_left_as_it_is():
    disk = build()
    before = {path: disk.read(path) for path in disk._files}
    assert salvage_store(disk) == []
    assert {path: disk.read(path) for path in disk._files} == before


def test_the_journal_is_not_salvaged_and_its_error_does_not_promise_it():
    disk = build()
    path = max(path for path in disk._files if path.endswith(".journal"))
    for position in range(64, disk.open(path).size(), 40):
        flip(disk, path, position, 0xFF)
    with pytest.raises(Corrupt) as caught:
        opened(disk)
    assert "salvage" not in str(caught.value)
    assert salvage_store(disk) == []


def test_salvage_needs_a_closed_store_and_a_store_at_all(tmp_path):
    folder = tmp_path / "data"
    with pytest.raises(InvalidOption, match="no Trine data directory"):
        trine.salvage(str(folder))
    assert not folder.exists()
    with trine.open(str(folder)), pytest.raises(Locked):
        trine.salvage(str(folder))
    assert trine.salvage(str(folder)) == []
