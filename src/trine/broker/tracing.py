"""A message's trace: what log, schedule and ledgers say of one id, put in order. Called under the engine's lock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trine.broker.dead_letters import dlq_name
from trine.broker.operations import REDRIVE_GROUP
from trine.broker.searching import trace_search
from trine.broker.waits import Wait, wait_of
from trine.log.batch import StoredRecord
from trine.log.stored import header_of
from trine.model.duration import format_ms, iso
from trine.model.errors import NotFound, UnknownMessage, UnknownSchedule
from trine.model.ids import MessageId, ScheduleId, parse_message_id, parse_schedule_id
from trine.model.message import (
    H_ATTEMPTS,
    H_CRON,
    H_DEDUP,
    H_EXPIRES,
    H_GROUP,
    H_MEMBER,
    H_ORIGIN,
    H_PRODUCER,
    H_PUBLISHED,
    H_REASON,
    H_REDRIVEN,
    H_SCHEDULE,
    I64,
)
from trine.queue.rows import Kind
from trine.trace.blocks import blocks_about
from trine.trace.life import Told, live, place_id, rows_about
from trine.trace.timeline import Event, GroupLife, Trace, What

if TYPE_CHECKING:
    from trine.broker.engine import Engine
    from trine.broker.group_part import GroupPart
    from trine.broker.partition import Partition
    from trine.broker.topic import TopicState

__all__ = ["trace_message", "trace_search"]

H_TRACEPARENT = "traceparent"
"""W3C trace context, as its producer gave it."""
PURGED = "purged"
"""The reason under which purged dead letters are settled."""


def trace_message(engine: Engine, text: str) -> Trace:
    """The trace of a message id or a schedule id."""
    if not isinstance(text, str) or "@" not in text:
        return _Tracing(engine, parse_message_id(text)).trace()
    schedule_id = parse_schedule_id(text)
    topic = engine.topic(schedule_id.topic)
    wait = wait_of(topic, schedule_id)
    if wait.place is not None:
        return _Tracing(engine, parse_message_id(place_id(topic.name, wait.place)), wait).trace()
    return Trace(
        message_id=None,
        schedule_id=str(wait.id),
        key=wait.key,
        published_ms=wait.published_ms,
        due_ms=wait.due_ms,
        events=wait.events,
    )


class _Tracing:
    """One look-up: collects events and links, then puts them in order."""

    def __init__(self, engine: Engine, message_id: MessageId, wait: Wait | None = None) -> None:
        self._engine = engine
        self._id = message_id
        self._topic = engine.topic(message_id.topic)
        self._partition = _partition_of(self._topic, message_id)
        self._record = _record_of(self._partition, message_id.offset)
        self._wait = wait
        self._events: list[Event] = []
        self._links: dict[str, list[str]] = {}

    def trace(self) -> Trace:
        record = self._record
        self._before_the_log()
        lives = self._in_groups()
        if record is None and not self._events:
            raise UnknownMessage(
                f"{self._id} is no longer in the log (it begins at offset {self._partition.log.start_offset}) and no "
                "ledger speaks of it any more; a longer retention keeps both"
            )
        self._events.sort(key=lambda event: event.at_ms)  # stable: what was told first stays first
        self._retained()
        return Trace(
            message_id=str(self._id),
            schedule_id=next(iter(self._links.get("schedule", [])), None),
            key=record.key if record is not None else self._wait.key if self._wait is not None else None,
            published_ms=self._published_ms(),
            due_ms=self._wait.due_ms if self._wait is not None else None,
            kept=record is not None,
            events=self._events,
            groups=lives,
            links=self._links,
        )

    # --- how it came into the log

    def _before_the_log(self) -> None:
        record = self._record
        if record is None:
            if self._wait is not None:
                self._scheduled(self._wait)
            return
        origin, schedule_id = _text(record, H_ORIGIN), _text(record, H_SCHEDULE)
        if origin is None and schedule_id is not None:
            if self._wait is None:
                self._wait = self._wait_of(schedule_id, record)
            self._scheduled(self._wait, _publish_detail(record))
            return
        self._add(record.timestamp, What.PUBLISHED, _publish_detail(record))
        if origin is not None:
            self._link("origin", origin)
            self._fate_of_letter(self._id)
        elif (letter := _text(record, H_REDRIVEN)) is not None:
            self._add(record.timestamp, What.REDRIVEN, f"out of the dead letters, from {letter}")
            self._link("redriven_from", letter)
            buried = _stored(self._engine, letter)
            if buried is not None and (first := _text(buried, H_ORIGIN)) is not None:
                self._link("origin", first)
        if (parent := _text(record, H_TRACEPARENT)) is not None:
            self._link("traceparent", parent)

    def _wait_of(self, schedule_id: str, record: StoredRecord) -> Wait:
        """The wait as the schedule knows it, or else as the message's own headers do."""
        parsed = parse_schedule_id(schedule_id)
        try:
            return wait_of(self._topic, parsed)
        except UnknownSchedule:
            raw = header_of(record, H_PUBLISHED)
            published = record.timestamp if raw is None else int(I64.unpack(raw)[0])
            return _remembered(parsed, record, published)

    def _scheduled(self, wait: Wait, detail: str = "") -> None:
        self._add(wait.published_ms, What.PUBLISHED, detail)
        self._events += wait.events
        self._link("schedule", str(wait.id))

    def _published_ms(self) -> int | None:
        if self._wait is not None:
            return self._wait.published_ms
        return None if self._record is None else self._record.timestamp

    # --- what the groups did

    def _in_groups(self) -> dict[str, GroupLife]:
        lives = {}
        record = self._record
        published = self._published_ms()
        due = self._wait.fired_ms if self._wait is not None else None
        letters = dlq_name(self._topic.name)
        for group in self._topic.groups.values():
            if group.name == REDRIVE_GROUP:
                continue
            part = group.parts[self._id.partition]
            rows = list(rows_of(part, self._id.offset, None if record is None else record.timestamp))
            if record is None and all(row.kind is Kind.SEEK for row in rows):
                continue
            late = record is not None and group.meta.created_ms > record.timestamp
            events, life = live(
                group.name,
                rows,
                letters=letters,
                published_ms=published,
                due_ms=due,
                settled=part.ledger.is_settled(self._id.offset),
                kept=record is not None,
                began_after=late and group.config.start == "latest",
            )
            self._events += events
            lives[group.name] = life
            for row in rows:
                if row.kind is Kind.DEAD_LETTERED:
                    letter = place_id(letters, row.until, row.step)
                    self._link("dead_letters", letter)
                    self._fate_of_letter(parse_message_id(letter))
        return lives

    def _fate_of_letter(self, letter: MessageId) -> None:
        """What became of a dead letter: it is still there, or was sent somewhere, or purged."""
        dlq = self._engine.topics.get(letter.topic)
        ledger = None if dlq is None else dlq.groups.get(REDRIVE_GROUP)
        if ledger is None or not 0 <= letter.partition < len(ledger.parts):
            return
        for row in rows_of(ledger.parts[letter.partition], letter.offset, None):
            if row.kind is Kind.REDRIVEN and row.reason is not None:
                target = place_id(row.reason, row.until)
                if row.until == 0 and not self._came_from(target, letter):
                    self._add(row.at_ms, What.REDRIVEN, f"{letter} was sent to topic {row.reason}")
                    continue
                self._add(row.at_ms, What.REDRIVEN, f"{letter} was sent on as {target}")
                self._link("redriven_to", target)
            elif row.kind is Kind.ACKED and row.reason == PURGED:
                self._add(row.at_ms, What.PURGED, f"{letter} was purged")

    def _came_from(self, target: str, letter: MessageId) -> bool:
        """A place of 0 is the first message of all, or means that there is none: the message itself knows."""
        record = _stored(self._engine, target)
        return record is not None and _text(record, H_REDRIVEN) == str(letter)

    # --- how long it stays

    def _retained(self) -> None:
        config, record = self._topic.config, self._record
        if record is None or config.retention_ms is None:
            return
        until = record.timestamp + config.retention_ms
        detail = "until then the log keeps it"
        if config.retention_waits_for_groups:
            detail += ", and longer for groups that have not settled it"
        if config.retention_bytes is not None:
            detail += f"; it may go earlier when the partition has more than {config.retention_bytes} bytes"
        self._add(until, What.RETAINED, detail)

    def _add(self, at_ms: int, what: What, detail: str) -> None:
        self._events.append(Event(at_ms=at_ms, what=what, detail=detail))

    def _link(self, name: str, target: str) -> None:
        known = self._links.setdefault(name, [])
        if target not in known:
            known.append(target)


