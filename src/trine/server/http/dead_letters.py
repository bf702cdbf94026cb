"""Dead letters: list, look at one, purge, and send back as a job that can be watched and cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath, FromQuery
from msgspec import Meta

from trine.broker.aio import AsyncRedrive
from trine.broker.dead_letters import dlq_name
from trine.broker.operations import letters_group, matches
from trine.log.stored import DeadLetter
from trine.model.errors import TrineError, UnknownJob, UnknownMessage
from trine.model.ids import DLQ_SUFFIX
from trine.server.context import Context
from trine.server.http.bodies import LetterOut, When, either, letter_out
from trine.server.http.publishing import topic_of
from trine.server.http.reading import ANSWER_BYTES_MAX
from trine.server.http.requests import As, Given, Limit, read
from trine.server.keys import Principal

LETTERS = "/v1/topics/{topic:str}/dead-letters"


class Letters(msgspec.Struct, frozen=True):
    dead_letters: list[LetterOut]
    more: bool = False


class PurgeLetters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reason: str | None = None
    """Only those whose reason has this in it."""


class PurgedLetters(msgspec.Struct, frozen=True):
    purged: int


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
    rate: Annotated[float, Meta(gt=0)] | None = None
    """Messages a second."""
    dry_run: bool = False
    """Only shows which letters it would move (up to 1,000)."""


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
    error: str | None = None
    """Why it stopped, if it did; `resume` tries again."""


class RedriveStarted(msgspec.Struct, frozen=True, kw_only=True):
    job: Redrive | None = None
    would_move: list[LetterOut] | None = None
    """Of a dry run."""


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


@get(LETTERS, opt={"may": "read"}, tags=["dead letters"], summary="List dead letters")
async def list_letters(
    topic: FromPath[str],
    context: Given[Context],
    reason: FromQuery[str | None] = None,
    group: FromQuery[str | None] = None,
    key: FromQuery[str | None] = None,
    limit: Limit = 100,
    show: As = "auto",
) -> Letters:
    """Messages of this topic that were given up on and not redriven or purged yet. `reason` matches a part."""
    found: list[DeadLetter] = []
    size, more = 0, False
    with context.engine.lock:
        for letter in buried(context, topic):
            if not matches(letter, reason, group, None if key is None else key.encode()):
                continue
            if len(found) >= limit or size > ANSWER_BYTES_MAX:
                more = True
                break
            found.append(letter)
            size += len(letter.value or b"")
    found.sort(key=lambda letter: letter.timestamp_ms)
    return Letters([letter_out(one, show) for one in found], more)


def buried(context: Context, topic: str) -> Iterator[DeadLetter]:
    """Letters that are still there, partition by partition. Under the engine's lock."""
    topic_of(context, topic)
    name = topic if topic.endswith(DLQ_SUFFIX) else dlq_name(topic)
    dlq = context.engine.topics.get(name)
    if dlq is None:
        return
    for part in letters_group(dlq).parts:
        one = part.partition
        for record in one.scan(part.ledger.first_unsettled(), one.log.next_offset):
            if not part.ledger.is_settled(record.offset):
                yield DeadLetter(record, one.origin, one.lane_of(record.offset))


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
        topic_of(context, topic)
        dlq = engine.topics.get(topic if topic.endswith(DLQ_SUFFIX) else dlq_name(topic))
        if dlq is not None and 0 <= partition < len(dlq.partitions):
            part = letters_group(dlq).parts[partition]
            one = part.partition
            if one.log.start_offset <= offset < one.log.next_offset and not part.ledger.is_settled(offset):
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
    given = await read(request, PurgeLetters)
    return PurgedLetters(await context.broker.topic(topic).purge_dead_letters(reason=given.reason))


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
    given = await read(request, RedriveIn)
    if given.to is not None:
        principal.check("publish", given.to)
    job = await context.broker.redrive(
        topic,
        to=given.to,
        reason=given.reason,
        group=given.group,
        key=either(given.key, given.key_base64, "key"),
        from_time=given.from_time,
        to_time=given.to_time,
        rate=given.rate,
    )
    if given.dry_run:
        letters = await job.preview(1000)
        await job.cancel()
        return Response(
            RedriveStarted(would_move=[letter_out(one, "auto") for one in letters]), status_code=200
        )
    jobs.start(job, context.log)
    return Response(RedriveStarted(job=jobs.shown(job)), status_code=202)


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


HANDLERS = [
    list_letters, show_letter, purge_letters, redrive,
    list_redrives, show_redrive, cancel_redrive, resume_redrive,
]  # fmt: skip
