"""The journal: what is synced is kept, what is damaged is named, and the rest is cut."""

from __future__ import annotations

import random
import threading

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from trine.log.disk import RealDisk
from trine.log.journal import Journal, JournalSettings
from trine.log.journal_files import MARK_PATH
from trine.log.journal_format import HEADER_BYTES
from trine.log.memory_disk import MemoryDisk
from trine.log.simulated_disk import SimulatedDisk, SimulatedFile
from trine.model.durability import Level
from trine.model.errors import Corrupt, DiskFull, MessageTooLarge, NewerFormat, StoreFailed

SMALL = JournalSettings(
    file_bytes=8192, chunk_bytes=2048, reserve_bytes=1024, queue_bytes_max=1500, mapped_bytes_max=256
)
FIRST = "journal/0000000000000000.journal"


def opened(disk, from_lsn=0, how=SMALL):
    """A journal ready to append, and what it replayed."""
    journal = Journal(disk, how)
    return journal, contents(journal, from_lsn)


def contents(journal, from_lsn=0):
    return [[(log, bytes(data)) for log, data in parts] for _, parts in journal.replay(from_lsn)]


def flip(disk, path, position, mask=0x40):
    file = disk.open(path)
    byte = file.pread(position, 1)[0]
    file.pwrite(position, bytes([byte ^ mask]))


@pytest.fixture(params=["real", "memory", "simulated"])
def disk(request, tmp_path):
    if request.param == "real":
        return RealDisk(tmp_path)
    return MemoryDisk() if request.param == "memory" else SimulatedDisk()


def test_entries_come_back_in_order_with_all_their_parts(disk):
    journal, before = opened(disk)
    assert before == []
    entries = [
        [(1, b"")],
        [(1, b"one")],
        [(2, b"two" * 50), (3, memoryview(b"three")), (1, bytearray(b"x" * 7))],
        [(9, b"large" * 300)],
        [(4, b"y" * 1500), (5, b"z" * 1500)],
    ]
    for level in Level:
        for parts in entries:
            assert journal.append(parts, level) == journal.end_lsn
    journal.close()
    journal, after = opened(disk)
    assert after == [[(log, bytes(data)) for log, data in parts] for parts in entries] * 3
    journal.append([(1, b"again")], Level.WRITTEN)
    journal.close()
    assert opened(disk)[1][-1] == [(1, b"again")]


def test_an_lsn_is_a_place_to_go_on_from(disk):
    journal, _ = opened(disk)
    ends = [journal.append([(1, b"%d" % n * 20)], Level.WRITTEN) for n in range(400)]
    assert ends == sorted(set(ends))
    assert journal.statistics().files > 2
    journal.close()
    for n in (0, 7, 250, 399):
        journal, rest = opened(disk, ends[n])
        assert rest == [[(1, b"%d" % m * 20)] for m in range(n + 1, 400)]
        journal.close()


def test_memory_entries_wait_and_later_ones_take_them_along():
    disk = SimulatedDisk()
    journal, _ = opened(disk)
    start = journal.written_lsn
    journal.append([(1, b"waits")], Level.MEMORY)
    assert journal.written_lsn == start
    assert opened(disk.crash(kill=True))[1] == []
    journal.append([(1, b"pushes")], Level.WRITTEN)
    assert journal.written_lsn == journal.end_lsn
    assert opened(disk.crash(kill=True))[1] == [[(1, b"waits")], [(1, b"pushes")]]
    while journal.written_lsn != journal.end_lsn or journal.statistics().appends < 20:
        journal.append([(1, b"w" * 100)], Level.MEMORY)  # the queue has a limit
    journal.append([(1, b"last")], Level.MEMORY)
    journal.flush()
    assert journal.written_lsn == journal.end_lsn


