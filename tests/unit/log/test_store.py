"""The store: any crash leaves a prefix of what was committed, and all that was synced."""

from __future__ import annotations

import json
import random

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from trine.log.batch import decode, encode_values, place
from trine.log.checkpoint import COPIES, MAGIC, Manifest, pack, unpack
from trine.log.disk import RealDisk
from trine.log.journal import JournalSettings
from trine.log.memory_disk import MemoryDisk
from trine.log.simulated_disk import SimulatedDisk
from trine.log.store import FORMAT_PATH, Store, StoreSettings
from trine.model.durability import Level
from trine.model.errors import Corrupt, DiskFull, Locked, NewerFormat, StoreFailed

META = 0
SMALL = StoreSettings(
    journal=JournalSettings(
        file_bytes=8192, chunk_bytes=2048, reserve_bytes=1024, queue_bytes_max=1500, mapped_bytes_max=256
    ),
    tail_bytes_max=600,
    tails_bytes_max=1500,
    look_bytes=300,
)


class Application:
    """The smallest broker: creates and drops logs, publishes to them, drops their beginnings, counts."""

    def __init__(self, disk, how=SMALL):
        self.store = Store.open(disk, settings=how)
        state = json.loads(self.store.state) if self.store.state is not None else {"count": 0, "logs": []}
        self.count = state["count"]
        self.logs = set(state["logs"])
        for _, parts in self.store.replay():
            self.apply(parts)

    def apply(self, parts):
        self.count += 1
        for log_id, data in parts:
            if log_id != META:
                self.store.log(log_id).append(data)
                continue
            verb, which, *rest = bytes(data).decode().split()
            number = int(which)
            if verb == "create":
                self.store.create_log(number, f"topics/{number % 3}/{number}", segment_bytes=700)
                self.logs.add(number)
            elif verb == "drop":
                self.store.drop_log(number)
                self.logs.discard(number)
            else:
                self.store.log(number).retain(int(rest[0]))

    def run(self, parts, level=Level.WRITTEN, reserve=False):
        end = self.store.commit(parts, level, reserve)
        self.apply(parts)
        return end

    def meta(self, words, level=Level.WRITTEN):
        return self.run([(META, words.encode())], level)

    def batch(self, log_id, *values):
        data = encode_values(values, 1)
        place(data, self.store.log(log_id).next_offset)
        return log_id, bytes(data)

    def publish(self, log_id, *values, level=Level.WRITTEN):
        return self.run([self.batch(log_id, *values)], level)

    def state(self):
        return json.dumps({"count": self.count, "logs": sorted(self.logs)}).encode()

    def checkpoint(self):
        checkpoint = self.store.begin_checkpoint(self.state())
        self.store.finish_checkpoint(checkpoint)
        self.store.complete_checkpoint(checkpoint)

    def contents(self):
        return {log_id: contents(self.store.log(log_id)) for log_id in self.logs}


def contents(log):
    found, offset = [], log.start_offset
    while offset < log.next_offset:
        for data in log.read(offset):
            found += [
                (record.offset, bytes(record.value)) for record in decode(data) if record.offset >= offset
            ]
        offset = found[-1][0] + 1
    return found


def flip(disk, path, position):
    file = disk.open(path)
    file.pwrite(position, bytes([file.pread(position, 1)[0] ^ 0x40]))


@pytest.fixture(params=["real", "memory", "simulated"])
def disk(request, tmp_path):
    if request.param == "real":
        return RealDisk(tmp_path)
    return MemoryDisk() if request.param == "memory" else SimulatedDisk()


@pytest.mark.parametrize("checkpointed", [False, True])
def test_everything_is_there_after_reopening(disk, checkpointed):
    app = Application(disk)
    assert app.store.state is None
    app.meta("create 1")
    app.meta("create 2")
    for n in range(100):
        app.run([app.batch(1, b"a%d" % n), app.batch(2, b"b%d" % n, b"c%d" % n)])
    app.meta("retain 1 50")
    before = app.contents()
    assert len(before[2]) == 200
    if checkpointed:
        app.checkpoint()
    app.store.close()
    app = Application(disk)
    assert app.count == 103
    assert app.contents() == before
    assert app.store.statistics().entries_since_checkpoint == (0 if checkpointed else 103)
    app.publish(1, b"more")
    assert app.contents()[1][-1] == (100, b"more")
    app.store.close()


