"""`trine archive`: topics into their Delta Lake table, and looking after it.

`trine archive orders --to PATH` is short for `trine archive run orders --to PATH`; a topic that is called like one of
the verbs here is archived with `run`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Self

import typer
from typer.core import TyperGroup

from trine.cli.completion import topic_names
from trine.cli.interrupts import interrupts
from trine.cli.options import Limit, TopicName
from trine.cli.session import Session, counted
from trine.cli.spark import Conf, Master, spark_place, spark_work
from trine.cli.verb import verb
from trine.model.duration import duration_ms
from trine.model.errors import Conflict, InvalidOption

RUN = "run"


class Verbs(TyperGroup):
    """What is no verb is a topic, or an option of `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=Verbs, help="Topics as a Delta Lake table, beyond the log's own retention.", no_args_is_help=True
)

Topics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC", help="Those that have an archive, if none is named.", autocompletion=topic_names
    ),
]
Path = Annotated[
    str | None, typer.Option("--path", metavar="PATH", help="The archive; else the one the topics name.")
]


@verb(app, RUN)
def run(
    session: Session,
    topics: Topics = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="PATH", help="Where the table is: a directory, or s3://… and the like."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Go on until Ctrl-C.")] = False,
    trigger: Annotated[
        str, typer.Option("--trigger", metavar="TIME", help="With --follow: between two looks.")
    ] = "10s",
    max_offsets: Annotated[
        int | None, typer.Option("--max-offsets", min=1, help="Messages of one commit at most.")
    ] = None,
    allow_gaps: Annotated[
        bool, typer.Option("--allow-gaps", help="Go on where the log has lost messages, and record it.")
    ] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Archive topics: what is in the log now, or with --follow also what comes.

    From the first run on retention deletes nothing that the archive lacks. A run that is killed is simply run again.
    """
    duration_ms(trigger, what="--trigger")
    again = "stopped; what was committed is archived, and the same command goes on there"
    with spark_work(session, master, conf, topics=topics or (), interrupted=again) as (spark, place):
        from trine.spark.archive import archive

        with Steps(session) as steps:
            done = archive(
                spark,
                place,
                topics or None,
                to,
                continuously=follow,
                trigger=trigger,
                max_offsets=max_offsets,
                allow_gaps=allow_gaps,
                progress=steps.reached,
            )
    rate = round(done.messages / done.seconds) if done.seconds else 0
    session.done(
        f"{counted(done.messages, 'message')} archived in {done.seconds:.1f} s ({rate}/s), "
        f"{counted(done.files, 'file')}, {counted(done.commits, 'commit')}: {done.path}",
        **dataclasses.asdict(done),
    )
    for name, some in done.gaps.items():
        for number, (start, end) in some.items():
            session.note(f"{name}/{number}: {start} to {end - 1} were deleted before they could be archived")


class Steps:
    """A bar that begins anew when the total changes; a line that says what is done while no end is known."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._shown = contextlib.ExitStack()
        self._reached: Callable[[float], None] | None = None
        self._tell: Callable[[str], None] | None = None
        self._bar: tuple[str, float] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._shown.close()
        self._reached = self._tell = self._bar = None

    def reached(self, what: str, done: float, total: float | None) -> None:
        interrupts.check()
        if total is None:
            if self._tell is None:
                self.__exit__()
                self._tell = self._shown.enter_context(self._session.status(what))
            self._tell(what)
            return
        if self._reached is None or self._bar != (what, total):
            self.__exit__()
            self._bar = (what, total)
            self._reached = self._shown.enter_context(self._session.progress(what, total))
        self._reached(done)


@verb(app, "status")
def status(session: Session, topics: Topics = None) -> None:
    """Show how far the archives are."""
    place = spark_place(session)
    from trine.spark.archive import status

    session.listing(
        status(place, topics or None),
        {
            word: (lambda one, word=word: one[word])  # type: ignore[misc]
            for word in ("topic", "messages", "waiting", "files", "bytes", "first", "last", "path")
        },
        none="no topic has an archive; `trine archive TOPIC --to PATH` makes one",
    )


@verb(app, "verify")
def verify(
    session: Session, topics: Topics = None, path: Path = None, master: Master = None, conf: Conf = None
) -> None:
    """Compare the archive with the log, message by message; exit code 1 if they differ."""
    with spark_work(session, master, conf, topics=topics or ()) as (spark, place):
        from trine.spark.archive_verify import verify

        with Steps(session) as steps:
            found = verify(spark, place, topics or None, path=path, progress=steps.reached)
    session.listing(
        [dataclasses.asdict(one) | {"sound": one.sound} for one in found],
        {
            "topic": lambda one: one["topic"],
            "archived": lambda one: one["archived"],
            "compared": lambda one: one["compared"],
            "sound": lambda one: one["sound"],
        },
        none="no topic has an archive",
    )
    wrong = [
        f"{one.topic}: {count} {what}: {', '.join(one.examples[what])}"
        for one in found
        for what, count in one.faults.items()
    ]
    if wrong:
        raise Conflict("the archive is not the log:\n" + "\n".join(wrong))


@verb(app, "compact")
def compact(
    session: Session,
    topics: Topics = None,
    path: Path = None,
    target_mb: Annotated[
        int, typer.Option("--target-mb", min=1, help="How large a merged file may be.")
    ] = 256,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Merge small files of each topic and date, in one commit; who reads is not disturbed."""
    where = _path(session, topics, path)
    with spark_work(session, master, conf) as (spark, _):
        from trine.spark.upkeep import compact

        with Steps(session) as steps:
            done = compact(
                spark, where, topics or None, target_bytes=target_mb * 1024 * 1024, progress=steps.reached
            )
    session.done(
        f"{counted(done.merged, 'file')} merged into {done.made}, {counted(done.rows, 'message')}: {done.path}"
        if done.merged
        else f"nothing to merge: {done.path}",
        **dataclasses.asdict(done),
    )


@verb(app, "vacuum")
def vacuum(
    session: Session,
    topics: Topics = None,
    path: Path = None,
    older_than: Annotated[str, typer.Option("--older-than", metavar="TIME", help="1h or more.")] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go; delete nothing.")] = False,
) -> None:
    """Delete files no version needs: merged ones, and leftovers of killed tasks."""
    where = _path(session, topics, path)
    from trine.spark.upkeep import vacuum

    gone = vacuum(where, older_than=older_than, dry_run=dry_run)
    word = "would go" if dry_run else "deleted"
    session.done(f"{counted(len(gone), 'file')} {word}: {where}", path=where, files=gone, dry_run=dry_run)


@verb(app, "expire")
def expire(
    session: Session,
    topics: Topics = None,
    path: Path = None,
    older_than: Annotated[str, typer.Option("--older-than", metavar="TIME", help="In whole days.")] = "30d",
) -> None:
    """End the history of old versions of the table; its content stays."""
    where = _path(session, topics, path)
    from trine.spark.upkeep import expire

    oldest, newest = expire(where, older_than=older_than)
    session.done(f"versions {oldest} to {newest} are kept: {where}", path=where, oldest=oldest, newest=newest)


@verb(app, "latest")
def latest(
    session: Session,
    topic: TopicName,
    path: Path = None,
    limit: Limit = 1000,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """List the last message of each key: what a compacted topic comes to."""
    from trine.cli.message import message_record, shown

    where = _path(session, [topic], path)
    with spark_work(session, master, conf) as (spark, place):
        from trine.spark.replay import messages_of
        from trine.spark.upkeep import latest

        rows = latest(spark, where, topic).orderBy("key").limit(limit)
        found = list(session.awaited("latest", messages_of(rows, place, topic)))
    if session.json:
        session.document([message_record(one) for one in found])
        return
    session.listing(
        [{"id": one.id, "key": shown(one.key), "value": shown(one.value)} for one in found],
        {word: (lambda one, word=word: one[word]) for word in ("id", "key", "value")},  # type: ignore[misc]
        none=f"the archive of {topic} has no keys",
    )


def _path(session: Session, topics: list[str] | None, path: str | None) -> str:
    """The one archive that is meant."""
    if path is not None:
        return path
    with contextlib.closing(spark_place(session).connect()) as broker:
        known = {one.name: one.config.archive for one in broker.topics()}
        for name in topics or ():
            if known.get(name) is None:
                broker.topic(name).describe()  # says so if there is no such topic
                raise InvalidOption(
                    f"topic {name!r} has no archive; `trine archive {name} --to PATH` makes one"
                )
    paths = sorted({where for name, where in known.items() if where and (not topics or name in topics)})
    if len(paths) != 1:
        raise InvalidOption("say which archive with --path" + (f": {' or '.join(paths)}" if paths else ""))
    return paths[0]