def test_an_entry_too_large_for_a_file_is_refused():
    journal, _ = opened(MemoryDisk())
    before = journal.end_lsn
    with pytest.raises(MessageTooLarge, match="Publish fewer"):
        journal.append([(1, bytes(8192))], Level.WRITTEN)
    assert journal.end_lsn == before


def test_files_below_a_checkpoint_are_used_again():
    disk = SimulatedDisk()
    journal, _ = opened(disk)
    for n in range(600):
        end = journal.append([(1, b"%03d" % n * 20)], Level.WRITTEN)
        if n % 50 == 49:
            journal.sync(end)
            journal.cut(end)
            assert journal.statistics().files <= 2
            assert journal.statistics().spare_files <= 2
    assert len(disk.listdir("journal")) <= 6
    rest = opened(disk.crash(kill=True), end)[1]
    assert rest == []
    after = journal.append([(1, b"fresh")], Level.SYNCED)
    journal.sync(after)
    assert opened(disk.crash(random.Random(1)), end)[1] == [[(1, b"fresh")]]


# -- damage ----------------------------------------------------------------------------------------


def written(synced, unsynced):
    disk = SimulatedDisk()
    journal, _ = opened(disk)
    for n in range(synced):
        end = journal.append([(1, b"s%02d" % n)], Level.SYNCED)
    if synced:
        journal.sync(end)
    for n in range(unsynced):
        journal.append([(1, b"u%02d" % n)], Level.WRITTEN)
    return disk, journal


def test_a_flip_of_any_byte_below_the_mark_is_named():
    disk, journal = written(synced=4, unsynced=2)
    for position in range(journal.synced_lsn):
        damaged = disk.crash(kill=True)
        flip(damaged, FIRST, position)
        with pytest.raises(Corrupt) as caught:
            opened(damaged)
        assert caught.value.path.endswith(FIRST)
        assert caught.value.position == max(0, (position - HEADER_BYTES) // 40 * 40 + HEADER_BYTES) * (
            position >= HEADER_BYTES
        )
        assert "restore" in caught.value.message


def test_a_flip_above_the_mark_cuts_there():
    disk, journal = written(synced=3, unsynced=3)
    for position in range(journal.synced_lsn, journal.end_lsn):
        damaged = disk.crash(kill=True)
        flip(damaged, FIRST, position)
        kept = 3 + (position - journal.synced_lsn) // 40
        again, entries = opened(damaged)
        assert len(entries) == kept
        again.append([(1, b"new")], Level.WRITTEN)
        again.close()
        assert opened(damaged)[1] == [*entries, [(1, b"new")]]  # nothing beyond the cut is revived


@pytest.mark.parametrize("shortened", [*range(2000, 2100), 2400, 2639])
def test_a_cut_entry_does_not_return_when_the_file_grows_over_its_missing_zeros(shortened):
    disk = SimulatedDisk()
    journal, _ = opened(disk)
    kept = journal.append([(1, bytes(1900))], Level.SYNCED)
    journal.sync(kept)
    assert kept == 2000
    journal.append([(1, b"cut" + bytes(600))], Level.WRITTEN)
    disk = disk.crash(kill=True)
    disk.open(FIRST).truncate(shortened)
    journal, entries = opened(disk)
    assert entries == [[(1, bytes(1900))]]
    journal.append([(1, bytes(1000))], Level.MEMORY)  # makes room, but is not written
    assert disk.open(FIRST).size() > 2640
    assert opened(disk.crash(kill=True))[1] == entries


def test_without_its_mark_a_hole_before_valid_entries_is_corruption():
    disk, journal = written(synced=0, unsynced=3)
    for spoil in (lambda d: d.delete(MARK_PATH), lambda d: flip(d, MARK_PATH, 17)):
        intact = disk.crash(kill=True)
        spoil(intact)
        assert len(opened(intact)[1]) == 3
        damaged = disk.crash(kill=True)
        spoil(damaged)
        flip(damaged, FIRST, HEADER_BYTES + 30)
        with pytest.raises(Corrupt, match="mark is missing"):
            opened(damaged)
        torn = disk.crash(kill=True)
        spoil(torn)
        flip(torn, FIRST, journal.end_lsn - 8)
        assert len(opened(torn)[1]) == 2


