"""The verbs of the public interface that are more than a line: each decides, commits, and answers at once.

All are called under the engine's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trine.broker.dead_letters import dlq_name
from trine.broker.description import describe_cron
from trine.broker.entry import Entry
from trine.broker.group_part import once
from trine.broker.metadata import CronDeleted, CronMeta, CronSet
from trine.broker.schedule import Over, hour_of
from trine.broker.waits import find_waiting
from trine.log import batch
from trine.log.batch import StoredRecord
from trine.log.compaction import latest_by_key
from trine.log.stored import DeadLetter, LogMessage, StoredMessage
from trine.model import limits
from trine.model.description import CronDescription, Scheduled
from trine.model.durability import Level
from trine.model.duration import instant_ms
from trine.model.errors import (
    EmptyBatch,
    InvalidOption,
    InvalidReceipt,
    ScheduleExists,
    TooMany,
    UnknownMessage,
    UnknownSchedule,
)
from trine.model.ids import DLQ_SUFFIX, ScheduleId, check_name, parse_message_id, parse_schedule_id
from trine.model.message import Headers, Instant, Outgoing, Published, as_bytes, draft, due_ms
from trine.model.options import GroupConfig
from trine.model.receipt import read_receipt
from trine.queue import cron as crons
from trine.queue.ledger import runs_of
from trine.queue.rows import Kind, Row, unpack_block

if TYPE_CHECKING:
    from trine.broker.engine import Engine
    from trine.broker.group import GroupState
    from trine.broker.group_part import GroupPart, Run
    from trine.broker.topic import TopicState

REDRIVE_GROUP = "_dead_letters"
"""The group of a dead letter topic whose ledger says which letters are still there: not redriven, not purged."""


# --- messages in


def commit_transaction(
    engine: Engine,
    acks: Sequence[tuple[GroupState, list[tuple[GroupPart, Run]]]],
    messages: Mapping[str, list[Outgoing]],
) -> tuple[dict[str, Published], int]:
    """Acks and publishes in one entry of the journal."""
    if not acks and not messages:
        raise EmptyBatch("the transaction is empty: ack or publish something in it")
    now = engine.clock.now_ms()
    entry = Entry()
    published = {}
    for name, given in messages.items():
        topic = engine.topic(name)
        drafts = [draft(message, topic.config, now) for message in given]
        places, duplicates = topic.add(entry, drafts, now)
        published[name] = Published(
            name, engine.durability(Level.SYNCED), places=places, duplicates=duplicates
        )
    settled: dict[int, tuple[GroupState, list[tuple[GroupPart, Run]]]] = {}
    for group, runs in acks:
        settled.setdefault(id(group), (group, []))[1].extend(runs)
    for group, runs in settled.values():
        runs[:] = once(runs)
        group.ack(runs, now, entry)
    lsn = engine.commit(entry, Level.SYNCED)
    for group, runs in settled.values():
        group.settled(sum(run[2] for _, run in runs), now)
    return published, lsn


def find_run(engine: Engine, group: GroupState, text: str) -> tuple[GroupPart, Run]:
    """What a receipt is proof of."""
    if not isinstance(text, str):
        raise InvalidReceipt(f"a receipt is a string, not {type(text).__name__}; pass message.receipt")
    receipt = read_receipt(text, group.receipt_key, group.topic.name, group.name)
    part = group.part_of(receipt.partition)
    return part, (receipt.lease, receipt.offset, 1)


# --- the log


def read_log(
    topic: TopicState,
    partition: int | None,
    from_offset: int | None,
    to_offset: int | None,
    from_time: Instant | None,
    to_time: Instant | None,
    most: int,
) -> list[StoredMessage]:
    if most < 1 or most > 100_000:
        raise InvalidOption(f"max is {most}; it must be 1 to 100000: read further from the last offset")
    if partition is None and (from_offset is not None or to_offset is not None):
        raise InvalidOption("an offset is a place in one partition: say which, with partition=")
    end_ms = None if to_time is None else instant_ms(to_time)
    chosen = topic.partitions if partition is None else [topic.partition(partition)]
    found: list[StoredMessage] = []
    for one in chosen:
        start = one.log.start_offset if from_offset is None else max(from_offset, one.log.start_offset)
        if from_time is not None:
            start = max(start, one.offset_at(instant_ms(from_time)))
        end = one.log.next_offset if to_offset is None else min(to_offset, one.log.next_offset)
        taken = 0
        while start < end and taken < most:
            window = min(end - start, most - taken, 1000)
            for record in one.records(start, window):
                if end_ms is not None and record.timestamp >= end_ms:
                    end = start
                    break
                found.append(LogMessage(record, one.origin, one.lane_of(record.offset)))
                taken += 1
            start += window
    if len(chosen) > 1:
        found.sort(key=lambda message: (message.timestamp_ms, message.partition, message.offset))
    return found[:most]


# --- groups


def seek_targets(
    group: GroupState, offset: int | None, time: Instant | None, to: str | None, partition: int | None
) -> dict[int, int]:
    if sum(given is not None for given in (offset, time, to)) != 1:
        raise InvalidOption("seek takes exactly one of offset=, time= and to= ('earliest' or 'latest')")
    if to is not None and to not in ("earliest", "latest"):
        raise InvalidOption(f"to is 'earliest' or 'latest', not {to!r}")
    if partition is not None:
        group.topic.partition(partition)
    targets = {}
    for part in group.parts:
        one = part.partition
        if partition is not None and one.number != partition:
            continue
        if to is not None:
            targets[one.number] = one.log.start_offset if to == "earliest" else one.log.next_offset
        else:
            targets[one.number] = one.place_of(offset, time)
    return targets


def replay_runs(
    group: GroupState,
    failed: bool,
    key: bytes | str | None,
    from_time: Instant | None,
    to_time: Instant | None,
) -> list[tuple[int, int, int]]:
    """Settled messages to be delivered again, as (partition, first, count)."""
    if not failed and key is None and from_time is None and to_time is None:
        raise InvalidOption(
            "say what to replay: failed=True, key=, from_time= or to_time=; seek moves the whole group"
        )
    wanted = as_bytes(key, "key")
    start_ms = None if from_time is None else instant_ms(from_time)
    end_ms = None if to_time is None else instant_ms(to_time)
    runs = []
    for part in group.parts:
        one = part.partition
        start = one.log.start_offset if start_ms is None else one.offset_at(start_ms)
        end = one.log.next_offset if end_ms is None else one.offset_at(end_ms)
        if not failed and wanted is None:
            offsets: Iterable[int] = range(start, end)
        elif failed:
            offsets = [offset for offset in sorted(failed_offsets(part)) if start <= offset < end]
            if wanted is not None:
                offsets = [offset for offset in offsets if one.keys(offset, 1)[0] == wanted]
        else:
            offsets = [record.offset for record in one.scan(start, end) if record.key == wanted]
        ledger = part.ledger
        runs += [
            (one.number, first, count) for first, count in runs_of(o for o in offsets if ledger.is_settled(o))
        ]
    return runs


def failed_offsets(part: GroupPart) -> set[int]:
    """Offsets the group gave up on, read out of the ledger's rows; what was acked later is not among them."""
    offsets: set[int] = set()
    for payload in part.blocks():
        for row in unpack_block(payload).rows:
            span = range(int(row["first"]), int(row["first"]) + int(row["count"]))
            if row["kind"] in (Kind.DEAD_LETTERED, Kind.REJECTED):
                offsets.update(span)
            elif row["kind"] == Kind.ACKED and offsets:
                offsets.difference_update(span)
    return offsets


