"""Batches of values of one length, without keys and headers: the short way in and out.

What stands between such values is known beforehand, so that one join writes the records and one unpack reads them:
a third of what the codec takes. The bytes are the codec's own, and are compared with what is known before they are
believed; whatever differs goes the codec's way.

    a record      varint length · attributes 0 · time delta 0 · varint offset delta · key length -1 · varint value
                  length · the value · header count 0
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

COUNT_MAX: Final = 16_384
"""Records of one batch that take this way: heads of as many are kept."""
SIZES_MAX: Final = 16
"""Lengths whose heads are kept (1 MB each at the most)."""
CHUNK_MAX: Final = 512
"""Records unpacked by one call, and powers of two below it for the rest: a count needs no layout of its own."""
END: Final = b"\0"
"""The header count that ends a record."""
_BEFORE: Final = b"\0\0\0\1"
"""Attributes, time delta, the first offset delta, and no key."""

_heads: Final[dict[int, list[bytes]]] = {}


def common_size(values: Sequence[bytes]) -> int | None:
    """The length of all values, or None if they differ."""
    sizes = set(map(len, values))
    return sizes.pop() if len(sizes) == 1 else None


def write(values: Sequence[bytes], size: int, before: bytes) -> bytearray:
    """The records of values that have this length, after what comes before them."""
    count = len(values)
    assert 0 < count <= COUNT_MAX, "more heads than are kept"
    pieces: list[bytes] = [before] * (2 * count + 2)
    pieces[1:-1:2] = _record_heads(size, count)
    pieces[2:-1:2] = values
    pieces[-1] = END
    return bytearray().join(pieces)


def read(data: bytes | bytearray | memoryview, start: int, count: int) -> list[bytes] | None:
    """The values of the records that begin at `start` and go to the end, or None if they are not alike."""
    size = size_of(data, start, count)
    return None if size is None else read_some(data, start, count, size, 0, count)


def read_some(
    data: bytes | bytearray | memoryview, start: int, count: int, size: int, first: int, some: int
) -> list[bytes]:
    """Some of the values, from the `first` on, of records that `size_of` has found to be alike."""
    values: list[bytes] = []
    for run in _runs(size, count):
        done = min(max(first, 0), run.count)
        end = min(first + some, run.count)
        first -= run.count
        while done < end:
            chunk = 1 << min(end - done, CHUNK_MAX).bit_length() - 1
            layout = _layout(run.width, size, chunk)
            values += layout.unpack_from(data, start + run.position + done * run.stride)
            done += chunk
    return values


def copy(
    data: bytes | bytearray | memoryview, start: int, count: int, size: int, into: NDArray[np.uint8]
) -> None:
    """Copies the values, which `size_of` has found to be of this size, one after the other."""
    records = np.frombuffer(data, np.uint8, offset=start)
    rows = into.reshape(count, size)
    done = 0
    for run in _runs(size, count):
        some = records[run.position : run.position + run.count * run.stride].reshape(run.count, run.stride)
        rows[done : done + run.count] = some[:, run.width :]
        done += run.count


def size_of(data: bytes | bytearray | memoryview, start: int, count: int) -> int | None:
    """The length of the values `read` would give, or None; the values are not looked at."""
    size = _first_size(data, start)
    if size is None or not 0 < count <= COUNT_MAX:
        return None
    runs = _runs(size, count)
    last = runs[-1]
    end = last.position + last.count * last.stride
    if start + end + len(END) != len(data) or data[start + end]:
        return None
    for run in runs:
        rows: NDArray[np.uint8] = np.ndarray(
            (run.count, run.width), np.uint8, data, start + run.position, (run.stride, 1)
        )
        if rows.tobytes() != run.heads:
            return None
    return size


class _Run(NamedTuple):
    """Records whose heads have one length: the first, those with a short offset delta, and the others."""

    position: int
    count: int  # type: ignore[assignment]
    width: int
    stride: int
    heads: bytes
    """What stands before each value, one after the other."""


@lru_cache(maxsize=64)
def _runs(size: int, count: int) -> tuple[_Run, ...]:
    runs = []
    position = 0
    for width, some in groupby(_record_heads(size, count), len):
        heads = list(some)
        runs.append(_Run(position, len(heads), width, width + size, b"".join(heads)))
        position += len(heads) * (width + size)
    return tuple(runs)


def _first_size(data: bytes | bytearray | memoryview, start: int) -> int | None:
    """The length of the first value, if the first record is one of ours."""
    length, position = _read_varint(data, start)
    if bytes(data[position : position + 4]) != _BEFORE:
        return None
    size, after = _read_varint(data, position + 4)
    return size if size >= 0 and length == after - position + size + len(END) else None


def _read_varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    for byte in bytes(data[position : position + 5]):
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return (number >> 1) ^ -(number & 1), position


@lru_cache(maxsize=512)
def _layout(width: int, size: int, count: int) -> Struct:
    return Struct(f"{width}x{size}s" * count)


def _record_heads(size: int, count: int) -> list[bytes]:
    """What precedes each value of a length in a batch, the end of the record before it included."""
    known = _heads.get(size, [])
    if len(known) < count:
        tail = b"\x01" + _varint(size)  # no key, then the value's length
        known = [*known]
        for delta in range(len(known), count):
            body = b"\0\0" + _varint(delta) + tail
            end = END if delta else b""
            known.append(end + _varint(len(body) + size + len(END)) + body)
        if len(_heads) >= SIZES_MAX:
            _heads.clear()
        _heads[size] = known
    return known[:count]


def _varint(number: int) -> bytes:
    """A number that is not negative as Kafka writes it: zigzag, seven bits a byte."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
