"""Redrives: dead letters sent back as a job that can be watched and cancelled, and one by one, edited."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath
from msgspec import UNSET, Meta, UnsetType

from trine.broker.aio import AsyncRedrive
from trine.broker.operations import NAMED_MAX
from trine.broker.redrive import dry_redrive, redrive_edited
from trine.broker.walking import Wanted
from trine.log.stored import DeadLetter
from trine.model.errors import InvalidOption, TrineError, UnknownJob
from trine.model.message import RESERVED, Outgoing
from trine.server.context import Context
from trine.server.http.bodies import LetterOut, MessageIn, When, either, has_content, letter_out, outgoing
from trine.server.http.dead_letters import LETTERS, first_there, letters_topic, letters_walk
from trine.server.http.requests import Given, read
from trine.server.http.search import Merge, walk_of
from trine.server.keys import Principal

SHOWN_MAX: Final = 1_000
"""Letters a dry run shows."""
PREVIEW: Final = 4096
DRY_LOOKED_MAX: Final = 200_000
"""Letters a dry run looks at."""


class EditIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is given takes the place of what the letter has. `headers` are all its headers then."""

    value: Any = UNSET
    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] | None = None
    headers_base64: dict[str, str] | None = None
    priority: str | None = None


class RedriveIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters go back, and where to. Filters match parts of the reason, the whole group and key."""

    to: str | None = None
    """Another topic than the one they came from."""
    reason: str | None = None
    group: str | None = None
    key: str | None = None
    key_base64: str | None = None
    from_time: When | None = None
    to_time: When | None = None
    ids: Annotated[list[str], Meta(min_length=1, max_length=NAMED_MAX)] | None = None
    """Dead letters by their ids (`orders.dlq/0/17`), instead of filters."""
    edit: EditIn | None = None
    """What to change about the one letter that `ids` names; it is sent at once."""
    rate: Annotated[float, Meta(gt=0)] | None = None
    """Messages a second."""
    dry_run: bool = False
    """Only shows which letters it would move (up to 1,000, their values cut to 4,096 bytes)."""


class RawEdit(EditIn, kw_only=True, forbid_unknown_fields=True):
    """`EditIn` as it is decoded: JSON values are stored as they came, byte for byte."""

    value: msgspec.Raw | UnsetType = UNSET


class RawRedrive(RedriveIn, kw_only=True, forbid_unknown_fields=True):
    edit: RawEdit | None = None


class Redrive(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    topic: str
    state: str
    """running, done or cancelled."""
    active: bool
    """Whether this server works on it now; one that a restart interrupted goes on with `resume`."""
    matched: int
    moved: int
    passed_over: int
    looked_at: int
    of: int
    created_ms: int
    to: str | None
    rate: float | None
    error: str | None = None
    """Why it stopped, if it did; `resume` tries again."""


class RedriveStarted(msgspec.Struct, frozen=True, kw_only=True):
    job: Redrive | None = None
    would_move: list[LetterOut] | None = None
    """Of a dry run: the first 1,000."""
    matched: int | None = None
    """Of a dry run: how many it would move."""
    complete: bool | None = None
    """Of a dry run: false when there are so many letters that not all were looked at."""


class Redrives(msgspec.Struct, frozen=True):
    redrives: list[Redrive]


class Jobs:
    """Redrives that this server works on, each in a task."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._errors: dict[str, str] = {}

    def start(self, job: AsyncRedrive, log: Any) -> None:
        if job.id not in self._tasks:
            self._errors.pop(job.id, None)
            self._tasks[job.id] = asyncio.create_task(self._run(job, log), name=f"trine {job.id}")

    async def _run(self, job: AsyncRedrive, log: Any) -> None:
        try:
            done = await job.run()
            log.info("redrive over", job=job.id, state=done["state"], moved=done["moved"])
        except TrineError as error:
            self._errors[job.id] = error.message
            log.warning("redrive stopped", job=job.id, why=error.message)
        finally:
            del self._tasks[job.id]

    def shown(self, job: AsyncRedrive) -> Redrive:
        return Redrive(active=job.id in self._tasks, error=self._errors.get(job.id), **job.progress)

    def stop(self) -> None:
        """They are durable, and can be resumed."""
        for task in self._tasks.values():
            task.cancel()


@post(
    f"{LETTERS}/redrive",
    status_code=202,
    opt={"may": "admin", "body": RedriveIn},
    tags=["dead letters"],
    summary="Send dead letters back",
)
async def redrive(
    request: Request[Any, Any, Any],
    topic: FromPath[str],
    context: Given[Context],
    principal: Given[Principal],
    jobs: Given[Jobs],
) -> Response[RedriveStarted]:
    """Begins a job; look at it at `/v1/redrives/{id}`. It goes on after a restart of the server with `resume`."""
    given = await read(request, RawRedrive)
    if given.to is not None:
        principal.check("publish", given.to)
    which: dict[str, Any] = {
        "to": given.to,
        "reason": given.reason,
        "group": given.group,
        "key": either(given.key, given.key_base64, "key"),
        "from_time": given.from_time,
        "to_time": given.to_time,
        "ids": given.ids,
    }
    if given.edit is not None and (given.ids is None or len(given.ids) != 1):
        raise InvalidOption("edit changes one letter: name it with ids, and it alone")
    if given.dry_run:
        return Response(await _dry(context, topic, which), status_code=200)
    if given.edit is not None:
        return Response(await _send_edited(context, jobs, topic, given, given.edit), status_code=200)
    job = await context.broker.redrive(topic, rate=given.rate, **which)
    jobs.start(job, context.log)
    return Response(RedriveStarted(job=jobs.shown(job)), status_code=202)