def retained_runs(topic: TopicState) -> list[tuple[int, int, int]]:
    """The last message of each key, as runs: what a new subscriber of a retaining topic sees first."""
    runs = []
    for one in topic.partitions:
        latest = latest_by_key(one.log, one.log.start_offset, one.log.next_offset)
        kept = []
        for offset in sorted(latest.values()):
            record = one.record(offset)
            if record is not None and record.value is not None:
                kept.append(offset)
        runs += [(one.number, first, count) for first, count in runs_of(kept)]
    return runs


# --- schedule


def scheduled(topic: TopicState, limit: int) -> list[Scheduled]:
    found = []
    for one in topic.schedule.waiting(limit):
        bucket, row = topic.schedule.at(one.ref)
        record = topic.schedule.record(bucket, row)
        header = topic.schedule.header(bucket, row)
        lane = topic.config.lanes[min(header.lane, len(topic.config.lanes) - 1)]
        found.append(
            Scheduled(str(one.id), topic.name, one.due_ms, record.timestamp, record.key, record.value, lane)
        )
    return found


def cancel_schedule(engine: Engine, text: str) -> int:
    schedule_id = parse_schedule_id(text)
    topic = engine.topic(schedule_id.topic)
    waiting = find_waiting(topic, schedule_id)
    entry = Entry()
    row = waiting.header.base_offset
    topic.end_waits(entry, waiting.bucket.hour, Over.CANCELLED, [row], [0], engine.clock.now_ms())
    return engine.commit(entry, Level.SYNCED, reserve=True)


