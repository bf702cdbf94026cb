"""Damage of every file of a store: cut, flipped, emptied, deleted, exchanged.

What comes of it is one of two things: everything that was synced is there, or a Corrupt error names the file, the
byte and what to do. Never less, never something else, never another error.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

import trine
from trine.broker.opening import open_store
from trine.log.batch import read_header
from trine.log.checkpoint import COPIES
from trine.log.journal import JournalSettings
from trine.log.simulated_disk import SimulatedDisk
from trine.log.store import StoreSettings
from trine.model.clock import SimulatedClock
from trine.model.errors import Corrupt, NewerFormat
from trine.model.limits import KIB
from trine.model.options import BackoffConfig

NOW = 1_790_000_000_000
HOUR_MS = 3600 * 1000
SETTINGS = StoreSettings(
    journal=JournalSettings(
        file_bytes=32 * KIB, chunk_bytes=4 * KIB, reserve_bytes=2 * KIB, queue_bytes_max=1 * KIB
    )
)
BACKOFF = BackoffConfig(first_ms=0, cap_ms=0, jitter=0.0)


def opened(disk: SimulatedDisk, now: int = NOW + 2_000) -> trine.Broker:
    return trine.Broker(*open_store("", disk=disk, clock=SimulatedClock(now), seed=1, settings=SETTINGS))


def publish_all(broker: trine.Broker, name: str) -> None:
    orders = broker.topic("orders")
    for number in range(12):
        orders.publish(f"{name}-{number}".encode() * 20, key=f"k{number % 3}", headers={"n": str(number)})
    orders.publish_many([f"{name}-many-{number}".encode() * 10 for number in range(30)], priority="high")
    for number in range(4):
        orders.publish(f"{name}-soon-{number}".encode(), delay=60 + number)
        orders.publish(f"{name}-far-{number}".encode(), delay=3 * 3600 + number, key="far")
    orders.publish(f"{name}-dedup".encode(), dedup_id=f"{name}-dedup", ttl=7200)


def settle_some(broker: trine.Broker) -> None:
    consumer = broker.topic("orders").group("billing").consumer("worker")
    messages = consumer.receive(max=20)
    consumer.ack(messages[:8])
    messages[9].ack()
    consumer.nack(messages[10:12], reason="not yet")
    consumer.reject(messages[12:14], "broken")
    with broker.transaction() as transaction:
        transaction.ack(messages[14])
        transaction.publish("invoices", b"of " + messages[14].value, key="i")


def build() -> SimulatedDisk:
    """A store with all kinds of files, a checkpoint, and as much again in the journal; then the process dies."""
    disk = SimulatedDisk()
    broker = opened(disk, NOW)
    broker.create_topic("orders", partitions=2, segment_bytes=4 * KIB)
    broker.create_topic("invoices", partitions=1)
    broker.topic("orders").create_group("billing", backoff=BACKOFF, breaker=None, lease="1h")
    broker.topic("orders").create_group("audit", order="key")
    for number in range(60):
        broker.topic("invoices").publish(f"invoice-{number}-".encode() * 50)
    for name in ("a", "b"):
        publish_all(broker, name)
        settle_some(broker)
        broker._engine.clock.advance(1)
        broker.checkpoint()
    publish_all(broker, "c")
    settle_some(broker)
    broker.topic("invoices").publish(b"the last, so that all before it is synced")
    return disk.crash(kill=True)


def close_quietly(broker: trine.Broker) -> None:
    """Lets go of the disk as a dying process does: no checkpoint, which would mend or hide what is wrong."""
    broker._engine.store.close()


def pieces() -> dict[str, Callable[[trine.Broker], object]]:
    """Everything a user could see, piece by piece."""

    def messages(topic: str, **how: object) -> Callable[[trine.Broker], object]:
        return lambda broker: [
            (one.id, one.key, one.value, one.headers, one.timestamp_ms, one.priority)
            for one in broker.topic(topic).read(**how)
        ]

    def deliveries(group: str) -> Callable[[trine.Broker], object]:
        def all_of(broker: trine.Broker) -> object:
            found = []
            with broker.topic("orders").group(group).consumer("reader") as consumer:
                while some := consumer.receive(max=100):
                    found += [(one.id, one.key, one.value, one.attempt) for one in some]
                    consumer.ack(some)
            return sorted(found)

        return all_of

    def scheduled(broker: trine.Broker) -> object:
        return [(one.id, one.key, one.value, one.due_ms) for one in broker.topic("orders").schedules()]

    def letters(broker: trine.Broker) -> object:
        return [
            (one.id, one.value, one.reason, one.origin, one.attempts)
            for one in broker.topic("orders").dead_letters()
        ]

    def dedup(broker: trine.Broker) -> object:
        return [
            (again.message_id, again.duplicate)
            for name in ("a", "b", "c")
            for again in [broker.topic("orders").publish(b"again", dedup_id=f"{name}-dedup")]
        ]

    def traces(broker: trine.Broker) -> object:
        return [str(broker.trace(f"orders/1/{offset}")) for offset in range(40)]

    def due(broker: trine.Broker) -> object:
        """Time goes on: what was scheduled arrives."""
        broker._engine.clock.advance("4h")
        broker.tick()
        return sorted(one.value for one in broker.topic("orders").read(from_time=NOW / 1000 + 3600))

    return {
        "lag": lambda broker: [
            (group.name, broker.topic("orders").group(group.name).lag().count)
            for group in broker.topic("orders").groups()
        ],
        "orders": messages("orders"),
        "invoices": messages("invoices"),
        "later": messages("orders", from_time=NOW / 1000 + 1),
        "dead letters": letters,
        "scheduled": scheduled,
        "traces": traces,
        "dedup": dedup,
        "billing": deliveries("billing"),
        "audit": deliveries("audit"),
        "due": due,
    }


def is_sound(error: Corrupt, disk: SimulatedDisk) -> None:
    assert error.path.startswith("simulated/"), error
    assert error.position >= 0
    assert error.what
    assert len(error.to_do) > 20
    assert f"{error.path}, byte {error.position}: {error.what}. {error.to_do}" == str(error)


WHOLE: dict[str, object] = {}
STORE: list[SimulatedDisk] = []


def store() -> SimulatedDisk:
    """A copy of the one store, and what there is to see in it undamaged."""
    if not STORE:
        disk = build()
        broker = opened(disk.crash(kill=True))
        WHOLE.update({name: look(broker) for name, look in pieces().items()})
        assert broker.verify() > 10_000
        broker.close()
        STORE.append(disk)
    return STORE[0].crash(kill=True)


def outcome(disk: SimulatedDisk, *, exchanged: bool = False) -> str:
    """Opens a damaged store, looks at everything, and says what became of it; fails if it is not allowed.

    A file exchanged for another sound one is found by `verify`; all else by whoever reads it.
    """
    store()
    try:
        broker = opened(disk)
    except Corrupt as error:
        is_sound(error, disk)
        assert not disk._locked
        return f"open: {error}"
    found = ""
    differs = []
    for name, look in pieces().items():
        try:
            if look(broker) != WHOLE[name]:
                differs.append(name)
        except Corrupt as error:
            is_sound(error, disk)
            found = found or f"{name}: {error}"
    try:
        broker.verify()
    except Corrupt as error:
        is_sound(error, disk)
        found = found or f"verify: {error}"
        if exchanged:
            differs = []
    assert not differs, f"silently different: {differs}; {found}"
    if found:
        close_quietly(broker)
        return found
    broker.close()
    again = opened(disk, NOW + 5 * HOUR_MS)  # what was mended is mended for good
    assert again.verify() > 10_000
    again.close()
    return "whole"


def flip(disk: SimulatedDisk, path: str, position: int, mask: int) -> None:
    file = disk.open(path)
    file.pwrite(position, bytes([file.pread(position, 1)[0] ^ mask]))


def cut(disk: SimulatedDisk, path: str, size: int) -> None:
    disk.open(path).truncate(size)


def files() -> list[str]:
    """All files of the store, by a name that stays the same when ids and times do not."""
    return sorted(name for name in store()._files if name != "lock")


def kind_of(path: str) -> str:
    if path.startswith("logs/"):
        return path.rpartition(".")[2]
    return path.partition("/")[0]


KINDS = ("checkpoint.a", "checkpoint.b", "format", "index", "journal", "log")


@pytest.fixture
def dice(request):
    seed = random.SystemRandom().getrandbits(32)
    request.node.add_report_section("setup", "seed", str(seed))
    return random.Random(seed)


def of_kind(kind: str) -> list[str]:
    found = [path for path in files() if kind_of(path) == kind]
    assert found, f"the store has no {kind} file"
    return found


def last_journal() -> str:
    return max(path for path in of_kind("journal") if path.endswith(".journal"))


def sure(path: str, outcome: str) -> None:
    """What must come out, where that is certain."""
    if path in COPIES or path.endswith(".index") or path == "journal/mark":
        assert outcome == "whole", outcome


def test_the_store_has_what_is_to_be_damaged():
    kinds = {kind_of(path) for path in files()}
    assert kinds >= set(KINDS)
    logs = of_kind("log")
    for part in ("orders/0", "orders/1", "schedule", "groups", "orders.dlq"):
        assert any(part in path for path in logs), part
    assert outcome(store()) == "whole"


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bits(kind, dice):
    paths = of_kind(kind)
    for path in paths:
        size = store().open(path).size()
        count = max(4, 60 // len(paths))
        chosen = {0, size - 1, *(dice.randrange(size) for _ in range(count))} if size else set()
        for position in chosen:
            mask = dice.choice((1, 0x80, 0xFF, dice.randrange(1, 256)))
            disk = store()
            flip(disk, path, position, mask)
            try:
                sure(path, outcome(disk))
            except NewerFormat:
                assert path == "format"
            except BaseException as error:
                error.add_note(f"{path}, byte {position} of {size}, mask {mask:#x}")
                raise


@pytest.mark.parametrize("kind", KINDS)
def test_cut_files(kind, dice):
    paths = of_kind(kind)
    for path in paths:
        size = store().open(path).size()
        count = max(3, 30 // len(paths))
        for end in {0, size // 2, max(size - 1, 0), *(dice.randrange(size + 1) for _ in range(count))}:
            disk = store()
            cut(disk, path, end)
            try:
                sure(path, outcome(disk))
            except BaseException as error:
                error.add_note(f"{path}, cut to {end} of {size}")
                raise


def test_every_byte_of_a_batch_header_and_of_an_entry_header():
    path = next(path for path in of_kind("log") if "orders/1" in path)
    journal = last_journal()
    second = read_header(store().read(path)).size  # the first one's place is known to the checkpoint too
    for name, places in ((path, range(second, second + 70)), (journal, range(64 + 40))):
        for position in places:
            disk = store()
            flip(disk, name, position, 0xFF)
            try:
                outcome(disk)
            except BaseException as error:
                error.add_note(f"{name}, byte {position}")
                raise


def test_the_times_and_marks_of_every_batch():
    """They are read out of headers, by walks that need no records: a wrong one must not lead a search astray."""
    for path in of_kind("log"):
        data = store().read(path)
        position = 0
        while position < len(data):
            for at, mask in ((21, 0x70), (35, 0x80)):  # the marks in the attributes; the greatest time
                disk = store()
                flip(disk, path, position + at, mask)
                try:
                    assert outcome(disk) != "whole"
                except BaseException as error:
                    error.add_note(f"{path}, byte {position + at}, mask {mask:#x}")
                    raise
            position += read_header(data, position).size * (10 if "invoices" in path else 1)


def test_a_damaged_schedule_stops_the_running_broker_with_the_same_error():
    """Nobody reads a schedule but the housekeeper's thread: what it meets, every caller is told."""
    disk = shaped("closed")
    path = next(path for path in of_kind("log") if "/schedule/" in path)
    flip(disk, path, 80, 1)
    broker = trine.Broker(*open_store("", disk=disk, settings=SETTINGS))
    deadline = time.monotonic() + 10
    while broker._engine.failure is None:
        assert time.monotonic() < deadline, "the damage was not noticed"
        time.sleep(0.01)
    with pytest.raises(Corrupt) as caught:
        broker.topic("orders").publish(b"x")
    assert path in caught.value.path
    with pytest.raises(Corrupt):
        broker.close()
    assert not disk._locked


