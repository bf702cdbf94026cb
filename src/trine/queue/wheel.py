"""The wheel: up to millions of timers in memory, taken in due order, on a handed-in clock.

    hours ──▶ minutes ──▶ seconds ──▶ runs ──▶ ready ─┐
      slots of a hierarchical timing wheel   (current  ├─▶ take_due
                                              second)  │
                             heap (new arrivals) ──────┘

A timer is added to the slot of its hour, or of its minute or second when that is near. When the time of a
slot comes, its timers move to the next finer slots; the current second is `runs`, merged a chunk at a time
into `ready`, a sorted sequence with a pointer. What arrives for the current second, or late, waits in a
small heap beside it. A slot that lies wholly in the past (after a restart, a long pause) is not refined but
merged as it is.

Every step is bounded: arrays are sorted a chunk at a time and otherwise only sliced (see `timers.py`), so
that a million timers falling into one hour, second or millisecond do not stop the broker.

What it refuses to do: it is not durable (the schedule's log is), it reads no clock, and it does not know
what a ref is. Refs are unique and not negative; a discarded ref must not be added again, as the discard
would then meet the new timer: a moved message gets a new ref.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from pyroaring import BitMap64

from trine.queue.timers import (
    CHUNK,
    EMPTY,
    FOREVER,
    Level,
    Longs,
    Run,
    Slot,
    joined,
    next_in_order,
    runs_bytes,
    sorted_run,
    without,
)

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

HEAP_MAX: Final = 4096
"""Arrivals kept as Python objects (some 170 bytes each); more of them are turned into a run."""

FEW: Final = 32
"""Below it adding one by one is faster than numpy's fixed costs."""

SWEEP_EVERY: Final = 4096
"""Discards between two steps of the sweep, which frees at least twice as many once it is worth it."""

_HEAP_ENTRY_BYTES: Final = 170


