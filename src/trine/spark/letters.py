"""view=dead_letters: the messages of `<topic>.dlq`, each with why, when, how often and where it came from.

Read through the log, so that there may be millions. What became of a letter (redriven, purged) is told by the ledger
that the broker keeps of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from trine.log import batch
from trine.model.ids import DLQ_SUFFIX
from trine.model.message import (
    H_ATTEMPTS,
    H_FAILED,
    H_GROUP,
    H_MEMBER,
    H_ORIGIN,
    H_REASON,
    I64,
    RESERVED,
)
from trine.queue.rows import Kind
from trine.spark.columns import TIME_ARROW
from trine.spark.fetch import Range, _ask
from trine.spark.ledger import ledger_blocks
from trine.spark.place import Place
from trine.spark.shares import chosen_topics, schemas
from trine.wire import bodies

COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "headers",
    "priority": "string",
    "message_id": "string",
    "origin": "string",
    "group": "string",
    "reason": "string",
    "attempts": "int",
    "failed_at": "timestamp",
    "member": "string",
    "state": "string",
}
SPARK, ARROW = schemas(COLUMNS)
ROWS: Final = 10_000
STATES: Final = pa.array(["waiting", "redriven", "purged"])
_TEXTS: Final = {H_ORIGIN: "origin", H_GROUP: "group", H_REASON: "reason", H_MEMBER: "member"}


@dataclass(frozen=True, slots=True)
class Letters:
    """Offsets of one partition of a topic of dead letters."""

    range: Range
    lanes: tuple[str, ...]
    group: str | None
    settled: bool
    """Whether the broker keeps a ledger of them: somebody redrove or purged some."""


class DeadLettersView:
    @property
    def schema(self) -> StructType:
        return SPARK

    def plan(self, place: Place, options: Mapping[str, str]) -> list[Letters]:
        broker = place.shared()
        topics, given = chosen_topics(broker, options, "dead_letters", "group")
        kept = {one.name: one for one in broker.topics()}
        found = []
        for name in topics:
            letters = kept.get(name if name.endswith(DLQ_SUFFIX) else dlq_name(name))
            if letters is None:
                continue  # nothing was given up on yet
            settled = REDRIVE_GROUP in letters.groups
            for one in letters.partitions:
                if one.first_offset < one.next_offset:
                    span = Range(letters.name, one.number, one.first_offset, one.next_offset, whole=False)
                    found.append(Letters(span, letters.config.lanes, given.get("group"), settled))
        return list(dict.fromkeys(found))

    def read(self, place: Place, share: Letters) -> Iterator[pa.RecordBatch]:
        broker, span = place.shared(), share.range
        fates = _fates(broker, span) if share.settled else None
        taken = _Taken(share, fates)
        position = span.start
        while position < span.end:
            _, _, data = bodies.read_range(memoryview(_ask(broker, span, position)))
            if not len(data):
                break
            at = 0
            while at < len(data):
                header = batch.read_header(data, at)
                taken.add(header, data[at : at + header.size])
                at += header.size
                position = header.next_offset
                if len(taken) >= ROWS:
                    yield taken.give()
        if len(taken):
            yield taken.give()


def _fates(broker: Broker, span: Range) -> NDArray[np.uint8]:
    """What became of each letter of the range: an index of STATES."""
    fates = np.zeros(span.end - span.start, np.uint8)
    for _, block in ledger_blocks(broker, span.topic, REDRIVE_GROUP, span.partition):
        rows = block.rows
        ended = rows[np.isin(rows["kind"], (Kind.REDRIVEN, Kind.ACKED))]
        for kind, first, count in zip(
            ended["kind"].tolist(), ended["first"].tolist(), ended["count"].tolist(), strict=True
        ):
            start = max(first - span.start, 0)
            fates[start : max(first + count - span.start, 0)] = 1 if kind == Kind.REDRIVEN else 2
    return fates


class _Taken:
    """Records on their way into one Arrow batch."""

    def __init__(self, share: Letters, fates: NDArray[np.uint8] | None) -> None:
        self._share = share
        self._fates = fates
        self._lists: dict[str, list[Any]] = {}
        self._clear()

    def _clear(self) -> None:
        names = ("offset", "time", "key", "value", "lane", "headers", "attempts", "failed_at")
        self._lists = {name: [] for name in (*names, *_TEXTS.values())}

    def __len__(self) -> int:
        return len(self._lists["offset"])

    def add(self, header: batch.Header, data: memoryview) -> None:
        for offset, time, key, value, headers in zip(*batch.columns(data), strict=True):
            if self._share.range.start <= offset < self._share.range.end:
                self._add(offset, time, key, value, headers, header.lane)

    def _add(
        self,
        offset: int,
        time: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        lane: int,
    ) -> None:
        own = {name: raw for name, raw in headers if raw is not None and name.startswith(RESERVED)}
        group = own.get(H_GROUP, b"").decode("utf-8", "replace")
        if self._share.group not in (None, group):
            return
        lists = self._lists
        lists["offset"].append(offset)
        lists["time"].append(time)
        lists["key"].append(key)
        lists["value"].append(value)
        lists["lane"].append(min(lane, len(self._share.lanes)))
        lists["headers"].append(
            [
                {"key": name, "value": raw if raw is not None else b""}
                for name, raw in headers
                if not name.startswith(RESERVED)
            ]
        )
        for name, column in _TEXTS.items():
            raw = own.get(name)
            lists[column].append(None if raw is None else raw.decode("utf-8", "replace"))
        attempts, failed = own.get(H_ATTEMPTS), own.get(H_FAILED)
        lists["attempts"].append(int(attempts) if attempts else None)
        lists["failed_at"].append((I64.unpack(failed)[0] if failed else time) * 1000)

    def give(self) -> pa.RecordBatch:
        span, lists, count = self._share.range, self._lists, len(self)
        offsets = np.array(lists["offset"], np.int64)
        fate = np.zeros(count, np.int32) if self._fates is None else self._fates[offsets - span.start]
        column = pa.array(offsets)
        made = {
            "key": pa.array(lists["key"], pa.binary()),
            "value": pa.array(lists["value"], pa.binary()),
            "topic": pa.repeat(pa.scalar(span.topic), count),
            "partition": pa.repeat(pa.scalar(span.partition, pa.int32()), count),
            "offset": column,
            "timestamp": pa.array(np.array(lists["time"], np.int64) * 1000).cast(TIME_ARROW),
            "headers": pa.array(lists["headers"], ARROW.field("headers").type),
            "priority": pa.array([*self._share.lanes, None], pa.string()).take(pa.array(lists["lane"])),
            "message_id": pc.binary_join_element_wise(
                f"{span.topic}/{span.partition}/", column.cast(pa.string()), ""
            ),
            "attempts": pa.array(lists["attempts"], pa.int32()),
            "failed_at": pa.array(lists["failed_at"], pa.int64()).cast(TIME_ARROW),
            "state": STATES.take(pa.array(fate.astype(np.int32))),
        }
        made |= {name: pa.array(lists[name], pa.string()) for name in _TEXTS.values()}
        self._clear()
        return pa.RecordBatch.from_arrays([made[name] for name in COLUMNS], schema=ARROW)
