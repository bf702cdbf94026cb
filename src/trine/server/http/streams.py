"""Streams: counters and messages as they come, as server-sent events or over a WebSocket.

    /v1/events                                SSE        counters, once a second
    /v1/stream                                WebSocket  the same
    /v1/topics/{topic}/tail                   SSE        the log as it grows, from now or from an offset
    /v1/topics/{topic}/groups/{g}/consume     WebSocket  the queue, pushed by credit (see `push`)

A stream holds nothing for a slow reader: the next counters are read when the last ones are gone, and say how many
were left out; the log waits in the log. A reader that takes nothing at all is let go by the gate. All streams end when
the server closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec
from litestar import Request, WebSocket, get, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.params import FromPath, FromQuery
from litestar.response import Stream

from trine.log.stored import LogMessage
from trine.model.errors import InvalidOption, TooMany, TrineError
from trine.model.limits import MIB
from trine.server.context import Context
from trine.server.http import problems
from trine.server.http.bodies import message_out
from trine.server.http.counters import Counters, counters
from trine.server.http.publishing import topic_of
from trine.server.http.requests import As, Given, Instant, Whole, instant
from trine.server.http.sampler import Sampler
from trine.server.http.waiting import first_of, ringing
from trine.server.keys import Principal

STREAMS_MAX: Final = 1_000
"""Of all kinds: each holds a connection and is woken again and again."""
EVERY_SECONDS: Final = 1.0
QUIET_MS: Final = 15_000
"""A stream with nothing to say says so this often: proxies close what is silent."""
TURN_MESSAGES: Final = 500
TURN_BYTES: Final = 1 * MIB
"""What a tail reads at a time, before others get their turn."""
POSITIONS_MAX: Final = 64
"""Partitions whose positions an event's id holds, so that a reader that reconnects goes on where it was."""

EVENTS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Streams:
    """How many are open."""

    def __init__(self) -> None:
        self._open = 0
        self._none = asyncio.Event()
        self._none.set()

    @property
    def open(self) -> int:
        return self._open

    async def ended(self, seconds: float) -> None:
        """Until none is open, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._none.wait()

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        self.check()
        self._open += 1
        self._none.clear()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._none.set()

    def check(self) -> None:
        if self._open >= STREAMS_MAX:
            raise TooMany(f"there are {STREAMS_MAX} open streams, the most there may be; close some first")


class Tick(msgspec.Struct, frozen=True):
    counters: Counters
    skipped: int = 0
    """Samples that were left out because the reader was slow."""


# --- counters


@get(
    "/v1/events",
    opt={"may": "read", "events": True},
    tags=["streams"],
    summary="Counters as server-sent events",
)
async def counter_events(
    context: Given[Context],
    principal: Given[Principal],
    sampler: Given[Sampler],
    streams: Given[Streams],
    topic: FromQuery[str] = "*",
) -> Stream:
    """`event: counters`, once a second: rates, depth, lag by group, in flight, dead letters, schedule. `topic` is a
    name or a pattern.
    """
    streams.check()

    async def events() -> AsyncIterator[bytes]:
        with streams.one_more():
            try:
                async for tick in ticks(context, principal, sampler, topic):
                    yield event("counters", msgspec.json.encode(tick))
            except TrineError as error:
                yield event("error", problems.encode(problems.problem_of(error, "/v1/events")))
                return
            yield event("closing", b'"the server is closing"')

    return Stream(events(), media_type="text/event-stream", headers=EVENTS)


@websocket("/v1/stream", opt={"may": "read"})
async def counter_stream(
    socket: WebSocket[Any, Any, Any],
    context: Given[Context],
    principal: Given[Principal],
    sampler: Given[Sampler],
    streams: Given[Streams],
    topic: FromQuery[str] = "*",
) -> None:
    await socket.accept()
    try:
        with streams.one_more():
            async with listening(socket) as gone:
                async for tick in ticks(context, principal, sampler, topic, gone):
                    await socket.send_data(msgspec.json.encode(tick).decode(), mode="text")
        await close(socket, 1001, "the server is closing")
    except TrineError as error:
        await close(socket, 1008, error.message)
    except (WebSocketDisconnect, OSError):  # it went away
        pass


async def ticks(
    context: Context,
    principal: Principal,
    sampler: Sampler,
    pattern: str,
    gone: asyncio.Future[None] | None = None,
) -> AsyncIterator[Tick]:
    """One a second until the server closes; the time a reader took too long is told as skipped."""
    never = asyncio.Event()
    due = time.monotonic()
    skipped = 0
    while not context.closing.is_set() and (gone is None or not gone.done()):
        principal.check("read", None)  # the key may have been deleted meanwhile
        await sampler.refresh()
        yield Tick(counters(sampler, lambda name: principal.may("read", name), pattern), skipped)
        now = time.monotonic()
        skipped = int((now - due) / EVERY_SECONDS)
        due += (skipped + 1) * EVERY_SECONDS
        await first_of(context, never, max(due - now, 0.0) * 1000, gone)


# --- the log as it grows


@get(
    "/v1/topics/{topic:str}/tail",
    opt={"may": "read", "events": True},
    tags=["streams"],
    summary="The log as server-sent events",
)
async def tail(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    context: Given[Context],
    principal: Given[Principal],
    streams: Given[Streams],
    partition: Whole = None,
    from_offset: Whole = None,
    from_time: Instant = None,
    show: As = "auto",
) -> Stream:
    """`event: message` for each message, from now on, or from an offset (of one partition) or a time. A reader that
    reconnects with `Last-Event-ID` goes on where it was.
    """
    streams.check()
    known = request.headers.get("last-event-id")
    with context.engine.lock:
        positions = _positions(context, topic, partition, from_offset, instant(from_time), known)

    async def events() -> AsyncIterator[bytes]:
        engine = context.engine
        with streams.one_more(), ringing(engine, engine.reader_listeners) as bell:
            yield b": tail\n\n"
            while not context.closing.is_set():
                bell.clear()
                try:
                    principal.check("read", topic)
                    with engine.lock:
                        found = _read_on(context, topic, positions)
                except TrineError as error:
                    told = problems.problem_of(error, f"/v1/topics/{topic}/tail")
                    yield event("error", problems.encode(told))
                    return
                for message in found:
                    positions[message.partition] = message.offset + 1
                    told_id = _id(positions)
                    yield event("message", msgspec.json.encode(message_out(message, show)), told_id)
                if not found:
                    await first_of(context, bell, QUIET_MS)
                    if not bell.is_set():
                        yield b": nothing new\n\n"
            yield event("closing", b'"the server is closing"')

    return Stream(events(), media_type="text/event-stream", headers=EVENTS)


def _positions(
    context: Context,
    name: str,
    partition: int | None,
    from_offset: int | None,
    from_time: str | float | None,
    known: str | None,
) -> dict[int, int]:
    """Where the tail of each partition begins. Under the engine's lock."""
    topic = topic_of(context, name)
    chosen = topic.partitions if partition is None else [topic.partition(partition)]
    if from_offset is not None and partition is None:
        raise InvalidOption("an offset is a place in one partition: say which, with partition=")
    if from_offset is None and from_time is None:
        positions = {one.number: one.log.next_offset for one in chosen}
    else:
        positions = {one.number: one.place_of(from_offset, from_time) for one in chosen}
    for number, offset in _remembered(known):
        if number in positions:
            positions[number] = topic.partitions[number].place_of(offset, None)
    return positions