def test_dropped_logs_and_old_segments_are_deleted_after_the_checkpoint_that_forgets_them():
    disk = SimulatedDisk()
    app = Application(disk)
    app.meta("create 1")
    app.meta("create 2")
    app.meta("create 3")
    app.publish(3, b"x")
    for n in range(60):
        app.publish(1, b"v%d" % n)
        app.publish(2, b"w%d" % n)
    app.checkpoint()
    files = disk.listdir("logs/topics/1/1")
    app.meta("retain 1 60")
    app.meta("drop 2")
    assert disk.listdir("logs/topics/1/1") == files
    first = app.store.begin_checkpoint(app.state())
    app.meta("drop 3")  # the manifest under way still names it
    app.store.finish_checkpoint(first)
    assert disk.listdir("logs/topics/2") == ["2"]
    app.store.complete_checkpoint(first)
    assert disk.listdir("logs/topics/2") == []
    assert not set(disk.listdir("logs/topics/1/1")) & set(files)
    assert disk.listdir("logs/topics/0") == ["3"]
    assert Application(disk.crash(kill=True)).contents() == {1: []}
    app.checkpoint()
    assert disk.listdir("logs/topics/0") == []


def test_leftover_folders_are_swept():
    disk = SimulatedDisk()
    app = Application(disk)
    app.meta("create 4")
    app.store.close()
    disk.make_dirs("logs/topics/2/77")
    disk.open("logs/topics/2/77/x", create=True)
    disk.make_dirs("logs/topics/1/78")
    Application(disk)
    assert not disk.exists("logs/topics/2/77")
    assert not disk.exists("logs/topics/1/78")


def test_the_store_says_when_a_checkpoint_is_due():
    disk = MemoryDisk()
    app = Application(disk, StoreSettings(replay_seconds_max=0.001))
    app.meta("create 1")
    assert not app.store.wants_checkpoint()
    for _ in range(260):
        app.publish(1, b"x")
    assert app.store.wants_checkpoint()
    app.checkpoint()
    assert not app.store.wants_checkpoint()


def test_tails_are_flushed_when_they_grow():
    disk = SimulatedDisk()
    app = Application(disk)
    for number in range(1, 9):
        app.meta(f"create {number}")
    for n in range(300):
        app.publish(1 + n % 8, b"x" * 50)
        assert app.store.statistics().tail_bytes < SMALL.tails_bytes_max + SMALL.look_bytes + 200
    app.store.flush_tails(force=True)
    assert app.store.statistics().tail_bytes == 0


# -- who may open it -------------------------------------------------------------------------------


def test_a_directory_is_opened_once(disk):
    first = Application(disk)
    with pytest.raises(Locked, match="already open"):
        Store.open(RealDisk(disk.describe("").rstrip("/")) if isinstance(disk, RealDisk) else disk)
    first.store.close()
    Application(disk).store.close()


def test_a_newer_format_is_told_and_the_directory_let_go():
    disk = SimulatedDisk()
    disk.write_atomic(FORMAT_PATH, b"trine data directory, format 9\n")
    for _ in range(2):
        with pytest.raises(NewerFormat, match="format 9"):
            Store.open(disk)


@pytest.mark.parametrize("words", [b"", b"something else", b"trine data directory, format x"])
def test_a_directory_of_something_else_is_told(words):
    disk = SimulatedDisk()
    disk.write_atomic(FORMAT_PATH, words)
    with pytest.raises(Corrupt, match="right directory"):
        Store.open(disk)


def test_a_missing_format_is_told():
    disk = SimulatedDisk()
    Application(disk).store.close()
    disk.delete(FORMAT_PATH)
    with pytest.raises(Corrupt, match="missing"):
        Store.open(disk)


