"""Search: messages by key, by time, and by where they stand in a group. Called under the engine's lock.

What is not settled stands in the live ledgers, so looking for it costs per message found. How something was settled
stands in the ledgers' blocks, which are read a stretch of the log at a time, from the oldest message on, until there
is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import TYPE_CHECKING, Final

from trine.broker.operations import REDRIVE_GROUP
from trine.log import batch
from trine.log.batch import StoredRecord
from trine.model.duration import duration_ms, instant_ms
from trine.model.errors import InvalidOption
from trine.model.message import Duration, Instant, as_bytes
from trine.queue.ledger import Lease, Ledger, next_set, run_end, runs_of
from trine.trace.blocks import blocks_about, spans_with
from trine.trace.life import STATE_OF
from trine.trace.standing import Standing
from trine.trace.timeline import UNSETTLED, Found, State

if TYPE_CHECKING:
    from trine.broker.engine import Engine
    from trine.broker.group import GroupState
    from trine.broker.group_part import GroupPart
    from trine.broker.partition import Partition

UNACKED: Final = "unacked"
STATES: Final = (UNACKED, *(state.value for state in State if state is not State.REDRIVEN))
FOUND_MAX: Final = 10_000
"""Messages one search may give: it holds the engine's lock."""
STRETCH: Final = 16_384
"""Messages looked at together: a few blocks of a ledger, a few hundred kilobytes of arrays."""
SHORT: Final = 256
"""Runs up to this length are read through the cache of decoded batches, longer ones past it."""

Wanted = frozenset[State] | None
"""The states looked for; None is any."""


def trace_search(
    engine: Engine,
    topic: str,
    *,
    key: bytes | str | None = None,
    group: str | None = None,
    state: str | None = None,
    older_than: Duration | None = None,
    from_time: Instant | None = None,
    to_time: Instant | None = None,
    limit: int = 100,
) -> list[Found]:
    """Messages of a topic, oldest first. A state without a group is looked for in all groups.

    A key is looked for in the partition it belongs to; a message put elsewhere by `partition=` is not found by it.
    """
    found_in = engine.topic(topic)
    if not isinstance(limit, int) or not 1 <= limit <= FOUND_MAX:
        raise InvalidOption(
            f"limit is {limit}; it must be 1 to {FOUND_MAX}: narrow the search by time to see more"
        )
    wanted = _wanted(state)
    from_ms = 0 if from_time is None else instant_ms(from_time)
    to_ms = None if to_time is None else instant_ms(to_time)
    if older_than is not None:
        before = engine.clock.now_ms() - duration_ms(older_than, what="older_than") + 1
        to_ms = before if to_ms is None else min(to_ms, before)
    wanted_key = as_bytes(key, "key")
    groups: list[GroupState | None]
    if group is not None:
        groups = [engine.group(found_in, group)]
    elif state is not None:
        groups = [one for one in found_in.groups.values() if one.name != REDRIVE_GROUP]
    else:
        groups = [None]
    found = [
        one
        for partition in found_in.partitions
        for chosen in groups
        for one in _search(partition, chosen, wanted, wanted_key, from_ms, to_ms, limit)
    ]
    found.sort(key=lambda one: one.at_ms)
    return found[:limit]


def _wanted(state: str | None) -> Wanted:
    if state is None:
        return None
    name = state.strip().lower().replace("_", " ").replace("-", " ") if isinstance(state, str) else state
    if name == UNACKED:
        return UNSETTLED
    for known in State:
        if known.value.replace("-", " ") == name and known is not State.REDRIVEN:
            return frozenset({known})
    raise InvalidOption(f"there is no state {state!r}; the states are: {', '.join(STATES)}")


def _search(
    partition: Partition,
    group: GroupState | None,
    wanted: Wanted,
    key: bytes | None,
    from_ms: int,
    to_ms: int | None,
    limit: int,
) -> list[Found]:
    log = partition.log
    start = partition.offset_at(from_ms) if from_ms else log.start_offset
    end = log.next_offset if to_ms is None else partition.offset_at(to_ms)
    found: list[Found] = []
    if group is None:
        for record in _records(partition, start, end, key):
            if _in_time(record, from_ms, to_ms):
                found.append(Found(_id(partition, record), record.key, record.timestamp))
                if len(found) >= limit:
                    break
        return found
    part = group.parts[partition.number]
    stands = _Stands(part, start, end)
    for stretch in _stretches(_candidates(part, wanted, start, end)):
        for first, last in stands.narrowed(*stretch, wanted):
            for record in _records(partition, first, last, key):
                state, attempts, member = stands.of(record.offset)
                if (wanted is None or state in wanted) and _in_time(record, from_ms, to_ms):
                    id_ = _id(partition, record)
                    found.append(
                        Found(id_, record.key, record.timestamp, state, group.name, attempts, member)
                    )
                    if len(found) >= limit:
                        return found
    return found


