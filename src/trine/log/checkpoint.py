"""A checkpoint: which logs there are, how far they reach, and the application's state, all as of one lsn.

It is kept twice, in `checkpoint.a` and `checkpoint.b`, written in place one after the other, the older one
first: on a full disk that needs no room, and whatever happens meanwhile the other one is whole. At open the
valid one of the higher generation counts. The other one is older after a crash between the two writes, and
still right then, because neither the journal nor any file is given up before both are written.

The file, version 1, little endian:

     0   8s   magic `TRINECKP`
     8   u32  crc32c of all that follows
    12   u32  format version (1)
    16   u64  generation, one higher with each checkpoint
    24   u64  length of the body
    32        body: msgpack of `Manifest`, as an array; zeros after it leave room to grow

This module does not decide when, and touches no log.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec
from crc32c import crc32c

from trine.log.disk import Disk, telling_disk_full
from trine.log.log import SavedLog
from trine.model.errors import Corrupt, NewerFormat
from trine.model.limits import KIB

VERSION: Final = 1
MAGIC: Final = b"TRINECKP"
HEAD: Final = struct.Struct("<8sIIQQ")
CHECKED_FROM: Final = 12
ROOM_BYTES: Final = 64 * KIB
"""Copies grow in steps of this, with one to spare: a checkpoint that frees room must not need some first."""
COPIES: Final = ("checkpoint.a", "checkpoint.b")
assert HEAD.size == 32


class ManifestLog(msgspec.Struct, array_like=True, frozen=True):
    log_id: int
    path: str
    segment_bytes: int
    rolls: bool
    saved: SavedLog


class Manifest(msgspec.Struct, array_like=True, frozen=True):
    lsn: int
    """Everything in the journal below is in the logs and the state."""
    logs: list[ManifestLog]
    state: bytes


_decoder = msgspec.msgpack.Decoder(Manifest)
_encoder = msgspec.msgpack.Encoder()


def pack(manifest: Manifest, generation: int) -> bytes:
    body = _encoder.encode(manifest)
    head = HEAD.pack(MAGIC, 0, VERSION, generation, len(body))[CHECKED_FROM:]
    return b"".join((MAGIC, crc32c(body, crc32c(head)).to_bytes(4, "little"), head, body))


def unpack(data: bytes, where: str) -> tuple[int, Manifest] | None:
    """(generation, manifest), or None if the bytes are damaged."""
    if len(data) < HEAD.size:
        return None
    magic, crc, version, generation, length = HEAD.unpack_from(data)
    end = HEAD.size + length
    if magic != MAGIC or len(data) < end or crc != crc32c(memoryview(data)[CHECKED_FROM:end]):
        return None
    if version > VERSION:
        raise NewerFormat(
            f"{where} has checkpoint format {version}; this Trine reads up to {VERSION}. Open it with the "
            "newer Trine that wrote it."
        )
    return generation, _decoder.decode(memoryview(data)[HEAD.size : end])


def write_checkpoint(disk: Disk, manifest: Manifest, generation: int) -> None:
    """Both copies are durable on return. Raises DiskFull; then the older checkpoint, or this one, counts."""
    data = pack(manifest, generation)
    with telling_disk_full(disk.describe(COPIES[0]), len(data)):
        for path in sorted(COPIES, key=lambda path: _generation(disk, path)):
            _overwrite(disk, path, data)


def _generation(disk: Disk, path: str) -> int:
    """Which checkpoint a copy is of, -1 if it is none: that one is overwritten first."""
    found = unpack(disk.read(path), disk.describe(path)) if disk.exists(path) else None
    return -1 if found is None else found[0]


def _overwrite(disk: Disk, path: str, data: bytes) -> None:
    is_new = not disk.exists(path)
    file = disk.open(path, create=is_new)
    try:
        if file.size() < len(data):
            size = (len(data) // ROOM_BYTES + 2) * ROOM_BYTES
            file.allocate(file.size(), size - file.size())
        file.pwrite(0, data)
        file.sync()
    finally:
        file.close()
    if is_new:
        disk.sync_dir("")


def read_checkpoint(disk: Disk) -> tuple[int, Manifest] | None:
    """The newest valid one, or None if there never was one."""
    present = [path for path in COPIES if disk.exists(path)]
    found = [unpack(disk.read(path), disk.describe(path)) for path in present]
    valid = [checkpoint for checkpoint in found if checkpoint is not None]
    if present and not valid:
        raise Corrupt(
            disk.describe(present[0]),
            0,
            "no copy of the checkpoint is valid",
            "Keep a copy of the data directory, then restore it from a backup or a replica",
        )
    return max(valid, key=lambda checkpoint: checkpoint[0], default=None)
