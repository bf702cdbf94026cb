"""Compaction against a dict: the last record of every key stays, and nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.log import batch, compaction
from trine.log.log import Log
from trine.log.memory_disk import MemoryDisk
from trine.log.simulated_disk import SimulatedDisk
from trine.model.errors import Corrupt, DiskFull

FOLDER = "topics/t/0"
SMALL = {"segment_bytes": 500, "index_bytes": 150}
KEEP = 10**9

keys = st.none() | st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.none() | st.binary(max_size=30)
rows = st.lists(st.tuples(keys, values), min_size=1, max_size=5)


def add(log, pairs, time_ms=1000, **fields):
    data = batch.encode([(time_ms, key, value, []) for key, value in pairs], lane=1, **fields)
    batch.place(data, log.next_offset, 2)
    log.append(data)


def records(log, offset=0):
    found = []
    for data in log.read(offset, 1 << 30):
        assert batch.check(data)
        found += [(r.offset, r.timestamp, r.key, r.value) for r in batch.decode(data)]
    return found


def verify(log):
    for _ in log.verify():
        pass


def filled(batches=20, disk=None, rounds=4):
    log = Log(disk or MemoryDisk(), FOLDER, **SMALL)
    for number in range(batches):
        add(log, [(b"k%d" % (number % rounds), b"v%d" % number), (None, b"no key")], 1000 + number)
    log.flush()
    return log


@given(st.lists(rows, min_size=1, max_size=40), st.integers(0, 50), st.integers(0, 50), st.booleans())
def test_compaction_keeps_the_last_of_every_key(batches, now, tombstone_ms, flushed):
    disk = MemoryDisk()
    log = Log(disk, FOLDER, **SMALL)
    for number, pairs in enumerate(batches):
        add(log, pairs, number)
        if number % 5 == 0:
            log.flush()
    if flushed:
        log.flush()
    before, next_offset = records(log), log.next_offset
    sealed = log.sealed()
    boundary = sealed[-1].next_offset if sealed else 0
    latest = {key: offset for offset, _, key, _ in before if key is not None}

    def stays(record):
        offset, time_ms, key, value = record
        if offset >= boundary or key is None:
            return True
        return latest[key] == offset and (value is not None or now - time_ms <= tombstone_ms)

    expected = [record for record in before if stays(record)]
    dropped = compaction.compact(log, now_ms=now, tombstone_ms=tombstone_ms)
    assert records(log) == expected
    assert dropped == len(before) - len(expected)
    assert log.next_offset == next_offset
    for offset in range(next_offset):
        found = log.batch_at(offset)
        assert found is None or batch.read_header(found).last_offset >= offset
    log.flush()
    verify(log)
    saved = log.saved()
    for path in log.obsolete():
        disk.delete(path)
    again = Log.restore(disk, FOLDER, saved, **SMALL)
    verify(again)
    assert records(again) == expected
    assert again.size_bytes == log.size_bytes
    if flushed:  # otherwise the flush has sealed more
        assert compaction.compact(again, now_ms=now, tombstone_ms=tombstone_ms) == 0


def test_until_the_checkpoint_the_old_files_are_there():
    disk = MemoryDisk()
    log = filled(disk=disk)
    saved, before = log.saved(), records(log)
    assert compaction.compact(log, now_ms=5000, tombstone_ms=KEEP) > 0
    assert log.obsolete()
    again = Log.restore(disk, FOLDER, saved, **SMALL)
    assert records(again) == before
    verify(again)


def test_after_a_power_cut_the_checkpoint_with_the_new_files_is_whole():
    disk = SimulatedDisk()
    log = filled(disk=disk)
    compaction.compact(log, now_ms=5000, tombstone_ms=KEEP)
    after = records(log)
    for one in log.dirty_files():
        one.sync()
    log.mark_clean()
    again = Log.restore(disk.crash(keep_unsynced=False), FOLDER, log.saved(), **SMALL)
    assert records(again) == after
    verify(again)


def test_small_neighbours_become_one():
    log = Log(MemoryDisk(), FOLDER, **SMALL)
    for number in range(60):
        add(log, [(b"k%d" % (number % 4), b"v" * 20)])
    log.flush()
    many = len(log.sealed())
    compaction.compact(log, now_ms=5000, tombstone_ms=KEEP)
    compaction.compact(log, now_ms=5000, tombstone_ms=KEEP)
    assert len(log.sealed()) < many // 2
    assert all(segment.length <= SMALL["segment_bytes"] for segment in log.sealed())
    verify(log)


def test_what_is_clean_is_not_written_again():
    log = Log(MemoryDisk(), FOLDER, **SMALL)
    for number in range(20):
        add(log, [(b"key %d" % number, b"v" * 200)])
    log.flush()
    saved = log.saved()
    assert compaction.compact(log, now_ms=5000, tombstone_ms=KEEP) == 0
    assert log.saved() == saved
    assert log.obsolete() == []
    names = {name for name in log.disk.listdir(FOLDER) if name.endswith(".log")}
    assert names == {segment.name for segment in saved.segments}


def test_blocks_are_untouched():
    log = Log(MemoryDisk(), FOLDER, **SMALL)
    for number in range(20):
        add(log, [(b"k", b"v" * 50)])
        offset = log.next_offset
        log.append(
            batch.encode_block(b"%d" % number * 9, base_offset=offset, count=2, base_time_ms=1, max_time_ms=2)
        )
    log.flush()
    compaction.compact(log, now_ms=5000, tombstone_ms=KEEP)
    blocks = [data for data in log.read(0, 1 << 20) if batch.read_header(data).is_block]
    assert [bytes(batch.block_payload(data)) for data in blocks] == [
        b"%d" % number * 9 for number in range(20)
    ]


def test_the_last_word_of_a_producer_stays_without_records():
    log = Log(MemoryDisk(), FOLDER, **SMALL)
    for sequence in range(4):
        add(log, [(b"k", b"old" * 30)], producer_id=7, producer_epoch=1, base_sequence=sequence)
    for _ in range(10):
        add(log, [(b"k", b"new" * 30)])
    log.flush()
    compaction.compact(log, now_ms=5000, tombstone_ms=KEEP)
    theirs = [h for h in map(batch.read_header, log.read(0, 1 << 20)) if h.producer_id == 7]
    assert [(h.base_offset, h.base_sequence, h.count) for h in theirs] == [(3, 3, 0)]
    verify(log)


def test_retention_in_the_middle_wins():
    log = filled(40)
    cleaning = compaction.begin(log)
    done = compaction.clean(cleaning, now_ms=5000, tombstone_ms=KEEP)
    assert done
    log.retain(log.sealed()[0].next_offset)
    after = records(log)
    assert compaction.finish(log, cleaning, done) == 0
    assert records(log) == after
    log.disk.delete(log.obsolete()[0])
    names = {name for name in log.disk.listdir(FOLDER) if name.endswith(".log")}
    assert names == {segment.name for segment in log.saved().segments}


def test_appends_in_the_middle_are_kept():
    log = filled(40)
    cleaning = compaction.begin(log)
    done = compaction.clean(cleaning, now_ms=5000, tombstone_ms=KEEP)
    for number in range(20):
        add(log, [(b"k%d" % number, b"later")], 9000)
    log.flush()
    assert compaction.finish(log, cleaning, done) > 0
    later = [record for record in records(log) if record[3] == b"later"]
    assert len(later) == 20
    verify(log)


@pytest.mark.parametrize("room", [0, 100, 400, 900])
def test_a_full_disk_leaves_everything_as_it_was(room):
    disk = SimulatedDisk()
    log = filled(60, disk)
    before, saved, names = records(log), log.saved(), disk.listdir(FOLDER)
    disk.quota_bytes = disk.used_bytes() + room
    with pytest.raises(DiskFull):
        compaction.compact(log, now_ms=5000, tombstone_ms=KEEP)
    assert (records(log), log.saved(), disk.listdir(FOLDER)) == (before, saved, names)


def test_damage_is_named_and_nothing_is_lost():
    log = filled(40)
    second = log.sealed()[1]
    file = log.disk.open(f"{FOLDER}/{second.name}")
    file.pwrite(80, b"\xff\xff")
    names = log.disk.listdir(FOLDER)
    with pytest.raises(Corrupt, match=second.name):
        compaction.compact(log, now_ms=5000, tombstone_ms=KEEP)
    assert log.disk.listdir(FOLDER) == names


def test_latest_by_key():
    log = Log(MemoryDisk(), FOLDER, **SMALL)
    add(log, [(b"a", b"1"), (b"b", b"1"), (None, b"1")])
    add(log, [(b"a", b"2"), (b"b", None), (b"c", b"1")])
    assert compaction.latest_by_key(log, 0, 6) == {b"a": 3, b"b": 4, b"c": 5}
    assert compaction.latest_by_key(log, 1, 4) == {b"b": 1, b"a": 3}
    assert compaction.latest_by_key(log, 0, 0) == {}
    assert compaction.latest_by_key(log, 0, 100) == {b"a": 3, b"b": 4, b"c": 5}
