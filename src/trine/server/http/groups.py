"""Groups: create, list, describe, alter, delete; receive and settle; seek, pause, resume, replay."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, delete, get, patch, post
from litestar.params import FromPath, QueryParameter
from msgspec import Meta

from trine.broker.previews import preview_pause, preview_replay, preview_resume, preview_seek
from trine.model.description import Lag, MemberDescription, Preview
from trine.model.duration import duration_ms
from trine.model.errors import TrineError
from trine.model.limits import REASON_CHARS_MAX, RECEIVE_MAX
from trine.server.context import Context
from trine.server.http.bodies import Delivered, Show, Span, When, either
from trine.server.http.delivery import Presence, Runs, Settle, group_of, member_name, receive, settle
from trine.server.http.options import CreateGroup, GroupOptions, GroupOut, group_out, words
from trine.server.http.requests import Given, read
from trine.server.http.waiting import wait_ms
from trine.server.keys import Principal, check_group

GROUPS = "/v1/topics/{topic:str}/groups"
GROUP = "/v1/topics/{topic:str}/groups/{group:str}"
DryRun = Annotated[bool, QueryParameter(description="Changes nothing: says what would happen.")]
Reason = Annotated[str, Meta(max_length=REASON_CHARS_MAX)]


class Groups(msgspec.Struct, frozen=True):
    groups: list[GroupOut]


class Members(msgspec.Struct, frozen=True):
    members: list[MemberDescription]


class ReceiveIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Everything has a default: an empty body receives one message, at once."""

    max: Annotated[int, Meta(ge=1, le=RECEIVE_MAX)] = 1
    wait: Span | None = None
    member: str | None = None
    """Who receives; by default a name made of the API key's id."""
    show: Show = msgspec.field(default="auto", name="as")


class Received(msgspec.Struct, frozen=True):
    messages: list[Delivered]


class Receipts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    receipts: Annotated[list[str], Meta(min_length=1, max_length=RECEIVE_MAX)]


class NackIn(Receipts, kw_only=True, forbid_unknown_fields=True):
    delay: Span | None = None
    """Until it is tried again; by default the group's backoff."""
    reason: Reason | None = None


class RejectIn(Receipts, kw_only=True, forbid_unknown_fields=True):
    reason: Reason = "rejected"


class ExtendIn(Receipts, kw_only=True, forbid_unknown_fields=True):
    duration: Span


class NotSettled(msgspec.Struct, frozen=True):
    receipt: str
    code: str
    detail: str


class Settled(msgspec.Struct, frozen=True):
    count: int
    durability: str
    failed: list[NotSettled] = []
    """Receipts that were not good any more. If all were so, the answer is a problem instead."""


class SeekIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of offset, time and to."""

    offset: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    time: When | None = None
    to: Literal["earliest", "latest"] | None = None
    partition: Annotated[int, Meta(ge=0)] | None = None


class Sought(msgspec.Struct, frozen=True):
    offsets: dict[str, int]
    """By partition."""


class PauseIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reason: Reason = "paused by hand"


class ReplayIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to deliver again: failed messages, those of a key, those of a time; at least one of them."""

    failed: bool = False
    key: str | None = None
    key_base64: str | None = None
    from_time: When | None = None
    to_time: When | None = None


class Replayed(msgspec.Struct, frozen=True):
    count: int


# --- what there is


@post(GROUPS, opt={"may": "consume", "body": CreateGroup}, tags=["groups"], summary="Create a group")
async def create_group(
    request: Request[Any, Any, Any], topic: FromPath[str], context: Given[Context]
) -> GroupOut:
    """A group's first receive creates it too; create it to choose its options."""
    given = await read(request, CreateGroup)
    options = {**context.config.group_defaults(), **words(given, "name")}
    check_group(given.name)
    group = await context.broker.topic(topic).create_group(given.name, **options)
    return group_out(await group.describe())


@get(GROUPS, opt={"may": "read"}, tags=["groups"], summary="List groups")
async def list_groups(topic: FromPath[str], context: Given[Context]) -> Groups:
    return Groups([group_out(one) for one in await context.broker.topic(topic).groups()])


