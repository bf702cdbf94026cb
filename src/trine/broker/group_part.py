"""A group's share of one partition: the ledger, what it delivers next, and the log its blocks go to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trine.broker.partition import Partition
from trine.log import batch
from trine.log.batch import StoredRecord
from trine.log.log import Log
from trine.queue.ledger import Lease, Ledger
from trine.queue.rows import Row
from trine.queue.selection import Selection

Run = tuple[int, int, int]
"""(lease number, first offset, count)."""


class GroupPart:
    """A group's share of one partition: the ledger, what it delivers next, and the log its blocks go to."""

    __slots__ = ("ledger", "log", "log_id", "partition", "selection")

    def __init__(self, partition: Partition, log_id: int, log: Log, ledger: Ledger) -> None:
        self.partition = partition
        self.log_id = log_id
        self.log = log
        self.ledger = ledger
        self.selection: Selection

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
