"""`trine group`: list, describe, create, alter, seek, pause, resume, lag, replay, delete."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trine.cli.completion import group_names, topic_names
from trine.cli.options import FromTime, GroupName, Settings, TopicName, ToTime, Yes, confirm_name, settings
from trine.cli.session import Session
from trine.cli.topic import config_fields, plain, told
from trine.cli.verb import verb

app = typer.Typer(help="Groups: who works on a topic, and how far they are.", no_args_is_help=True)

Lease = Annotated[
    str | None, typer.Option("--lease", metavar="TIME", help='How long a message is leased, e.g. "30s".')
]
Order = Annotated[str | None, typer.Option("--order", help="none, key or partition.")]
MaxDeliveries = Annotated[
    int | None, typer.Option("--max-deliveries", help="Tries before it is a dead letter.")
]
Durability = Annotated[
    str | None, typer.Option("--durability", help="memory, written or synced: what an ack promises.")
]
AnyTopic = Annotated[
    str | None,
    typer.Argument(metavar="TOPIC", help="The topic; all if it is left out.", autocompletion=topic_names),
]
AnyGroup = Annotated[
    str | None,
    typer.Argument(metavar="GROUP", help="The group; all if it is left out.", autocompletion=group_names),
]


@verb(app, "list")
def list_groups(session: Session, topic: AnyTopic = None) -> None:
    """List the groups of a topic, or of all topics."""
    session.listing(
        _records(session, topic),
        {
            "topic": lambda one: one["topic"],
            "group": lambda one: one["name"],
            "members": lambda one: len(one["members"]),
            "lag": lambda one: one["lag"]["count"],
            "in flight": lambda one: one["lag"]["in_flight"],
            "state": lambda one: f"paused: {one['paused']}" if one["paused"] else "running",
        },
        none="there are no groups; the first consumer of a group creates it",
    )


@verb(app, "describe")
def describe(session: Session, topic: TopicName, group: GroupName) -> None:
    """Show a group: its configuration, members and lag."""
    record = plain(session.broker.topic(topic).group(group).describe())
    if session.json:
        session.document(record)
        return
    session.fields(
        {
            "topic": record["topic"],
            "group": record["name"],
            "state": f"paused: {record['paused']}" if record["paused"] else "running",
            **_lag_fields(record["lag"]),
            **config_fields(record["config"]),
        }
    )
    if record["members"]:
        session.line("")
        session.table(
            ["member", "in flight", "partitions"],
            [
                [one["name"], one["in_flight"], ", ".join(map(str, one["partitions"]))]
                for one in record["members"]
            ],
        )


@verb(app, "create")
def create(
    session: Session,
    topic: TopicName,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Its name.")],
    lease: Lease = None,
    order: Order = None,
    max_deliveries: MaxDeliveries = None,
    durability: Durability = None,
    start: Annotated[str | None, typer.Option("--start", help="earliest or latest.")] = None,
    settings_given: Settings = None,
) -> None:
    """Create a group now, with options. `--set` takes every option of docs/consuming.md."""
    options = settings(
        settings_given, lease=lease, order=order, max_deliveries=max_deliveries, durability=durability,
        start=start,
    )  # fmt: skip
    made = session.broker.topic(topic).create_group(group, **options).describe()
    session.done(f"{topic}/{group}: created", **plain(made))


@verb(app, "alter")
def alter(
    session: Session,
    topic: TopicName,
    group: GroupName,
    lease: Lease = None,
    order: Order = None,
    max_deliveries: MaxDeliveries = None,
    durability: Durability = None,
    settings_given: Settings = None,
) -> None:
    """Change a group's options while it is live."""
    options = settings(
        settings_given, lease=lease, order=order, max_deliveries=max_deliveries, durability=durability
    )
    if not options:
        raise typer.BadParameter("say what to change, e.g. --lease 1m")
    handle = session.broker.topic(topic).group(group)
    handle.alter(**options)
    session.done(f"{topic}/{group}: altered {', '.join(options)}", **plain(handle.describe()))


