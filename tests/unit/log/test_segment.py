"""Damage in segment and index files: found and named, healed where it can be, salvaged where it cannot."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trine.log import batch
from trine.log.index import ENTRY_BYTES, HEADER_BYTES, Index
from trine.log.log import Log
from trine.log.memory_disk import MemoryDisk
from trine.log.salvage import salvage_segment
from trine.log.saved import SavedLog, fresh_name, generation_of, index_name, segment_name
from trine.model.errors import Corrupt

GOLDEN = Path(__file__).parent / "golden"
FOLDER = "topics/t/0"
FIRST = f"{FOLDER}/{segment_name(0)}"


def placed(offset, count=1, time_ms=5, epoch=0, size=10):
    data = batch.encode_values([bytes([offset % 251]) * size] * count, time_ms)
    batch.place(data, offset, epoch)
    return bytes(data)


def filled(batches=12, *, gap=0, index_bytes=200):
    """A disk with one flushed segment, what it was saved as, and its batches."""
    disk = MemoryDisk()
    log = Log(disk, FOLDER, segment_bytes=1 << 20, index_bytes=index_bytes)
    stored = []
    for number in range(batches):
        stored.append(placed(log.next_offset + (gap if number else 0), number % 3 + 1, 100 + number, epoch=1))
        log.append(stored[-1])
    log.flush()
    return disk, log.saved(), stored


def restored(disk, saved, index_bytes=200):
    return Log.restore(disk, FOLDER, saved, segment_bytes=1 << 20, index_bytes=index_bytes)


def flip(disk, path, position, mask=0x01):
    file = disk.open(path)
    file.pwrite(position, bytes([file.pread(position, 1)[0] ^ mask]))
    file.close()


def attempt(disk, saved, offset):
    try:
        return restored(disk, saved).read(offset, 150), None
    except Corrupt as error:
        return [], error


def test_names():
    assert segment_name(7) == "00000000000000000007.log"
    assert segment_name(7, 3) == "00000000000000000007.3.log"
    assert index_name(segment_name(7, 3)) == "00000000000000000007.3.index"
    assert [generation_of(segment_name(7, g)) for g in (0, 1, 12)] == [0, 1, 12]
    disk = MemoryDisk()
    disk.make_dirs("f")
    disk.open(f"f/{segment_name(7)}", create=True).close()
    assert fresh_name(disk, "f", 7) == segment_name(7, 1)


@pytest.mark.parametrize("gap", [0, 2])
@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_every_flipped_byte_is_found_and_named(gap, mask):
    disk, saved, stored = filled(gap=gap)
    for position in range(saved.segments[0].length):
        flip(disk, FIRST, position, mask)
        with pytest.raises(Corrupt) as caught:
            for _ in restored(disk, saved).verify():
                pass
        assert caught.value.path == disk.describe(FIRST)
        assert caught.value.position <= position
        assert "trine.salvage" in caught.value.to_do
        flip(disk, FIRST, position, mask)
    assert restored(disk, saved).read(0, 1 << 20) == stored


def test_a_reader_never_gets_flipped_bytes():
    """Whatever a reader gets has the bytes that were written, the unchecked epoch apart; else it is told."""
    disk, saved, stored = filled()
    by_offset = {batch.read_header(data).base_offset: data for data in stored}
    for position in range(saved.segments[0].length):
        flip(disk, FIRST, position, 0x04)
        for offset in (0, saved.next_offset // 2, saved.next_offset - 1):
            found, error = attempt(disk, saved, offset)
            for data in found:
                original = by_offset[batch.read_header(data).base_offset]
                assert (data[:12], data[16:]) == (original[:12], original[16:])
            if error is not None:
                assert error.path == disk.describe(FIRST)
                assert error.position <= position
        flip(disk, FIRST, position, 0x04)


def test_every_cut_is_found_on_restoring():
    disk, saved, _ = filled(batches=3)
    whole = disk.read(FIRST)
    for size in range(len(whole)):
        disk.write_atomic(FIRST, whole[:size])
        with pytest.raises(Corrupt) as caught:
            restored(disk, saved)
        assert (caught.value.path, caught.value.position) == (disk.describe(FIRST), size)


def test_a_cut_while_open_is_found():
    disk, saved, _ = filled(batches=8)
    whole = disk.read(FIRST)
    for size in range(0, len(whole), 7):
        disk.write_atomic(FIRST, whole)
        log = restored(disk, saved)
        disk.write_atomic(FIRST, whole[:size])
        with pytest.raises(Corrupt) as caught:
            log.read(saved.next_offset - 1)
        assert caught.value.position <= size


def test_a_missing_file_is_named():
    disk, saved, _ = filled()
    disk.delete(FIRST)
    with pytest.raises(Corrupt, match="missing"):
        restored(disk, saved)


def test_a_file_of_something_else_is_not_taken_for_the_segment():
    disk, saved, _ = filled()
    disk.write_atomic(FIRST, bytes(saved.segments[0].length))
    with pytest.raises(Corrupt, match="does not begin with a batch"):
        restored(disk, saved)


# ------------------------------------------------------------ the index


def reads_right(log, stored):
    for data in stored:
        header = batch.read_header(data)
        assert log.batch_at(header.last_offset) == data
        assert log.offset_at(header.max_time_ms) == header.base_offset
        assert next(log.headers(header.last_offset))[1] == header


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_every_flipped_byte_of_an_index_heals(mask):
    disk, saved, stored = filled()
    path = f"{FOLDER}/{index_name(segment_name(0))}"
    right = disk.read(path)
    assert len(right) > HEADER_BYTES + 2 * ENTRY_BYTES
    for position in range(len(right)):
        flip(disk, path, position, mask)
        reads_right(restored(disk, saved), stored)
        assert disk.read(path) == right


def test_every_cut_of_an_index_heals():
    disk, saved, stored = filled()
    path = f"{FOLDER}/{index_name(segment_name(0))}"
    right = disk.read(path)
    for size in range(len(right)):
        disk.write_atomic(path, right[:size])
        reads_right(restored(disk, saved), stored)
        assert disk.read(path) == right
    disk.delete(path)
    reads_right(restored(disk, saved), stored)
    assert disk.read(path) == right


def test_an_index_of_another_life_heals():
    """Entries that pass their checks but point at the wrong bytes."""
    disk, saved, stored = filled()
    path = f"{FOLDER}/{index_name(segment_name(0))}"
    wrong = Index(0)
    for number in range(1, 5):
        wrong.add(number * 3, number * 100 + 1, 100)
    disk.write_atomic(path, wrong.encode())
    reads_right(restored(disk, saved), stored)


def test_an_index_that_points_beyond_the_segment_is_cut():
    disk, saved, stored = filled()
    path = f"{FOLDER}/{index_name(segment_name(0))}"
    right = disk.read(path)
    file = disk.open(path)
    longer = Index(0)
    longer.add(10_000, 1 << 19, 500)
    file.pwrite(len(right), longer.encode()[HEADER_BYTES:])
    log = restored(disk, saved)
    reads_right(log, stored)
    assert disk.read(path) == right


def test_a_full_disk_does_not_stop_at_the_index():
    class NoIndexes(MemoryDisk):
        def open(self, path, create=False):
            if path.endswith(".index"):
                raise OSError("no room")
            return super().open(path, create)

    log = Log(NoIndexes(), FOLDER, segment_bytes=1 << 20, index_bytes=100)
    for offset in range(20):
        log.append(placed(offset))
        log.flush()
    assert [batch.read_header(data).base_offset for data in log.read(7)] == list(range(7, 20))


def golden_index() -> Index:
    index = Index(1000)
    index.add(1010, 16_500, 1_700_000_000_000)
    index.add(1020, 33_000, 1_700_000_000_009)
    return index


def test_golden_index():
    stored = golden_index().encode()
    assert stored.hex() == (GOLDEN / "index.hex").read_text().strip()
    again = Index(1000)
    assert again.load(stored, 50_000)
    assert again.encode() == stored
    assert not Index(1001).load(stored, 50_000)


def test_golden_saved_log():
    """A log of today restores what a log of yesterday left."""
    disk = MemoryDisk()
    disk.make_dirs(FOLDER)
    disk.write_atomic(FIRST, bytes.fromhex((GOLDEN / "segment.hex").read_text()))
    saved, stored = golden_segment()
    assert b"".join(stored) == disk.read(FIRST)
    log = restored(disk, saved)
    assert log.read(0) == stored
    assert len(list(log.verify())) == 1


def golden_segment() -> tuple[SavedLog, list[bytes]]:
    disk, saved, stored = filled(batches=3, gap=1)
    assert disk.read(FIRST) == b"".join(stored)
    return saved, stored


# ------------------------------------------------------------ salvage


def test_salvage_leaves_a_good_segment_alone():
    disk, saved, stored = filled()
    salvaged = salvage_segment(disk, FIRST)
    assert (salvaged.batches_kept, salvaged.lost) == (len(stored), [])
    assert salvaged.saved == saved.segments[0]
    assert not disk.exists(f"{FIRST}.damaged")


@given(st.data())
def test_salvage_keeps_every_batch_that_was_not_hit(data):
    disk, _, stored = filled(gap=data.draw(st.sampled_from([0, 2])))
    original = disk.read(FIRST)
    starts = [sum(map(len, stored[:number])) for number in range(len(stored) + 1)]
    hits = data.draw(st.sets(st.integers(0, len(original) - 1), min_size=1, max_size=3))
    for position in hits:
        flip(disk, FIRST, position, data.draw(st.sampled_from([1, 0x10, 0x80])))
    damaged = disk.read(FIRST)
    hit = {bisect_right(starts, position) - 1 for position in hits}
    astray = {bisect_right(starts, at) - 1 for at in hits if at - starts[bisect_right(starts, at) - 1] < 8}
    assume(len(astray) < 2)
    hit |= {number + 1 for number in astray} | {number - 1 for number in astray}  # either of two may be right
    salvaged = salvage_segment(disk, FIRST)
    kept = disk.read(FIRST) if disk.exists(FIRST) else b""
    for number, whole in enumerate(stored):
        if number not in hit:
            assert whole in kept
    if salvaged.lost:
        assert disk.read(f"{FIRST}.damaged") == damaged
        assert len(kept) + sum(end - start for start, end in salvaged.lost) == len(original)
        again = salvage_segment(disk, FIRST)
        assert (again.lost, again.saved) == ([], salvaged.saved)
    assert salvaged.saved is not None
    log = restored(disk, SavedLog(0, salvaged.saved.next_offset, [salvaged.saved]))
    assert len(log.read(0, 1 << 20)) == salvaged.batches_kept
    for _ in log.verify():
        pass


def test_salvage_of_a_cut_file_keeps_the_front():
    disk, _, stored = filled()
    whole = disk.read(FIRST)
    disk.write_atomic(FIRST, whole[:-5])
    salvaged = salvage_segment(disk, FIRST)
    assert salvaged.batches_kept == len(stored) - 1
    assert salvaged.lost == [(len(whole) - len(stored[-1]), len(whole) - 5)]


def test_salvage_of_nothing_readable():
    disk, _, _ = filled()
    disk.write_atomic(FIRST, b"\2" * 500)
    salvaged = salvage_segment(disk, FIRST)
    assert (salvaged.batches_kept, salvaged.lost, salvaged.saved) == (0, [(0, 500)], None)
    assert disk.exists(f"{FIRST}.damaged")
    assert not disk.exists(FIRST)
