"""`trine redrive`: dead letters at scale: found by SQL on Spark, moved by the broker."""

from __future__ import annotations

from typing import Annotated

import typer

from trine.cli.archive import Steps
from trine.cli.cells import plain
from trine.cli.session import Session
from trine.cli.spark import Conf, Master, spark_work


def redrive(
    session: Session,
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="Whose dead letters.")] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="A condition on columns of view=dead_letters."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Elsewhere than where they were.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Messages a second at most.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would move; move nothing.")] = False,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="JOB", help="Go on with this job.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Of a dry run: how many to show.")] = 20,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Send dead letters back by a condition in SQL; `trine dlq redrive` does it without Spark, by simple filters.

    It is a job: when it is interrupted, `--resume` goes on where it stopped.
    """
    if (topic is None or where is None) == (resume is None):
        raise typer.BadParameter("give a TOPIC and --where, or --resume with the id of a job")
    again = "stopped; if letters were being moved, `trine dlq jobs` has the job's id, and --resume goes on with it"
    with spark_work(session, master, conf, interrupted=again) as (spark, place):
        from trine.spark import redrive as redrives

        if dry_run and topic is not None and where is not None:
            found = redrives.letters(spark, place, topic, where)
            total = found.count()
            shown = [row.asDict() for row in found.limit(limit).collect()]
            records = [{name: plain(value) for name, value in row.items()} for row in shown]
            columns = {name: (lambda one, name=name: one[name]) for name in found.columns}
            session.note(f"{total} would move")
            session.listing(records, columns, none="nothing would move")
            return
        with Steps(session) as steps:
            steps.reached("looking for dead letters", 0, None)
            done = redrives.redrive(
                spark, place, topic, where, to=to, rate=rate, resume=resume, progress=steps.reached
            )
    session.done(
        f"{done.job}: {done.moved} of {done.matched} matching dead letters of {done.topic} moved in "
        f"{done.seconds:.1f} s",
        job=done.job, topic=done.topic, where=done.where, matched=done.matched, moved=done.moved,
        passed_over=done.passed_over, seconds=done.seconds,
    )  # fmt: skip
