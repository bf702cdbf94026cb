"""`trine dlq`: dead letters: list, show, redrive, jobs, purge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.cli.interrupts import Interrupted
from trine.cli.options import FromTime, Limit, TopicName, ToTime, Yes, confirm_name
from trine.cli.session import Session
from trine.cli.verb import verb

if TYPE_CHECKING:
    from trine import Redrive

app = typer.Typer(help="Dead letters: messages that were given up on.", no_args_is_help=True)

Reason = Annotated[str | None, typer.Option("--reason", help="A part of the reason.")]
OfGroup = Annotated[str | None, typer.Option("--group", "-g", help="Given up by this group.")]
OfKey = Annotated[str | None, typer.Option("--key", "-k", help="Of this key.")]
Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This one; can be given again.")]


@verb(app, "list")
def list_letters(
    session: Session,
    topic: TopicName,
    reason: Reason = None,
    group: OfGroup = None,
    key: OfKey = None,
    limit: Limit = 1000,
) -> None:
    """List the dead letters of a topic."""
    from trine.cli.message import letter_record

    found = session.broker.topic(topic).dead_letters(reason=reason, group=group, key=key, limit=limit)
    session.listing([letter_record(one) for one in found], COLUMNS, none=f"{topic} has no dead letters")


@verb(app, "show")
def show(
    session: Session,
    message_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="Of the dead letter (orders.dlq/1/0), or the id it had before."),
    ],
) -> None:
    """Show one dead letter whole."""
    from trine.cli.message import letter_record
    from trine.model.errors import UnknownMessage
    from trine.model.ids import DLQ_SUFFIX, parse_message_id

    broker = session.broker
    ids = [message_id]
    if not parse_message_id(message_id).topic.endswith(DLQ_SUFFIX):
        ids = broker.trace(message_id).links.get("dead_letters", [])
        if not ids:
            raise UnknownMessage(f"{message_id} was not given up by any group; it has no dead letter")
    for one in ids:
        topic, partition, offset = parse_message_id(one)
        found = broker.topic(topic).read(partition=partition, from_offset=offset, to_offset=offset + 1, max=1)
        if not found:
            raise UnknownMessage(f"{one} is not there: it never was, or the log has deleted it")
        record = letter_record(found[0])
        if session.json:
            session.document(record)
            continue
        headers = record.pop("headers")
        value = found[0].value
        words = ("id", "origin", "reason", "group", "member", "attempts", "failed", "key", "priority")
        session.fields(
            {word: record[word] for word in words} | {f"header {k}": v for k, v in headers.items()}
        )
        session.line("")
        session.text((value or b"").decode(errors="backslashreplace"))


@verb(app, "redrive")
def redrive(
    session: Session,
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="Whose dead letters.")] = None,
    reason: Reason = None,
    group: OfGroup = None,
    key: OfKey = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Elsewhere than where they were.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Messages a second at most.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would move; move nothing.")] = False,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="JOB", help="Go on with this job.")
    ] = None,
    ids: Ids = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Of a dry run: how many to show.")] = 100,
) -> None:
    """Send dead letters back to where they came from, or elsewhere.

    A redrive is a job: when it is interrupted, `--resume` goes on where it stopped.
    """
    from trine.cli.message import letter_record

    if (topic is None) == (resume is None):
        raise typer.BadParameter("give a TOPIC, or --resume with the id of a job")
    if resume is not None:
        job = session.broker.resume_redrive(resume)
    else:
        assert topic is not None
        job = session.broker.redrive(
            topic, to=to, reason=reason, group=group, key=key, from_time=from_time, to_time=to_time, rate=rate,
            ids=ids or None,
        )  # fmt: skip
    if dry_run:
        letters = [letter_record(one) for one in job.preview(limit)]
        if resume is None:
            job.cancel()
        session.listing(letters, COLUMNS, none="nothing would move")
        return
    done = _run(session, job)
    session.done(
        f"{done['id']}: {done['moved']} of {done['matched']} matching dead letters moved, {done['state']}",
        **done,
    )


@verb(app, "jobs")
def jobs(session: Session) -> None:
    """List the redrives that are remembered."""
    session.listing(
        [one.progress for one in session.broker.redrives()],
        {
            "job": lambda one: one["id"],
            "topic": lambda one: one["topic"],
            "state": lambda one: one["state"],
            "moved": lambda one: one["moved"],
            "looked at": lambda one: one["looked_at"],
            "of": lambda one: one["of"],
        },
        none="there are no redrives",
    )


@verb(app, "cancel")
def cancel(
    session: Session, job: Annotated[str, typer.Argument(metavar="JOB", help="The id of the redrive.")]
) -> None:
    """End a redrive; what it has moved stays moved."""
    found = {one.id: one for one in session.broker.redrives()}
    if job not in found:
        from trine.model.errors import UnknownJob

        raise UnknownJob(f"there is no redrive {job!r}; `trine dlq jobs` lists them")
    found[job].cancel()
    session.done(f"{job}: cancelled", id=job, state="cancelled")


@verb(app, "purge")
def purge(
    session: Session,
    topic: TopicName,
    reason: Reason = None,
    group: OfGroup = None,
    key: OfKey = None,
    ids: Ids = None,
    yes: Yes = False,
) -> None:
    """Delete dead letters: all of them, those that the filters fit, or those that are named."""
    handle = session.broker.topic(topic)
    filters = {"reason": reason, "group": group, "key": key}
    told = " and ".join(f"the {word} {text!r}" for word, text in filters.items() if text is not None)
    which = f"Dead letters with {told}" if told else "All dead letters"
    if ids:
        which = f"{len(ids)} dead letters"
    confirm_name(topic, f"{which} of {topic!r} will be deleted.", yes)
    count = handle.purge_dead_letters(**filters, ids=ids or None)
    session.done(f"{topic}: {count} dead letters deleted", topic=topic, purged=count)


def _run(session: Session, job: Redrive) -> dict[str, Any]:
    """Runs it to its end; if it is interrupted, says how to go on."""
    with session.progress(f"redrive {job.id}", job.progress["of"]) as reached:
        try:
            return job.run(on_progress=lambda now: reached(now["looked_at"]))
        except Interrupted:
            session.note(f"{job.id} was interrupted; go on with: trine dlq redrive --resume {job.id}")
            raise


COLUMNS: dict[str, Any] = {
    "id": lambda one: one["id"],
    "key": lambda one: one["key"] or one.get("key_base64"),
    "failed": lambda one: one["failed"],
    "group": lambda one: one["group"],
    "attempts": lambda one: one["attempts"],
    "reason": lambda one: one["reason"],
    "value": lambda one: one["value"] if one["value"] is not None else one.get("value_base64"),
}
