"""The outlook of a wheel: what is due when, looked at without taking anything.

A wheel gives its timers as groups of arrays, the nearest group first, and no timer of a group is due before any of
those of the groups before it. So the next few are in the first groups, and how many are due in each span of time is a
few searches in arrays, for a million timers as for ten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from trine.queue.timers import EMPTY, Longs

if TYPE_CHECKING:
    from trine.queue.wheel import Wheel

Place = tuple[int, int]
"""(due, ref): timers in this order have no two in one place."""
BEGINNING: Place = (-1, -1)


def upcoming(wheel: Wheel, after: Place, most: int, before_ms: int) -> tuple[Longs, Longs]:
    """The next timers beyond a place and due before a time, at most so many, in order: (due, refs)."""
    dues: list[Longs] = []
    refs: list[Longs] = []
    left = most
    for due, ref in _groups(wheel):
        beyond = (due > after[0]) | ((due == after[0]) & (ref > after[1]))
        beyond &= due < before_ms
        due, ref = due[beyond], ref[beyond]
        if len(due) > left:  # only what can be among the first is put in order
            last = np.partition(due, left - 1)[left - 1]
            due, ref = due[due <= last], ref[due <= last]
        order = np.lexsort((ref, due))[:left]
        dues.append(due[order])
        refs.append(ref[order])
        left -= len(order)
        if left <= 0:
            break
    return np.concatenate([EMPTY, *dues]), np.concatenate([EMPTY, *refs])


def counts(wheel: Wheel, edges: Longs) -> list[int]:
    """How many are due before the first edge, between each two, and from the last one on."""
    found = np.zeros(len(edges) + 1, dtype=np.int64)
    for due, _ in _groups(wheel):
        found += np.bincount(edges.searchsorted(due, side="right"), minlength=len(edges) + 1)
    return [int(count) for count in found]


def _groups(wheel: Wheel) -> Iterator[tuple[Longs, Longs]]:
    """(due, refs) of each group, those that were discarded left out."""
    dead = np.asarray(wheel.discarded(), dtype=np.int64)
    for group in wheel.groups():
        due = np.concatenate([EMPTY, *(due for due, _ in group)])
        refs = np.concatenate([EMPTY, *(refs for _, refs in group)])
        if len(dead):
            kept = ~np.isin(refs, dead)
            due, refs = due[kept], refs[kept]
        yield due, refs
