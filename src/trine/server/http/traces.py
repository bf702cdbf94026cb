"""Traces: a message's whole life by its id, and the search by key, group and state."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.params import FromQuery, PathParameter, QueryParameter

from trine.model.errors import UnknownMessage
from trine.server.context import Context
from trine.server.http.requests import Given, Instant, Limit, instant
from trine.server.keys import Principal
from trine.trace.timeline import GroupLife, State, What


class EventOut(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    at_ms: int
    what: What
    group: str | None = None
    member: str | None = None
    attempt: int | None = None
    detail: str = ""


class TraceOut(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that happened to one message, in order."""

    message_id: str | None
    schedule_id: str | None
    key: str | None
    published_ms: int | None
    due_ms: int | None
    kept: bool
    """Whether the log, or the schedule, still has it."""
    events: list[EventOut]
    groups: dict[str, GroupLife]
    links: dict[str, list[str]]
    """What it came from and became: schedule, origin, dead_letters, redriven_from, redriven_to, traceparent."""


class FoundOut(msgspec.Struct, frozen=True, kw_only=True):
    message_id: str
    key: str | None
    at: str
    at_ms: int
    state: State | None = None
    group: str | None = None
    attempts: int = 0
    member: str | None = None


class FoundMany(msgspec.Struct, frozen=True):
    found: list[FoundOut]


@get(
    "/v1/traces/{message:path}",
    opt={"may": "read", "topic": "later"},
    tags=["traces"],
    summary="Trace a message",
)
async def show_trace(
    message: Annotated[str, PathParameter(description="A message id (`orders/2/1841`) or a schedule id.")],
    context: Given[Context],
    principal: Given[Principal],
) -> TraceOut:
    """By message id or schedule id."""
    wanted = message.lstrip("/")
    topic = wanted.partition("@" if "@" in wanted else "/")[0]
    if not topic:
        raise UnknownMessage(f"{wanted!r} is not a message id; one looks like orders/2/1841")
    principal.check("read", topic)
    return msgspec.convert((await context.broker.trace(wanted)).to_dict(), TraceOut)


@get("/v1/traces", opt={"may": "read", "topic": "later"}, tags=["traces"], summary="Search messages")
async def search_traces(
    topic: FromQuery[str],
    context: Given[Context],
    principal: Given[Principal],
    key: FromQuery[str | None] = None,
    group: FromQuery[str | None] = None,
    message_state: Annotated[
        str | None,
        QueryParameter(
            name="state",
            description="`unacked`, or a state such as `waiting`, `in flight`, `retrying`, `acked`.",
        ),
    ] = None,
    older_than: Annotated[str | None, QueryParameter(description="A duration: `5m`.")] = None,
    from_time: Instant = None,
    to_time: Instant = None,
    limit: Limit = 100,
) -> FoundMany:
    """By key, and by state in a group: `state=unacked&older_than=5m` finds what is stuck."""
    principal.check("read", topic)
    found = await context.broker.search(
        topic,
        key=key,
        group=group,
        state=message_state,
        older_than=older_than,
        from_time=instant(from_time),
        to_time=instant(to_time),
        limit=limit,
    )
    return FoundMany([msgspec.convert(one.to_dict(), FoundOut) for one in found])


HANDLERS: list[Any] = [show_trace, search_traces]
