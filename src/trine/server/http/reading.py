"""The log view: messages by offset or by time. What is read stays."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from litestar import Request, get
from litestar.params import FromPath

from trine.broker.partition import Partition
from trine.log.stored import LogMessage
from trine.model.duration import instant_ms
from trine.model.errors import InvalidOption
from trine.model.limits import MIB
from trine.server.context import Context
from trine.server.http.bodies import MessageOut, message_out
from trine.server.http.publishing import topic_of
from trine.server.http.requests import As, Given, Instant, Limit, WaitFor, Whole, instant
from trine.server.http.waiting import first_of, ringing, wait_ms, watching

ANSWER_BYTES_MAX: Final = 16 * MIB
"""Values in one answer, save the last one: an answer is built in memory."""


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[MessageOut]
    next_offset: int | None = None
    """Of one partition: where to read on."""
    more: bool = False
    """Whether there is more than was answered."""


@get("/v1/topics/{topic:str}/messages", opt={"may": "read"}, tags=["log"], summary="Read the log")
async def read_messages(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    context: Given[Context],
    partition: Whole = None,
    from_offset: Whole = None,
    to_offset: Whole = None,
    from_time: Instant = None,
    to_time: Instant = None,
    limit: Limit = 100,
    wait: WaitFor = None,
    show: As = "auto",
) -> Messages:
    """By offset (of one partition) or by time, oldest first. `to_offset` and `to_time` are not included. Fewer than
    `limit` may come when they are large.
    """
    engine = context.engine
    deadline = engine.clock.now_ms() + wait_ms(wait)
    span = Span(partition, from_offset, to_offset, instant(from_time), instant(to_time))
    with ringing(engine, engine.reader_listeners) as bell:
        async with watching(request) as gone:
            while True:
                bell.clear()
                with engine.lock:
                    found, end, more = read_span(context, topic, span, limit)
                left = deadline - engine.clock.now_ms()
                if found or left <= 0 or context.closing.is_set() or gone.done():
                    break
                await first_of(context, bell, left, gone)
    return Messages(messages=[message_out(one, show) for one in found], next_offset=end, more=more)


class Span(msgspec.Struct, frozen=True):
    """What of a log is asked for."""

    partition: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    from_time: str | float | None = None
    to_time: str | float | None = None


def read_span(
    context: Context, name: str, span: Span, limit: int
) -> tuple[list[LogMessage], int | None, bool]:
    """(messages, where to read on in the one partition, whether there is more). Under the engine's lock."""
    if span.partition is None and (span.from_offset is not None or span.to_offset is not None):
        raise InvalidOption("an offset is a place in one partition: say which, with partition=")
    topic = topic_of(context, name)
    chosen = topic.partitions if span.partition is None else [topic.partition(span.partition)]
    end_ms = None if span.to_time is None else instant_ms(span.to_time)
    starts = [_start(one, span) for one in chosen]
    ways = [_walk(one, start, span.to_offset, end_ms) for one, start in zip(chosen, starts, strict=True)]
    merged = ways[0] if len(ways) == 1 else heapq.merge(*ways, key=_age)
    found: list[LogMessage] = []
    size = 0
    more = False
    for message in merged:
        if len(found) >= limit or size > ANSWER_BYTES_MAX:
            more = True
            break
        found.append(message)
        size += len(message.value or b"")
    end = None
    if span.partition is not None:
        end = found[-1].offset + 1 if found else starts[0]
    return found, end, more


def _start(one: Partition, span: Span) -> int:
    start = one.log.start_offset if span.from_offset is None else max(span.from_offset, one.log.start_offset)
    if span.from_time is not None:
        start = max(start, one.offset_at(instant_ms(span.from_time)))
    return start


def _walk(one: Partition, start: int, to_offset: int | None, end_ms: int | None) -> Iterator[LogMessage]:
    end = one.log.next_offset if to_offset is None else min(to_offset, one.log.next_offset)
    for record in one.scan(start, end):
        if end_ms is not None and record.timestamp >= end_ms:
            return
        yield LogMessage(record, one.origin, one.lane_of(record.offset))


def _age(message: LogMessage) -> tuple[int, int, int]:
    return message.timestamp_ms, message.partition, message.offset


HANDLERS = [read_messages]
