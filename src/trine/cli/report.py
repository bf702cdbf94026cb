"""`trine report [TOPIC …] --out report.html`: throughput, lag, failures and latency over time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trine.cli.archive import Steps
from trine.cli.options import FromTime, ToTime
from trine.cli.session import Session
from trine.cli.spark import Conf, Master, spark_work
from trine.cli.traces import TopicNames
from trine.model.duration import duration_ms, instant_ms


def report(
    session: Session,
    topics: TopicNames = None,
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="TIME", help="Its length, e.g. 1m; chosen by itself if left out."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="PATH", help="A page (name.html), or a directory for pictures (PNG)."),
    ] = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Throughput, lag, failures and latency by time window, as tables and as pictures."""
    if window is not None:
        duration_ms(window, what="--window")
    for one in (from_time, to_time):
        if one is not None:
            instant_ms(one)
    from trine.spark.report import is_page
    from trine.spark.report import report as run

    if out is not None:
        is_page(Path(out))
    with spark_work(session, master, conf, topics=topics or ()) as (spark, place), Steps(session) as steps:
        made = run(
            spark,
            place,
            topics,
            window=window,
            from_time=from_time,
            to_time=to_time,
            progress=steps.reached,
        )
        written = [str(path) for path in made.write(out)] if out is not None else []
    if session.json:
        tables = {
            name: table.astype(object).where(table.notna(), None) for name, table in made.tables.items()
        }
        session.document(
            {
                "topics": made.topics, "window_ms": made.window_ms, "summary": made.summary, "written": written,
                "tables": {
                    name: [{k: v.isoformat() if hasattr(v, "isoformat") else v for k, v in row.items()}
                           for row in table.to_dict("records")]
                    for name, table in tables.items()
                },
            }
        )  # fmt: skip
        return
    session.fields({name.replace("_", " "): _short(value) for name, value in made.summary.items()})
    for name in ("groups", "reasons"):
        table = made.tables[name]
        if len(table):
            session.line("")
            session.table(
                [head.replace("_", " ") for head in table.columns],
                table.astype(object).where(table.notna(), None).to_numpy().tolist(),
            )
    for path in written:
        session.note(f"written: {path}")


def _short(value: object) -> object:
    if not isinstance(value, float):
        return value
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