def _in_time(record: StoredRecord, from_ms: int, to_ms: int | None) -> bool:
    return record.timestamp >= from_ms and (to_ms is None or record.timestamp < to_ms)


def _id(partition: Partition, record: StoredRecord) -> str:
    return f"{partition.topic.name}/{partition.number}/{record.offset}"


def _records(partition: Partition, first: int, end: int, key: bytes | None) -> Iterator[StoredRecord]:
    """The records of a run, of one key if that is given."""
    if end - first <= SHORT:
        for record in partition.records(first, end - first):
            if key is None or record.key == key:
                yield record
        return
    needle = b"" if key is None else _needle(key)
    position = first
    while position < end and (stored := partition.log.read(position)):
        for data in stored:
            # A key stands in its batch as it is: most batches of a large log need not be decoded to pass them over.
            if needle not in data and not batch.read_header(data).compression:
                continue
            records = batch.decode(data)
            if key is not None:
                records = [record for record in records if record.key == key]
            for record in records:
                if first <= record.offset < end:
                    yield record
        position = batch.read_header(stored[-1]).next_offset


def _needle(key: bytes) -> bytes:
    """The key as records have it: its length as a zigzag varint before it."""
    left, size = 2 * len(key), bytearray()
    while left > 0x7F:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes(size) + bytes((left,)) + key


def _candidates(part: GroupPart, wanted: Wanted, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where such messages can be, as runs (first, end) within the range, in the log's order."""
    ledger = part.ledger
    runs: Iterable[tuple[int, int]]
    if wanted is None or State.SKIPPED in wanted:
        runs = [(start, end)]
    elif not wanted <= UNSETTLED:
        kinds = [kind for kind, state in STATE_OF.items() if state in wanted]
        runs = spans_with(part.log, ledger.open_block(), kinds)
    elif wanted == {State.IN_FLIGHT}:
        runs = sorted(
            (first, first + count) for lease in ledger.leases.values() for first, count in lease.open_runs()
        )
    elif wanted == {State.RETRYING}:
        runs = [(first, first + count) for first, count in runs_of(sorted(ledger.retries))]
    else:
        runs = merge(_reopened(ledger, start, end), _unsettled(ledger, start, end))
    for first, last in runs:
        if first < end and last > start:
            yield max(first, start), min(last, end)


def _reopened(ledger: Ledger, start: int, end: int) -> Iterator[tuple[int, int]]:
    position = start
    while position < end and (found := next_set(ledger.reopened, position)) is not None:
        position = run_end(ledger.reopened, found)
        yield found, position


def _unsettled(ledger: Ledger, start: int, end: int) -> Iterator[tuple[int, int]]:
    position = max(start, ledger.floor)
    while position < end:
        found = next_set(ledger.settled, position)
        if found is None:
            yield position, end
            return
        if found > position:
            yield position, found
        position = run_end(ledger.settled, found)


def _stretches(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for first, end in runs:
        while end - first > STRETCH:
            yield first, first + STRETCH
            first += STRETCH
        yield first, end


class _Stands:
    """Where the messages of one stretch after the other stand in a group.

    Blocks are only read when it matters how something was settled.
    """

    def __init__(self, part: GroupPart, start: int, end: int) -> None:
        self._part = part
        self._standing: Standing | None = None
        self._leases: dict[int, Lease] = {
            offset: lease
            for lease in part.ledger.leases.values()
            if lease.first < end and lease.first + lease.count > start
            for first, count in lease.open_runs()
            for offset in range(first, first + count)
        }

    def narrowed(self, first: int, end: int, wanted: Wanted) -> list[tuple[int, int]]:
        """Goes to a stretch; answers what of it is to be looked at, as (first, end)."""
        self._standing = None
        if wanted is not None and wanted <= UNSETTLED:
            return [(first, end)]
        part = self._part
        self._standing = Standing(first, end - first)
        for payload in blocks_about(part.log, part.ledger.open_block(), first, end):
            self._standing.add(payload)
        if wanted is None:
            return [(first, end)]
        offsets = self._standing.among(wanted)
        return [(start, start + count) for start, count in runs_of(offsets)]

    def of(self, offset: int) -> tuple[State, int, str | None]:
        """(state, attempts, member)."""
        ledger = self._part.ledger
        if ledger.is_settled(offset):
            return (State.ACKED, 0, None) if self._standing is None else self._standing.settled(offset)
        if (lease := self._leases.get(offset)) is not None:
            return State.IN_FLIGHT, lease.attempt, lease.member
        if (retry := ledger.retries.get(offset)) is not None:
            return State.RETRYING, retry.attempt, None
        return State.WAITING, 0, None
