"""`trine traces [TOPIC …] --to PATH`: every message's life as Delta tables."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from trine.cli.archive import Steps
from trine.cli.completion import topic_names
from trine.cli.session import Session
from trine.cli.spark import Conf, Master, spark_work

TopicNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="The topics; all, if none is named.", autocompletion=topic_names),
]


def traces(
    session: Session,
    topics: TopicNames = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="PATH", help="Where the tables are put; else only counted.")
    ] = None,
    stuck_after: Annotated[
        str, typer.Option("--stuck-after", metavar="TIME", help="Not settled for longer is stuck.")
    ] = "5m",
    poison_after: Annotated[
        int, typer.Option("--poison-after", min=1, help="Delivered so often is poison.")
    ] = 3,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Every message's life as tables: messages, attempts, latencies by group, stuck and poison messages."""
    from trine.model.duration import duration_ms

    duration_ms(stuck_after, what="--stuck-after")
    with spark_work(session, master, conf, topics=topics or ()) as (spark, place):
        from trine.spark.traces import traces as run

        with Steps(session) as steps:
            summary = run(
                spark, place, topics, to, stuck_after=stuck_after, poison_after=poison_after,
                progress=steps.reached,
            )  # fmt: skip
    if session.json:
        session.document(dataclasses.asdict(summary))
        return
    session.table(
        ["table", "rows", "version"],
        [[name, rows, summary.versions.get(name)] for name, rows in summary.rows.items()],
    )
    if summary.latencies:
        names = (
            "topic",
            "group",
            "messages",
            "acked",
            "unsettled",
            "delivery_p50_ms",
            "ack_p50_ms",
            "ack_p99_ms",
        )
        session.line("")
        session.table(
            [name.replace("_ms", " ms").replace("_", " ") for name in names],
            [[row[name] for name in names] for row in summary.latencies],
        )
    if to is not None:
        session.note(f"the tables are under {to}")
