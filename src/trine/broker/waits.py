"""The wait of a scheduled message, read out of its hours: when it was given, moved, and how the wait ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from trine.broker.schedule import Bucket, Over, unpack_over
from trine.log import batch
from trine.log.batch import Header
from trine.model.duration import format_ms, iso
from trine.model.errors import UnknownSchedule
from trine.model.ids import ScheduleId
from trine.trace.life import place_id
from trine.trace.timeline import Event, What

if TYPE_CHECKING:
    from trine.broker.topic import TopicState


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    id: ScheduleId
    key: bytes | None
    published_ms: int
    due_ms: int
    """The time it was last given."""
    place: int | None
    """Where it went when it was due (partition << 48 | offset)."""
    fired_ms: int | None
    events: list[Event]


class Step(NamedTuple):
    """One place a message waited in, and how that wait ended (how, when, where it went): None if it still waits."""

    bucket: Bucket
    header: Header
    position: int
    fate: tuple[Over, int, int] | None


def steps(topic: TopicState, schedule_id: ScheduleId) -> list[Step]:
    """Where a message waited, from its first place through every move; UnknownSchedule if that is not kept."""
    buckets = topic.schedule.buckets
    bucket = buckets.get(schedule_id.hour)
    found = None if bucket is None else _placed(bucket, schedule_id.row)
    if bucket is None:
        bucket, found = _waiting_copy(buckets.values(), schedule_id) or (None, None)
    if bucket is None or found is None:
        raise UnknownSchedule(
            f"there is no scheduled message {schedule_id}; if there was one, its hour was over long ago and is not "
            "kept any more: trace it by its message id"
        )
    position, header = found
    if header.producer_id >= 0:  # a moved one, asked for by where it went: the first id is its name
        first = ScheduleId(topic.name, header.producer_id, header.base_sequence)
        if first != schedule_id:
            return steps(topic, first)
    walked = []
    seen = set()
    while True:
        fate = _fate(bucket, header.base_offset)
        walked.append(Step(bucket, header, position, fate))
        seen.add((bucket.hour, header.base_offset))
        if fate is None or fate[0] is not Over.MOVED:
            return walked
        following = buckets.get(fate[2])
        copy = None if following is None else _copy(following, schedule_id, seen)
        if following is None or copy is None:
            found_copy = _waiting_copy(buckets.values(), schedule_id)
            if found_copy is None:
                return walked
            following, copy = found_copy
        bucket, (position, header) = following, copy


def find_waiting(topic: TopicState, schedule_id: ScheduleId) -> Step:
    """Where a message waits, or an error that says what became of it."""
    last = steps(topic, schedule_id)[-1]
    if last.fate is None:
        return last
    became = {
        Over.FIRED: "was delivered",
        Over.CANCELLED: "was cancelled",
        Over.MOVED: "was moved, and is over",
    }
    raise UnknownSchedule(
        f"scheduled message {schedule_id} {became[last.fate[0]]}; `schedules()` lists what is waiting"
    )


def wait_of(topic: TopicState, schedule_id: ScheduleId) -> Wait:
    """Everything the schedule knows of an id; UnknownSchedule if its hour is not kept any more."""
    walked = steps(topic, schedule_id)
    first = walked[0]
    own = ScheduleId(topic.name, first.bucket.hour, first.header.base_offset)
    record = batch.decode(first.bucket.log.read_batch(first.position, first.header.size))[0]
    due = first.header.max_time_ms
    given = Event(
        at_ms=record.timestamp,
        what=What.SCHEDULED,
        detail=f"for {iso(due)}, in {format_ms(due - record.timestamp)}, as {own}",
    )
    events = [given]
    place = fired = None
    for number, step in enumerate(walked):
        due = step.header.max_time_ms
        if step.fate is None:
            continue
        kind, at, target = step.fate
        if kind is Over.FIRED:
            place, fired = target, at
            detail = f"it is {place_id(topic.name, place)} from now on"
            if at > due:
                detail += f", {format_ms(at - due)} late"
            events.append(Event(at_ms=at, what=What.DUE, detail=detail))
        elif kind is Over.CANCELLED:
            events.append(Event(at_ms=at, what=What.CANCELLED, detail="taken back before it was due"))
        elif number + 1 < len(walked):
            moved_to = walked[number + 1].header.max_time_ms
            events.append(Event(at_ms=at, what=What.MOVED, detail=f"to {iso(moved_to)}"))
        else:
            events.append(Event(at_ms=at, what=What.MOVED, detail="to an hour that is not kept any more"))
    return Wait(
        id=own,
        key=record.key,
        published_ms=record.timestamp,
        due_ms=due,
        place=place,
        fired_ms=fired,
        events=events,
    )


def _placed(bucket: Bucket, row: int) -> tuple[int, Header] | None:
    """Position and header of a message of an hour."""
    if bucket.loaded:
        if row >= len(bucket.places) or not bucket.size_of[row]:
            return None
        position = bucket.places[row]
        return position, batch.read_header(bucket.log.read_at(position, batch.HEADER_BYTES))
    for position, header in bucket.log.headers(row):
        if header.base_offset == row and not header.is_block:
            return position, header
        return None
    return None


def _fate(bucket: Bucket, row: int) -> tuple[Over, int, int] | None:
    """How the wait of a row ended: (how, when, where it went), None if it still waits."""
    if bucket.loaded and row not in bucket.over:
        return None
    for position, header in _blocks(bucket, row):
        data = bucket.log.read_batch(position, header.size)
        kind, at, rows, targets = unpack_over(batch.block_payload(data))
        found = np.nonzero(rows == row)[0]
        if len(found):
            return kind, at, int(targets[found[0]])
    return None


def _blocks(bucket: Bucket, after: int) -> Iterator[tuple[int, Header]]:
    """The hour's blocks after a row. Of a loaded hour the messages are passed over without a look."""
    if not bucket.loaded:
        yield from ((position, header) for position, header in bucket.log.headers(after) if header.is_block)
        return
    for row in (np.nonzero(np.array(bucket.size_of[after:]) == 0)[0] + after).tolist():
        position = bucket.places[row]
        header = batch.read_header(bucket.log.read_at(position, batch.HEADER_BYTES))
        if header.base_offset == row and header.is_block:
            yield position, header


def _waiting_copy(buckets: Iterable[Bucket], first: ScheduleId) -> tuple[Bucket, tuple[int, Header]] | None:
    """Where a moved message waits, found by its name alone: an hour it waited in before may be gone."""
    for bucket in buckets:
        if not bucket.live:
            continue
        seen: set[tuple[int, int]] = set()
        while (copy := _copy(bucket, first, seen)) is not None:
            if _fate(bucket, copy[1].base_offset) is None:
                return bucket, copy
            seen.add((bucket.hour, copy[1].base_offset))
    return None


def _copy(bucket: Bucket, first: ScheduleId, seen: set[tuple[int, int]]) -> tuple[int, Header] | None:
    """The next place of a moved message in the hour it went to."""
    for position, header in bucket.log.headers():
        moved = header.producer_id == first.hour and header.base_sequence == first.row and not header.is_block
        if moved and (bucket.hour, header.base_offset) not in seen:
            return position, header
    return None
