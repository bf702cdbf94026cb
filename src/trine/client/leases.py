"""Leases as a client holds them, and the runs that settle them."""

from __future__ import annotations

from collections.abc import Iterable

from trine.log import batch
from trine.log.batch import StoredRecord
from trine.log.stored import Origin
from trine.wire.bodies import Held, Run


class Lease:
    """A run of messages, or the part of one that a receive took."""

    __slots__ = (
        "attempt", "count", "deadline_ms", "extended", "first", "lane", "number", "origin", "partition", "settled",
    )  # fmt: skip

    def __init__(
        self,
        origin: Origin,
        lane: int,
        attempt: int,
        number: int,
        first: int,
        count: int,
        deadline_ms: int,
    ) -> None:
        self.origin = origin
        self.partition = origin.partition
        self.lane = lane
        self.attempt = attempt
        self.number = number
        self.first = first
        self.count = count
        self.deadline_ms = deadline_ms
        self.extended: dict[int, int] | None = None
        self.settled: set[int] | range | None = None
        """Offsets that were acked or rejected from here and answered; a range when all were at once."""

    @property
    def held(self) -> Held:
        return (self.partition, self.number, self.first, self.count)

    def part(self, first: int, count: int) -> Lease:
        return Lease(self.origin, self.lane, self.attempt, self.number, first, count, self.deadline_ms)

    def settle(self, first: int, count: int) -> None:
        if (first, count) == (self.first, self.count):
            self.settled = range(first, first + count)
        elif self.settled is None:
            self.settled = set(range(first, first + count))
        elif isinstance(self.settled, set):
            self.settled.update(range(first, first + count))

    def settle_one(self, offset: int) -> None:
        if self.settled is None:
            self.settled = {offset}
        elif isinstance(self.settled, set):
            self.settled.add(offset)

    def extend(self, first: int, count: int, deadline_ms: int) -> None:
        if self.extended is None:
            self.extended = {}
        self.extended.update(dict.fromkeys(range(first, first + count), deadline_ms))

    def unsettled(self) -> list[Held]:
        """What is left of it, as runs."""
        if self.settled is None:
            return [self.held]
        return merge(
            (self.partition, self.number, offset)
            for offset in range(self.first, self.first + self.count)
            if offset not in self.settled
        )


class Leased:
    """A lease with its records; those still in the server's bytes are decoded when they are wanted."""

    __slots__ = ("_bytes", "_records", "lease")

    def __init__(self, lease: Lease, data: memoryview) -> None:
        self.lease = lease
        self._bytes = data
        self._records: list[StoredRecord] | None = None

    @property
    def records(self) -> list[StoredRecord]:
        if self._records is None:
            self._records = records_of(self._bytes, self.lease.first, self.lease.count)
        return self._records

    def split(self, count: int) -> tuple[Leased, Leased]:
        """The first so many messages, and the others."""
        lease, records = self.lease, self.records
        middle = records[count].offset if count < len(records) else lease.first + lease.count
        here = Leased(lease.part(lease.first, middle - lease.first), self._bytes)
        here._records = records[:count]
        rest = Leased(lease.part(middle, lease.first + lease.count - middle), self._bytes)
        rest._records = records[count:]
        return here, rest


def leased(run: Run, origin: Origin) -> Leased:
    lease = Lease(origin, run.lane, run.attempt, run.lease, run.first, run.count, run.deadline_ms)
    return Leased(lease, run.batches)


def records_of(data: memoryview, first: int, count: int) -> list[StoredRecord]:
    """The records of a run, out of batches that may hold more; offsets may be missing where compaction took them."""
    records: list[StoredRecord] = []
    position, end = 0, first + count
    while position < len(data):
        size = batch.read_header(data, position).size
        records += batch.decode_some(data[position : position + size], first, end)
        position += size
    return records


def merge(offsets: Iterable[tuple[int, int, int]]) -> list[Held]:
    """(partition, lease, offset)s as runs, each message once however often it was named."""
    held: list[Held] = []
    seen: set[tuple[int, int, int]] = set()
    for one in offsets:
        if one in seen:
            continue
        seen.add(one)
        partition, number, offset = one
        if held:
            known, lease, first, count = held[-1]
            if first + count == offset and lease == number and known == partition:
                held[-1] = (known, lease, first, count + 1)
                continue
        held.append((partition, number, offset, 1))
    return held