# -- damage ----------------------------------------------------------------------------------------


def test_one_bad_copy_of_the_checkpoint_is_no_loss_and_two_are_told():
    disk = SimulatedDisk()
    app = Application(disk)
    app.meta("create 1")
    app.publish(1, b"kept")
    app.checkpoint()
    for path in COPIES:
        for position in (0, 9, 13, 20, 25, 40):
            damaged = disk.crash(kill=True)
            flip(damaged, path, position)
            assert Application(damaged).contents() == {1: [(0, b"kept")]}
    for path in COPIES:
        flip(disk, path, 33)
    with pytest.raises(Corrupt, match="no copy"):
        Store.open(disk.crash(kill=True))


def test_a_newer_checkpoint_is_told():
    data = bytearray(pack(Manifest(1, [], b"state"), 7))
    assert unpack(bytes(data), "x") == (7, Manifest(1, [], b"state"))
    data[12] = 2
    newer = MAGIC + crc32c(data[12:]).to_bytes(4, "little") + data[12:]
    with pytest.raises(NewerFormat, match="format 2"):
        unpack(bytes(newer), "x")
    assert unpack(bytes(data), "x") is None
    assert unpack(b"", "x") is None


# -- full and failing disks ------------------------------------------------------------------------


def test_a_full_disk_refuses_publishes_loses_nothing_and_recovers():
    disk = SimulatedDisk()
    app = Application(disk)
    app.meta("create 1")
    app.checkpoint()
    disk.quota_bytes = disk.used_bytes() + 5000
    published = 0
    while published < 1000:
        try:
            app.publish(1, b"%03d" % published)
        except DiskFull:
            break
        published += 1
    assert 5 < published < 100
    with pytest.raises(DiskFull, match="resumes by itself"):
        app.publish(1, b"refused")
    app.run([(META, b"retain 1 1")], reserve=True)
    assert len(app.contents()[1]) == published - 1
    assert Application(disk.crash(kill=True)).contents() == app.contents()
    disk.quota_bytes = None
    app.publish(1, b"again")
    app.checkpoint()
    assert len(app.contents()[1]) == published
    assert Application(disk.crash(random.Random(3))).contents() == app.contents()


def test_a_checkpoint_without_room_changes_nothing():
    disk = SimulatedDisk()
    app = Application(disk)
    app.meta("create 1")
    app.publish(1, b"one")
    app.checkpoint()
    app.publish(1, b"two")
    app.meta("retain 1 1")
    checkpoint = app.store.begin_checkpoint(app.state() + b" " * 200_000)
    disk.quota_bytes = disk.used_bytes()
    with pytest.raises(DiskFull):
        app.store.finish_checkpoint(checkpoint)
    assert Application(disk.crash(kill=True)).contents() == {1: [(1, b"two")]}
    disk.quota_bytes = None
    app.checkpoint()
    assert Application(disk.crash(keep_unsynced=False)).contents() == {1: [(1, b"two")]}


def test_a_checkpoint_on_a_full_disk_overwrites_the_last_one():
    disk = SimulatedDisk()
    app = Application(disk)
    app.meta("create 1")
    app.checkpoint()
    app.publish(1, b"one")
    app.store.flush_tails(force=True)
    disk.quota_bytes = disk.used_bytes()
    app.checkpoint()
    assert Application(disk.crash(keep_unsynced=False)).contents() == {1: [(0, b"one")]}


def test_a_failed_sync_in_a_checkpoint_stops_the_store():
    disk = SimulatedDisk()
    app = Application(disk)
    app.meta("create 1")
    app.store.sync(app.publish(1, b"safe"))
    checkpoint = app.store.begin_checkpoint(app.state())
    disk.fail_sync = True
    with pytest.raises(StoreFailed, match="reopen"):
        app.store.finish_checkpoint(checkpoint)
    disk.fail_sync = False
    with pytest.raises(StoreFailed):
        app.publish(1, b"refused")
    app.store.close()
    assert Application(disk.crash(keep_unsynced=False)).contents() == {1: [(0, b"safe")]}


