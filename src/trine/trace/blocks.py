"""Which blocks of a ledger speak of which offsets, so that a look-up reads a few blocks and not the ledger.

A ledger's log can have hundreds of megabytes. What is kept here of a block is where it is, the least and greatest
offset in it, and which kinds of rows it has: 28 bytes. It is made when first asked for, from the time in question on,
and grows at both ends; blocks are never changed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from trine.log import batch
from trine.log.log import Log
from trine.queue.rows import Kind, block_span, unpack_block

CLOCK_SLACK_MS = 3_600_000
"""A clock that was set back while the broker was down can put a row before its message's time: by less than this."""


_BITS: Final = np.array([1 << kind if kind in set(Kind) else 0 for kind in range(256)], dtype=np.uint32)


def kinds_in(payload: bytes | memoryview) -> int:
    """The kinds of a block's rows, one bit each."""
    return int(np.bitwise_or.reduce(_BITS[unpack_block(payload).rows["kind"]]))


class Blocks:
    """Of one ledger's log, which is handed in each time: it is not this one's to keep alive."""

    __slots__ = ("_end", "_from", "_greatest", "_kinds", "_least", "_places")

    def __init__(self) -> None:
        self._places = array("q")
        self._least = array("q")
        self._greatest = array("q")
        self._kinds = array("I")
        self._from = self._end = -1

    def __len__(self) -> int:
        return len(self._places)

    def about(self, log: Log, first: int, end: int, since_ms: int | None) -> Iterator[memoryview]:
        """The blocks that say something of the offsets, or move the group; rows before `since_ms` may be left out."""
        self._cover(log, log.start_offset if since_ms is None else log.offset_at(since_ms - CLOCK_SLACK_MS))
        wanted = (np.array(self._least) < end) & (np.array(self._greatest) >= first)
        wanted |= np.array(self._kinds) & _BITS[Kind.SEEK] != 0
        for place in np.array(self._places)[wanted].tolist():
            if place >= log.start_offset:
                data = log.batch_at(place)
                assert data is not None, "a block that was there is there, or below the start"
                yield batch.block_payload(data)

    def spans(self, log: Log, kinds: Iterable[Kind]) -> list[tuple[int, int]]:
        """(first, end) of the blocks that have rows of these kinds."""
        self._cover(log, log.start_offset)
        bits = sum(1 << kind for kind in kinds)
        wanted = np.array(self._kinds) & bits != 0
        least, greatest = np.array(self._least)[wanted].tolist(), np.array(self._greatest)[wanted].tolist()
        return [(first, last + 1) for first, last in zip(least, greatest, strict=True)]

    def _cover(self, log: Log, start: int) -> None:
        if self._from < 0:
            self._from = self._end = start
        if start < self._from:
            known = self._places, self._least, self._greatest, self._kinds
            self._places, self._least, self._greatest, self._kinds = (
                array("q"),
                array("q"),
                array("q"),
                array("I"),
            )
            self._read(log, start, self._from)
            for mine, later in zip(
                (self._places, self._least, self._greatest, self._kinds), known, strict=True
            ):
                mine.extend(later)
            self._from = start
        if self._end < log.next_offset:
            self._read(log, self._end, log.next_offset)
            self._end = log.next_offset

    def _read(self, log: Log, start: int, end: int) -> None:
        while start < end and (stored := log.read(start)):
            for data in stored:
                header = batch.read_header(data)
                if header.base_offset >= end:
                    return
                payload = batch.block_payload(data)
                least, greatest = block_span(payload)
                self._places.append(header.base_offset)
                self._least.append(least)
                self._greatest.append(greatest)
                self._kinds.append(kinds_in(payload))
                start = header.next_offset


_known: WeakKeyDictionary[Log, Blocks] = WeakKeyDictionary()
"""What earlier look-ups learned; it goes with the ledger's log."""


def blocks_about(
    log: Log, newest: bytes | None, first: int, end: int, since_ms: int | None = None
) -> Iterator[bytes | memoryview]:
    """The blocks of a ledger that say something of the offsets, oldest first.

    `newest` is the one that is not in the ledger's log yet.
    """
    yield from _of(log).about(log, first, end, since_ms)
    if newest is not None:
        yield newest


def spans_with(log: Log, newest: bytes | None, kinds: Iterable[Kind]) -> list[tuple[int, int]]:
    """Stretches of offsets outside of which a ledger has no row of these kinds: (first, end), in order, apart."""
    chosen = frozenset(kinds)
    spans = _of(log).spans(log, chosen)
    if newest is not None and kinds_in(newest) & sum(1 << kind for kind in chosen):
        least, greatest = block_span(newest)
        spans.append((least, greatest + 1))
    merged: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return merged


def _of(log: Log) -> Blocks:
    known = _known.get(log)
    if known is None:
        known = _known[log] = Blocks()
    return known