def test_entries_tell_what_was_synced_when_the_mark_is_stale():
    disk, _ = written(synced=0, unsynced=0)
    stale = disk.read(MARK_PATH)
    disk, _ = written(synced=3, unsynced=1)
    disk.open(MARK_PATH).pwrite(0, stale)
    assert len(opened(disk.crash(kill=True))[1]) == 4
    flip(disk, FIRST, HEADER_BYTES + 40)
    with pytest.raises(Corrupt, match="was synced"):
        opened(disk)


def test_a_missing_file_is_corruption_unless_nothing_in_it_was_synced():
    disk = SimulatedDisk()
    journal, _ = opened(disk)
    end = 0
    while journal.statistics().files < 3:
        end = journal.append([(1, bytes(100))], Level.SYNCED)
    second = f"journal/{8192:016x}.journal"
    unsynced = disk.crash(kill=True)
    unsynced.delete(second)
    assert 0 < len(opened(unsynced)[1]) < 8192 // 100
    journal.sync(end)
    disk.delete(second)
    with pytest.raises(Corrupt) as caught:
        opened(disk)
    assert caught.value.path.endswith(second)


def test_a_checkpoint_without_its_journal_is_corruption():
    with pytest.raises(Corrupt, match="missing"):
        opened(MemoryDisk(), from_lsn=4711)


def test_a_newer_format_is_told():
    disk, _ = written(synced=1, unsynced=0)
    file = disk.open(FIRST)
    head = bytearray(file.pread(0, 60))
    head[8] = 2
    file.pwrite(0, bytes(head) + crc32c(head).to_bytes(4, "little"))
    with pytest.raises(NewerFormat, match="format 2"):
        opened(disk)


# -- full and failing disks ------------------------------------------------------------------------


def until_full(append):
    """How often it went well, and the refusal."""
    for count in range(1000):
        try:
            append()
        except DiskFull as refusal:
            return count, refusal
    raise AssertionError("the disk never was full")


def test_a_full_disk_refuses_publishes_but_not_acks_and_recovers():
    disk = SimulatedDisk()
    journal, _ = opened(disk)
    disk.quota_bytes = disk.used_bytes() + 4096
    published, refusal = until_full(lambda: journal.append([(1, bytes(40))], Level.WRITTEN))
    assert "resumes by itself" in refusal.message
    before = journal.end_lsn
    with pytest.raises(DiskFull):
        journal.append([(1, bytes(40))], Level.WRITTEN)
    assert journal.end_lsn == before
    acks, _ = until_full(lambda: journal.append([(2, bytes(8))], Level.WRITTEN, reserve=True))
    assert acks * 40 >= SMALL.reserve_bytes - 40
    assert len(opened(disk.crash(kill=True))[1]) == published + acks
    disk.quota_bytes = None
    journal.append([(1, bytes(40))], Level.WRITTEN)
    assert len(opened(disk.crash(kill=True))[1]) == published + acks + 1


@pytest.mark.parametrize("room", range(0, 40_000, 1700))
def test_the_reserve_also_holds_across_the_end_of_a_file(room):
    disk = SimulatedDisk()
    journal, _ = opened(disk)
    disk.quota_bytes = disk.used_bytes() + room
    published, _ = until_full(lambda: journal.append([(1, bytes(300))], Level.WRITTEN))
    taken = 0
    while published and taken < SMALL.reserve_bytes - 64:
        journal.append([(2, bytes(8))], Level.WRITTEN, reserve=True)
        taken += 40


