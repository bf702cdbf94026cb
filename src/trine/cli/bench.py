"""`trine bench`: how fast this broker is from here.

`trine bench publish`, `consume` and `latency` measure one thing each; `trine bench` alone measures all three.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from trine.cli import load
from trine.cli.load import STAMP, Shape
from trine.cli.session import Session
from trine.cli.verb import verb
from trine.model.duration import duration_ms
from trine.model.errors import InvalidOption
from trine.model.limits import RECEIVE_MAX

ALL = "all"
MESSAGES: Final = 100_000
TIMED_S: Final = 5.0
"""How long `latency` goes on if nothing is said of it."""

RATE: Final = 1_000
CONNECTIONS_MAX: Final = 256


class Verbs(TyperGroup):
    """No verb is all of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help", "-h"):
            args = [ALL, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=Verbs, help="Measure how fast the broker is from here.")

Messages = Annotated[
    int | None, typer.Option("--messages", "-n", min=1, help="How many; or for how long: --duration.")
]
Duration = Annotated[
    str | None, typer.Option("--duration", "-t", metavar="TIME", help="For how long, e.g. 30s.")
]
Size = Annotated[int, typer.Option("--size", "-s", min=STAMP.size, help="Bytes of a value.")]
Batch = Annotated[
    int,
    typer.Option("--batch", "-b", min=1, max=RECEIVE_MAX, help="Messages of a publish, and of a receive."),
]
Durability = Annotated[str, typer.Option("--durability", help="memory, written or synced.")]
Partitions = Annotated[int, typer.Option("--partitions", "-p", min=1, help="Of the topic.")]
Connections = Annotated[
    int, typer.Option("--connections", "-c", min=1, max=CONNECTIONS_MAX, help="At once, a thread for each.")
]
Rate = Annotated[
    int | None, typer.Option("--rate", "-r", min=1, help="Messages a second; else as fast as it goes.")
]
TimedRate = Annotated[
    int, typer.Option("--rate", "-r", min=1, help="Messages a second while latency is measured.")
]


@verb(app, "publish", makes=True)
def publish(
    session: Session,
    messages: Messages = None,
    duration: Duration = None,
    size: Size = 100,
    batch: Batch = 1000,
    durability: Durability = "synced",
    partitions: Partitions = 6,
    connections: Connections = 1,
    rate: Rate = None,
) -> None:
    """Publish in batches, each answered before the next of its connection."""
    shape = _shape(messages, duration, size, batch, durability, partitions, connections, rate)
    with load.own_topic(session, shape) as topic:
        result = load.run(session, "publish", shape, load.publishers(session, topic.name, shape))
    _show(session, shape, [result], {"a publish": result["times"]})


@verb(app, "consume", makes=True)
def consume(
    session: Session,
    messages: Messages = None,
    duration: Duration = None,
    size: Size = 100,
    batch: Batch = 1000,
    durability: Durability = "synced",
    partitions: Partitions = 6,
    connections: Connections = 1,
) -> None:
    """Receive and ack a backlog in batches; --duration ends it earlier."""
    shape = _shape(messages or MESSAGES, duration, size, batch, durability, partitions, connections, None)
    with load.own_topic(session, shape) as topic:
        result = _consumed(session, topic.name, shape, filled=False)
    _show(session, shape, [result], {"a receive and its ack": result["times"]})


@verb(app, "latency", makes=True)
def latency(
    session: Session,
    messages: Messages = None,
    duration: Duration = None,
    size: Size = 100,
    durability: Durability = "synced",
    partitions: Partitions = 6,
    connections: Connections = 1,
    rate: TimedRate = RATE,
) -> None:
    """Publish single messages at a steady rate, and time each from when it was due to its receive."""
    if messages is None and duration is None:
        duration = f"{TIMED_S}s"
    shape = _shape(messages, duration, size, 100, durability, partitions, connections, rate)
    with load.own_topic(session, shape) as topic:
        result = _passed(session, topic.name, shape)
    _show(session, shape, [result], {"publish to receive": result["times"]})


@verb(app, ALL, makes=True)
def everything(
    session: Session,
    messages: Messages = None,
    size: Size = 100,
    batch: Batch = 1000,
    durability: Durability = "synced",
    partitions: Partitions = 6,
    connections: Connections = 1,
    rate: TimedRate = RATE,
    timed: Annotated[
        int, typer.Option("--timed", min=0, help="Messages to measure latency with; 0 leaves it out.")
    ] = 2000,
) -> None:
    """Publish, consume what was published, and measure latency."""
    shape = _shape(messages, None, size, batch, durability, partitions, connections, None)
    with load.own_topic(session, shape) as topic:
        published = load.run(session, "publish", shape, load.publishers(session, topic.name, shape))
        results = [published, _consumed(session, topic.name, shape, filled=True)]
        times = {}
        if timed:
            paced = dataclasses.replace(shape, messages=timed, batch=100, rate=rate)
            passed = _passed(session, topic.name, paced)
            times = {"publish to receive": passed["times"]}
    _show(session, dataclasses.replace(shape, rate=rate), results, times)


def _shape(
    messages: int | None, duration: str | None, size: int, batch: int, durability: str, partitions: int,
    connections: int, rate: int | None,
) -> Shape:  # fmt: skip
    span = None if duration is None else duration_ms(duration, what="--duration") / 1000
    if span == 0:
        raise InvalidOption("--duration is 0; give it some time, e.g. 10s")
    return Shape(
        messages=MESSAGES if messages is None and span is None else messages, duration_s=span, size=size,
        batch=batch, durability=durability, partitions=partitions, connections=connections, rate=rate,
    )  # fmt: skip


def _consumed(session: Session, topic: str, shape: Shape, *, filled: bool) -> dict[str, Any]:
    session.broker.topic(topic).create_group(load.GROUP, durability=shape.durability)
    if not filled:
        load.fill(session, session.broker.topic(topic), shape)
    return load.run(session, "receive and ack", shape, load.consumers(session, topic, shape))


def _passed(session: Session, topic: str, shape: Shape) -> dict[str, Any]:
    at_end = session.broker.topic(topic).create_group(load.TIMED, start="latest", durability=shape.durability)
    return load.run(session, "latency", shape, load.passing_through(session, topic, at_end.name, shape))


def _show(session: Session, shape: Shape, results: list[dict[str, Any]], times: dict[str, Any]) -> None:
    rates = [{word: value for word, value in one.items() if word != "times"} for one in results]
    if session.json:
        latency = next(iter(times.values()), None)
        session.document(
            {
                **dataclasses.asdict(shape), "rates": rates,
                "latency_ms": {} if latency is None else latency.percentiles(),
                "times_ms": {what: one.as_dict() for what, one in times.items()},
            }
        )  # fmt: skip
        return
    session.table(
        ["", "messages", "seconds", "messages/s", "MB/s"],
        [
            [
                one["what"],
                f"{one['messages']:,}",
                f"{one['seconds']:.2f}",
                f"{one['per_second']:,.0f}",
                f"{one['mb_per_second']:.1f}",
            ]
            for one in rates
        ],
    )
    for what, one in times.items():
        if not len(one):
            continue
        session.line("")
        session.line(f"{what}, {len(one):,} times, ms:")
        session.line("  ".join(f"{name} {span:.2f}" for name, span in one.percentiles().items()))
        session.line("")
        session.text("\n".join(one.drawn()))
