"""How large compressed records are when they are unpacked, found out without unpacking more than is allowed.

What comes from outside may be a bomb: a megabyte that unpacks to a gigabyte. The codec unpacks whatever it is given, so
the size is looked at before. The forms are Kafka's: gzip, snappy (plain, or in blocks as the xerial library writes it),
lz4 frames and zstd.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from trine.log.batch import GZIP, LZ4, SNAPPY, ZSTD

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_BYTES: Final = 16
_BLOCK: Final = struct.Struct(">i")
_GZIP_WINDOW: Final = 31


def unpacks_within(packed: memoryview, compression: int, most: int) -> bool:
    """Whether the records unpack, to at most so many bytes."""
    try:
        return _SIZES[compression](packed, most) <= most
    except (cramjam.DecompressionError, zlib.error, struct.error, ValueError):
        return False


def _gzip(packed: memoryview, most: int) -> int:
    total = 0
    while packed:
        member = zlib.decompressobj(_GZIP_WINDOW)
        total += len(member.decompress(packed, most - total + 1))
        if total > most or not member.eof:
            return most + 1
        packed = memoryview(member.unused_data)
    return total


def _snappy(packed: memoryview, most: int) -> int:
    if bytes(packed[: len(_XERIAL)]) != _XERIAL:
        return int(cramjam.snappy.decompress_raw_len(packed))
    total, position = 0, _XERIAL_BYTES
    while position < len(packed):
        (size,) = _BLOCK.unpack_from(packed, position)
        position += _BLOCK.size
        if size <= 0 or position + size > len(packed):
            raise ValueError("a block's length lies")
        total += int(cramjam.snappy.decompress_raw_len(packed[position : position + size]))
        position += size
        if total > most:
            break
    return total


def _into_scratch(unpack: Callable[[memoryview, bytearray], int]) -> Callable[[memoryview, int], int]:
    """By unpacking into a buffer that has the size allowed and no more; it is kept for the next one."""
    scratch = bytearray()

    def size(packed: memoryview, most: int) -> int:
        nonlocal scratch
        if len(scratch) != most:
            scratch = bytearray(most)
        return int(unpack(packed, scratch))

    return size


_SIZES: Final[dict[int, Callable[[memoryview, int], int]]] = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _into_scratch(cramjam.lz4.decompress_into),
    ZSTD: _into_scratch(cramjam.zstd.decompress_into),
}
