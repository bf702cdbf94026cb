"""Calls about dead letters, and redrives: jobs that their caller steps through.

An edited redrive is edited on the caller's side: it previews the next letters, and steps with what it made of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trine.broker import redrive
from trine.broker.redrive import RedriveJob, find_job
from trine.log.stored import DeadLetter, StoredMessage
from trine.model.errors import InvalidOption
from trine.server.topic_calls import instant, outgoing
from trine.wire import calls
from trine.wire.calls import CountReply, RedriveReply, WireMessage, WireOutgoing

if TYPE_CHECKING:
    from trine.server.connection import Connection


def wire_message(message: StoredMessage) -> WireMessage:
    return WireMessage(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=message.timestamp_ms,
        priority=message.priority,
        key=message.key,
        value=message.value,
        headers=list(message._record.headers),
    )


async def list_dead_letters(connection: Connection, call: calls.ListDeadLetters) -> list[WireMessage]:
    topic = connection.context.broker.topic(call.topic)
    letters = await topic.dead_letters(reason=call.reason, group=call.group, key=call.key, limit=call.limit)
    return [wire_message(letter) for letter in letters]


async def purge_dead_letters(connection: Connection, call: calls.PurgeDeadLetters) -> CountReply:
    topic = connection.context.broker.topic(call.topic)
    return CountReply(
        await topic.purge_dead_letters(reason=call.reason, group=call.group, key=call.key, ids=call.ids)
    )


# --- redrives


async def begin_redrive(connection: Connection, call: calls.BeginRedrive) -> RedriveReply:
    context = connection.context
    if call.to is not None:
        connection.check("publish", call.to)
    with context.engine.lock:
        context.engine.check_open()
        job, lsn = redrive.begin_redrive(
            context.engine, call.topic, to=call.to, reason=call.reason, group=call.group, key=call.key,
            from_time=instant(call.from_time_ms), to_time=instant(call.to_time_ms), rate=call.rate,
            edited=call.edited, where=call.where, ids=call.ids,
        )  # fmt: skip
        _remember(connection, job)
    await context.commits.durable(lsn)
    return _reply(job)


async def resume_redrive(connection: Connection, call: calls.ResumeRedrive) -> RedriveReply:
    with connection.context.engine.lock:
        job = find_job(connection.context.engine, call.id, call.edited)
        _remember(connection, job)
        return _reply(job)


async def list_redrives(connection: Connection, call: calls.ListRedrives) -> list[RedriveReply]:
    engine = connection.context.engine
    with engine.lock:
        return [
            _reply(job)
            for job in redrive.jobs(engine)
            if connection.may("read", engine.meta.jobs[job.id].topic)
        ]


async def preview_redrive(connection: Connection, call: calls.PreviewRedrive) -> list[WireMessage]:
    with connection.context.engine.lock:
        return [wire_message(letter) for letter in _job(connection, call.id).preview(call.limit)]


async def step_redrive(connection: Connection, call: calls.StepRedrive) -> RedriveReply:
    with connection.context.engine.lock:
        job = _job(connection, call.id)
        if call.edits is None:
            looked, lsn = job.step(call.limit, None)
        else:
            looked, lsn = _step_edited(job, call.limit, call.edits)
        reply = _reply(job, looked)
    await connection.context.commits.durable(lsn)
    return reply


def _step_edited(
    job: RedriveJob, limit: int, edits: list[tuple[str, WireOutgoing | None]]
) -> tuple[int, int]:
    """Up to the last letter that was edited, and not beyond: what comes after it was not seen by the caller."""
    made = dict(edits)

    def edit(letter: DeadLetter) -> Any:
        if letter.id not in made:
            raise InvalidOption(f"{letter.id} is not among the edits; preview again, and edit what it shows")
        message = made[letter.id]
        return None if message is None else outgoing(message)

    return job.step(job.reach(set(made)) if made else limit, edit)


async def move_letters(connection: Connection, call: calls.MoveLetters) -> RedriveReply:
    with connection.context.engine.lock:
        job = _job(connection, call.id)
        dealt, lsn = job.move(call.letters, call.last)
        reply = _reply(job, dealt)
    await connection.context.commits.durable(lsn)
    return reply


async def cancel_redrive(connection: Connection, call: calls.CancelRedrive) -> RedriveReply:
    with connection.context.engine.lock:
        job = _job(connection, call.id)
        lsn = job.cancel()
        reply = _reply(job)
    await connection.context.commits.durable(lsn)
    return reply


def _job(connection: Connection, job_id: str) -> RedriveJob:
    """The job as it was begun or resumed here: it knows since when its rate is counted."""
    job = connection.listener.jobs.get(job_id)
    if job is None:
        job = find_job(connection.context.engine, job_id, True)
        _remember(connection, job)
    return job


def _remember(connection: Connection, job: RedriveJob) -> None:
    jobs, known = connection.listener.jobs, connection.context.engine.meta.jobs
    for old in [one for one in jobs if one not in known]:
        del jobs[old]
    jobs[job.id] = job


def _reply(job: RedriveJob, looked: int = 0) -> RedriveReply:
    return RedriveReply(
        id=job.id,
        progress=job.progress(),
        looked=looked,
        pause_ms=job.pause_ms(),
        done=job.done,
        where=job.where,
        ends=job.ends,
    )
