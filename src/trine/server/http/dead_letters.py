"""Dead letters: list, look at one, count them by reason, and purge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.params import FromPath, FromQuery, QueryParameter
from msgspec import Meta

from trine.broker.dead_letters import dlq_name
from trine.broker.group_part import GroupPart
from trine.broker.operations import NAMED_MAX, REDRIVE_GROUP, matches
from trine.broker.topic import TopicState
from trine.broker.walking import Step, Wanted
from trine.log.stored import DeadLetter
from trine.model.duration import duration_ms
from trine.model.errors import InvalidOption, UnknownMessage
from trine.model.ids import DLQ_SUFFIX
from trine.server.context import Context
from trine.server.http.bodies import LetterOut, either, letter_out
from trine.server.http.letter_counts import Counted, LetterCounts
from trine.server.http.publishing import topic_of
from trine.server.http.requests import As, Given, Instant, Limit, instant_ms_of, read
from trine.server.http.search import Cursor, Merge, Way, read_cursor, start_of, walk_of, write_cursor
from trine.server.keys import Principal

LETTERS = "/v1/topics/{topic:str}/dead-letters"
BUCKETS_MAX = 500
WHOLE = 2**40
"""Of a value that is not cut."""


class Letters(msgspec.Struct, frozen=True):
    dead_letters: list[LetterOut]
    more: bool = False
    cursor: str | None = None
    """Where to go on; null when there is nothing more."""


class PurgeLetters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which ones: all without any of these. `ids` names them; filters match parts of the reason, the whole group and
    key.
    """

    reason: str | None = None
    group: str | None = None
    key: str | None = None
    key_base64: str | None = None
    ids: Annotated[list[str], Meta(min_length=1, max_length=NAMED_MAX)] | None = None


class PurgedLetters(msgspec.Struct, frozen=True):
    purged: int


class LetterSummary(msgspec.Struct, frozen=True, kw_only=True):
    total: int
    """Dead letters that are there now."""
    complete: bool
    """False while there are so many that they are not counted yet: ask again, it goes on where it was."""
    by_reason: list[Counted]
    """The largest first, at most 200."""
    from_ms: int
    every_ms: int
    counts: list[list[int]]
    """(from, how many) of those that are there now, by when they were given up."""


# --- the letters that are still there


def letters_topic(context: Context, topic: str) -> TopicState | None:
    """The dead letters' topic of a topic, if it has any. Under the engine's lock."""
    topic_of(context, topic)
    return context.engine.topics.get(topic if topic.endswith(DLQ_SUFFIX) else dlq_name(topic))


def parts_of(dlq: TopicState) -> list[GroupPart]:
    """Where it stands which of them are there; none as long as nobody has dealt with any. Under the engine's lock."""
    group = dlq.groups.get(REDRIVE_GROUP)
    return group.parts if group is not None else []


def letters_walk(
    walk: Iterator[Step], dlq: TopicState, number: int, fits: Callable[[DeadLetter], bool]
) -> Iterator[Step]:
    """A walk through a partition of dead letters, past those that are redriven, purged or not meant."""
    one = dlq.partitions[number]
    for step in walk:
        if step.record is not None:
            parts = parts_of(dlq)
            there = not parts or not parts[number].ledger.is_settled(step.record.offset)
            if not there or not fits(DeadLetter(step.record, one.origin, 0)):
                step = step._replace(record=None)
        yield step


def first_there(dlq: TopicState, number: int) -> int:
    """All before it are dealt with. Under the engine's lock."""
    parts = parts_of(dlq)
    start = dlq.partitions[number].log.start_offset
    return max(parts[number].ledger.first_unsettled(), start) if parts else start