@verb(app, "seek")
def seek(
    session: Session,
    topic: TopicName,
    group: GroupName,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="To this offset.")] = None,
    time: Annotated[str | None, typer.Option("--time", metavar="TIME", help="To this time.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="earliest or latest.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="This one alone.")] = None,
) -> None:
    """Move a live group to an offset, a time, the beginning or the end."""
    moved = (
        session.broker.topic(topic).group(group).seek(offset=offset, time=time, to=to, partition=partition)
    )
    session.done(
        f"{topic}/{group}: at " + ", ".join(f"{number}:{place}" for number, place in moved.items()),
        topic=topic,
        group=group,
        offsets={str(number): place for number, place in moved.items()},
    )


@verb(app, "pause")
def pause(
    session: Session,
    topic: TopicName,
    group: GroupName,
    reason: Annotated[
        str, typer.Option("--reason", help="Why; it is shown with the group.")
    ] = "paused by hand",
) -> None:
    """Deliver nothing until `resume`; what is in flight can be settled."""
    session.broker.topic(topic).group(group).pause(reason)
    session.done(f"{topic}/{group}: paused", topic=topic, group=group, paused=reason)


@verb(app, "resume")
def resume(session: Session, topic: TopicName, group: GroupName) -> None:
    """Deliver again."""
    session.broker.topic(topic).group(group).resume()
    session.done(f"{topic}/{group}: resumed", topic=topic, group=group, paused=None)


@verb(app, "lag")
def lag(session: Session, topic: AnyTopic = None, group: AnyGroup = None) -> None:
    """Show how far groups are behind, by count and by age."""
    from trine.model.duration import format_ms

    if topic is not None and group is not None:
        found = plain(session.broker.topic(topic).group(group).lag())
        records = [{"topic": topic, "group": group, **found}]
    else:
        records = [
            {"topic": one["topic"], "group": one["name"], **one["lag"]} for one in _records(session, topic)
        ]
    session.listing(
        records,
        {
            "topic": lambda one: one["topic"],
            "group": lambda one: one["group"],
            "lag": lambda one: one["count"],
            "oldest": lambda one: format_ms(one["age_ms"]) if one["count"] else "",
            "in flight": lambda one: one["in_flight"],
            "retrying": lambda one: one["retrying"],
            "by partition": lambda one: ", ".join(f"{p}:{n}" for p, n in one["partitions"].items()),
        },
        none="there are no groups",
    )


@verb(app, "replay")
def replay(
    session: Session,
    topic: TopicName,
    group: GroupName,
    failed: Annotated[bool, typer.Option("--failed", help="Those that were given up.")] = False,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Those of this key.")] = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
) -> None:
    """Deliver settled messages again, beside live traffic."""
    count = (
        session.broker.topic(topic)
        .group(group)
        .replay(failed=failed, key=key, from_time=from_time, to_time=to_time)
    )
    session.done(
        f"{topic}/{group}: {count} messages will be delivered again", topic=topic, group=group, replayed=count
    )


@verb(app, "delete")
def delete(session: Session, topic: TopicName, group: GroupName, yes: Yes = False) -> None:
    """Delete a group and what it knows: its acks, its counts, its leases."""
    handle = session.broker.topic(topic).group(group)
    handle.describe()
    confirm_name(group, f"Group {group!r} of {topic!r} will forget what it has acked.", yes)
    handle.delete()
    session.done(f"{topic}/{group}: deleted", topic=topic, group=group, deleted=True)


def _records(session: Session, topic: str | None) -> list[dict[str, Any]]:
    broker = session.broker
    if topic is not None:
        found = broker.topic(topic).groups()
    else:
        found = [
            group
            for known in broker.topics()
            if known.groups and known.config.kind != "dead_letters"
            for group in broker.topic(known.name).groups()
        ]
    return [plain(one) for one in sorted(found, key=lambda one: (one.topic, one.name))]


def _lag_fields(lag: dict[str, Any]) -> dict[str, object]:
    return {
        "lag": lag["count"],
        "oldest": told("age_ms", lag["age_ms"]) if lag["count"] else "",
        "in flight": lag["in_flight"],
        "retrying": lag["retrying"],
        "lag by partition": ", ".join(f"{number}:{count}" for number, count in lag["partitions"].items()),
        "lag by lane": ", ".join(f"{name} {count}" for name, count in lag["lanes"].items()),
    }
