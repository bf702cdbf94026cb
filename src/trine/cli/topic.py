"""`trine topic`: create, list, describe, alter, purge, delete."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trine.cli.options import Settings, TopicName, Yes, confirm_name, names_list, settings
from trine.cli.session import Session
from trine.cli.verb import verb

app = typer.Typer(help="Topics and queues.", no_args_is_help=True)

Partitions = Annotated[int | None, typer.Option("--partitions", "-p", help="How many partitions.")]
Retention = Annotated[
    str | None, typer.Option("--retention", metavar="TIME", help='How long messages are kept, e.g. "7d".')
]
RetentionBytes = Annotated[
    int | None, typer.Option("--retention-bytes", help="How many bytes a partition keeps.")
]
Compact = Annotated[
    bool | None, typer.Option("--compact/--no-compact", help="Keep the last message of each key.")
]
Durability = Annotated[
    str | None, typer.Option("--durability", help="memory, written or synced: what a publish promises.")
]
Ttl = Annotated[str | None, typer.Option("--ttl", metavar="TIME", help="Messages expire after this.")]
Lanes = Annotated[
    str | None, typer.Option("--lanes", metavar="A,B,…", help="Priority lanes, highest first, with commas.")
]


@verb(app, "create", makes=True)
def create(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its name.")],
    partitions: Partitions = None,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    compact: Compact = None,
    durability: Durability = None,
    ttl: Ttl = None,
    lanes: Lanes = None,
    settings_given: Settings = None,
    queue: Annotated[
        bool, typer.Option("--queue", help="A queue: a topic with one group of its name.")
    ] = False,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Leave it as it is if it is there already.")
    ] = False,
) -> None:
    """Create a topic.

    `--set` takes every option of docs/topics.md, and with `--queue` those of a group too.
    """
    options = settings(
        settings_given, partitions=partitions, retention=retention, retention_bytes=retention_bytes,
        compact=compact, durability=durability, ttl=ttl, lanes=names_list(lanes),
    )  # fmt: skip
    make = session.broker.create_queue if queue else session.broker.create_topic
    made = make(topic, exist_ok=exist_ok, **options).describe()
    session.done(f"{made.name}: {len(made.partitions)} partitions, {made.config.durability}", **plain(made))


@verb(app, "list")
def list_topics(
    session: Session,
    every: Annotated[bool, typer.Option("--all", "-a", help="Dead letter topics too.")] = False,
) -> None:
    """List the topics."""
    found = [one for one in session.broker.topics() if every or one.config.kind != "dead_letters"]
    session.listing(
        [plain(one) for one in sorted(found, key=lambda one: one.name)],
        {
            "topic": lambda one: one["name"],
            "kind": lambda one: one["config"]["kind"],
            "partitions": lambda one: len(one["partitions"]),
            "messages": lambda one: one["messages"],
            "bytes": lambda one: one["bytes"],
            "scheduled": lambda one: one["scheduled"],
            "groups": lambda one: ", ".join(one["groups"]),
        },
        none="there are no topics; create one with `trine topic create`",
    )


@verb(app, "describe")
def describe(session: Session, topic: TopicName) -> None:
    """Show a topic: its configuration, partitions, lanes and groups."""
    record = plain(session.broker.topic(topic).describe())
    if session.json:
        session.document(record)
        return
    session.fields(
        {
            "topic": record["name"],
            "messages": record["messages"],
            "bytes": record["bytes"],
            "scheduled": record["scheduled"],
            "depth": record["depth"],
            "messages by lane": ", ".join(f"{name} {count}" for name, count in record["lanes"].items()),
            "groups": ", ".join(record["groups"]),
            **config_fields(record["config"]),
        }
    )
    session.line("")
    archived = record["archived"]
    session.table(
        ["partition", "first", "next", "bytes", *(["archived to"] if archived else [])],
        [
            [
                *(one["number"], one["first_offset"], one["next_offset"], one["bytes"]),
                *([archived[str(one["number"])]] if archived else []),
            ]
            for one in record["partitions"]
        ],
    )


@verb(app, "alter")
def alter(
    session: Session,
    topic: TopicName,
    partitions: Partitions = None,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    compact: Compact = None,
    durability: Durability = None,
    ttl: Ttl = None,
    lanes: Lanes = None,
    settings_given: Settings = None,
) -> None:
    """Change a topic's options.

    `--set ttl=null` takes an option away.
    """
    options = settings(
        settings_given, partitions=partitions, retention=retention, retention_bytes=retention_bytes,
        compact=compact, durability=durability, ttl=ttl, lanes=names_list(lanes),
    )  # fmt: skip
    if not options:
        raise typer.BadParameter("say what to change, e.g. --retention 3d")
    handle = session.broker.topic(topic)
    handle.alter(**options)
    session.done(f"{topic}: altered {', '.join(options)}", **plain(handle.describe()))


@verb(app, "purge")
def purge(session: Session, topic: TopicName, yes: Yes = False) -> None:
    """Delete all messages of a topic's log. Schedules and dead letters stay."""
    handle = session.broker.topic(topic)
    confirm_name(topic, f"All messages of {topic!r} will be deleted.", yes)
    count = handle.purge()
    session.done(f"{topic}: {count} messages deleted", topic=topic, purged=count)


@verb(app, "delete")
def delete(session: Session, topic: TopicName, yes: Yes = False) -> None:
    """Delete a topic with its messages, groups and schedule. Its dead letters stay."""
    handle = session.broker.topic(topic)
    confirm_name(topic, f"{topic!r} will be deleted, with its messages, groups and schedule.", yes)
    handle.delete()
    session.done(f"{topic}: deleted", topic=topic, deleted=True)


def plain(struct: Any) -> Any:
    """A struct as JSON has it, nothing left out."""
    import msgspec

    if isinstance(struct, msgspec.Struct):
        return {word: plain(value) for word, value in msgspec.structs.asdict(struct).items()}
    if isinstance(struct, list | tuple):
        return [plain(value) for value in struct]
    if isinstance(struct, dict):
        return {str(word): plain(value) for word, value in struct.items()}
    return struct


def config_fields(config: dict[str, Any]) -> dict[str, object]:
    """Options by the names users give them, for people."""
    return {word.removesuffix("_ms"): told(word, value) for word, value in config.items()}


def told(word: str, value: Any) -> object:
    """An option's value for people: durations as they are written, lists with commas."""
    from trine.model.duration import format_ms

    if word.endswith("_ms") and isinstance(value, int):
        return format_ms(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name.removesuffix('_ms')} {told(name, one)}" for name, one in value.items())
    return value
