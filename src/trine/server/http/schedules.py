"""Steering the schedule: cancel, move, and what is published again and again. `waiting_list` shows what waits."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post
from litestar.params import FromPath, PathParameter

from trine.model.description import CronDescription
from trine.model.duration import iso
from trine.model.errors import UnknownSchedule
from trine.model.ids import parse_schedule_id
from trine.server.context import Context
from trine.server.http.bodies import MessageIn, Name, Span, When, outgoing
from trine.server.http.requests import Given, read
from trine.server.keys import Principal

ScheduleName = Annotated[str, PathParameter(description="As publish answered it: `orders@494221-17`.")]


class MoveIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One of delay (from now) and deliver_at."""

    delay: Span | None = None
    deliver_at: When | None = None


class Moved(msgspec.Struct, frozen=True):
    id: str


class CronIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message published again and again. Of `message`, content, key, headers and priority are used."""

    name: Name
    topic: Name
    expression: Annotated[str, msgspec.Meta(max_length=200, examples=["0 3 * * *", "@hourly", "every 30s"])]
    message: MessageIn
    timezone: str = "UTC"


class CronOut(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topic: str
    expression: str
    timezone: str
    next: str
    fired: int


class Crons(msgspec.Struct, frozen=True):
    crons: list[CronOut]


@delete(
    "/v1/schedules/{schedule:str}",
    opt={"may": "publish", "topic": "later"},
    tags=["schedule"],
    summary="Cancel a message",
)
async def cancel_schedule(
    schedule: ScheduleName, context: Given[Context], principal: Given[Principal]
) -> None:
    """Takes a scheduled message back before it is due."""
    principal.check("publish", parse_schedule_id(schedule).topic)
    await context.broker.cancel(schedule)


@post(
    "/v1/schedules/{schedule:str}/move",
    status_code=200,
    opt={"may": "publish", "topic": "later", "body": MoveIn},
    tags=["schedule"],
    summary="Give a message another time",
)
async def move_schedule(
    request: Request[Any, Any, Any],
    schedule: ScheduleName,
    context: Given[Context],
    principal: Given[Principal],
) -> Moved:
    """It keeps its id."""
    principal.check("publish", parse_schedule_id(schedule).topic)
    given = await read(request, MoveIn)
    await context.broker.reschedule(schedule, delay=given.delay, deliver_at=given.deliver_at)
    return Moved(schedule)


# --- again and again


@get("/v1/crons", opt={"may": "read"}, tags=["schedule"], summary="List recurring messages")
async def list_crons(context: Given[Context], principal: Given[Principal]) -> Crons:
    found = await context.broker.crons()
    return Crons([_cron(one) for one in found if principal.may("read", one.topic)])


@post(
    "/v1/crons",
    opt={"may": "publish", "topic": "later", "body": CronIn},
    tags=["schedule"],
    summary="Publish a message again and again",
)
async def create_cron(
    request: Request[Any, Any, Any], context: Given[Context], principal: Given[Principal]
) -> CronOut:
    given = await read(request, CronIn)
    principal.check("publish", given.topic)
    message = outgoing(given.message)
    made = await context.broker.create_cron(
        given.name,
        topic=given.topic,
        expression=given.expression,
        value=message.value,
        key=message.key,
        headers=message.headers,
        priority=message.priority,
        timezone=given.timezone,
    )
    return _cron(made)


@delete(
    "/v1/crons/{cron:str}",
    opt={"may": "publish", "topic": "later"},
    tags=["schedule"],
    summary="End a recurring message",
)
async def delete_cron(cron: FromPath[str], context: Given[Context], principal: Given[Principal]) -> None:
    for one in await context.broker.crons():
        if one.name == cron and principal.may("read", one.topic):  # to say no would tell the topic
            principal.check("publish", one.topic)
            await context.broker.delete_cron(cron)
            return
    raise UnknownSchedule(f"there is no recurring schedule {cron!r}; /v1/crons lists them")


def _cron(one: CronDescription) -> CronOut:
    return CronOut(
        name=one.name,
        topic=one.topic,
        expression=one.expression,
        timezone=one.timezone,
        next=iso(one.next_ms),
        fired=one.fired,
    )


HANDLERS = [cancel_schedule, move_schedule, list_crons, create_cron, delete_cron]
