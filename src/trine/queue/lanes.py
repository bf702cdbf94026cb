"""Which offsets of a partition belong to which lane: an array of runs per lane, shared by all groups.

Adjacent batches of one lane are one run, so a partition that uses one lane costs one run, whatever its length.
A group's place in a lane is a `Cursor`; it only ever moves forward, until the ledger rewinds it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

import msgspec
import numpy as np

MANY = 64
"""Runs from which on they are summed by numpy."""


class SavedLanes(msgspec.Struct, array_like=True, frozen=True):
    firsts: list[bytes]
    ends: list[bytes]


class Cursor:
    __slots__ = ("index", "offset")

    def __init__(self) -> None:
        self.index = 0
        """Number of the run, counted from the first run there ever was."""
        self.offset = 0


class Lanes:
    __slots__ = ("_dropped", "_ends", "_firsts")

    def __init__(self, count: int) -> None:
        self._firsts = [array("q") for _ in range(count)]
        self._ends = [array("q") for _ in range(count)]
        self._dropped = [0] * count
        """Runs that retention took from the front of each lane, so that cursors stay valid."""

    def __len__(self) -> int:
        return len(self._firsts)

    def grow(self, count: int) -> None:
        while len(self._firsts) < count:
            self._firsts.append(array("q"))
            self._ends.append(array("q"))
            self._dropped.append(0)

    def add(self, lane: int, first: int, count: int) -> None:
        if lane >= len(self._firsts):
            self.grow(lane + 1)
        ends = self._ends[lane]
        if ends and ends[-1] == first:
            ends[-1] = first + count
        else:
            self._firsts[lane].append(first)
            ends.append(first + count)

    def place(self, lane: int, cursor: Cursor, offset: int) -> None:
        """Puts the cursor before the first offset of the lane that is not below `offset`."""
        run = max(bisect_right(self._firsts[lane], offset) - 1, 0)
        cursor.index = run + self._dropped[lane]
        cursor.offset = offset

    def take(self, lane: int, cursor: Cursor, most: int) -> tuple[int, int] | None:
        """The next run of at most `most` messages, as (first, count); the cursor is moved past it."""
        firsts, ends = self._firsts[lane], self._ends[lane]
        index = cursor.index - self._dropped[lane]
        if index < 0:
            index = 0
        last = len(firsts) - 1
        while index <= last:
            end = ends[index]
            if cursor.offset < end:
                first = firsts[index]
                if first < cursor.offset:
                    first = cursor.offset
                count = end - first
                if count > most:
                    count = most
                cursor.offset = first + count
                cursor.index = index + self._dropped[lane]
                return first, count
            if index == last:
                break
            index += 1
        cursor.index = max(index, 0) + self._dropped[lane]
        return None

    def waits(self, lane: int, cursor: Cursor) -> bool:
        """Whether the lane has anything beyond the cursor."""
        ends = self._ends[lane]
        return bool(ends) and ends[-1] > cursor.offset

    def lane_of(self, offset: int) -> int:
        for lane, firsts in enumerate(self._firsts):
            run = bisect_right(firsts, offset) - 1
            if run >= 0 and offset < self._ends[lane][run]:
                return lane
        return 0

    def counts(self, from_offset: int) -> list[int]:
        """Messages per lane at or above an offset."""
        totals = []
        for firsts, ends in zip(self._firsts, self._ends, strict=True):
            run = max(bisect_right(firsts, from_offset) - 1, 0)
            if len(firsts) - run > MANY:
                below = max(min(from_offset, ends[run]) - firsts[run], 0)  # of the run that it lies in
                totals.append(_sum(ends, run) - _sum(firsts, run) - below)
                continue
            totals.append(
                sum(
                    ends[i] - max(firsts[i], from_offset)
                    for i in range(run, len(firsts))
                    if ends[i] > from_offset
                )
            )
        return totals

    def trim(self, start_offset: int) -> None:
        """Forgets the runs that lie wholly below what the log still has."""
        for lane, ends in enumerate(self._ends):
            gone = bisect_right(ends, start_offset)
            if gone:
                del ends[:gone]
                del self._firsts[lane][:gone]
                self._dropped[lane] += gone

    def used(self) -> list[int]:
        """Lanes that have messages."""
        return [lane for lane, firsts in enumerate(self._firsts) if firsts]

    def runs(self) -> int:
        return sum(map(len, self._firsts))

    def save(self) -> SavedLanes:
        return SavedLanes([a.tobytes() for a in self._firsts], [a.tobytes() for a in self._ends])

    @classmethod
    def restore(cls, saved: SavedLanes, count: int) -> Lanes:
        lanes = cls(max(count, len(saved.firsts)))
        for lane, (firsts, ends) in enumerate(zip(saved.firsts, saved.ends, strict=True)):
            lanes._firsts[lane].frombytes(firsts)
            lanes._ends[lane].frombytes(ends)
        return lanes


def _sum(numbers: array[int], start: int) -> int:
    return int(np.frombuffer(numbers, dtype=np.int64)[start:].sum())