def rows_of(part: GroupPart, offset: int, since_ms: int | None) -> Iterator[Told]:
    """What a group's ledger says of one message."""
    for payload in blocks_about(part.log, part.ledger.open_block(), offset, offset + 1, since_ms):
        yield from rows_about(payload, offset)


def _partition_of(topic: TopicState, message_id: MessageId) -> Partition:
    if message_id.partition >= len(topic.partitions):
        raise UnknownMessage(
            f"there is no message {message_id}: topic {topic.name!r} has partitions 0 to {len(topic.partitions) - 1}"
        )
    partition = topic.partitions[message_id.partition]
    if message_id.offset >= partition.log.next_offset:
        raise UnknownMessage(
            f"there is no message {message_id} yet: the next offset of the partition is {partition.log.next_offset}"
        )
    return partition


def _record_of(partition: Partition, offset: int) -> StoredRecord | None:
    if not partition.log.start_offset <= offset < partition.log.next_offset:
        return None
    return partition.record(offset)


def _stored(engine: Engine, text: str) -> StoredRecord | None:
    """The message of an id, if it is still there."""
    try:
        message_id = parse_message_id(text)
        return _record_of(_partition_of(engine.topic(message_id.topic), message_id), message_id.offset)
    except NotFound:
        return None


def _text(record: StoredRecord, name: str) -> str | None:
    raw = header_of(record, name)
    return None if raw is None else raw.decode(errors="backslashreplace")


