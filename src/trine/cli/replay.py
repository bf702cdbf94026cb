"""`trine replay`: messages again, from the archive and the log together."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from trine.cli.archive import Steps
from trine.cli.consume import Form, message_writer
from trine.cli.options import FromTime, TopicName, ToTime, delimiter_bytes
from trine.cli.session import Session, counted
from trine.cli.spark import Conf, Master, spark_work
from trine.model.duration import instant_ms


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
    for time in (from_time, to_time, as_of):
        if time is not None:
            instant_ms(time)
    topics = [topic] if to_topic is None else [topic, to_topic]
    again = "stopped; the same command goes on where it is" if to_topic is not None else None
    with spark_work(session, master, conf, topics=topics, interrupted=again) as (spark, place):
        from trine.spark.replay import Choice, by_time, joined, replay_to_group, replay_to_topic

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
            found = joined(spark, place, choice)
            messages = session.awaited(f"replay {topic}", by_time(found, place, topic))
            for message in itertools.islice(messages, most):
                write(message)
            _tell_missing(session, topic, found.missing)
            return
        with Steps(session) as steps:
            if to_topic is not None:
                done = replay_to_topic(spark, place, choice, to_topic, progress=steps.reached)
            else:
                assert to_group is not None
                done = replay_to_group(spark, place, choice, to_group, progress=steps.reached)
    told = f"{topic}: {counted(done.messages, 'message')} written to {done.to}"
    if to_group is not None:
        told = f"{topic}: {to_group} gets {counted(done.redelivered, 'message')} of the log again"
        if done.messages:
            told += f"; {done.messages} more are in {done.to}"
    session.done(told, **dataclasses.asdict(done))
    _tell_missing(session, topic, done.missing)


def _tell_missing(session: Session, topic: str, missing: Mapping[int, tuple[int, int]]) -> None:
    for number, (start, end) in missing.items():
        session.note(f"{topic}/{number}: {start} to {end - 1} are neither in the archive nor in the log")