def test_a_failed_write_stops_the_store():
    disk = SimulatedDisk()
    app = Application(disk)
    app.meta("create 1")
    for _ in range(4):
        app.publish(1, b"x" * 50)
    disk.fail_write = True
    with pytest.raises(StoreFailed, match="failed"):
        app.store.flush_tails(force=True)
    disk.fail_write = False
    with pytest.raises(StoreFailed):
        app.publish(1, b"x")


# -- anything, in any order ------------------------------------------------------------------------

STEP = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(list(Level)), st.integers(1, 4), st.integers(0, 300)),
    st.tuples(st.just("publish"), st.just(Level.WRITTEN), st.integers(1, 4), st.integers(0, 60)),
    st.tuples(st.sampled_from(["create", "drop", "retain"]), st.sampled_from(list(Level)), st.integers(0, 9)),
    st.tuples(st.sampled_from(["sync", "flush", "write back"])),
    st.tuples(st.sampled_from(["advance", "checkpoint"])),
    st.tuples(st.sampled_from(["kill", "power cut", "close"])),
)


def replayed(entries):
    """What the logs hold after these entries, told without a store."""
    logs: dict[int, list[tuple[int, bytes]]] = {}
    for parts in entries:
        for log_id, data in parts:
            if log_id != META:
                logs[log_id] += [(record.offset, bytes(record.value)) for record in decode(data)]
                continue
            verb, which, *rest = data.decode().split()
            if verb == "create":
                logs[int(which)] = []
            elif verb == "drop":
                del logs[int(which)]
            else:
                logs[int(which)] = [pair for pair in logs[int(which)] if pair[0] >= int(rest[0])]
    return logs


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, min_size=25, max_size=90), st.randoms(use_true_random=False))
def test_a_crash_leaves_a_prefix_with_all_that_was_synced(steps, rng):
    disk = SimulatedDisk()
    app = Application(disk)
    entries = []  # (end, parts) of all that ever was, as far as it is still there
    checkpoint = None
    created = 0

    def run(parts, level):
        entries.append((app.run(parts, level), parts))

    for what, *rest in steps:
        if what == "publish":
            level, count, size = rest
            some = rng.sample(sorted(app.logs), min(count, len(app.logs)))
            if some:
                run([app.batch(log_id, b"%d" % len(entries) + bytes(size)) for log_id in some], level)
        elif what in ("create", "drop", "retain"):
            level, number = rest
            if what == "create":
                created += 1
                run([(META, b"create %d" % created)], level)
            elif app.logs:
                log_id = sorted(app.logs)[number % len(app.logs)]
                log = app.store.log(log_id)
                tail = b" %d" % rng.randint(log.start_offset, log.next_offset) if what == "retain" else b""
                run([(META, b"%s %d" % (what.encode(), log_id) + tail)], level)
        elif what == "sync":
            app.store.sync(app.store.statistics().journal.written_lsn)
        elif what == "flush":
            app.store.flush_tails(force=rng.random() < 0.5)
        elif what == "write back":
            disk.write_back(rng)
        elif what == "advance":  # a checkpoint in three steps, with anything between them
            if checkpoint is None:
                checkpoint = app.store.begin_checkpoint(app.state())
            elif not checkpoint.durable:
                app.store.finish_checkpoint(checkpoint)
            else:
                app.store.complete_checkpoint(checkpoint)
                checkpoint = None
        elif what == "checkpoint" and checkpoint is None:
            app.checkpoint()
        elif what in ("kill", "power cut", "close"):
            known = app.store.statistics().journal
            if what == "close":
                app.store.close()
            promised = {"kill": known.written_lsn, "power cut": known.synced_lsn, "close": known.end_lsn}[
                what
            ]
            least = sum(end <= promised for end, _ in entries)
            disk = disk.crash(rng, kill=what != "power cut")
            app, checkpoint = Application(disk), None
            assert least <= app.count <= len(entries)
            del entries[app.count :]
            assert app.contents() == replayed(parts for _, parts in entries)
    assert app.contents() == replayed(parts for _, parts in entries)