def test_deleted_files():
    for path in files():
        disk = store()
        disk.delete(path)
        try:
            came = outcome(disk)
        except BaseException as error:
            error.add_note(f"{path} deleted")
            raise
        sure(path, came)
        if path.endswith(".log") or path in (last_journal(), "format"):
            assert path in came, came


def test_garbage_after_the_end_of_a_file(dice):
    for path in files():
        disk = store()
        file = disk.open(path)
        file.pwrite(file.size(), dice.randbytes(dice.choice((1, 100, 5000))))
        came = outcome(disk)
        if not path.startswith("journal/0") and path != "format":
            assert came == "whole", f"{path}: {came}"


def test_segments_that_changed_places():
    paths = of_kind("log")
    for at, one in enumerate(paths):
        for other in paths[at + 1 :]:
            disk = store()
            disk._files[one], disk._files[other] = disk._files[other], disk._files[one]
            before = {path: disk.read(path) for path in (one, other)}
            try:
                came = outcome(disk, exchanged=True)
            except BaseException as error:
                error.add_note(f"{one} and {other} exchanged")
                raise
            assert came.endswith("trine.salvage(data_dir)") or before[one] == before[other], came
            if came.startswith("open:"):
                assert {path: disk.read(path) for path in (one, other)} == before, "a file was cut"