def _read_on(context: Context, name: str, positions: dict[int, int]) -> list[LogMessage]:
    """The next messages of all partitions, a turn's worth. Under the engine's lock."""
    topic = topic_of(context, name)
    found: list[LogMessage] = []
    size = 0
    for number, position in positions.items():
        one = topic.partition(number)
        if one.log.start_offset > position:
            positions[number] = one.log.start_offset
        for record in one.scan(position, one.log.next_offset):
            found.append(LogMessage(record, one.origin, one.lane_of(record.offset)))
            size += len(record.value or b"")
            if len(found) >= TURN_MESSAGES or size >= TURN_BYTES:
                break
    found.sort(key=lambda message: (message.timestamp_ms, message.partition, message.offset))
    return found


def _id(positions: dict[int, int]) -> str | None:
    if len(positions) > POSITIONS_MAX:
        return None
    return ",".join(f"{number}:{offset}" for number, offset in positions.items())


def _remembered(known: str | None) -> list[tuple[int, int]]:
    found = []
    for pair in (known or "").split(","):
        number, _, offset = pair.partition(":")
        if number.isdecimal() and offset.isdecimal() and len(offset) < 19 and len(number) < 6:
            found.append((int(number), int(offset)))
    return found


# --- what streams share


def event(kind: str, data: bytes, id: str | None = None) -> bytes:
    """One server-sent event; JSON has no line breaks of its own, but a message's own JSON may."""
    lines = b"".join(b"data: " + line + b"\n" for line in data.splitlines())
    named = b"" if id is None else b"id: " + id.encode() + b"\n"
    return named + b"event: " + kind.encode() + b"\n" + lines + b"\n"


@contextlib.asynccontextmanager
async def listening(socket: WebSocket[Any, Any, Any]) -> AsyncIterator[asyncio.Future[None]]:
    """A future that is done when the other side has gone; what it says meanwhile is passed over."""

    async def until_gone() -> None:
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                await socket.receive_data(mode="text")

    gone = asyncio.ensure_future(until_gone())
    try:
        yield gone
    finally:
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone


async def close(socket: WebSocket[Any, Any, Any], code: int, reason: str) -> None:
    """Says why; a reason has at most 123 bytes."""
    with contextlib.suppress(Exception):  # it may be gone already
        await socket.close(code, reason.encode()[:120].decode(errors="ignore"))


HANDLERS = [counter_events, counter_stream, tail]
