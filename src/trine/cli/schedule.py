"""`trine schedule`: what waits for its time, and what comes again and again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trine.cli.completion import topic_names
from trine.cli.options import Key, Limit, TopicName, pairs
from trine.cli.session import Session
from trine.cli.verb import verb

app = typer.Typer(help="Delayed and recurring messages.", no_args_is_help=True)

ScheduleIds = Annotated[list[str], typer.Argument(metavar="ID…", help="Schedule ids, e.g. orders@494221-17.")]


@verb(app, "list")
def list_scheduled(
    session: Session,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="All if it is left out.", autocompletion=topic_names),
    ] = None,
    limit: Limit = 1000,
) -> None:
    """List what waits for its time, soonest first."""
    from trine.cli.message import put
    from trine.model.duration import iso

    broker = session.broker
    found = broker.schedules(limit) if topic is None else broker.topic(topic).schedules(limit)
    records = []
    for one in found:
        record: dict[str, Any] = {
            "id": one.id,
            "topic": one.topic,
            "due": iso(one.due_ms),
            "published": iso(one.published_ms),
            "priority": one.priority,
        }
        put(record, "key", one.key)
        put(record, "value", one.value)
        records.append(record)
    session.listing(
        records,
        {
            "id": lambda one: one["id"],
            "due": lambda one: one["due"],
            "key": lambda one: one["key"] or one.get("key_base64"),
            "priority": lambda one: one["priority"],
            "value": lambda one: one["value"] if one["value"] is not None else one.get("value_base64"),
        },
        none="nothing is scheduled",
    )


@verb(app, "cancel")
def cancel(session: Session, ids: ScheduleIds) -> None:
    """Take scheduled messages back before they are due."""
    for one in ids:
        session.broker.cancel(one)
    session.done(f"cancelled {', '.join(ids)}", cancelled=ids)


@verb(app, "move")
def move(
    session: Session,
    schedule_id: Annotated[str, typer.Argument(metavar="ID", help="The schedule id.")],
    delay: Annotated[str | None, typer.Option("--delay", metavar="TIME", help="This long from now.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="At this time.")] = None,
) -> None:
    """Give a scheduled message another time; it keeps its id."""
    if (delay is None) == (at is None):
        raise typer.BadParameter("give --delay or --at: the new time")
    session.broker.reschedule(schedule_id, delay=delay, deliver_at=at)
    session.done(f"moved {schedule_id}", moved=schedule_id)


@verb(app, "add")
def add(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the recurring message.")],
    topic: TopicName,
    expression: Annotated[
        str, typer.Argument(metavar="CRON", help='When: "0 3 * * *", "@hourly" or "every 30s".')
    ],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What is published.")],
    key: Key = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE")] = None,
    priority: Annotated[str | None, typer.Option("--priority", help="Its lane.")] = None,
    timezone: Annotated[str, typer.Option("--timezone", help="Whose clock the expression means.")] = "UTC",
) -> None:
    """Publish a message again and again."""
    made = session.broker.create_cron(
        name, topic=topic, expression=expression, value=value, key=key,
        headers=pairs(header, "header") or None, priority=priority, timezone=timezone,
    )  # fmt: skip
    record = _cron(made)
    session.done(f"{name}: next at {record['next']}", **record)


@verb(app, "crons")
def crons(session: Session) -> None:
    """List the recurring messages."""
    session.listing(
        [_cron(one) for one in session.broker.crons()],
        {
            "name": lambda one: one["name"],
            "topic": lambda one: one["topic"],
            "expression": lambda one: one["expression"],
            "timezone": lambda one: one["timezone"],
            "next": lambda one: one["next"],
            "fired": lambda one: one["fired"],
        },
        none="there are no recurring messages",
    )


@verb(app, "remove")
def remove(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the recurring message.")],
) -> None:
    """End a recurring message."""
    session.broker.delete_cron(name)
    session.done(f"{name}: removed", removed=name)


def _cron(cron: Any) -> dict[str, Any]:
    from trine.model.duration import iso

    return {
        "name": cron.name,
        "topic": cron.topic,
        "expression": cron.expression,
        "timezone": cron.timezone,
        "next": iso(cron.next_ms),
        "fired": cron.fired,
    }
