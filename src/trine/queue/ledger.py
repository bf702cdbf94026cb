"""The ledger: what was delivered of one partition to one group, to whom, and how it was settled.

The life of a message in a group:

    waiting ──DELIVERED──▶ leased ──ACKED──▶ settled
       ▲                    │ │ └──REJECTED / DEAD_LETTERED──▶ settled
       │                    │ └─────EXTENDED──▶ leased, longer
       │                    └──NACKED / RETURNED──▶ retrying ──DELIVERED──▶ leased
       ├──EXPIRED / FILTERED / GONE──▶ settled        │
       └──REOPENED (a replay)── settled               └──EXPIRED / DEAD_LETTERED──▶ settled

Everything here is durable state: it changes only in `apply`, one row at a time, and recovery calls the same
`apply`. Which message to deliver next is not decided here but in `selection`, which can be rebuilt from this at
any time. Settled offsets are a floor (all below are settled) and a roaring bitmap beyond it; leases are runs;
only a message that is tried again is an object of its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
import numpy as np
from pyroaring import BitMap64

from trine.model.errors import LeaseExpired, StaleReceipt
from trine.queue.rows import (
    NAMES_MAX,
    PLAIN_CHANGE,
    ROW,
    ROW_DTYPE,
    SETTLES,
    Kind,
    Row,
    pack_block,
    pack_change,
    unpack_change,
)

_DELIVERED, _ACKED = int(Kind.DELIVERED), int(Kind.ACKED)
"""Nearly all rows are of these kinds; a member of an enum takes longer to look up than to compare."""

KINDS = 16
"""Room in `Ledger.counts` for every kind of row, and some to come."""
REDELIVERED = 0
"""Where `Ledger.counts` has deliveries after the first: no kind of row has this number."""

BLOCK_BYTES = 64 * 1024
"""Rows are handed to the ledger's log in blocks of about this size; a trace reads a few of them."""


class Lease:
    """The right of one member to a run of messages until a deadline."""

    __slots__ = (
        "attempt",
        "count",
        "deadline",
        "done",
        "extended",
        "first",
        "lane",
        "left",
        "member",
        "number",
    )

    def __init__(
        self, number: int, member: str, first: int, count: int, attempt: int, deadline: int, lane: int
    ) -> None:
        self.number = number
        self.member = member
        self.first = first
        self.count = count
        self.attempt = attempt
        self.deadline = deadline
        self.lane = lane
        self.left = count
        self.done: bytearray | None = None
        """One byte a message, 1 when its part of the lease is over; made when the first one is."""
        self.extended: dict[int, int] | None = None
        """Deadlines of single messages that were extended on their own."""

    def holds(self, offset: int) -> bool:
        index = offset - self.first
        return 0 <= index < self.count and (self.done is None or not self.done[index])

    def holds_run(self, first: int, count: int) -> bool:
        index = first - self.first
        if index < 0 or index + count > self.count:
            return False
        return self.done is None or not any(self.done[index : index + count])

    def open_runs(self) -> list[tuple[int, int]]:
        """What is still leased, as runs."""
        if self.done is None:
            return [(self.first, self.count)]
        return runs_of(self.first + index for index, over in enumerate(self.done) if not over)

    def end(self, first: int, count: int) -> None:
        if count == self.left:
            self.left = 0
            return
        if self.done is None:
            self.done = bytearray(self.count)
        index = first - self.first
        if count == 1:
            self.done[index] = 1
        else:
            self.done[index : index + count] = b"\1" * count
        self.left -= count


class Retry:
    """A message that was delivered in vain and waits to be tried again."""

    __slots__ = ("attempt", "due", "lane")

    def __init__(self, attempt: int, due: int, lane: int) -> None:
        self.attempt = attempt
        self.due = due
        self.lane = lane


class Watcher(Protocol):
    """What the ledger tells the selection, so that it need not be rebuilt."""

    def retry_added(self, offset: int, retry: Retry) -> None: ...
    def freed(self, first: int, count: int) -> None: ...
    def rewind(self) -> None: ...


class SavedLedger(msgspec.Struct, array_like=True, frozen=True):
    floor: int
    next_row: int
    settled: bytes
    reopened: bytes
    leases: list[tuple[int, str, int, int, int, int, int, bytes | None, dict[int, int] | None]]
    retries: list[tuple[int, int, int, int]]
    counts: list[int] = []


class ClosedBlock(msgspec.Struct, frozen=True):
    payload: bytes
    first_row: int
    count: int
    time_from: int
    time_to: int