def shaped(shape: str) -> SimulatedDisk:
    """The same store in other states: closed, or with nothing but its journal."""
    if shape == "killed":
        return store()
    disk = store()
    if shape == "closed":
        opened(disk).close()
    else:
        disk = SimulatedDisk()
        broker = opened(disk, NOW)
        broker.create_topic("orders", partitions=2).create_group("billing", backoff=BACKOFF)
        publish_all(broker, "a")
        disk = disk.crash(kill=True)
    return disk


def damage_at_random(shape: str, cases: int, rng: random.Random) -> None:
    whole = shaped(shape)
    reference = opened(whole.crash(kill=True))
    before = {topic.name: contents(reference, topic.name) for topic in reference.topics()}
    close_quietly(reference)
    paths = [path for path in whole._files if path not in ("lock", "format")]
    for _ in range(cases):
        disk = whole.crash(kill=True)
        path = rng.choice(paths)
        size = disk.open(path).size()
        kind, position = rng.choice(("flip", "cut", "zero", "noise")), rng.randrange(max(size, 1))
        count = rng.choice((1, 8, 512, 4096))
        if kind == "flip" and size:
            flip(disk, path, position, 1 << rng.randrange(8))
        elif kind == "cut":
            cut(disk, path, position)
        elif size:
            damage = bytes(count) if kind == "zero" else rng.randbytes(count)
            disk.open(path).pwrite(position, damage[: size - position])
        try:
            broker = opened(disk)
            now = {topic: contents(broker, topic) for topic in before}
            assert now == before
            assert len(broker.topics()) == len(before)
            broker.topic("orders").schedules()
            broker.verify()
            broker.close()
        except Corrupt as error:
            is_sound(error, disk)
        except BaseException as error:
            error.add_note(f"{shape}: {kind} of {path} at {position} of {size}, {count} bytes")
            raise


def contents(broker: trine.Broker, topic: str) -> list[tuple[str, bytes | None]]:
    return [(one.id, one.value) for one in broker.topic(topic).read(max=100_000)]


@pytest.mark.parametrize("shape", ["killed", "closed", "journal only"])
def test_random_damage(shape, dice):
    damage_at_random(shape, 60, dice)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["killed", "closed", "journal only"])
def test_much_random_damage(shape, dice):
    damage_at_random(shape, 3000, dice)


def test_both_copies_of_the_checkpoint():
    disk = store()
    for path in COPIES:
        flip(disk, path, 40, 1)
    assert "no copy of the checkpoint is valid" in outcome(disk)


def test_a_journal_file_of_another_place():
    """A recycled file's old entries never pass for live ones."""
    for path in of_kind("journal"):
        if path.endswith(".journal"):
            disk = store()
            body = disk.read(path)
            disk.write_atomic(path, body[: len(body) // 2] + body[: len(body) - len(body) // 2])
            outcome(disk)