@get(GROUP, opt={"may": "read"}, tags=["groups"], summary="Describe a group")
async def describe_group(topic: FromPath[str], group: FromPath[str], context: Given[Context]) -> GroupOut:
    return group_out(await context.broker.topic(topic).group(group).describe())


@patch(GROUP, opt={"may": "admin", "body": GroupOptions}, tags=["groups"], summary="Alter a group")
async def alter_group(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    context: Given[Context],
) -> GroupOut:
    """Only the options that are given change."""
    given = await read(request, GroupOptions)
    handle = context.broker.topic(topic).group(group)
    await handle.alter(**words(given))
    return group_out(await handle.describe())


@delete(GROUP, opt={"may": "admin"}, tags=["groups"], summary="Delete a group")
async def delete_group(topic: FromPath[str], group: FromPath[str], context: Given[Context]) -> None:
    await context.broker.topic(topic).group(group).delete()


@get(f"{GROUP}/lag", opt={"may": "read"}, tags=["groups"], summary="How far a group is behind")
async def group_lag(topic: FromPath[str], group: FromPath[str], context: Given[Context]) -> Lag:
    return await context.broker.topic(topic).group(group).lag()


@get(f"{GROUP}/members", opt={"may": "read"}, tags=["groups"], summary="List members")
async def group_members(topic: FromPath[str], group: FromPath[str], context: Given[Context]) -> Members:
    return Members(await context.broker.topic(topic).group(group).members())


# --- receive and settle


@post(
    f"{GROUP}/receive",
    status_code=200,
    opt={"may": "consume", "body": ReceiveIn},
    tags=["consume"],
    summary="Receive messages",
)
async def receive_messages(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    context: Given[Context],
    principal: Given[Principal],
    presence: Given[Presence],
) -> Received:
    """Leases up to `max` messages; waits up to `wait` (at most 60 s) for the first. Settle each by its receipt before
    its deadline, or it comes again. A group that is not there is created.
    """
    given = await read(request, ReceiveIn)
    member = member_name(given.member, principal)
    found = await receive(
        context, presence, request, topic, group, member, given.max, wait_ms(given.wait), given.show
    )
    return Received(found)


@post(
    f"{GROUP}/ack", status_code=200, opt={"may": "consume", "body": Receipts}, tags=["consume"], summary="Ack"
)
async def ack(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    context: Given[Context],
) -> Settled:
    """When it is answered, these messages do not come back."""
    given = await read(request, Receipts)
    return await settled(context, topic, group, given.receipts, ack_runs)


@post(
    f"{GROUP}/nack", status_code=200, opt={"may": "consume", "body": NackIn}, tags=["consume"], summary="Nack"
)
async def nack(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    context: Given[Context],
) -> Settled:
    """Gives messages back, to be tried again."""
    given = await read(request, NackIn)
    return await settled(context, topic, group, given.receipts, nack_runs(given.delay, given.reason))


@post(
    f"{GROUP}/reject",
    status_code=200,
    opt={"may": "consume", "body": RejectIn},
    tags=["consume"],
    summary="Reject",
)
async def reject(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    context: Given[Context],
) -> Settled:
    """Gives messages up: straight to the dead letters, with the reason."""
    given = await read(request, RejectIn)
    return await settled(context, topic, group, given.receipts, reject_runs(given.reason))


@post(
    f"{GROUP}/extend",
    status_code=200,
    opt={"may": "consume", "body": ExtendIn},
    tags=["consume"],
    summary="Extend leases",
)
async def extend(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    context: Given[Context],
) -> Settled:
    """The leases end this long from now."""
    given = await read(request, ExtendIn)
    return await settled(context, topic, group, given.receipts, extend_runs(given.duration))


def ack_runs(group: Any, runs: Runs, now: int) -> int | None:
    lsn: int | None = group.ack(runs, now)
    return lsn


