"""The log against a list of batches: append, flush, roll, read, retain, cut, checkpoint and restore."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trine.log import batch
from trine.log.disk import RealDisk
from trine.log.log import OPEN_SEGMENTS_MAX, Log, SavedLog
from trine.log.memory_disk import MemoryDisk
from trine.log.simulated_disk import SimulatedDisk
from trine.model.errors import DiskFull

FOLDER = "topics/t/0"
SMALL = {"segment_bytes": 600, "index_bytes": 150}


def placed(offset, count=1, time_ms=5, size=10):
    data = batch.encode_values([bytes([offset % 251]) * size] * count, time_ms)
    batch.place(data, offset)
    return bytes(data)


def filled(disk, batches=30, **how):
    log = Log(disk, FOLDER, **(SMALL | how))
    for number in range(batches):
        log.append(placed(log.next_offset, number % 3 + 1, 1000 + 10 * number))
    return log


def header(data):
    return batch.read_header(data)


class Model:
    """What a log should hold: a list of batches."""

    def __init__(self):
        self.batches = []
        self.start = 0
        self.next = 0

    def copy(self):
        other = Model()
        other.batches, other.start, other.next = list(self.batches), self.start, self.next
        return other

    def readable(self):
        return [data for data in self.batches if header(data).last_offset >= self.start]

    def read(self, offset):
        return [data for data in self.readable() if header(data).last_offset >= offset]

    def offset_at(self, time_ms):
        for data in self.readable():
            if header(data).max_time_ms >= time_ms:
                return max(header(data).base_offset, self.start)
        return self.next


class LogMachine(RuleBasedStateMachine):
    """Random calls; after a crash the log is what the last checkpoint and the journal's batches give."""

    @initialize(segment_bytes=st.integers(100, 1500), index_bytes=st.integers(1, 400))
    def begin(self, segment_bytes, index_bytes):
        self.how = {"segment_bytes": segment_bytes, "index_bytes": index_bytes}
        self.disk = SimulatedDisk()
        self.log = Log(self.disk, FOLDER, **self.how)
        self.model = Model()
        self.checkpoint = (SavedLog(0, 0, []), Model())
        self.now = 1000

    @rule(
        count=st.integers(1, 5),
        size=st.integers(0, 120),
        gap=st.sampled_from([0, 0, 0, 4]),
        step=st.integers(-20, 50),
    )
    def append(self, count, size, gap, step):
        self.now += step
        data = placed(self.model.next + gap, count, self.now, size)
        self.log.append(data if size % 2 else bytearray(data))
        self.model.batches.append(data)
        self.model.next += gap + count

    @rule()
    def flush(self):
        self.log.flush()
        assert self.log.tail_bytes == 0

    @rule(age=st.integers(0, 200))
    def roll(self, age):
        self.log.maybe_roll(self.now, age)

    @rule(part=st.floats(0, 1))
    def retain(self, part):
        offset = self.model.start + round(part * (self.model.next - self.model.start))
        self.log.retain(offset)
        self.model.start = offset

    @rule(age=st.integers(0, 300), bytes_max=st.integers(0, 3000))
    def retain_what_is_old(self, age, bytes_max):
        offset = self.log.segments_before(time_ms=self.now - age, bytes_max=bytes_max)
        dropped = [data for data in self.model.readable() if header(data).last_offset < offset]
        left = self.log.size_bytes
        self.log.retain(offset)
        self.model.start = max(self.model.start, offset)
        if dropped and not any(header(data).max_time_ms < self.now - age for data in dropped):
            assert left - sum(map(len, dropped)) >= bytes_max

    @precondition(lambda self: self.model.readable())
    @rule(part=st.floats(0, 1))
    def cut(self, part):
        batches = [data for data in self.model.readable() if header(data).base_offset >= self.model.start]
        if not batches:
            return
        offset = header(batches[round(part * (len(batches) - 1))]).base_offset
        self.log.truncate_to(offset)
        self.model.batches = [data for data in self.model.batches if header(data).base_offset < offset]
        self.model.next = offset

    @rule()
    def save(self):
        self.log.flush()
        unsynced = self.log.dirty_files()
        self.log.mark_clean()
        saved, obsolete = self.log.saved(), self.log.obsolete()
        for one in unsynced:
            one.sync()
        self.checkpoint = (saved, self.model.copy())
        for path in obsolete:
            self.disk.delete(path)

    @rule(seed=st.integers(0, 1000), kill=st.booleans())
    def crash(self, seed, kill):
        self.disk = self.disk.crash(random.Random(seed), kill=kill)
        saved, model = self.checkpoint
        self.model = model.copy()
        self.log = Log.restore(self.disk, FOLDER, saved, **self.how)
        for _ in self.log.verify():
            pass

    @invariant()
    def reads_as_the_model(self):
        log, model = self.log, self.model
        assert (log.start_offset, log.next_offset) == (model.start, model.next)
        assert [head for _, head in log.headers()] == [header(data) for data in model.readable()]
        for offset in (0, (model.start + model.next) // 2, model.next - 1, model.next):
            expected = model.read(offset)
            assert log.read(offset, 1 << 20) == expected
            assert log.batch_at(offset) == (expected[0] if expected else None)
            some = log.read(offset, 300)
            assert some == expected[: len(some)]
            assert bool(some) == bool(expected)
            if len(some) > 1:
                assert sum(map(len, some)) <= 300
            if len(some) < len(expected):
                assert sum(map(len, expected[: len(some) + 1])) > 300
        for time_ms in (self.now - 100, self.now, self.now + 1):
            assert log.offset_at(time_ms) == model.offset_at(time_ms)
        stored = log.size_bytes - log.tail_bytes
        files = [name for name in self.disk.listdir(FOLDER) if name.endswith(".log")]
        assert 0 <= stored <= sum(len(self.disk.read(f"{FOLDER}/{name}")) for name in files)


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLogMachine = LogMachine.TestCase


@given(st.integers(0, 30), st.booleans())
def test_restoring_at_any_point_and_replaying_gives_the_same_log(at, flushed):
    disk = MemoryDisk()
    log = Log(disk, FOLDER, **SMALL)
    saved = log.saved()
    batches = []
    for number in range(30):
        batches.append(placed(log.next_offset, number % 3 + 1, 1000 + number))
        log.append(batches[-1])
        if number == at:
            log.flush()
            saved = log.saved()
    if flushed:
        log.flush()  # beyond the checkpoint: comes again from the journal
    again = Log.restore(disk, FOLDER, saved, **SMALL)
    for data in batches:
        if header(data).base_offset >= again.next_offset:
            again.append(data)
    again.flush()
    assert again.read(0, 1 << 20) == batches
    assert again.saved() == (log.flush(), log.saved())[1]


def test_a_real_disk(tmp_path):
    disk = RealDisk(tmp_path)
    log = filled(disk, 100)
    log.flush()
    everything = log.read(0, 1 << 20)
    assert len(everything) == 100
    for one in log.dirty_files():
        one.sync()
    log.mark_clean()
    saved = log.saved()
    assert log.dirty_files() == []
    log.close()
    again = Log.restore(disk, FOLDER, saved, **SMALL)
    assert again.read(0, 1 << 20) == everything
    assert [again.batch_at(header(data).last_offset) for data in everything] == everything
    again.close()


class CountingDisk(MemoryDisk):
    """Knows which of its files are open."""

    def __init__(self):
        super().__init__()
        self.opened = []

    def open(self, path, create=False):
        file = CountedFile(super().open(path, create), path, self)
        self.opened.append(file)
        return file


class CountedFile:
    def __init__(self, file, path, disk):
        self.path = path
        self._file = file
        self._disk = disk

    def __getattr__(self, name):
        return getattr(self._file, name)

    def close(self):
        self._disk.opened.remove(self)
        self._file.close()


def test_few_sealed_segments_stay_open():
    disk = CountingDisk()
    log = filled(disk, 200)
    log.flush()
    log.dirty_files()
    log.mark_clean()
    log.dirty_files()  # the last ones are synced
    assert len(log.saved().segments) > 2 * OPEN_SEGMENTS_MAX
    for data in log.read(0, 1 << 20):
        log.batch_at(header(data).base_offset)
    segments = [file for file in disk.opened if file.path.endswith(".log")]
    assert len(segments) <= OPEN_SEGMENTS_MAX + 1
    assert len(disk.opened) <= 2 * (OPEN_SEGMENTS_MAX + 1)
    log.close()
    assert disk.opened == []


def test_positions_of_a_log_that_does_not_roll():
    log = Log(MemoryDisk(), FOLDER, segment_bytes=200, index_bytes=100, rolls=False)
    stored = [placed(number, size=number) for number in range(40)]
    positions = [log.append(data) for data in stored[:20]]
    log.flush()
    positions += [log.append(data) for data in stored[20:]]
    assert positions == [sum(map(len, stored[:number])) for number in range(40)]
    assert [
        log.read_at(position, len(data)) for position, data in zip(positions, stored, strict=True)
    ] == stored
    whole = b"".join(stored)
    assert log.read_at(0, len(whole)) == whole
    assert log.read_at(positions[18] + 3, 500) == whole[positions[18] + 3 : positions[18] + 503]
    log.flush()
    assert log.read_at(positions[30], 70) == whole[positions[30] :][:70]
    assert not log.maybe_roll(10**9, 1)
    assert len(log.saved().segments) == 1
    with pytest.raises(ValueError, match="bytes"):
        log.read_at(len(whole) - 1, 2)


def test_a_full_disk_keeps_the_tail():
    disk = SimulatedDisk()
    log = filled(disk, 30)
    everything = log.read(0, 1 << 20)
    disk.quota_bytes = 700
    with pytest.raises(DiskFull):
        log.flush()
    assert log.tail_bytes > 0
    assert log.read(0, 1 << 20) == everything
    with pytest.raises(DiskFull):
        log.flush()
    disk.quota_bytes = None
    log.flush()
    assert log.tail_bytes == 0
    assert log.read(0, 1 << 20) == everything
    for _ in log.verify():
        pass


def test_nothing_a_checkpoint_names_is_touched_before_the_next():
    disk = MemoryDisk()
    log = filled(disk, 30)
    log.flush()
    saved = log.saved()
    everything = log.read(0, 1 << 20)
    log.truncate_to(header(everything[10]).base_offset)
    for number in range(10):
        log.append(placed(log.next_offset, 2, 5000 + number, size=33))
    log.retain(header(everything[5]).base_offset)
    log.flush()
    assert log.obsolete()
    assert log.obsolete() == []
    again = Log.restore(disk, FOLDER, saved, **SMALL)
    assert again.read(0, 1 << 20) == everything
    for _ in again.verify():
        pass


def test_a_name_waiting_for_deletion_is_not_used_again():
    disk = MemoryDisk()
    log = filled(disk, 30)
    log.flush()
    names = {segment.name for segment in log.saved().segments}
    second = log.saved().segments[1]
    log.truncate_to(second.base_offset)
    log.append(placed(second.base_offset, 1))
    log.flush()
    assert log.saved().segments[-1].name not in names
    for path in log.obsolete():
        disk.delete(path)
    assert header(log.read(second.base_offset)[0]).count == 1


def test_restoring_leaves_what_is_not_ours():
    disk = MemoryDisk()
    log = filled(disk, 10)
    log.flush()
    saved = log.saved()
    for name in ("notes.txt", "00000000000000000000.log.damaged", "7.log"):
        disk.write_atomic(f"{FOLDER}/{name}", b"x")
    disk.make_dirs(f"{FOLDER}/groups")
    disk.write_atomic(f"{FOLDER}/groups/00000000000000000099.log", b"x")
    stray = f"{FOLDER}/00000000000000000099.2.log"
    disk.write_atomic(stray, b"x")
    Log.restore(disk, FOLDER, saved, **SMALL)
    assert not disk.exists(stray)
    for name in ("notes.txt", "00000000000000000000.log.damaged", "7.log", "groups/00000000000000000099.log"):
        assert disk.exists(f"{FOLDER}/{name}")


def test_everything_below_is_given_up_with_the_active_segment():
    disk = MemoryDisk()
    log = filled(disk, 5)
    log.flush()
    log.append(placed(log.next_offset))
    log.retain(log.next_offset + 1000)
    assert (log.start_offset, log.size_bytes, log.tail_bytes) == (log.next_offset, 0, 0)
    assert log.read(0) == []
    saved = log.saved()
    assert saved.segments == []
    assert Log.restore(disk, FOLDER, saved, **SMALL).next_offset == log.next_offset


def test_a_file_being_synced_is_not_closed_under_it():
    disk = CountingDisk()
    log = filled(disk, 30)
    log.flush()
    syncing = [file for file in log.dirty_files() if isinstance(file, CountedFile)]
    log.mark_clean()
    log.retain(log.next_offset)
    assert len(syncing) > 2
    assert all(file in disk.opened for file in syncing)
    log.dirty_files()
    assert not any(file in disk.opened for file in syncing)