def move_schedule(engine: Engine, text: str, delay: Any, deliver_at: Any) -> int:
    """One entry: the message leaves its hour and enters another, under the same id."""
    schedule_id = parse_schedule_id(text)
    topic = engine.topic(schedule_id.topic)
    if (delay is None) == (deliver_at is None):
        raise InvalidOption("give delay or deliver_at, one of them")
    now = engine.clock.now_ms()
    due = due_ms(delay, deliver_at, topic.config, now) or now
    waiting = find_waiting(topic, schedule_id)
    bucket, header, row = waiting.bucket, waiting.header, waiting.header.base_offset
    first = schedule_id
    if header.producer_id >= 0:
        first = ScheduleId(topic.name, header.producer_id, header.base_sequence)
    record = batch.decode(bucket.log.read_batch(waiting.position, header.size))[0]
    entry = Entry()
    topic.end_waits(entry, bucket.hour, Over.MOVED, [row], [hour_of(due)], now)
    flags = header.attributes & (batch.HAS_TTL | batch.HAS_DEDUP)
    data = batch.encode_single(
        record.timestamp, record.key, record.value, list(record.headers), lane=header.lane, flags=flags,
        producer_id=first.hour, producer_epoch=0, base_sequence=first.row,
    )  # fmt: skip
    topic.put_waiting(entry, hour_of(due), [(data, due)])
    return engine.commit(entry, Level.SYNCED)


def set_cron(
    engine: Engine,
    name: str,
    topic: str,
    expression: str,
    value: bytes | str | None,
    key: bytes | str | None,
    headers: Headers | None,
    priority: str | None,
    timezone: str,
) -> tuple[CronDescription, int]:
    check_name(name, "recurring schedule")
    state = engine.topic(topic)
    if name in engine.meta.crons:
        raise ScheduleExists(f"there is a recurring schedule {name!r} already; delete it first")
    if len(engine.meta.crons) >= limits.GROUPS_MAX:
        raise TooMany(f"there are {limits.GROUPS_MAX} recurring schedules, the most there may be")
    now = engine.clock.now_ms()
    one = draft(Outgoing(value=value, key=key, headers=headers, priority=priority), state.config, now)
    cron = CronMeta(
        topic, name, expression, timezone, one.value, one.key,
        {header: as_bytes(text, "header") or b"" for header, text in (headers or {}).items()},
        priority, crons.next_after(expression, now, timezone),
    )  # fmt: skip
    entry = Entry()
    entry.meta(CronSet(cron), engine.apply_meta)
    return describe_cron(cron), engine.commit(entry, Level.SYNCED)


def delete_cron(engine: Engine, name: str) -> int:
    if name not in engine.meta.crons:
        raise UnknownSchedule(f"there is no recurring schedule {name!r}; crons() lists them")
    entry = Entry()
    entry.meta(CronDeleted(name), engine.apply_meta)
    return engine.commit(entry, Level.SYNCED)


# --- dead letters

NAMED_MAX = 1000
"""Letters a redrive or a purge may name: a job is written anew with every step."""
PURGE_STEP = 2_000
"""Letters looked at with the lock held once."""


def letters_group(dlq: TopicState) -> GroupState:
    """The ledger of what is still buried."""
    group = dlq.groups.get(REDRIVE_GROUP)
    if group is None:
        group = dlq.engine.create_group(dlq, REDRIVE_GROUP, GroupConfig(breaker=None))
    return group


