"""view=deliveries: what happened to each message in each group, a row for each message and event.

The ledger's rows are runs of messages. They are read as the broker stores them, a block at a time, and spread out with
numpy: no object a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import StructType

from trine.broker.dead_letters import dlq_name
from trine.broker.operations import REDRIVE_GROUP
from trine.client.sync import Broker
from trine.model.errors import UnknownGroup
from trine.queue.rows import PLACE_BITS, Block, Kind, unpack_block
from trine.spark.columns import TIME_ARROW
from trine.spark.place import Place
from trine.spark.shares import chosen_topics, schemas
from trine.wire.calls import LedgerReply, ReadLedger

SLICE: Final = 10_000
"""Rows of one Arrow batch."""
EXPAND: Final = 200_000
"""Messages that are spread out at a time: one run may speak of millions."""

COLUMNS: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "message_id": "string",
    "group": "string",
    "event": "string",
    "attempt": "int",
    "member": "string",
    "reason": "string",
    "at": "timestamp",
    "until": "timestamp",
    "lease": "bigint",
    "to": "string",
    "priority": "string",
    "row": "bigint",
}
SPARK, ARROW = schemas(COLUMNS)

EVENTS: Final = {kind: kind.name.lower() for kind in Kind}
_EVENT_NAMES: Final = pa.array([EVENTS[Kind(n)] if n in set(Kind) else None for n in range(max(Kind) + 1)])
_TIMED: Final = (Kind.DELIVERED, Kind.EXTENDED, Kind.NACKED, Kind.RETURNED)


@dataclass(frozen=True, slots=True)
class Ledger:
    """A group's ledger of one partition."""

    topic: str
    partition: int
    group: str
    lanes: tuple[str, ...]


class DeliveriesView:
    @property
    def schema(self) -> StructType:
        return SPARK

    def plan(self, place: Place, options: Mapping[str, str]) -> list[Ledger]:
        broker = place.shared()
        topics, given = chosen_topics(broker, options, "deliveries", "group")
        wanted = given.get("group")
        found = []
        for name, partitions in topics.items():
            lanes = broker._known(name).config.lanes
            groups = [one.name for one in broker.topic(name).groups() if one.name != REDRIVE_GROUP]
            for group in groups:
                if wanted in (None, group):
                    found += [Ledger(name, number, group, lanes) for number in partitions]
        if wanted is not None and not found:
            raise UnknownGroup(
                f"there is no group {wanted!r} in {', '.join(topics) or 'any of the topics'}; "
                "`trine group list TOPIC` shows them"
            )
        return found

    def read(self, place: Place, share: Ledger) -> Iterator[pa.RecordBatch]:
        for first, block in ledger_blocks(place.shared(), share.topic, share.group, share.partition):
            yield from expand(share, first, block)


def ledger_blocks(broker: Broker, topic: str, group: str, partition: int) -> Iterator[tuple[int, Block]]:
    """The blocks of a ledger, oldest first, each with the number of its first row."""

    def ask(row: int) -> LedgerReply:
        call = ReadLedger(topic=topic, group=group, partition=partition, from_row=row)
        reply: LedgerReply = broker._call(call)
        return reply

    reply = ask(0)
    blocks = [unpack_block(payload) for payload in reply.blocks]
    counted = blocks if reply.more else _stored(blocks, ask(reply.next))
    first = reply.next - sum(len(block.rows) for block in counted)
    while True:
        for block in blocks:
            yield first, block
            first += len(block.rows)
        if not reply.more:
            return
        first = reply.next
        reply = ask(first)
        blocks = [unpack_block(payload) for payload in reply.blocks]


def _stored(blocks: list[Block], after: LedgerReply) -> list[Block]:
    """Those in the ledger's log. The last answer ends with the rows that are not there yet, if there are any; they are
    what comes first when one asks for what is after the log.
    """
    if not blocks or not after.blocks:
        return blocks
    last = blocks[-1].rows
    following = unpack_block(after.blocks[0]).rows[: len(last)]
    return blocks[:-1] if last.tobytes() == following.tobytes() else blocks