async def _dry(context: Context, topic: str, which: dict[str, Any]) -> RedriveStarted:
    with context.engine.lock:
        job = dry_redrive(context.engine, topic, **which)
        if which["ids"] is not None:
            named = [letter for _, letter in job.named() if letter is not None]
            return _would_move(named, len(named), complete=True)
        dlq = letters_topic(context, topic)
        assert dlq is not None, "a job is of dead letters that there are"
        wanted = Wanted()
        positions = [first_there(dlq, one.number) for one in dlq.partitions]
        walks = [
            letters_walk(walk_of(one, positions[one.number], "forward", wanted), dlq, one.number, job.fits)
            for one in dlq.partitions
        ]
    merge = Merge(walks, positions, "forward")
    shown: list[DeadLetter] = []
    matched = 0
    while not merge.over and merge.looked_at < DRY_LOOKED_MAX:
        found = await merge.run(SHOWN_MAX, PREVIEW)
        matched += len(found)
        shown += [
            DeadLetter(step.record, dlq.partitions[number].origin, 0)
            for number, step in found[: SHOWN_MAX - len(shown)]
            if step.record is not None
        ]
    return _would_move(shown, matched, complete=merge.over)


def _would_move(letters: list[DeadLetter], matched: int, *, complete: bool) -> RedriveStarted:
    shown = [letter_out(one, "auto", PREVIEW) for one in letters[:SHOWN_MAX]]
    return RedriveStarted(would_move=shown, matched=matched, complete=complete)


async def _send_edited(
    context: Context, jobs: Jobs, topic: str, given: RedriveIn, edit: EditIn
) -> RedriveStarted:
    assert given.ids is not None
    with context.engine.lock:
        context.engine.check_open()
        job, lsn = redrive_edited(
            context.engine, topic, given.ids[0], to=given.to, edit=lambda letter: _edited(edit, letter)
        )
        progress = job.progress()
    await context.commits.durable(lsn)
    return RedriveStarted(job=Redrive(active=False, **progress))


def _edited(edit: EditIn, letter: DeadLetter) -> Outgoing:
    """The letter with what was given in the place of what it has."""
    given = MessageIn(**{name: getattr(edit, name) for name in edit.__struct_fields__})
    keeps_value = not has_content(given)
    if keeps_value:
        given.text = ""
    made = outgoing(given)
    own = {name: has for name, has in letter.headers.items() if not name.startswith(RESERVED)}
    return msgspec.structs.replace(
        made,
        value=letter.value if keeps_value else made.value,
        key=made.key if made.key is not None else letter.key,
        headers=own if edit.headers is None and edit.headers_base64 is None else made.headers or {},
    )


@get("/v1/redrives", opt={"may": "read"}, tags=["dead letters"], summary="List redrives")
async def list_redrives(context: Given[Context], principal: Given[Principal], jobs: Given[Jobs]) -> Redrives:
    shown = [jobs.shown(job) for job in await context.broker.redrives()]
    return Redrives([one for one in shown if principal.may("read", one.topic)])


@get(
    "/v1/redrives/{job:str}",
    opt={"may": "read", "topic": "later"},
    tags=["dead letters"],
    summary="How far a redrive is",
)
async def show_redrive(
    job: FromPath[str],
    context: Given[Context],
    principal: Given[Principal],
    jobs: Given[Jobs],
) -> Redrive:
    return jobs.shown(await _job(context, job, principal, "read"))


@post(
    "/v1/redrives/{job:str}/cancel",
    status_code=200,
    opt={"may": "admin", "topic": "later"},
    tags=["dead letters"],
    summary="Cancel a redrive",
)
async def cancel_redrive(
    job: FromPath[str],
    context: Given[Context],
    principal: Given[Principal],
    jobs: Given[Jobs],
) -> Redrive:
    """What it has moved stays moved."""
    found = await _job(context, job, principal, "admin")
    await found.cancel()
    return jobs.shown(found)


@post(
    "/v1/redrives/{job:str}/resume",
    status_code=200,
    opt={"may": "admin", "topic": "later"},
    tags=["dead letters"],
    summary="Go on with a redrive",
)
async def resume_redrive(
    job: FromPath[str],
    context: Given[Context],
    principal: Given[Principal],
    jobs: Given[Jobs],
) -> Redrive:
    """One that stopped at a restart or an error; one that is over stays over."""
    await _job(context, job, principal, "admin")
    found = await context.broker.resume_redrive(job)
    if found.progress["state"] == "running":
        jobs.start(found, context.log)
    return jobs.shown(found)


async def _job(context: Context, job_id: str, principal: Principal, action: Any) -> AsyncRedrive:
    for job in await context.broker.redrives():
        topic = job.progress["topic"]
        if job.id == job_id and principal.may("read", topic):  # to say no would tell the topic
            principal.check(action, topic)
            return job
    raise UnknownJob(f"there is no redrive {job_id!r}; /v1/redrives lists them")


HANDLERS = [redrive, list_redrives, show_redrive, cancel_redrive, resume_redrive]