def letters_named(engine: Engine, dlq: str, ids: Sequence[str]) -> list[tuple[int, int]]:
    """Ids of dead letters as (partition, offset), rising, each once."""
    if not 1 <= len(ids) <= NAMED_MAX:
        raise InvalidOption(f"there are {len(ids)} ids; 1 to {NAMED_MAX} can be named: use filters for more")
    known = engine.topics.get(dlq)
    partitions = len(known.partitions) if known is not None else 0
    named = set()
    for text in ids:
        found = parse_message_id(text)
        if found.topic != dlq or found.partition >= partitions:
            raise UnknownMessage(f"{text} is not an id of a dead letter here; they look like {dlq}/0/17")
        named.add((found.partition, found.offset))
    return sorted(named)


def dead_letters(
    topic: TopicState, reason: str | None, group: str | None, key: bytes | str | None, limit: int
) -> list[DeadLetter]:
    dlq = topic.engine.topics.get(dlq_name(topic.name))
    if dlq is None:
        return []
    wanted = as_bytes(key, "key")
    found = []
    for part in letters_group(dlq).parts:
        one = part.partition
        for record in one.scan(part.ledger.first_unsettled(), one.log.next_offset):
            if part.ledger.is_settled(record.offset):
                continue
            letter = DeadLetter(record, one.origin, one.lane_of(record.offset))
            if matches(letter, reason, group, wanted):
                found.append(letter)
                if len(found) >= limit:
                    break
    return sorted(found, key=lambda letter: letter.timestamp_ms)[:limit]


def matches(letter: DeadLetter, reason: str | None, group: str | None, key: bytes | None) -> bool:
    if reason is not None and reason not in letter.reason:
        return False
    if group is not None and group != letter.group:
        return False
    return key is None or key == letter.key


class Purge:
    """Dead letters deleted a step at a time, each its own entry of the journal: nobody waits long for a large one.
    What is buried meanwhile stays. Each step is called under the engine's lock."""

    def __init__(
        self,
        topic: TopicState,
        reason: str | None = None,
        group: str | None = None,
        key: bytes | str | None = None,
        ids: Sequence[str] | None = None,
    ) -> None:
        self.count = 0
        self.done = False
        self._engine = topic.engine
        self._which = (reason, group, as_bytes(key, "key"))
        name = topic.name if topic.name.endswith(DLQ_SUFFIX) else dlq_name(topic.name)
        dlq = topic.engine.topics.get(name)
        self._parts = letters_group(dlq).parts if dlq is not None else []
        self._at = [part.ledger.first_unsettled() for part in self._parts]
        self._ends = [part.partition.log.next_offset for part in self._parts]
        self._named: set[tuple[int, int]] | None = None
        if ids is not None:
            if any(one is not None for one in self._which):
                raise InvalidOption("ids= names the letters: it does not go together with filters")
            self._named = set(letters_named(topic.engine, name, ids))
            self._narrow(self._named)

    def _narrow(self, named: set[tuple[int, int]]) -> None:
        """Only as much of the log is looked at as has these letters."""
        for number in range(len(self._parts)):
            own = [offset for partition, offset in named if partition == number]
            self._at[number] = max(self._at[number], min(own, default=self._ends[number]))
            self._ends[number] = min(self._ends[number], max(own, default=-1) + 1)

    def step(self) -> int:
        """Looks at the next ones, deletes what is meant, and answers the lsn that must become durable."""
        engine = self._engine
        now = engine.clock.now_ms()
        entry = Entry()
        looked = 0
        self.done = True
        for number, part in enumerate(self._parts):
            letters = []
            for record in part.partition.scan(self._at[number], self._ends[number]):
                if looked >= PURGE_STEP:
                    self.done = False
                    break
                looked += 1
                self._at[number] = record.offset + 1
                if not part.ledger.is_settled(record.offset) and self._means(number, part, record):
                    letters.append(record.offset)
            if letters:
                why = part.ledger.name("purged")
                rows = [Row(Kind.ACKED, 0, 0, 0, why, now, f, n, 0, -1) for f, n in runs_of(letters)]
                entry.rows(part, rows)
                self.count += len(letters)
            if not self.done:
                break
        return engine.commit(entry, Level.SYNCED, reserve=True)

    def _means(self, number: int, part: GroupPart, record: StoredRecord) -> bool:
        if self._named is not None:
            return (number, record.offset) in self._named
        return matches(DeadLetter(record, part.partition.origin, 0), *self._which)