def expand(ledger: Ledger, first_row: int, block: Block) -> Iterator[pa.RecordBatch]:
    """A block's rows as a table: one row for each message of a run."""
    rows = block.rows
    counts = rows["count"].astype(np.int64)
    counts[rows["kind"] == Kind.SEEK] = 1  # it is of no message: it says where the group goes on
    numbers = np.arange(first_row, first_row + len(rows), dtype=np.int64)
    names = pa.array([None, *block.names], pa.string())
    for runs, skip, size in _pieces(counts):
        index = np.repeat(np.arange(runs.start, runs.stop), size)
        starts = np.repeat(np.cumsum(size) - size, size)
        steps = np.arange(len(index), dtype=np.int64) - starts
        steps += np.repeat(skip, size)
        made = _batch(ledger, rows[index], numbers[index], steps, names)
        for start in range(0, made.num_rows, SLICE):
            yield made.slice(start, SLICE)


def _pieces(counts: NDArray[np.int64]) -> Iterator[tuple[range, NDArray[np.int64], NDArray[np.int64]]]:
    """Runs in pieces of bounded size: which, how far into each to begin, how many of each."""
    position = 0
    while position < len(counts):
        if counts[position] > EXPAND:
            for skip in range(0, int(counts[position]), EXPAND):
                size = min(EXPAND, int(counts[position]) - skip)
                yield range(position, position + 1), np.array([skip]), np.array([size])
            position += 1
            continue
        total = np.cumsum(counts[position:])
        end = position + max(int(np.searchsorted(total, EXPAND, side="right")), 1)
        yield range(position, end), np.zeros(end - position, np.int64), counts[position:end]
        position = end


def _batch(
    ledger: Ledger, rows: NDArray[Any], numbers: NDArray[np.int64], steps: NDArray[np.int64], names: pa.Array
) -> pa.RecordBatch:
    count = len(rows)
    kind = rows["kind"]
    offsets = pa.array(rows["first"] + steps)
    until, timed = rows["until"].astype(np.int64), np.isin(kind, _TIMED)
    reasons = names.take(pa.array(rows["reason"].astype(np.int32)))
    attempt = rows["attempt"].astype(np.int32)
    lease = np.where(kind == Kind.DELIVERED, numbers, rows["lease"])
    lanes = np.minimum(rows["lane"], len(ledger.lanes))  # a lane the topic no longer has is null
    head = f"{ledger.topic}/{ledger.partition}/"
    made = {
        "topic": pa.repeat(pa.scalar(ledger.topic), count),
        "partition": pa.repeat(pa.scalar(ledger.partition, pa.int32()), count),
        "offset": offsets,
        "message_id": pc.binary_join_element_wise(head, offsets.cast(pa.string()), ""),
        "group": pa.repeat(pa.scalar(ledger.group), count),
        "event": _EVENT_NAMES.take(pa.array(kind.astype(np.int32))),
        "attempt": pa.array(attempt, mask=attempt == 0),
        "member": names.take(pa.array(rows["member"].astype(np.int32))),
        "reason": reasons,
        "at": pa.array(rows["at"] * 1000).cast(TIME_ARROW),
        "until": pa.array(until * 1000, mask=~timed).cast(TIME_ARROW),
        "lease": pa.array(lease, mask=lease < 0),
        "to": _targets(ledger, kind, until, steps, reasons),
        "priority": pa.array([*ledger.lanes, None], pa.string()).take(pa.array(lanes.astype(np.int32))),
        "row": pa.array(numbers),
    }
    return pa.RecordBatch.from_arrays([made[name] for name in COLUMNS], schema=ARROW)


def _targets(
    ledger: Ledger,
    kind: NDArray[Any],
    until: NDArray[np.int64],
    steps: NDArray[np.int64],
    reasons: pa.Array,
) -> pa.Array:
    """Where a dead letter went, and a redriven one; of the latter perhaps only the topic is known."""
    buried, redriven = kind == Kind.DEAD_LETTERED, kind == Kind.REDRIVEN
    if not buried.any() and not redriven.any():
        return pa.nulls(len(kind), pa.string())
    place = pa.array(until >> PLACE_BITS).cast(pa.string())
    offset = pa.array((until & ((1 << PLACE_BITS) - 1)) + np.where(buried, steps, 0)).cast(pa.string())
    topic = pc.if_else(pa.array(buried), pa.scalar(dlq_name(ledger.topic)), reasons)
    whole = pc.binary_join_element_wise(topic, place, offset, "/")
    known = pc.if_else(pa.array(redriven & (until == 0)), topic, whole)
    return pc.if_else(pa.array(buried | redriven), known, pa.scalar(None, pa.string()))