def test_a_failed_sync_is_final():
    disk, journal = written(synced=2, unsynced=0)
    end = journal.append([(1, b"x")], Level.SYNCED)
    disk.fail_sync = True
    with pytest.raises(StoreFailed, match="syncing"):
        journal.sync(end)
    disk.fail_sync = False
    with pytest.raises(StoreFailed):
        journal.sync(end)
    for level in Level:
        with pytest.raises(StoreFailed, match="reopen"):
            journal.append([(1, b"y")], level)
    journal.close()


def test_what_is_written_while_a_sync_runs_is_not_called_synced(monkeypatch):
    disk, journal = written(synced=0, unsynced=0)
    end = journal.append([(1, b"before")], Level.SYNCED)
    plain_sync = SimulatedFile.sync

    def slow_sync(file):
        plain_sync(file)
        journal.append([(1, b"during")], Level.WRITTEN)

    monkeypatch.setattr(SimulatedFile, "sync", slow_sync)
    journal.sync(end)
    monkeypatch.undo()
    assert journal.synced_lsn == end < journal.written_lsn
    journal.sync(journal.written_lsn)
    assert opened(disk.crash(keep_unsynced=False))[1] == [[(1, b"before")], [(1, b"during")]]


def test_what_was_replayed_after_a_kill_survives_a_power_cut():
    disk = SimulatedDisk()
    journal, _ = opened(disk)
    while journal.statistics().files < 3:
        journal.append([(1, bytes(100))], Level.WRITTEN)
    disk = disk.crash(kill=True)
    journal, entries = opened(disk)
    assert journal.synced_lsn == journal.end_lsn
    assert opened(disk.crash(keep_unsynced=False))[1] == entries


def test_many_threads_share_syncs():
    disk = SimulatedDisk()
    journal, _ = opened(disk)
    lock = threading.Lock()
    errors = []

    def work():
        try:
            for _ in range(50):
                with lock:
                    end = journal.append([(1, bytes(50))], Level.SYNCED)
                journal.sync(end)
                assert journal.synced_lsn >= end
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert journal.statistics().syncs <= 400
    assert len(opened(disk.crash(keep_unsynced=False))[1]) == 400


# -- anything, in any order ------------------------------------------------------------------------

STEP = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(list(Level)), st.integers(0, 900), st.integers(1, 3)),
    st.tuples(st.just("sync")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("write back")),
    st.tuples(st.just("cut")),
    st.tuples(st.just("kill")),
    st.tuples(st.just("power cut")),
    st.tuples(st.just("close")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, min_size=25, max_size=70), st.randoms(use_true_random=False))
def test_what_was_synced_is_always_there_and_the_rest_is_a_prefix(steps, rng):
    disk = SimulatedDisk()
    journal, _ = opened(disk)
    entries: list[tuple[int, list[tuple[int, bytes]]]] = []  # all since the checkpoint, with their end
    from_lsn = 0
    serial = 0
    for what, *rest in steps:
        if what == "append":
            level, size, count = rest
            serial += 1
            parts = [(n, b"%d:" % serial + bytes(size)) for n in range(count)]
            entries.append((journal.append(parts, level), parts))
        elif what == "sync":
            journal.sync(journal.written_lsn)
        elif what == "flush":
            journal.flush()
        elif what == "write back":
            disk.write_back(rng)
        elif what == "cut":
            journal.flush()
            journal.sync(journal.written_lsn)
            from_lsn = journal.end_lsn
            journal.cut(from_lsn)
            entries.clear()
        else:
            written_lsn, synced_lsn = journal.written_lsn, journal.synced_lsn
            if what == "close":
                journal.close()
            disk = disk.crash(rng, kill=what != "power cut")
            journal, found = opened(disk, from_lsn)
            promised = {"close": journal.end_lsn, "kill": written_lsn, "power cut": synced_lsn}[what]
            assert found == [parts for _, parts in entries[: len(found)]]
            assert len(found) >= sum(end <= promised for end, _ in entries)
            if what == "close":
                assert len(found) == len(entries)
            del entries[len(found) :]
