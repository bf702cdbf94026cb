"""`trine replay`: messages again, from the archive and the log together."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from trine.cli.archive import Steps
from trine.cli.consume import Form, message_writer
from trine.cli.interrupts import interrupts
from trine.cli.options import FromTime, TopicName, ToTime, delimiter_bytes
from trine.cli.session import Session
from trine.cli.spark import Conf, Master, spark_work


def replay(
    session: Session,
    topic: TopicName,
    from_time: FromTime = None,
    to_time: ToTime = None,
    from_offset: Annotated[int | None, typer.Option("--from-offset", min=0, help="At or after.")] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="Before.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="This one alone.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Of this key.")] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="E.g. \"cast(value as string) like '%lost%'\"."),
    ] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="DATE", help="Messages from before this date or time.")
    ] = None,
    include_deleted: Annotated[
        bool,
        typer.Option("--include-deleted/--no-include-deleted", help="Also what only the archive still has."),
    ] = True,
    archive: Annotated[
        str | None, typer.Option("--archive", metavar="PATH", help="If not the one the topic names.")
    ] = None,
    to_topic: Annotated[
        str | None, typer.Option("--to-topic", metavar="TOPIC", help="Publish them there.")
    ] = None,
    to_group: Annotated[
        str | None, typer.Option("--to-group", metavar="GROUP", help="Deliver them to this group again.")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Of the output: end after.")] = None,
    output: Annotated[
        Form | None,
        typer.Option("--output", "-o", help="table on a terminal, value in a pipe.", show_default=False),
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", "-D", metavar="TEXT", help="What follows a value; may be empty.")
    ] = r"\n",
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Replay messages of the archive and the log: to the output, to a topic, or to a group.

    Without a target they are written by time, as `trine consume` writes them. A replay to a topic that was killed goes
    on where it stopped when it is run again with the same words.
    """
    if to_topic is not None and to_group is not None:
        raise typer.BadParameter("give --to-topic or --to-group: one place to go to")
    if session.json:
        output = Form.JSON
    if output is None:
        output = Form.TABLE if sys.stdout.isatty() else Form.VALUE
    write = message_writer(session, output, delimiter_bytes(delimiter))
    with spark_work(session, master, conf) as (spark, place):
        from trine.spark.replay import Choice, replay, replay_to_group, replay_to_topic

        choice = Choice(
            topic,
            from_offset,
            to_offset,
            partition,
            from_time,
            to_time,
            key,
            where,
            as_of,
            include_deleted,
            archive,
        )
        if to_topic is None and to_group is None:
            left = sys.maxsize if most is None else most
            for message in replay(spark, place, choice):
                interrupts.check()
                write(message)
                left -= 1
                if not left:
                    break
            return
        with Steps(session) as steps:
            if to_topic is not None:
                done = replay_to_topic(spark, place, choice, to_topic, progress=steps.reached)
            else:
                assert to_group is not None
                done = replay_to_group(spark, place, choice, to_group, progress=steps.reached)
    told = f"{topic}: {done.messages} messages written to {done.to}"
    if to_group is not None:
        told = f"{topic}: {done.redelivered} messages of the log are delivered to {to_group} again"
        if done.messages:
            told += f"; {done.messages} more are in {done.to}"
    session.done(told, **dataclasses.asdict(done))
    for number, (start, end) in done.missing.items():
        session.note(f"{topic}/{number}: {start} to {end - 1} are neither in the archive nor in the log")
