"""A group's share of one partition: the ledger, what it delivers next, and the log its blocks go to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from trine.broker.partition import Partition
from trine.log import batch
from trine.log.batch import StoredRecord
from trine.log.log import Log
from trine.queue.ledger import Lease, Ledger, runs_of
from trine.queue.rows import Row
from trine.queue.selection import Pick, Selection

SMALL_SHARE = 4
"""A batch is sent whole when at least this part of its messages, one in so many, is delivered."""

Run = tuple[int, int, int]
"""(lease number, first offset, count)."""


class GroupPart:
    """A group's share of one partition: the ledger, what it delivers next, and the log its blocks go to."""

    __slots__ = ("_ahead", "ledger", "log", "log_id", "partition", "selection")

    def __init__(self, partition: Partition, log_id: int, log: Log, ledger: Ledger) -> None:
        self.partition = partition
        self.log_id = log_id
        self.log = log
        self.ledger = ledger
        self.selection: Selection
        self._ahead: dict[tuple[int, int], list[bytes]] = {}
        """Runs that were read last, and the batches that hold them: what is leased next is sent next."""

    # --- deliveries as they are stored

    def read_ahead(self, first: int, count: int) -> bool:
        """Reads the batches of a run that is to be leased; says whether the log has every message of it."""
        self._ahead.clear()
        return self._read_run(first, count)

    def read_ahead_all(self, picks: Iterable[Pick]) -> bool:
        """The same for several runs."""
        self._ahead.clear()
        return all(self._read_run(first, count) for first, count, _ in picks)

    def _read_run(self, first: int, count: int) -> bool:
        partition = self.partition
        if partition.opened(first, count, count * SMALL_SHARE):  # and will be cut out of what was opened
            return True
        log = partition.log
        average = log.size_bytes // max(log.next_offset - log.start_offset, 1)
        stored, position, end = [], first, first + count
        while position < end:
            found = log.read(position, (end - position) * average)
            if not found:
                return False
            for data in found:
                header = batch.read_header(data)
                if header.base_offset > position or header.count <= header.last_offset_delta:
                    return False
                stored.append(data)
                position = header.next_offset
                if position >= end:
                    break
        self._ahead[first, count] = stored
        return True

    def stored(self, lease: Lease) -> list[bytes | bytearray]:
        """The batches that hold a lease's messages. They may hold more: only a small part of one is cut out of it."""
        first, count = lease.first, lease.count
        batches = self._ahead.pop((first, count), None)
        if batches is None or (
            len(batches) == 1 and count * SMALL_SHARE < batch.read_header(batches[0]).count
        ):
            return self._cut(first, first + count, lease.lane, batches[0] if batches else None)
        return list(batches)

    def _cut(self, first: int, end: int, lane: int, data: bytes | None) -> list[bytes | bytearray]:
        """The records of a run as batches of their own; offsets that are missing stay missing."""
        cut = self.partition.cut(first, end - first, data)
        if cut is not None:
            return [cut]
        made: list[bytes | bytearray] = []
        records = self.partition.records(first, end - first)
        for start, count in runs_of(record.offset for record in records):
            some = batch.encode_again(records[:count], lane)
            del records[:count]
            batch.place(some, start)
            made.append(some)
        return made

    # --- the ledger

    def commit(self, rows: Sequence[Row], change: bytes) -> None:
        self.ledger.commit(rows, change)
        if self.ledger.closed_blocks:
            self.store_blocks()

    def replay(self, payload: memoryview) -> None:
        self.ledger.replay(payload)
        if self.ledger.closed_blocks:
            self.store_blocks()

    def store_blocks(self) -> None:
        for block in self.ledger.closed_blocks:
            self.log.append(
                batch.encode_block(
                    block.payload,
                    base_offset=block.first_row,
                    count=block.count,
                    base_time_ms=block.time_from,
                    max_time_ms=block.time_to,
                )
            )
        self.ledger.closed_blocks.clear()

    def blocks_from(self, row: int, bytes_max: int) -> tuple[list[bytes], int, bool]:
        """Blocks of the ledger from a row on, the row after them, and whether there are more.

        The newest rows, which are not in the ledger's log yet, come with the last of them.
        """
        found: list[bytes] = []
        position = max(row, self.log.start_offset)
        for data in self.log.read(position, bytes_max):
            found.append(bytes(batch.block_payload(data)))
            position = batch.read_header(data).next_offset
        if position < self.log.next_offset:
            return found, position, True
        newest = self.ledger.open_block()
        if newest is not None:
            found.append(bytes(newest))
        return found, position, False

    def blocks(self) -> Iterator[bytes | memoryview]:
        """The ledger's rows from the oldest kept to the newest, a block at a time."""
        position = self.log.start_offset
        while stored := self.log.read(position):
            for data in stored:
                yield batch.block_payload(data)
            position = batch.read_header(stored[-1]).next_offset
        newest = self.ledger.open_block()
        if newest is not None:
            yield newest


Failing = tuple[GroupPart, Lease, list[tuple[int, int]]]
"""A lease and what of it was delivered in vain."""


class Leased(NamedTuple):
    """A delivery: a lease and the records it is of."""

    part: GroupPart
    lease: Lease
    records: list[StoredRecord]


def once(runs: list[tuple[GroupPart, Run]]) -> list[tuple[GroupPart, Run]]:
    """Each message one time, however often the caller named it: a lease must not be ended twice."""
    if len({(part.log_id, run[0]) for part, run in runs}) == len(runs):
        return runs
    seen: dict[tuple[int, int], set[int]] = {}
    kept = []
    for part, (number, first, count) in runs:
        known = seen.setdefault((part.log_id, number), set())
        fresh = [offset for offset in range(first, first + count) if offset not in known]
        known.update(fresh)
        kept += [(part, (number, *run)) for run in runs_of(fresh)]
    return kept