def nack_runs(delay: float | str | None, reason: str | None) -> Settle:
    delay_ms = None if delay is None else duration_ms(delay, what="delay")
    return lambda group, runs, now: group.nack(runs, now, delay_ms, reason)


def reject_runs(reason: str) -> Settle:
    return lambda group, runs, now: group.reject(runs, now, reason)


def extend_runs(duration: float | str) -> Settle:
    extra = duration_ms(duration, what="duration")
    return lambda group, runs, now: group.extend(runs, now, extra)


async def settled(context: Context, topic: str, group: str, receipts: list[str], how: Settle) -> Settled:
    return settled_out(*await settle(context, topic, group, receipts, how))


def settled_out(count: int, durability: str, failed: list[tuple[str, TrineError]]) -> Settled:
    return Settled(count, durability, [NotSettled(text, error.code, error.message) for text, error in failed])


# --- steer


@post(
    f"{GROUP}/seek",
    status_code=200,
    opt={"may": "consume", "body": SeekIn, "or": Preview},
    tags=["groups"],
    summary="Seek",
)
async def seek(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    context: Given[Context],
    dry_run: DryRun = False,
) -> Response[Sought]:
    """Moves a live group to an offset, a time, or an end of the log."""
    given = await read(request, SeekIn)
    with context.engine.lock:
        found = group_of(context, topic, group)  # a seek must not create a group by a slip of the pen
        if dry_run:
            where = {word: getattr(given, word) for word in ("offset", "time", "to", "partition")}
            return _shown(preview_seek(found, **where))
    handle = context.broker.topic(topic).group(group)
    moved = await handle.seek(offset=given.offset, time=given.time, to=given.to, partition=given.partition)
    return Response(Sought({str(number): offset for number, offset in moved.items()}))


def _shown(preview: Preview) -> Response[Any]:
    return Response(preview)


@post(
    f"{GROUP}/pause",
    status_code=200,
    opt={"may": "admin", "body": PauseIn, "or": Preview},
    tags=["groups"],
    summary="Pause",
)
async def pause(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    context: Given[Context],
    dry_run: DryRun = False,
) -> Response[GroupOut]:
    """Nothing is delivered until it is resumed; what is in flight can be settled."""
    given = await read(request, PauseIn)
    if dry_run:
        with context.engine.lock:
            return _shown(preview_pause(group_of(context, topic, group)))
    handle = context.broker.topic(topic).group(group)
    await handle.pause(given.reason)
    return Response(group_out(await handle.describe()))


@post(
    f"{GROUP}/resume",
    status_code=200,
    opt={"may": "admin", "or": Preview},
    tags=["groups"],
    summary="Resume",
)
async def resume(
    topic: FromPath[str], group: FromPath[str], context: Given[Context], dry_run: DryRun = False
) -> Response[GroupOut]:
    if dry_run:
        with context.engine.lock:
            return _shown(preview_resume(group_of(context, topic, group)))
    handle = context.broker.topic(topic).group(group)
    await handle.resume()
    return Response(group_out(await handle.describe()))


@post(
    f"{GROUP}/replay",
    status_code=200,
    opt={"may": "consume", "body": ReplayIn, "or": Preview},
    tags=["groups"],
    summary="Replay settled messages",
)
async def replay(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    context: Given[Context],
    dry_run: DryRun = False,
) -> Response[Replayed]:
    """Delivers settled messages again, beside live traffic."""
    given = await read(request, ReplayIn)
    what: dict[str, Any] = {
        "failed": given.failed,
        "key": either(given.key, given.key_base64, "key"),
        "from_time": given.from_time,
        "to_time": given.to_time,
    }
    if dry_run:
        with context.engine.lock:
            return _shown(preview_replay(group_of(context, topic, group), **what))
    return Response(Replayed(await context.broker.topic(topic).group(group).replay(**what)))


HANDLERS = [
    create_group, list_groups, describe_group, alter_group, delete_group, group_lag, group_members,
    receive_messages, ack, nack, reject, extend, seek, pause, resume, replay,
]  # fmt: skip