class Wheel:
    """Timers by due time.

    >>> wheel = Wheel(now_ms=0)
    >>> wheel.add(1500, 7)
    >>> wheel.next_due(), [array.tolist() for array in wheel.take_due(1500, 10)]
    (1500, [[1500], [7]])
    """

    def __init__(self, now_ms: int) -> None:
        self._seconds = Level(SECOND_MS)
        self._minutes = Level(MINUTE_MS)
        self._hours = Level(HOUR_MS)
        # Where the levels meet: what is due before `_second_end` is in runs, ready and heap, what is due
        # before `_minute_end` in second slots, before `_hour_end` in minute slots. They only grow.
        self._second_end = (now_ms // SECOND_MS + 1) * SECOND_MS
        self._minute_end = (now_ms // MINUTE_MS + 1) * MINUTE_MS
        self._hour_end = (now_ms // HOUR_MS + 1) * HOUR_MS
        self._runs: list[Run] = []
        self._ready: deque[Run] = deque()
        self._ready_end = -FOREVER  # all of `_runs` is due at it or later
        self._heap: list[tuple[int, int, int]] = []  # (due, arrival number, ref)
        self._arrivals = 0
        self._held = 0  # timers in the arrays and the heap, discarded ones included
        self._discarded = BitMap64()
        self._dead = 0  # len(_discarded), which is slow to ask for
        self._sweeping: list[Slot] = []  # slots the sweep has still to visit, and how far it is in the last
        self._sweep_at = 0

    def __len__(self) -> int:
        return self._held - self._dead

    def add(self, due_ms: int, ref: int) -> None:
        """Add one timer; one that is overdue is taken next, in due order."""
        if due_ms >= self._hour_end:
            level = self._hours
        elif due_ms >= self._minute_end:
            level = self._minutes
        elif due_ms >= self._second_end:
            level = self._seconds
        else:
            self._arrive(due_ms, ref)
            return
        key = due_ms // level.width_ms
        slot = level.slots.get(key) or level.slot(key)
        tail = slot.due
        tail.append(due_ms)
        slot.refs.append(ref)
        if due_ms < slot.least:
            slot.least = due_ms
        if len(tail) >= CHUNK:
            slot.seal()
        self._held += 1

    def add_many(self, due_ms: Longs | Sequence[int], refs: Longs | Sequence[int]) -> None:
        """Add many timers. A call costs some 50 ns for each: a caller that must not pause splits millions."""
        assert len(due_ms) == len(refs), "each due has its ref"
        if len(due_ms) < FEW:
            for due, ref in zip(due_ms, refs, strict=True):
                self.add(int(due), int(ref))
            return
        all_due = np.asarray(due_ms, dtype=np.int64)
        all_refs = np.asarray(refs, dtype=np.int64)
        for start in range(0, len(all_due), CHUNK):
            self._add_run(sorted_run(all_due[start : start + CHUNK], all_refs[start : start + CHUNK]))

    def discard(self, ref: int) -> None:
        """Cancel a timer that is waiting: not taken, not discarded before. Its entry goes when it is met."""
        assert ref not in self._discarded, f"{ref} was discarded before"
        self._discarded.add(ref)
        self._dead += 1
        if self._dead % SWEEP_EVERY == 0 and self._dead * 2 > self._held:
            self._sweep()

    def take_due(self, now_ms: int, most: int) -> tuple[Longs, Longs]:
        """Remove and give the timers due by `now_ms`, earliest first, at most `most`: (due, refs)."""
        taken: list[Run] = []
        room = most
        while room > 0:
            run = self._take_some(now_ms, room)
            if run is None:
                break
            self._held -= len(run)
            if self._dead:
                run = without(run, self._discarded)
                self._dead = len(self._discarded)
            if len(run):
                taken.append(run)
                room -= len(run)
        if not taken:
            return EMPTY, EMPTY
        if len(taken) == 1:
            return taken[0].due, taken[0].refs
        return np.concatenate([run.due for run in taken]), np.concatenate([run.refs for run in taken])

    def next_due(self) -> int | None:
        """The earliest due, or None when there are no timers.

        Exact, except that it may be too early (never too late) when the earliest timer was discarded. Calling
        `take_due` at that time removes what was discarded, so that a loop of the two always gets on.
        """
        if not len(self):
            return None
        near = [self._ready[0]] if self._ready else self._runs
        nearest = min((int(run.due[0]) for run in near), default=FOREVER)
        if self._heap:
            nearest = min(nearest, self._heap[0][0])
        if nearest < FOREVER:
            return nearest
        for level in (self._seconds, self._minutes, self._hours):
            if (earliest := level.earliest()) is not None:
                return earliest
        raise AssertionError("timers are counted that no level holds")

    def groups(self) -> Iterator[list[tuple[Longs, Longs]]]:
        """All timers as arrays of (due, refs), for `outlook`: no group has any that is due before those of the groups
        before it. Discarded ones are among them."""
        near = [(run.due, run.refs) for run in (*self._ready, *self._runs)]
        if self._heap:
            due, _, refs = zip(*self._heap, strict=True)
            near.append((np.array(due, dtype=np.int64), np.array(refs, dtype=np.int64)))
        yield near
        for level in (self._seconds, self._minutes, self._hours):
            for key in sorted(level.keys):
                slot = level.slots[key]
                held = [(run.due, run.refs) for run in slot.runs]
                if slot.due:
                    held.append((np.array(slot.due, dtype=np.int64), np.array(slot.refs, dtype=np.int64)))
                yield held

    def discarded(self) -> Sequence[int]:
        return self._discarded.to_array() if self._dead else ()

    def memory_bytes(self) -> int:
        """An estimate of what it holds. Slots that are half taken may keep more until they are done."""
        slots = sum(slot.memory_bytes() for slot in self._all_slots())
        near = runs_bytes(self._runs) + runs_bytes(self._ready) + len(self._heap) * _HEAP_ENTRY_BYTES
        return slots + near + self._dead * 2

    # ------------------------------------------------------------------ arrivals

    def _arrive(self, due_ms: int, ref: int) -> None:
        self._arrivals += 1
        heapq.heappush(self._heap, (due_ms, self._arrivals, ref))
        self._held += 1
        if len(self._heap) >= HEAP_MAX:
            self._settle_heap()

    def _add_run(self, run: Run) -> None:
        """Spread a sorted run over the levels."""
        self._held += len(run)
        late = int(run.due.searchsorted(self._second_end))
        if 0 < late <= HEAP_MAX // 16:  # too few to merge what is ready anew
            self._held -= late
            few = run.split_off(late)
            for due_ms, ref in zip(few.due.tolist(), few.refs.tolist(), strict=True):
                self._arrive(due_ms, ref)
        elif late:
            if self._heap:
                self._settle_heap()  # it came first
            self._settle(run.split_off(late))
        for level, end in ((self._seconds, self._minute_end), (self._minutes, self._hour_end)):
            if count := int(run.due.searchsorted(end)):
                level.add_run(run.split_off(count))
        if len(run):
            self._hours.add_run(run)

    def _settle_heap(self) -> None:
        due, _, refs = zip(*sorted(self._heap), strict=True)
        self._heap.clear()
        self._settle(Run(np.array(due, dtype=np.int64), np.array(refs, dtype=np.int64)))

    def _settle(self, run: Run) -> None:
        """Add a run to the current second. What was ready goes back to the runs, to be merged with it."""
        self._runs = [*self._ready, *self._runs]
        self._ready.clear()
        self._ready_end = -FOREVER
        if self._runs and len(self._runs[-1]) + len(run) <= CHUNK:
            run = joined([self._runs.pop(), run])
        self._runs.append(run)

    # ------------------------------------------------------------------ taking

    def _take_some(self, now_ms: int, room: int) -> Run | None:
        """The next timers that are due, at most `room` and at least one, or None."""
        while True:
            if not self._ready and self._runs:
                taken, self._ready_end = next_in_order(self._runs)
                self._ready.extend(taken)
            run = self._take_near(now_ms, room)
            if run is not None:
                return run
            # Ready is empty, or what is left of it is not due yet; then nothing behind it is either.
            if self._ready or (not self._runs and not self._advance(now_ms)):
                return None

    def _take_near(self, now_ms: int, room: int) -> Run | None:
        """The next due timers of `ready` and of the heap, merged; equal dues come from `ready` first."""
        head = self._ready[0] if self._ready else None
        count = 0 if head is None else min(int(head.due.searchsorted(now_ms, side="right")), room)
        before = self._heap_bound(count, now_ms)
        entries: list[tuple[int, int, int]] = []
        while self._heap and self._heap[0][0] < before and len(entries) < room:
            entries.append(heapq.heappop(self._heap))
        if not entries:
            return self._take_ready(count) if count else None
        arrived = Run(
            np.array([entry[0] for entry in entries], dtype=np.int64),
            np.array([entry[2] for entry in entries], dtype=np.int64),
        )
        if head is None or not count:
            return arrived
        # A ready timer's place among all is its own index plus the arrivals due before it.
        places = arrived.due.searchsorted(head.due[:count], side="left") + np.arange(count)
        from_ready = int((places < room).sum())
        from_heap = min(room - from_ready, len(entries))
        for entry in entries[from_heap:]:
            heapq.heappush(self._heap, entry)
        return joined([self._take_ready(from_ready), arrived.split_off(from_heap)])

    def _heap_bound(self, count: int, now_ms: int) -> int:
        """Before which due arrivals may be taken along with `count` of ready: nothing else precedes them."""
        bound = now_ms + 1
        if self._runs:
            bound = min(bound, self._ready_end)
        if self._ready:
            head = self._ready[0]
            if count < len(head):
                bound = min(bound, int(head.due[count]))
            elif len(self._ready) > 1:
                bound = min(bound, int(self._ready[1].due[0]))
        return bound

    def _take_ready(self, count: int) -> Run:
        run = self._ready[0].split_off(count)
        if not len(self._ready[0]):
            self._ready.popleft()
        return run

    # ------------------------------------------------------------------ turning

    def _advance(self, now_ms: int) -> bool:
        """Bring the earliest slot one level nearer if its time has come; False when there is none."""
        if self._seconds.keys:
            start_ms = self._seconds.keys[0] * SECOND_MS
            if start_ms > now_ms:
                return False
            self._enter(self._seconds, start_ms)
        elif self._minutes.keys:
            start_ms = self._minutes.keys[0] * MINUTE_MS
            if start_ms > now_ms:
                return False
            self._minute_end = start_ms + MINUTE_MS
            if self._minute_end <= now_ms:
                self._enter(self._minutes, start_ms)
            else:
                self._second_end = start_ms
                for run in self._minutes.pop():
                    self._seconds.refine(run)
        elif self._hours.keys:
            start_ms = self._hours.keys[0] * HOUR_MS
            if start_ms > now_ms:
                return False
            self._hour_end = start_ms + HOUR_MS
            if self._hour_end <= now_ms:
                self._minute_end = self._hour_end
                self._enter(self._hours, start_ms)
            else:
                self._second_end = self._minute_end = start_ms
                for run in self._hours.pop():
                    self._minutes.refine(run)
        else:
            return False
        return True

    def _enter(self, level: Level, start_ms: int) -> None:
        """Make the earliest slot of a level the current one, whose timers are merged and taken."""
        assert not self._runs, "the slot before is not done"
        assert not self._ready, "the slot before is not done"
        self._runs = level.pop()
        self._ready_end = -FOREVER
        self._second_end = start_ms + level.width_ms

    # ------------------------------------------------------------------ discarded timers

    def _sweep(self) -> None:
        """One step of going through all slots to free discarded timers, when those are more than half.

        Without it, timers that are set for days and discarded within seconds (timeouts) would pile up.
        """
        if not self._sweeping:
            self._sweeping = list(self._all_slots())
            self._sweep_at = 0
        budget = CHUNK
        while budget > 0 and self._sweeping:
            slot = self._sweeping[-1]
            slot.seal()
            if self._sweep_at >= len(slot.runs):  # done, or taken meanwhile
                self._sweeping.pop()
                self._sweep_at = 0
                continue
            run = slot.runs[self._sweep_at]
            kept = without(run, self._discarded)
            self._held -= len(run) - len(kept)
            budget -= len(run)
            if len(kept):
                slot.runs[self._sweep_at] = kept
                self._sweep_at += 1
            else:
                del slot.runs[self._sweep_at]
        self._dead = len(self._discarded)

    def _all_slots(self) -> Iterator[Slot]:
        for level in (self._hours, self._minutes, self._seconds):
            yield from level.slots.values()
