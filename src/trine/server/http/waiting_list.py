"""What waits for its time: a list that can be searched, in pages, and how much is due when in the coming hours."""

from __future__ import annotations

import asyncio
import base64
import binascii
from itertools import pairwise
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from litestar import get
from litestar.params import FromPath, FromQuery, QueryParameter
from msgspec import UNSET, UnsetType

from trine.broker.schedule import ROW_BITS, ROW_MASK, Waiting
from trine.broker.waits import find_waiting
from trine.broker.walking import Wanted
from trine.log import batch
from trine.log.batch import StoredRecord
from trine.log.stored import LogMessage, Origin
from trine.model.duration import HOUR_MS, iso
from trine.model.errors import InvalidOption, UnknownSchedule, UnknownTopic
from trine.model.ids import parse_schedule_id
from trine.queue.outlook import BEGINNING, Place
from trine.queue.timers import FOREVER
from trine.server.context import Context
from trine.server.http.bodies import Show, fields_of
from trine.server.http.publishing import topic_of
from trine.server.http.requests import As, Given, Instant, Limit, instant_ms_of
from trine.server.keys import Principal

LOOKED_MAX: Final = 5_000
"""Messages one call reads: each is a batch of its own."""
TURN: Final = 200
"""Read with the lock held once."""
TOPICS_TURN: Final = 50
LOADED_MAX: Final = 2_000
"""Messages of far hours that are loaded for a closer look, in one call: some milliseconds."""
HOURS_MAX: Final = 7 * 24
BUCKETS_MAX: Final = 1_000
WHOLE: Final = 2**40
"""Of a value that is not cut."""
SHOWN: Final = (
    "topic", "priority", "value", "text", "base64", "key", "key_base64", "headers", "headers_base64", "expires",
    "dedup_id", "producer",
)  # fmt: skip
"""What is shown as it is of a message in the log."""


class ScheduledOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that waits for its time."""

    id: str
    topic: str
    due: str
    due_ms: int
    published: str
    priority: str
    size: int | None
    """Bytes of the value; null of a message without one."""
    cut: bool = False
    value: Any = UNSET
    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] = {}
    headers_base64: dict[str, str] = {}
    expires: str | None = None
    dedup_id: str | None = None
    producer: str | None = None


class Schedules(msgspec.Struct, frozen=True):
    schedules: list[ScheduledOut]
    cursor: str | None = None
    """Where to go on; null when there is nothing more."""


class Upcoming(msgspec.Struct, frozen=True, kw_only=True):
    from_ms: int
    every_ms: int
    buckets: list[list[int]]
    """(from, how many are due)."""
    overdue: int
    """Due by now, and on their way."""
    later: int
    """Due after the last bucket."""
    total: int
    exact_until_ms: int | None
    """From there on some hours are known by their count alone, which is spread over them evenly; null: all is exact."""


class Cursor(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    due_ms: int
    topic: str
    ref: int


PREVIEW = Annotated[
    int, QueryParameter(ge=0, le=WHOLE, description="Bytes of a value that are shown; by default all of it.")
]


@get("/v1/schedules", opt={"may": "read"}, tags=["schedule"], summary="What waits, in all topics")
async def list_schedules(
    context: Given[Context],
    principal: Given[Principal],
    topic: FromQuery[str | None] = None,
    id: Annotated[str | None, QueryParameter(description="A schedule id: the one message it names.")] = None,
    key: FromQuery[str | None] = None,
    text: Annotated[
        str | None, QueryParameter(max_length=1000, description="As in the search of the log.")
    ] = None,
    from_time: Instant = None,
    to_time: Instant = None,
    limit: Limit = 100,
    cursor: Annotated[str | None, QueryParameter(description="Of the last answer.")] = None,
    preview: PREVIEW = WHOLE,
    show: As = "auto",
) -> Schedules:
    """Soonest first; only topics the key may read. Times are those the messages are due at. With a key or a text a call
    looks at some thousands and answers what it found, with a `cursor` to go on.
    """
    if id is not None:
        return _named(context, principal, id, show, preview)
    wanted = Wanted(text=text.encode().lower() if text else None, key=None if key is None else key.encode())
    start, end = instant_ms_of(from_time), instant_ms_of(to_time)
    place = _read_cursor(cursor) if cursor is not None else Cursor((start or 0) - 1, "\x7f", FOREVER)
    with context.engine.lock:
        context.engine.check_open()
        topics = sorted(name for name in context.engine.topics if topic is None or name == topic)
    seen = [name for name in topics if principal.may("read", name)]
    found, place_after = await _walk(context, seen, place, FOREVER if end is None else end, wanted, limit)
    return _told(context, found, place_after, show, preview)


@get(
    "/v1/topics/{topic:str}/schedules",
    opt={"may": "read"},
    tags=["schedule"],
    summary="What waits, in a topic",
)
async def list_topic_schedules(
    topic: FromPath[str], context: Given[Context], limit: Limit = 100, show: As = "auto"
) -> Schedules:
    """Soonest first. `/v1/schedules` can search and goes on with a cursor."""
    with context.engine.lock:
        topic_of(context, topic)
    found, place = await _walk(context, [topic], Cursor(-1, topic, -1), FOREVER, Wanted(), limit)
    return _told(context, found, place, show, WHOLE)


@get("/v1/schedules/upcoming", opt={"may": "read"}, tags=["schedule"], summary="How much is due when")
async def upcoming_schedules(
    context: Given[Context],
    principal: Given[Principal],
    topic: FromQuery[str | None] = None,
    hours: Annotated[int, QueryParameter(ge=1, le=HOURS_MAX)] = 24,
    buckets: Annotated[int, QueryParameter(ge=1, le=BUCKETS_MAX)] = 96,
) -> Upcoming:
    """Counts of the coming hours. What is far away is on disk: of its hours the count is known, and not the minutes."""
    engine = context.engine
    now = engine.clock.now_ms()
    every = -(-hours * HOUR_MS // buckets)
    edges = np.arange(buckets + 1, dtype=np.int64) * every + now
    sums = [0] * (buckets + 2)
    inexact: list[int] = []
    room = LOADED_MAX
    with engine.lock:
        engine.check_open()
        names = [name for name in engine.topics if topic in (None, name) and principal.may("read", name)]
    for start in range(0, len(names), TOPICS_TURN):
        with engine.lock:
            for name in names[start : start + TOPICS_TURN]:
                state = engine.topics.get(name)
                if state is None or not len(state.schedule):
                    continue
                loaded = state.schedule.load_near(int(edges[-1]), room)
                room -= loaded
                known, far = state.schedule.outlook(edges)
                sums = [one + other for one, other in zip(sums, known, strict=True)]
                for hour, count in far:
                    inexact.append(max(hour * HOUR_MS, now))
                    _spread(sums, edges, hour * HOUR_MS, count)
        await asyncio.sleep(0)
    return Upcoming(
        from_ms=now,
        every_ms=every,
        buckets=[[int(edge), count] for edge, count in zip(edges, sums[1:-1], strict=False)],
        overdue=sums[0],
        later=sums[-1],
        total=sum(sums),
        exact_until_ms=min((at for at in inexact if at < int(edges[-1])), default=None),
    )


def _spread(sums: list[int], edges: np.ndarray, start_ms: int, count: int) -> None:
    """Adds the messages of an hour evenly: no more is known of them than that they are due within it."""
    bounds = [
        start_ms,
        *(int(edge) for edge in edges if start_ms < edge < start_ms + HOUR_MS),
        start_ms + HOUR_MS,
    ]
    given = 0
    for first, end in pairwise(bounds):
        upto = count * (end - start_ms) // HOUR_MS
        sums[int(edges.searchsorted(first, side="right"))] += upto - given
        given = upto


# --- the walk through the waiting


Found = tuple[str, Waiting, StoredRecord, int]
Looked = tuple[str, Waiting, StoredRecord | None, int]
"""None: delivered or cancelled meanwhile."""


async def _walk(
    context: Context, topics: list[str], place: Cursor, before_ms: int, wanted: Wanted, limit: int
) -> tuple[list[Found], Cursor | None]:
    """What fits beyond a place in the order of (due, topic, ref), and where to go on; None: there is nothing more."""
    found: list[Found] = []
    looked = 0
    while looked < LOOKED_MAX:
        most = min(TURN, limit - len(found)) if wanted == Wanted() else TURN
        turn = await _turn(context, topics, place, before_ms, most)
        for name, one, record, lane in turn:
            looked += 1
            place = Cursor(one.due_ms, name, one.ref)
            if record is not None and wanted.fits(record):
                found.append((name, one, record, lane))
                if len(found) >= limit:
                    return found, place
        if len(turn) < most:
            return found, None
    return found, place


async def _turn(
    context: Context, topics: list[str], place: Cursor, before_ms: int, most: int
) -> list[Looked]:
    """The next `most` of all topics, with their records."""
    engine = context.engine
    ahead: list[tuple[int, str, Waiting]] = []
    for start in range(0, len(topics), TOPICS_TURN):
        with engine.lock:
            engine.check_open()
            for name in topics[start : start + TOPICS_TURN]:
                state = engine.topics.get(name)
                if state is not None and len(state.schedule):
                    waiting = state.schedule.waiting(most, _after(place, name), before_ms)
                    ahead += [(one.due_ms, name, one) for one in waiting]
        ahead = sorted(ahead, key=lambda one: (one[0], one[1], one[2].ref))[:most]
        await asyncio.sleep(0)
    read: list[Looked] = []
    with engine.lock:
        for _, name, one in ahead:
            state = engine.topics.get(name)
            bucket = None if state is None else state.schedule.buckets.get(one.ref >> ROW_BITS)
            if state is None or bucket is None or (one.ref & ROW_MASK) in bucket.over:
                read.append((name, one, None, 0))
                continue
            (data,) = state.schedule.batches([one.ref])
            read.append((name, one, batch.decode(data)[0], batch.read_header(data).lane))
    return read


def _after(place: Cursor, topic: str) -> Place:
    """The place in one topic's schedule that lies where a place in all of them does."""
    if topic == place.topic:
        return (place.due_ms, place.ref)
    if topic < place.topic:
        return (place.due_ms, FOREVER)
    return (place.due_ms - 1, FOREVER) if place.due_ms > 0 else BEGINNING


