"""What a server does with the engine: batches in and out as they are stored, leases by number, members that vanish."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from trine.broker.aio import AsyncBroker
from trine.broker.batches import check_batch
from trine.broker.engine import Engine
from trine.broker.group import GroupState
from trine.broker.housekeeping import Housekeeper
from trine.broker.opening import open_store
from trine.broker.topic import TopicState
from trine.log import batch
from trine.log.memory_disk import MemoryDisk
from trine.model import errors
from trine.model.clock import SimulatedClock
from trine.model.durability import Level
from trine.model.options import GroupConfig, TopicConfig


class World:
    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.disk = MemoryDisk()
        self.engine: Engine
        self.housekeeper: Housekeeper
        self.open()
        self.topic: TopicState = self.engine.create_topic("t", TopicConfig(partitions=2))
        self.group: GroupState = self.engine.create_group(self.topic, "g", GroupConfig())

    def open(self) -> None:
        self.engine, self.housekeeper = open_store(
            "x", clock=self.clock, seed=1, disk=self.disk, member_grace_ms=5000
        )

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def publish(self, *values: bytes, partition: int | None = 0, lane: int = 1) -> tuple[int, int, int]:
        data = batch.encode_values(values, 5, lane=lane)
        placed, _ = self.topic.publish_batches([(partition, data)], Level.SYNCED)
        return placed[0]

    def values(self, member: str, most: int) -> list[bytes | None]:
        found = []
        for part, lease in self.group.lease(member, most, self.now):
            for data in part.stored(lease):
                assert batch.check(data)
                found += [
                    record.value
                    for record in batch.decode(data)
                    if lease.first <= record.offset < lease.first + lease.count
                ]
        return found


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.engine.close()


def test_batches_are_stored_as_they_came_and_take_the_brokers_time(world: World) -> None:
    assert world.publish(b"a", b"b") == (0, 2, 0)
    assert world.publish(b"c") == (0, 1, 2)
    records = world.topic.partitions[0].records(0, 3)
    assert [record.value for record in records] == [b"a", b"b", b"c"]
    assert {record.timestamp for record in records} == {world.now}
    number, count, first = world.publish(b"d", partition=None)
    assert (count, world.topic.partitions[number].record(first).value) == (1, b"d")  # type: ignore[union-attr]


def test_several_batches_are_one_entry(world: World) -> None:
    one, two = batch.encode_values([b"a"], 0, lane=1), batch.encode_values([b"b"], 0, lane=7)
    with pytest.raises(errors.UnknownLane, match="no lane number 7"):
        world.topic.publish_batches([(0, one), (1, two)], Level.SYNCED)
    assert world.topic.partitions[0].log.next_offset == 0


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda data: data[:-1], errors.InvalidInput),
        (lambda data: bytearray(b"\0" * 70), errors.InvalidInput),
        (lambda data: data[:-1] + b"x", errors.InvalidInput),
        (
            lambda data: batch.encode_block(b"x", base_offset=0, count=1, base_time_ms=0, max_time_ms=0),
            errors.InvalidInput,
        ),
        (
            lambda data: batch.encode([(0, None, b"", [])], producer_id=1, producer_epoch=0, base_sequence=0),
            errors.InvalidInput,
        ),
        (lambda data: batch.encode([(0, None, b"", [])], flags=batch.HAS_DEDUP), errors.InvalidOption),
    ],
)  # fmt: skip
def test_a_batch_that_is_not_what_it_should_be_is_refused(world: World, spoil, error) -> None:
    with pytest.raises(error):
        world.topic.publish_batches([(0, bytearray(spoil(batch.encode_values([b"abc"], 0))))], Level.SYNCED)


def test_a_value_above_the_topics_limit_is_refused_within_a_batch() -> None:
    world = World()
    topic = world.engine.create_topic("small", TopicConfig(partitions=1, message_bytes_max=10))
    many = [b"123456789"] * 50
    topic.publish_batches([(0, batch.encode_values(many, 0))], Level.WRITTEN)
    with pytest.raises(errors.MessageTooLarge, match="11 bytes"):
        topic.publish_batches([(0, batch.encode_values([*many, b"12345678901"], 0))], Level.WRITTEN)
    world.engine.close()


def test_a_lease_is_sent_as_it_is_stored(world: World) -> None:
    world.publish(*(b"%03d" % n for n in range(100)))
    world.publish(b"last")
    ((part, lease),) = world.group.lease("m", 100, world.now)
    stored = part.stored(lease)
    assert len(stored) == 1
    assert stored[0] == part.partition.log.read(0)[0]
    assert world.values("m", 10) == [b"last"]


def test_a_small_part_of_a_batch_is_cut_out_of_it(world: World) -> None:
    world.publish(*(b"%03d" % n for n in range(100)))
    seen = []
    for _ in range(10):
        ((part, lease),) = world.group.lease("m", 3, world.now)
        (data,) = part.stored(lease)
        assert batch.read_header(data).base_offset == lease.first
        seen += [record.value for record in batch.decode(data)]
    assert seen == [b"%03d" % n for n in range(30)]


def test_acks_by_number(world: World) -> None:
    world.publish(*(b"%d" % n for n in range(10)))
    ((part, lease),) = world.group.lease("m", 10, world.now)
    world.group.ack_held(
        [(0, lease.number, 0, 4), (0, lease.number, 6, 1), (0, lease.number, 3, 2)], world.now
    )
    assert part.ledger.in_flight == 4
    world.group.nack(world.group.held_runs([(0, lease.number, 9, 1)]), world.now, 0, "later")
    assert world.values("m", 10) == [b"9"]
    with pytest.raises(errors.StaleReceipt):
        world.group.ack_held([(0, lease.number, 0, 1)], world.now)
    with pytest.raises(errors.StaleReceipt):
        world.group.ack_held([(77, lease.number, 0, 1)], world.now)


def test_a_vanished_member_is_given_up_after_its_grace_and_not_before(world: World) -> None:
    world.publish(b"a")
    world.group.enter("m", world.now, keeps_alive=True)
    assert world.values("m", 1) == [b"a"]
    world.group.lost("m", world.now, 5000)
    world.clock.advance("4s")
    assert world.values("other", 1) == []
    world.clock.advance("2s")
    assert world.values("other", 1) == [b"a"]


def test_a_vanished_member_that_comes_back_keeps_its_lease(world: World) -> None:
    world.publish(b"a")
    world.group.enter("m", world.now, keeps_alive=True)
    ((_, lease),) = world.group.lease("m", 1, world.now)
    world.group.lost("m", world.now, 5000)
    world.clock.advance("4s")
    world.group.enter("m", world.now, keeps_alive=True)
    world.clock.advance("10s")
    world.group.ack_held([(0, lease.number, 0, 1)], world.now)


def test_leases_survive_a_restart_of_the_server(world: World) -> None:
    world.publish(b"a", b"b")
    ((_, lease),) = world.group.lease("m", 2, world.now)
    world.engine.store.sync(world.engine.store.end_lsn)
    world.engine.close()
    world.open()
    group = world.engine.topics["t"].groups["g"]
    group.enter("m", world.now, keeps_alive=True)
    group.ack_held([(0, lease.number, 0, 1)], world.now)
    assert group.lease("other", 10, world.now) == []
    world.clock.advance("29s")
    assert group.lag() == 1
    assert group.lease("other", 10, world.now) == []  # the lease itself lasts 30 s


def test_members_that_do_not_come_back_lose_their_leases(world: World) -> None:
    world.publish(b"a")
    world.group.lease("m", 1, world.now)
    world.engine.close()
    world.open()
    group = world.engine.topics["t"].groups["g"]
    assert group.lease("other", 1, world.now) == []
    world.clock.advance("6s")
    assert [lease.attempt for _, lease in group.lease("other", 1, world.now)] == [2]


def resigned(data: bytearray) -> bytearray:
    """With a checksum that is right for what it holds."""
    batch.stamp(data, 1)
    return data


def spoiled(position: int, byte: int) -> bytearray:
    data = batch.encode([(1, b"key", b"value", []), (1, None, b"other", [])], lane=1)
    data[batch.HEADER_BYTES + position] = byte
    return resigned(data)


@pytest.mark.parametrize("position", range(10))
@pytest.mark.parametrize("byte", [0x7F, 0xFF, 0x81])
def test_records_that_cannot_be_read_are_not_stored(world: World, position: int, byte: int) -> None:
    data = spoiled(position, byte)
    try:
        world.topic.publish_batches([(0, data)], Level.SYNCED)
    except errors.TrineError:
        assert world.topic.partitions[0].log.next_offset == 0
    else:  # it was within a key, a time or a value: other records, but records
        assert len(world.topic.partitions[0].records(0, 2)) == 2


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ([("trine-expires", b"soon")], errors.InvalidOption),
        ([("trine-expires", None)], errors.InvalidOption),
        ([("trine-origin", b"secret/0/0")], errors.InvalidOption),
        ([("trine-schedule-id", b"\xff")], errors.InvalidOption),
        ([("trine-producer", b"\xff/../x")], errors.InvalidName),
        ([(f"h{n}", b"") for n in range(300)], errors.MessageTooLarge),
        ([("h", bytes(70_000))], errors.MessageTooLarge),
    ],
)
def test_headers_of_the_brokers_own_are_the_brokers(world: World, headers, error) -> None:
    with pytest.raises(error):
        world.topic.publish_batches(
            [(0, batch.encode([(1, None, b"v", headers)], flags=batch.HAS_TTL))], Level.SYNCED
        )


@pytest.mark.parametrize("compression", [batch.GZIP, batch.SNAPPY, batch.LZ4, batch.ZSTD])
def test_a_bomb_is_not_unpacked(world: World, compression: int) -> None:
    tame = batch.encode([(1, None, bytes(1000), [])] * 100, lane=1, compression=compression)
    assert batch.read_header(tame).compression == compression
    world.topic.publish_batches([(0, tame)], Level.SYNCED)
    bomb = batch.encode([(1, None, bytes(8 << 20), [])] * 4, lane=1, compression=compression)
    assert len(bomb) < 4 << 20
    with pytest.raises(errors.MessageTooLarge, match="unpacked"):
        world.topic.publish_batches([(0, bomb)], Level.SYNCED)
    cut = bytearray(tame)
    cut[batch.HEADER_BYTES + 20] ^= 0xFF
    with pytest.raises(errors.TrineError):
        world.topic.publish_batches([(0, resigned(cut[:-10]))], Level.SYNCED)


def test_a_block_of_snappy_that_lies_does_not_hang(world: World) -> None:
    data = batch.encode([(1, None, bytes(1000), [])] * 100, lane=1, compression=batch.SNAPPY)
    lying = bytearray(data[: batch.HEADER_BYTES + 16]) + (-4).to_bytes(4, "big", signed=True) + b"xx"
    lying[8:12] = (len(lying) - 12).to_bytes(4, "big")
    with pytest.raises(errors.MessageTooLarge, match="unpacked"):
        world.topic.publish_batches([(0, resigned(lying))], Level.SYNCED)


async def test_versions_follow_the_configuration() -> None:
    async with AsyncBroker(*open_store(":memory:", clock=SimulatedClock())) as broker:
        topic = await broker.create_topic("t")
        state = broker._engine.topics["t"]
        before = state.version
        await topic.alter(partitions=7)
        assert state.version not in (0, before)


@pytest.mark.parametrize("compression", [0, batch.GZIP, batch.SNAPPY, batch.LZ4, batch.ZSTD])
def test_whatever_is_stored_can_be_read(compression: int) -> None:
    """Bytes changed at random under a right checksum: refused by a typed error, or readable for ever."""
    rng = random.Random(7)
    config = TopicConfig()
    records = [
        (1, b"key", b"value" * 3, [("h", b"x"), ("g", None)]),
        (2, None, b"o", []),
        (3, b"z", None, []),
    ]
    bases = [
        batch.encode(records * 8, compression=compression),
        batch.encode_values([b"abc"] * 20, 1, size=3),
    ]
    accepted = 0
    for _ in range(1_000):
        data = bytearray(rng.choice(bases))
        for _ in range(rng.choice((1, 2, 5))):
            data[rng.randrange(batch.HEADER_BYTES, len(data))] = rng.randrange(256)
        batch.set_max_time(data, 5)  # signs it
        try:
            count = check_batch(data, config)
        except errors.TrineError:
            continue
        accepted += 1
        assert len(batch.decode(bytes(data))) == count
    assert accepted
