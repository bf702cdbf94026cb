"""The three disks behave alike; the simulated one also crashes as it should."""

from __future__ import annotations

import errno
import os
import random
import struct
import subprocess
import sys

import pytest

from trine.log.disk import RealDisk, telling_disk_full
from trine.log.memory_disk import MemoryDisk
from trine.log.simulated_disk import SimulatedDisk
from trine.model.errors import DiskFull, Locked


@pytest.fixture(params=["real", "memory", "simulated"])
def disk(request, tmp_path):
    if request.param == "real":
        return RealDisk(tmp_path / "made" / "here")
    return MemoryDisk() if request.param == "memory" else SimulatedDisk()


def test_a_file_keeps_what_is_written(disk):
    file = disk.open("f", create=True)
    file.pwrite(0, b"hello")
    file.pwrite(3, bytearray(b"LO!"))
    file.pwritev(6, [b"a", memoryview(b"bc"), b""])
    assert file.size() == 9
    assert file.pread(0, 100) == b"helLO!abc"
    assert file.pread(7, 1) == b"b"
    assert file.pread(50, 1) == b""
    file.pwritev(9, [b"x"] * 3000)
    assert file.size() == 3009
    file.sync()
    file.truncate(4)
    file.pwrite(6, b"z")
    assert disk.read("f") == b"helL\0\0z"
    file.close()
    assert disk.open("f").size() == 7


def test_allocated_bytes_are_zeros(disk):
    file = disk.open("f", create=True)
    file.pwrite(0, b"ab")
    file.allocate(1, 3_000_000)
    assert file.size() == 3_000_001
    assert file.pread(0, 3) == b"a\0\0"


def test_maps_and_writes_are_the_same_bytes(disk):
    file = disk.open("f", create=True)
    file.allocate(0, 100)
    mapped = file.map_write(100)
    mapped[10:15] = b"hello"
    struct.pack_into("<I", mapped, 20, 7)
    assert file.pread(10, 5) == b"hello"
    file.pwrite(12, b"LL")
    assert bytes(mapped[10:15]) == b"heLLo"


def test_a_view_is_read_only_and_outlives_growth(disk):
    file = disk.open("f", create=True)
    assert len(file.view()) == 0
    file.pwrite(0, b"first")
    view = file.view()
    file.pwrite(5, b"second" * 1000)
    assert bytes(view) == b"first"
    assert bytes(file.view()[:11]) == b"firstsecond"
    assert view.readonly
    file.close()
    assert bytes(view) == b"first"


def test_names(disk):
    disk.make_dirs("a/b/c")
    disk.make_dirs("a/b/c")
    disk.write_atomic("a/one", b"1")
    disk.write_atomic("a/one", b"11")
    disk.open("a/b/two", create=True).close()
    assert disk.listdir("a") == ["b", "one"]
    assert disk.listdir("nowhere") == []
    assert disk.exists("a/b")
    assert disk.exists("a/one")
    assert not disk.exists("a/two")
    disk.rename("a/one", "a/b/two")
    assert disk.read("a/b/two") == b"11"
    disk.sync_dir("a/b")
    disk.delete("a/b/two")
    disk.delete_tree("a/b")
    disk.delete_tree("a/b")
    assert disk.listdir("a") == []
    for missing in (disk.open, disk.read, disk.delete):
        with pytest.raises(FileNotFoundError):
            missing("a/one")
    with pytest.raises(FileNotFoundError):
        disk.open("no/folder", create=True)
    assert disk.free_bytes() > 0
    assert disk.describe("a/one").endswith("/a/one")


def test_the_lock_is_for_one(disk):
    disk.lock()
    other = RealDisk(disk.describe("")) if isinstance(disk, RealDisk) else disk
    with pytest.raises(Locked, match=f"process {os.getpid()}" if other is not disk else "already open"):
        other.lock()
    disk.unlock()
    other.lock()
    other.unlock()