@get(LETTERS, opt={"may": "read"}, tags=["dead letters"], summary="List dead letters")
async def list_letters(
    topic: FromPath[str],
    context: Given[Context],
    reason: FromQuery[str | None] = None,
    group: FromQuery[str | None] = None,
    key: FromQuery[str | None] = None,
    text: Annotated[
        str | None, QueryParameter(max_length=1000, description="As in the search of the log.")
    ] = None,
    from_time: Instant = None,
    to_time: Instant = None,
    direction: Annotated[Way, QueryParameter(description="`backward` is the newest first.")] = "forward",
    limit: Limit = 100,
    cursor: Annotated[str | None, QueryParameter(description="Of the last answer.")] = None,
    preview: Annotated[
        int,
        QueryParameter(ge=0, le=WHOLE, description="Bytes of a value that are shown; by default all of it."),
    ] = WHOLE,
    show: As = "auto",
) -> Letters:
    """Messages of this topic that were given up on and not redriven or purged yet. `reason` matches a part. Of very
    many a call looks at some thousands and then says that there is `more`: go on with the `cursor`.
    """
    wanted = Wanted(
        text=text.encode().lower() if text else None,
        key=None if key is None else key.encode(),
        from_ms=instant_ms_of(from_time),
        to_ms=instant_ms_of(to_time),
    )
    with context.engine.lock:
        dlq = letters_topic(context, topic)
        if dlq is None:
            return Letters([])
        if cursor is not None:
            positions = read_cursor(cursor, dlq.name, direction, len(dlq.partitions))
        else:
            positions = [start_of(one, direction, None, wanted) for one in dlq.partitions]
        walks = []
        for one, position in zip(dlq.partitions, positions, strict=True):
            walk = walk_of(one, position, direction, wanted, first_there(dlq, one.number))
            walks.append(
                letters_walk(walk, dlq, one.number, lambda letter: matches(letter, reason, group, None))
            )
    merge = Merge(walks, positions, direction)
    found = await merge.run(limit, preview)
    with context.engine.lock:
        letters = []
        for number, step in found:
            assert step.record is not None, "what fits is a record"
            one = dlq.partitions[number]
            letters.append(DeadLetter(step.record, one.origin, one.lane_of(step.record.offset)))
    return Letters(
        [letter_out(one, show, preview) for one in letters],
        not merge.over,
        None if merge.over else write_cursor(Cursor(dlq.name, direction, merge.positions)),
    )


@get(
    "/v1/dead-letters/summary",
    opt={"may": "read"},
    tags=["dead letters"],
    summary="Dead letters by topic, group and reason",
)
async def letters_summary(
    context: Given[Context],
    principal: Given[Principal],
    counts: Given[LetterCounts],
    topic: FromQuery[str | None] = None,
    window: Annotated[str, QueryParameter(description="How far back: `24h`, at most `7d`.")] = "24h",
    buckets: Annotated[int, QueryParameter(ge=1, le=BUCKETS_MAX)] = 48,
) -> LetterSummary:
    """What is there now, by reason, and by when it was given up. Of very many only a part is counted a call, as
    `complete` says; the next call goes on.
    """
    span_ms = duration_ms(window, what="window")
    if not 60_000 * buckets <= span_ms <= 7 * 24 * 3_600_000:
        raise InvalidOption(f"window is {window}; it is at most 7d, and at least a minute for each bucket")
    told = await counts.look(lambda name: principal.may("read", name) and topic in (None, name))
    now = context.engine.clock.now_ms()
    every_ms = -(-span_ms // buckets)
    from_ms = now - every_ms * buckets
    rows = [[from_ms + number * every_ms, 0] for number in range(buckets)]
    for minute, count in told.minutes.items():
        number = min((minute * 60_000 + 30_000 - from_ms) // every_ms, buckets - 1)
        if number >= 0:
            rows[number][1] += count
    return LetterSummary(
        total=told.total,
        complete=told.complete,
        by_reason=told.largest(),
        from_ms=from_ms,
        every_ms=every_ms,
        counts=rows,
    )


@get(
    f"{LETTERS}/{{partition:int}}/{{offset:int}}",
    opt={"may": "read"},
    tags=["dead letters"],
    summary="One of them",
)
async def show_letter(
    topic: FromPath[str],
    partition: FromPath[int],
    offset: FromPath[int],
    context: Given[Context],
    show: As = "auto",
) -> LetterOut:
    """A dead letter by its place among the dead letters (its id is `<topic>.dlq/partition/offset`)."""
    engine = context.engine
    with engine.lock:
        dlq = letters_topic(context, topic)
        if dlq is not None and 0 <= partition < len(dlq.partitions):
            one = dlq.partitions[partition]
            parts = parts_of(dlq)
            gone = bool(parts) and parts[partition].ledger.is_settled(offset)
            if one.log.start_offset <= offset < one.log.next_offset and not gone:
                record = one.record(offset)
                if record is not None:
                    return letter_out(DeadLetter(record, one.origin, one.lane_of(offset)), show)
    raise UnknownMessage(
        f"topic {topic!r} has no dead letter {partition}/{offset}; it may have been redriven or purged"
    )


@post(
    f"{LETTERS}/purge",
    status_code=200,
    opt={"may": "admin", "body": PurgeLetters},
    tags=["dead letters"],
    summary="Purge dead letters",
)
async def purge_letters(
    request: Request[Any, Any, Any], topic: FromPath[str], context: Given[Context]
) -> PurgedLetters:
    """A step at a time; what is buried meanwhile stays."""
    given = await read(request, PurgeLetters)
    count = await context.broker.topic(topic).purge_dead_letters(
        reason=given.reason,
        group=given.group,
        key=either(given.key, given.key_base64, "key"),
        ids=given.ids,
    )
    return PurgedLetters(count)


HANDLERS = [list_letters, letters_summary, show_letter, purge_letters]
