"""The rows of a ledger: one row says what happened to one run of messages of a partition in a group.

A row, version 1, little-endian, 44 bytes:

    0   u8   kind (see Kind)
    1   u8   lane
    2   u16  attempt: which delivery this is (the first is 1); for RETURNED and NACKED how many count so far
    4   u16  member (index into the block's names; 0 is nobody)
    6   u16  reason (index into the block's names; 0 is none)
    8   i64  at, ms since the epoch
   16   i64  first offset
   24   u32  count
   28   i64  until: DELIVERED and EXTENDED the lease's deadline, NACKED and RETURNED when it is due again,
             DEAD_LETTERED and REDRIVEN where it went (partition << 48 | offset), SEEK unused
   36   i64  lease: the number of the lease this row is about, -1 if none

What a journal entry carries for a ledger (a *change*) and what a ledger's log keeps (a *block*) hold rows and
the names they use:

    change   u8 flags (1: a new block begins), u16 number of names, names (u16 length, UTF-8), rows
    block    i64 least offset, i64 greatest offset, u32 number of names, names (u16 length, UTF-8), rows

Names are numbered from 1 in order of appearance within a block, so that a block explains itself.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

ROW: Final = struct.Struct("<BBHHHqqIqq")
assert ROW.size == 44
_CHANGE_HEAD: Final = struct.Struct("<?H")
PLAIN_CHANGE: Final = _CHANGE_HEAD.pack(False, 0)
"""The head of a change that begins no block and names nobody new: nearly all of them."""
BLOCK_HEAD: Final = struct.Struct("<qqI")
NAMES_MAX: Final = 60_000
"""Names of one block; indexes are u16. A ledger begins a new block before it runs out."""

ROW_DTYPE: Final = np.dtype(
    [
        ("kind", "u1"),
        ("lane", "u1"),
        ("attempt", "<u2"),
        ("member", "<u2"),
        ("reason", "<u2"),
        ("at", "<i8"),
        ("first", "<i8"),
        ("count", "<u4"),
        ("until", "<i8"),
        ("lease", "<i8"),
    ]
)
assert ROW_DTYPE.itemsize == ROW.size


class Kind(enum.IntEnum):
    DELIVERED = 1
    ACKED = 2
    NACKED = 3
    RETURNED = 4
    """The lease ended without a word: it expired, its member died or closed, the broker restarted."""
    EXTENDED = 5
    REJECTED = 6
    """Settled without a dead letter, because the group keeps none."""
    DEAD_LETTERED = 7
    EXPIRED = 8
    FILTERED = 9
    GONE = 10
    """Compaction or retention took it before it was delivered."""
    SEEK = 11
    """The group continues at `first`; what it had in flight there is void."""
    REOPENED = 12
    """Settled before, to be delivered again (a replay)."""
    REDRIVEN = 13


SETTLES: Final = frozenset(
    {
        Kind.ACKED,
        Kind.REJECTED,
        Kind.DEAD_LETTERED,
        Kind.EXPIRED,
        Kind.FILTERED,
        Kind.GONE,
        Kind.REDRIVEN,
    }
)


class Row(NamedTuple):
    kind: int
    lane: int
    attempt: int
    member: int
    reason: int
    at: int
    first: int
    count: int  # type: ignore[assignment]
    until: int
    lease: int


PLACE_BITS: Final = 48


def pack_place(partition: int, offset: int) -> int:
    """Where a message is, as one number of a row or of a schedule's block: partition << 48 | offset."""
    return partition << PLACE_BITS | offset


def unpack_place(place: int) -> tuple[int, int]:
    return place >> PLACE_BITS, place & ((1 << PLACE_BITS) - 1)


def make_row(fields: tuple[int, int, int, int, int, int, int, int, int, int]) -> Row:
    """A row of its fields in order: what `Row(...)` gives, in a third of the time, for the hot paths."""
    return _new_row(Row, fields)


_new_row = tuple.__new__


def pack_change(rows: Iterable[Row], names: Sequence[str], *, new_block: bool) -> bytes:
    head = _CHANGE_HEAD.pack(new_block, len(names))
    return b"".join((head, _pack_names(names), *(ROW.pack(*row) for row in rows)))


def unpack_change(payload: bytes | memoryview) -> tuple[bool, list[str], list[Row]]:
    new_block, count = _CHANGE_HEAD.unpack_from(payload)
    names, position = _unpack_names(payload, _CHANGE_HEAD.size, count)
    return new_block, names, [Row(*fields) for fields in ROW.iter_unpack(payload[position:])]


def pack_block(rows: bytes | bytearray, names: Sequence[str]) -> bytes:
    fields = np.frombuffer(rows, dtype=ROW_DTYPE)
    least = int(fields["first"].min())
    greatest = int((fields["first"] + np.maximum(fields["count"], 1)).max()) - 1
    return b"".join((BLOCK_HEAD.pack(least, greatest, len(names)), _pack_names(names), rows))


class Block(NamedTuple):
    names: list[str]
    rows: NDArray[np.void]

    def name(self, index: int) -> str | None:
        return self.names[index - 1] if index else None


def block_span(payload: bytes | memoryview) -> tuple[int, int]:
    """The least and greatest offset a block speaks of: enough to pass over it."""
    least, greatest, _ = BLOCK_HEAD.unpack_from(payload)
    return least, greatest


def unpack_block(payload: bytes | memoryview) -> Block:
    _, _, count = BLOCK_HEAD.unpack_from(payload)
    names, position = _unpack_names(payload, BLOCK_HEAD.size, count)
    return Block(names, np.frombuffer(payload, dtype=ROW_DTYPE, offset=position))


def _pack_names(names: Sequence[str]) -> bytes:
    if not names:
        return b""
    return b"".join(len(raw).to_bytes(2, "little") + raw for raw in (name.encode() for name in names))


def _unpack_names(payload: bytes | memoryview, position: int, count: int) -> tuple[list[str], int]:
    names = []
    for _ in range(count):
        size = int.from_bytes(payload[position : position + 2], "little")
        names.append(bytes(payload[position + 2 : position + 2 + size]).decode())
        position += 2 + size
    return names, position