def test_the_lock_of_a_dead_process_is_free(tmp_path):
    words = "import sys, os; from trine.log.disk import RealDisk; RealDisk(sys.argv[1]).lock(); os._exit(9)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert (
        subprocess.run([sys.executable, "-c", words, tmp_path], env=environment, check=False).returncode == 9
    )
    disk = RealDisk(tmp_path)
    disk.lock()
    disk.unlock()


def refuse(code):
    raise OSError(code, os.strerror(code))


def test_no_space_is_told_and_nothing_else_is():
    told = r"4,096 bytes are needed for x/y.*resumes by itself"
    with pytest.raises(DiskFull, match=told), telling_disk_full("x/y", 4096):
        refuse(errno.ENOSPC)
    with pytest.raises(OSError, match="Input/output"), telling_disk_full("x/y", 4096):
        refuse(errno.EIO)


def test_a_real_write_that_fails_leaves_the_size(tmp_path, monkeypatch):
    file = RealDisk(tmp_path).open("f", create=True)
    file.pwrite(0, b"kept")
    real_pwrite, calls = os.pwrite, []

    def short(fd, data, position):
        calls.append(position)
        if len(calls) > 1:
            refuse(errno.ENOSPC)
        return real_pwrite(fd, memoryview(data)[:3], position)

    monkeypatch.setattr(os, "pwrite", short)
    with pytest.raises(OSError, match="No space"):
        file.pwrite(4, b"longer")
    assert calls == [4, 7]
    assert file.size() == 4
    assert (tmp_path / "f").read_bytes() == b"kept"


def test_a_quota_refuses_the_whole_write():
    disk = SimulatedDisk()
    file = disk.open("f", create=True)
    file.pwrite(0, b"x" * 10)
    disk.quota_bytes = 15
    with pytest.raises(OSError, match="No space"):
        file.pwrite(8, b"y" * 10)
    assert disk.read("f") == b"x" * 10
    file.pwrite(8, b"y" * 7)
    assert disk.free_bytes() == 0
    disk.delete("f")
    assert disk.free_bytes() == 15


def prepared():
    """A synced file with an unsynced second half, and a file whose name was not synced."""
    disk = SimulatedDisk()
    file = disk.open("f", create=True)
    file.pwrite(0, b"s" * 4096)
    file.sync()
    disk.sync_dir("")
    file.pwrite(4096, b"u" * 4096)
    file.map_write(8192)[0:512] = b"m" * 512
    disk.open("g", create=True).sync()
    return disk


def test_a_kill_keeps_everything_and_syncs_nothing():
    after = prepared().crash(kill=True)
    assert after.read("f") == b"m" * 512 + b"s" * 3584 + b"u" * 4096
    assert after.exists("g")
    cut = after.crash(keep_unsynced=False)
    assert cut.read("f") == b"s" * 4096
    assert not cut.exists("g")


def test_a_power_cut_keeps_what_was_synced_and_tears_the_rest():
    assert prepared().crash(keep_unsynced=True).read("f") == prepared().read("f")
    seen, names, sizes = set(), set(), set()
    for seed in range(300):
        after = prepared().crash(random.Random(seed))
        data = after.read("f")
        assert data[512:4096] == b"s" * 3584
        assert data[:512] in (b"s" * 512, b"m" * 512)
        for start in range(4096, len(data), 512):
            assert set(data[start : start + 512]) in ({0}, {ord("u")})
        seen.add(data)
        names.add(after.exists("g"))
        sizes.add(len(data))
    assert len(seen) > 50
    assert names == {False, True}
    assert {4096, 8192} < sizes


def test_a_failing_sync_keeps_nothing_new():
    disk = prepared()
    disk.fail_sync = True
    with pytest.raises(OSError, match="Input/output"):
        disk.open("f").sync()
    assert disk.crash(keep_unsynced=False).read("f") == b"s" * 4096