class Ledger:
    __slots__ = (
        "_deadlines",
        "_fresh_names",
        "_names",
        "_names_list",
        "_new_block",
        "_rows",
        "closed_blocks",
        "counts",
        "floor",
        "in_flight",
        "leases",
        "next_row",
        "reopened",
        "retries",
        "settled",
        "watcher",
    )

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self.settled = BitMap64()
        self.reopened = BitMap64()
        self.leases: dict[int, Lease] = {}
        self.retries: dict[int, Retry] = {}
        self.next_row = 0
        self.in_flight = 0
        self.counts = [0] * KINDS
        """Messages by kind of row, ever since the ledger began: what the metrics show."""
        self.watcher: Watcher | None = None
        self.closed_blocks: list[ClosedBlock] = []
        """Blocks whose rows are complete, for the owner to put into the ledger's log."""
        self._deadlines: list[tuple[int, int]] = []
        self._names: dict[str, int] = {}
        self._names_list: list[str] = []
        self._fresh_names: list[str] = []
        self._new_block = True
        self._rows = bytearray()

    # --- questions

    def unsettled(self, next_offset: int) -> int:
        """How many messages the group has yet to settle: its lag."""
        return max(next_offset - self.floor - len(self.settled), 0) + len(self.reopened)

    def is_settled(self, offset: int) -> bool:
        return (offset < self.floor or offset in self.settled) and offset not in self.reopened

    def first_unsettled(self) -> int:
        """The least offset this group still has to see: retention keeps it."""
        return min(self.floor, self.reopened.min()) if self.reopened else self.floor

    def held(self, number: int, first: int, count: int, now: int) -> Lease:
        """The lease that covers the run, or the error that says why there is none any more."""
        lease = self.leases.get(number)
        if lease is None or not (lease.holds(first) if count == 1 else lease.holds_run(first, count)):
            raise StaleReceipt(self._why_stale(first))
        deadline = lease.deadline
        if lease.extended is not None:
            deadline = min(lease.extended.get(offset, deadline) for offset in range(first, first + count))
        if now >= deadline:
            raise LeaseExpired(
                f"the lease of offset {first} ended {now - deadline} ms ago and the message goes back to the queue; "
                "extend a lease before it ends, or configure a longer one"
            )
        return lease

    def _why_stale(self, offset: int) -> str:
        if offset in self.retries:
            return f"offset {offset} is no longer leased: it waits to be delivered again"
        for lease in self.leases.values():
            if lease.holds(offset):
                return f"offset {offset} is leased to {lease.member!r} now; this receipt is of an earlier delivery"
        return (
            f"offset {offset} is settled already, or the group was moved; this receipt is of no use any more"
        )

    def next_deadline(self) -> int | None:
        heap = self._deadlines
        while heap:
            deadline, number = heap[0]
            lease = self.leases.get(number)
            if lease is not None and self._earliest(lease) == deadline:
                return deadline
            heapq.heappop(heap)
        return None

    def overdue(self, now: int) -> list[tuple[Lease, list[tuple[int, int]]]]:
        """Leases whose deadline has passed, each with the runs that are to be returned."""
        found: dict[int, tuple[Lease, list[tuple[int, int]]]] = {}
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            _, number = heapq.heappop(self._deadlines)
            lease = self.leases[number]
            runs = lease.open_runs()
            if lease.extended is not None:
                extended = lease.extended
                runs = runs_of(
                    offset
                    for first, count in runs
                    for offset in range(first, first + count)
                    if extended.get(offset, lease.deadline) <= now
                )
            found[number] = (lease, runs)
        for lease, _ in found.values():
            self._watch_deadline(lease)
        return list(found.values())

    def leases_of(self, member: str) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.member == member]

    # --- writing rows

    def name(self, text: str) -> int:
        """The number of a member's name or a reason within the block."""
        number = self._names.get(text)
        if number is None:
            number = self._names[text] = len(self._names) + 1
            self._names_list.append(text)
            self._fresh_names.append(text)
        return number

    def change(self, rows: Sequence[Row]) -> bytes:
        """What the journal gets for these rows. They take effect in `commit`."""
        if not self._new_block and not self._fresh_names and len(rows) == 1:
            return PLAIN_CHANGE + ROW.pack(*rows[0])
        return pack_change(rows, self._fresh_names, new_block=self._new_block)

    def commit(self, rows: Sequence[Row], change: bytes) -> None:
        """The journal has it: apply the rows and keep them for the block."""
        if self._fresh_names:
            self._fresh_names.clear()
        self._new_block = False
        self._rows += change[len(change) - ROW.size * len(rows) :]
        for row in rows:
            self.apply(row)
        if len(self._rows) >= BLOCK_BYTES or len(self._names) > NAMES_MAX - 256:
            self.close_block()

    def replay(self, payload: bytes | memoryview) -> None:
        """The same as `commit`, out of the journal."""
        new_block, names, rows = unpack_change(payload)
        if new_block:
            self.close_block()
        for name in names:
            self.name(name)
        self._fresh_names.clear()
        self._new_block = False
        self._rows += memoryview(payload)[len(payload) - ROW.size * len(rows) :]
        for row in rows:
            self.apply(row)

    def close_block(self) -> None:
        if self._rows:
            rows = np.frombuffer(self._rows, dtype=ROW_DTYPE)
            self.closed_blocks.append(
                ClosedBlock(
                    pack_block(self._rows, self._names_list),
                    self.next_row - len(rows),
                    len(rows),
                    int(rows["at"].min()),
                    int(rows["at"].max()),
                )
            )
            self._rows = bytearray()
        self._names.clear()
        self._names_list.clear()
        self._fresh_names.clear()
        self._new_block = True

    def open_block(self) -> bytes | None:
        """The rows not yet in a closed block, as one: for traces."""
        if not self._rows:
            return None
        return pack_block(self._rows, self._names_list)

    # --- the one place where durable state changes

    def apply(self, row: Row) -> None:
        number = self.next_row
        self.next_row = number + 1
        kind = row[0]
        self.counts[kind] += row[7]
        if kind == _DELIVERED:
            self._lease(number, row)
        elif kind == _ACKED or kind in SETTLES:
            self._settle(row)
        elif kind in (Kind.NACKED, Kind.RETURNED):
            self._retry(row)
        elif kind == Kind.EXTENDED:
            self._extend(row)
        elif kind == Kind.SEEK:
            self._seek(row.first)
        elif kind == Kind.REOPENED:
            self._reopen(row)
        else:
            raise AssertionError(f"a ledger row of unknown kind {kind}")

    def _lease(self, number: int, row: Row) -> None:
        _, lane, attempt, name, _, _, first, count, until, _ = row
        if attempt > 1:
            self.counts[REDELIVERED] += count
        if self.retries:
            self._end_retries(first, count)
        member = self._names_list[name - 1] if name else ""
        self.leases[number] = Lease(number, member, first, count, attempt, until, lane)
        self.in_flight += count
        heapq.heappush(self._deadlines, (until, number))

    def _end_retries(self, first: int, count: int) -> None:
        for offset in range(first, first + count):
            self.retries.pop(offset, None)

    def _end_lease(self, number: int, first: int, count: int) -> None:
        lease = self.leases.get(number)
        if lease is None:
            return
        lease.end(first, count)
        self.in_flight -= count
        if lease.left == 0:
            del self.leases[number]
            if len(self._deadlines) > 64 + 4 * len(self.leases):
                self._deadlines = [(self._earliest(one), one.number) for one in self.leases.values()]
                heapq.heapify(self._deadlines)
        elif lease.extended is not None:
            self._watch_deadline(lease)

    def _settle(self, row: Row) -> None:
        _, _, _, _, _, _, first, count, _, number = row
        if number >= 0:
            self._end_lease(number, first, count)
        if self.retries:
            self._end_retries(first, count)
        self._mark_settled(first, first + count)
        if self.watcher is not None:
            self.watcher.freed(first, count)

    def _mark_settled(self, first: int, end: int) -> None:
        if self.reopened:
            self.reopened.remove_range(first, end)
        settled, floor = self.settled, self.floor
        if first > floor:
            if end == first + 1:
                settled.add(first)
            else:
                settled.add_range(first, end)
        elif end > floor:
            if settled:
                settled.remove_range(floor, end)
                if end in settled:
                    after = run_end(settled, end)
                    settled.remove_range(end, after)
                    end = after
            self.floor = end

    def _retry(self, row: Row) -> None:
        self._end_lease(row.lease, row.first, row.count)
        for offset in range(row.first, row.first + row.count):
            retry = self.retries[offset] = Retry(row.attempt, row.until, row.lane)
            if self.watcher is not None:
                self.watcher.retry_added(offset, retry)

    def _extend(self, row: Row) -> None:
        lease = self.leases.get(row.lease)
        if lease is None:
            return
        if row.count == lease.left and lease.extended is None:
            lease.deadline = row.until
        else:
            if lease.extended is None:
                lease.extended = {}
            for offset in range(row.first, row.first + row.count):
                lease.extended[offset] = row.until
        self._watch_deadline(lease)

    def _earliest(self, lease: Lease) -> int:
        if lease.extended is None:
            return lease.deadline
        extended = lease.extended
        return min(
            extended.get(offset, lease.deadline)
            for first, count in lease.open_runs()
            for offset in range(first, first + count)
        )

    def _watch_deadline(self, lease: Lease) -> None:
        heapq.heappush(self._deadlines, (self._earliest(lease), lease.number))

    def _seek(self, offset: int) -> None:
        self.leases.clear()
        self.retries.clear()
        self.reopened.clear()
        self.settled.clear()
        self._deadlines.clear()
        self.in_flight = 0
        self.floor = offset
        if self.watcher is not None:
            self.watcher.rewind()

    def _reopen(self, row: Row) -> None:
        for first, end in self._settled_parts(row.first, row.first + row.count):
            self.reopened.add_range(first, end)
        if self.watcher is not None:
            self.watcher.rewind()

    def _settled_parts(self, first: int, end: int) -> list[tuple[int, int]]:
        """Only what is settled can be opened again: the rest is on its way already."""
        parts = [(first, min(end, self.floor))] if first < self.floor else []
        position = max(first, self.floor)
        while position < end and (found := next_set(self.settled, position)) is not None and found < end:
            position = run_end(self.settled, found)
            parts.append((found, min(position, end)))
        return parts

    def raise_floor(self, start_offset: int) -> None:
        """The log begins at `start_offset` now: what lies below is gone for this group too."""
        if start_offset <= self.floor and not self.reopened:
            return
        for number, lease in list(self.leases.items()):
            below = [run for run in lease.open_runs() if run[0] < start_offset]
            for first, count in below:
                count = min(count, start_offset - first)
                lease.end(first, count)
                self.in_flight -= count
            if lease.left == 0:
                del self.leases[number]
            elif lease.extended is not None:
                self._watch_deadline(lease)
        for offset in [offset for offset in self.retries if offset < start_offset]:
            del self.retries[offset]
        self._mark_settled(min(self.floor, start_offset), start_offset)
        if self.reopened:
            self.reopened.remove_range(0, start_offset)
        if self.watcher is not None:
            self.watcher.rewind()

    # --- snapshots

    def save(self) -> SavedLedger:
        return SavedLedger(
            self.floor,
            self.next_row,
            self.settled.serialize() if self.settled else b"",
            self.reopened.serialize() if self.reopened else b"",
            [
                (x.number, x.member, x.first, x.count, x.attempt, x.deadline, x.lane,
                 bytes(x.done) if x.done is not None else None, x.extended)
                for x in self.leases.values()
            ],
            [(offset, retry.attempt, retry.due, retry.lane) for offset, retry in self.retries.items()],
            list(self.counts),
        )  # fmt: skip

    @classmethod
    def restore(cls, saved: SavedLedger) -> Ledger:
        ledger = cls(saved.floor)
        ledger.next_row = saved.next_row
        ledger.counts[: len(saved.counts)] = saved.counts
        if saved.settled:
            ledger.settled = BitMap64.deserialize(saved.settled)
        if saved.reopened:
            ledger.reopened = BitMap64.deserialize(saved.reopened)
        for number, member, first, count, attempt, deadline, lane, done, extended in saved.leases:
            lease = Lease(number, member, first, count, attempt, deadline, lane)
            if done is not None:
                lease.done = bytearray(done)
                lease.left = count - sum(done)
            lease.extended = extended
            ledger.leases[number] = lease
            ledger.in_flight += lease.left
            ledger._watch_deadline(lease)
        for offset, attempt, due, lane in saved.retries:
            ledger.retries[offset] = Retry(attempt, due, lane)
        return ledger


def runs_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Rising offsets as runs of (first, count)."""
    runs: list[tuple[int, int]] = []
    first, count = -1, 0
    for offset in offsets:
        if offset == first + count:
            count += 1
            continue
        if count:
            runs.append((first, count))
        first, count = offset, 1
    if count:
        runs.append((first, count))
    return runs


def next_set(bitmap: BitMap64, position: int) -> int | None:
    """The first member of the bitmap that is not below `position`."""
    try:
        return bitmap.next_set_bit(position)
    except ValueError:
        return None


def run_end(bitmap: BitMap64, start: int) -> int:
    """The first offset after `start` that is not in the bitmap, found by doubling steps, not one by one."""
    end, step = start, 1
    contains: Callable[[int, int], bool] = bitmap.contains_range
    while contains(end, end + step):
        end += step
        step *= 2
    while step > 1:
        step //= 2
        if contains(end, end + step):
            end += step
    return end
