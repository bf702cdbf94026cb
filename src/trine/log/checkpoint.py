"""A checkpoint: which logs there are, how far they reach, and the application's state, all as of one lsn.

It is kept twice, in `checkpoint.a` and `checkpoint.b`, written one after the other, each atomically. At
open the valid one of the higher generation counts: the other one is older after a crash between the two
writes, and still right then, because neither the journal nor any file is given up before both are written.

The file, version 1, little endian:

     0   8s   magic `TRINECKP`
     8   u32  crc32c of all that follows
    12   u32  format version (1)
    16   u64  generation, one higher with each checkpoint
    24   u64  length of the body
    32        body: msgpack of `Manifest`, as an array

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

VERSION: Final = 1
MAGIC: Final = b"TRINECKP"
HEAD: Final = struct.Struct("<8sIIQQ")
CHECKED_FROM: Final = 12
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
    if magic != MAGIC or len(data) != HEAD.size + length or crc != crc32c(memoryview(data)[CHECKED_FROM:]):
        return None
    if version > VERSION:
        raise NewerFormat(
            f"{where} has checkpoint format {version}; this Trine reads up to {VERSION}. Open it with the "
            "newer Trine that wrote it."
        )
    return generation, _decoder.decode(memoryview(data)[HEAD.size :])


def write_checkpoint(disk: Disk, manifest: Manifest, generation: int) -> None:
    """Both copies are durable on return. Raises DiskFull; then the older checkpoint, or this one, counts."""
    data = pack(manifest, generation)
    with telling_disk_full(disk.describe(COPIES[0]), len(data)):
        for path in COPIES:
            disk.write_atomic(path, data)


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