def _publish_detail(record: StoredRecord) -> str:
    words = []
    if (origin := _text(record, H_ORIGIN)) is not None:
        words.append(f"dead letter of {origin}: {_text(record, H_REASON)}")
        words.append(f"group {_text(record, H_GROUP)}")
        words.append(f"{_text(record, H_ATTEMPTS)} attempts")
        if (member := _text(record, H_MEMBER)) is not None:
            words.append(f"member {member}")
    if (producer := _text(record, H_PRODUCER)) is not None:
        words.append(f"by producer {producer}")
    if (cron := _text(record, H_CRON)) is not None:
        words.append(f"by the recurring schedule {cron}")
    if (dedup_id := _text(record, H_DEDUP)) is not None:
        words.append(f"dedup id {dedup_id}")
    if (expires := header_of(record, H_EXPIRES)) is not None:
        words.append(f"expires {iso(I64.unpack(expires)[0])}")
    return ", ".join(words)


def _remembered(schedule_id: ScheduleId, record: StoredRecord, published_ms: int) -> Wait:
    waited = format_ms(record.timestamp - published_ms)
    return Wait(
        id=schedule_id,
        key=record.key,
        published_ms=published_ms,
        due_ms=record.timestamp,
        place=None,
        fired_ms=record.timestamp,
        events=[
            Event(at_ms=published_ms, what=What.SCHEDULED, detail=f"as {schedule_id}"),
            Event(at_ms=record.timestamp, what=What.DUE, detail=f"after a wait of {waited}"),
        ],
    )