def _named(context: Context, principal: Principal, text: str, show: Show, preview: int) -> Schedules:
    """The one message of an id, if it still waits."""
    schedule_id = parse_schedule_id(text)
    if not principal.may("read", schedule_id.topic):  # to say no would tell that it is there
        return Schedules([])
    with context.engine.lock:
        try:
            step = find_waiting(topic_of(context, schedule_id.topic), schedule_id)
        except (UnknownSchedule, UnknownTopic):
            return Schedules([])
        header = step.header
        record = batch.decode(step.bucket.log.read_batch(step.position, header.size))[0]
    one = Waiting(schedule_id, header.max_time_ms, 0)
    return _told(context, [(schedule_id.topic, one, record, header.lane)], None, show, preview)


def _told(context: Context, found: list[Found], place: Cursor | None, show: Show, preview: int) -> Schedules:
    lanes = {
        name: state.config.lanes
        for name in {one[0] for one in found}
        if (state := context.engine.topics.get(name)) is not None
    }
    shown = [_shown(one, lanes[one[0]], show, preview) for one in found if one[0] in lanes]
    return Schedules(shown, None if place is None else _write_cursor(place))


def _shown(found: Found, lanes: tuple[str, ...], show: Show, preview: int) -> ScheduledOut:
    topic, one, record, lane = found
    message = LogMessage(record, Origin(topic, 0, lanes), min(lane, len(lanes) - 1))
    fields = fields_of(message, show, preview)
    shown = {word: fields[word] for word in SHOWN if word in fields}
    size = None if record.value is None else len(record.value)
    return ScheduledOut(
        id=str(one.id),
        due=iso(one.due_ms),
        due_ms=one.due_ms,
        published=fields["timestamp"],
        size=size,
        cut=size is not None and size > preview,
        **shown,
    )


def _read_cursor(text: str) -> Cursor:
    try:
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Cursor)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise InvalidOption("this is no cursor of this list; leave it out to begin anew") from error


def _write_cursor(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode().rstrip("=")


HANDLERS = [list_schedules, list_topic_schedules, upcoming_schedules]
