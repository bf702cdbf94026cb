"""Timers in bulk: sorted runs of (due, ref) pairs, and the slots and levels of the wheel that hold them.

A timer is two 64-bit integers, `due` (ms since the epoch) and `ref` (whatever the owner means by it), and
never an object of its own. They lie in pairs of arrays:

    Slot   what is due within one hour, minute or second
     ├── tail   array('q') pair, unsorted, as added; at most CHUNK entries
     └── runs   numpy pairs, each sorted by due, each made of one full tail

A tail is sorted once, when it is full or when its slot's time comes; from then on a run is only ever *sliced*
(a view, no copy) as it moves to finer slots, and merged with others when it is about to be taken. So no step
costs more than sorting a few chunks, however many timers fall together.

Equal dues keep the order in which they were added: runs of a slot are in that order, and sorting is stable.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

Longs: TypeAlias = npt.NDArray[np.int64]

CHUNK: Final = 32_768
"""Entries of a full tail. Sorting one takes about a millisecond, which is the pause an add may see."""

FOREVER: Final = 2**63 - 1

_POSITION_BITS: Final = 17
_POSITIONS: Final[Longs] = np.arange(1 << _POSITION_BITS, dtype=np.int64)
_SPAN_MAX: Final = 1 << (62 - _POSITION_BITS)
_SLOT_BYTES: Final = 400  # the slot, its two arrays' heads, its list and its place in a dict and a heap
_VIEW_BYTES: Final = 320  # a run and the heads of its two arrays
EMPTY: Final[Longs] = np.empty(0, dtype=np.int64)


class Run:
    """Timers sorted by due; it shrinks from the front as they are taken."""

    __slots__ = ("due", "refs")

    def __init__(self, due: Longs, refs: Longs) -> None:
        self.due = due
        self.refs = refs

    def __len__(self) -> int:
        return len(self.due)

    def split_off(self, count: int) -> Run:
        """Take the first `count` timers out of it."""
        first = Run(self.due[:count], self.refs[:count])
        self.due = self.due[count:]
        self.refs = self.refs[count:]
        return first


class Slot:
    """All timers due within one span of time; `least` is the earliest due of the tail."""

    __slots__ = ("due", "least", "refs", "runs")

    def __init__(self) -> None:
        self.due = array("q")
        self.refs = array("q")
        self.runs: list[Run] = []
        self.least = FOREVER

    def earliest(self) -> int | None:
        """The earliest due it holds, discarded ones included; None when a sweep has freed them all."""
        firsts = [int(run.due[0]) for run in self.runs]
        if self.due:
            firsts.append(self.least)
        return min(firsts, default=None)

    def seal(self) -> None:
        """Turn the tail into a run."""
        if self.due:
            due = np.frombuffer(self.due, dtype=np.int64)
            self.runs.append(sorted_run(due, np.frombuffer(self.refs, dtype=np.int64)))
            self.due = array("q")
            self.refs = array("q")
            self.least = FOREVER

    def empty(self) -> list[Run]:
        """Give all its timers away as runs, oldest first."""
        self.seal()
        runs, self.runs = self.runs, []
        return packed(runs)

    def memory_bytes(self) -> int:
        tails = self.due.buffer_info()[1] * 2 * 8 * 17 // 16  # arrays keep a sixteenth in reserve
        return _SLOT_BYTES + tails + runs_bytes(self.runs)


class Level:
    """The slots of one width, by number (due // width); `keys` is a heap of the numbers."""

    __slots__ = ("keys", "slots", "width_ms")

    def __init__(self, width_ms: int) -> None:
        self.width_ms = width_ms
        self.slots: dict[int, Slot] = {}
        self.keys: list[int] = []

    def slot(self, key: int) -> Slot:
        slot = self.slots.get(key)
        if slot is None:
            slot = self.slots[key] = Slot()
            heapq.heappush(self.keys, key)
        return slot

    def add_run(self, run: Run) -> None:
        """Spread a sorted run over the slots: small pieces go to the tails, large ones stay runs."""
        due, refs = array("q", run.due.tobytes()), array("q", run.refs.tobytes())
        for key, start, end in pieces(run, self.width_ms):
            slot = self.slots.get(key) or self.slot(key)
            if end - start >= CHUNK // 2:
                slot.seal()
                slot.runs.append(Run(run.due[start:end], run.refs[start:end]))
                continue
            slot.due += due[start:end]
            slot.refs += refs[start:end]
            slot.least = min(slot.least, due[start])
            if len(slot.due) >= CHUNK:
                slot.seal()

    def refine(self, run: Run) -> None:
        """Spread a run of a coarser slot over the slots, as views."""
        due, refs = run.due, run.refs
        for key, start, end in pieces(run, self.width_ms):
            slot = self.slots.get(key) or self.slot(key)
            slot.runs.append(Run(due[start:end], refs[start:end]))

    def earliest(self) -> int | None:
        while self.keys:
            earliest = self.slots[self.keys[0]].earliest()
            if earliest is not None:
                return earliest
            self.pop()  # a sweep has left it empty
        return None

    def pop(self) -> list[Run]:
        """Remove the earliest slot and give its timers."""
        return self.slots.pop(heapq.heappop(self.keys)).empty()


def sorted_run(due: Longs, refs: Longs) -> Run:
    """Sort timers by due, stably; at most a few chunks at a time, as this is what makes a pause.

    Due and position are packed into one integer, so that a plain sort (which numpy vectorises) is a stable
    one: a third of the time of a stable argsort.
    """
    count = len(due)
    assert count <= len(_POSITIONS), "more than can be sorted without a pause"
    least = due.min() if count else 0
    if count and int(due.max()) - int(least) >= _SPAN_MAX:  # centuries apart: no room for the position
        order = np.argsort(due, kind="stable")
        return Run(due[order], refs[order])
    keys = ((due - least) << _POSITION_BITS) | _POSITIONS[:count]
    keys.sort()
    sorted_refs = refs[keys & (len(_POSITIONS) - 1)]
    keys >>= _POSITION_BITS
    keys += least
    return Run(keys, sorted_refs)


def joined(runs: list[Run]) -> Run:
    """Several runs as one, sorted."""
    if len(runs) == 1:
        return runs[0]
    return sorted_run(np.concatenate([run.due for run in runs]), np.concatenate([run.refs for run in runs]))


def packed(runs: list[Run]) -> list[Run]:
    """Join neighbours among small runs, so that there are few; large ones are left, as sorting them costs."""
    if len(runs) < 2:
        return runs
    result: list[Run] = []
    small: list[Run] = []
    count = 0
    for run in runs:
        large = len(run) >= CHUNK // 8
        if small and (large or count + len(run) > CHUNK):
            result.append(joined(small))
            small, count = [], 0
        if large:
            result.append(run)
        else:
            small.append(run)
            count += len(run)
    if small:
        result.append(joined(small))
    return result


def pieces(run: Run, width_ms: int) -> Iterator[tuple[int, int, int]]:
    """Where a run is to be cut at multiples of a width: (slot number, start, end), earliest first."""
    first = int(run.due[0]) // width_ms
    last = int(run.due[-1]) // width_ms
    keys: Sequence[int]
    if (last - first) * 8 < len(run):
        # Few slots for many timers: looking up each slot's start beats dividing every due.
        cuts = run.due.searchsorted(np.arange(first + 1, last + 1, dtype=np.int64) * width_ms).tolist()
        keys = range(first, last + 1)
        cuts = [0, *cuts, len(run)]
    else:
        numbers = run.due // width_ms
        cuts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(run)]
        keys = numbers[cuts[:-1]].tolist()
    for key, (start, end) in zip(keys, pairwise(cuts), strict=True):
        if start < end:
            yield key, start, end


def next_in_order(runs: list[Run]) -> tuple[list[Run], int]:
    """Take the earliest timers out of many runs: (sorted runs to be taken one after the other, bound).

    All that is left in `runs` (which loses its empty ones) is due at the bound or later. The bound is chosen
    from one look into each run, such that about a chunk lies before it. When one millisecond alone holds more
    than that, its timers are given run by run, which is the order they were added in, with no sorting at all.
    """
    share = -(-CHUNK // len(runs))
    bound = min(int(run.due[min(share, len(run)) - 1]) for run in runs)
    counts = [int(run.due.searchsorted(bound, side="right")) for run in runs]
    if sum(counts) <= 2 * CHUNK:
        bound += 1
        taken = [joined([run.split_off(count) for run, count in zip(runs, counts, strict=True) if count])]
    else:
        counts = [int(run.due.searchsorted(bound, side="left")) for run in runs]
        if sum(counts):
            taken = [joined([run.split_off(count) for run, count in zip(runs, counts, strict=True) if count])]
        else:
            bound += 1
            counts = [int(run.due.searchsorted(bound, side="left")) for run in runs]
            taken = [run.split_off(count) for run, count in zip(runs, counts, strict=True) if count]
    runs[:] = [run for run in runs if len(run)]
    return taken, bound


def without(run: Run, discarded: BitMap64) -> Run:
    """The run without discarded timers, which are then forgotten: each of them is met once."""
    if not len(run) or not discarded.range_cardinality(int(run.refs.min()), int(run.refs.max()) + 1):
        return run
    met = BitMap64(array("Q", run.refs.tobytes())) & discarded
    if not met:
        return run
    discarded -= met
    keep = ~np.isin(run.refs, np.frombuffer(met.to_array(), dtype=np.int64))
    return Run(run.due[keep], run.refs[keep])


def runs_bytes(runs: Iterable[Run]) -> int:
    return sum(_VIEW_BYTES + run.due.nbytes + run.refs.nbytes for run in runs)
