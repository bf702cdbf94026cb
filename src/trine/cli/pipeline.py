"""`trine pipeline`: user pipelines on Spark: run, check."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.cli.archive import Steps
from trine.cli.cells import plain, shown
from trine.cli.options import pairs
from trine.cli.session import Session
from trine.cli.spark import Conf, Master, connected, spark_place, spark_started, spark_work
from trine.cli.verb import verb
from trine.model.errors import InvalidConfig, InvalidOption, Unreachable

if TYPE_CHECKING:
    from trine.spark.pipelines.declaration import Declaration

app = typer.Typer(help="Pipelines on Spark, declared in a file.", no_args_is_help=True)

File = Annotated[str, typer.Argument(metavar="FILE", help="YAML, or Python.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A value for ${NAME}. Repeatable.")
]


@verb(app, "run")
def run(
    session: Session,
    file: File,
    once: Annotated[bool, typer.Option("--once", help="What is there now, then end (the default).")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until it is interrupted.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="SINK", help="Only this sink. Repeatable.")
    ] = None,
    setting: Set = None,
    checkpoints: Annotated[
        str | None,
        typer.Option("--checkpoints", metavar="DIR", help="Default: .trine/checkpoints/ beside the file."),
    ] = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Run a pipeline; after a crash the same command goes on where it stopped."""
    if once and follow:
        raise typer.BadParameter("give one of --once and --follow")
    declared = _load(file, setting)
    again = "stopped; the same command goes on where it is"
    with spark_work(session, master, conf, interrupted=again) as (spark, place), Steps(session) as steps:
        from trine.spark.pipelines import run as run_pipeline

        def show(name: str, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
            if session.json:
                for row in rows:
                    session.record({"sink": name, **dict(zip(columns, map(plain, row), strict=True))})
            else:
                session.line(f"{name}:")
                session.table(columns, [[shown(value) for value in row] for row in rows])

        steps.reached("checking the pipeline", 0, None)
        done = run_pipeline(
            spark, place, declared, follow=follow, only=only or (), checkpoints=checkpoints,
            progress=steps.reached, show=show,
        )  # fmt: skip
    import msgspec

    records = msgspec.to_builtins(done)
    if session.json:
        session.document(records)
        return
    session.table(
        ["sink", "to", "batches", "rows in", "rows out", "seconds"],
        [
            [one["name"], one["target"], one["batches"], one["rows_in"], one["rows_out"], one["seconds"]]
            for one in records["sinks"]
        ],
    )


@verb(app, "check")
def check(
    session: Session, file: File, setting: Set = None, master: Master = None, conf: Conf = None
) -> None:
    """Say everything that is wrong with a pipeline; run nothing."""
    from trine.spark.pipelines import check as check_pipeline
    from trine.spark.pipelines import explain

    declared = _load(file, setting)
    place = spark_place(session)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(connected(place))
            asked = place
        except Unreachable as error:
            session.note(f"topics are not looked for: {error}")
            asked = None
        spark = held.enter_context(spark_started(session, master, pairs(conf, "setting")))
        held.enter_context(session.status("checking"))
        faults = check_pipeline(spark, declared, place=asked)
    if faults:
        raise InvalidConfig(explain(faults))
    session.done(f"{file} can be run", file=file, faults=[])


def _load(file: str, setting: list[str] | None) -> Declaration:
    """The pipeline. A file that says nothing at all is told before Spark is started."""
    variables = pairs(setting, "value")
    try:
        from trine.spark.pipelines.declaration import load
        from trine.spark.pipelines.reading import refuse
    except ModuleNotFoundError as error:
        raise InvalidOption(f"{error.name} is missing: pip install 'trine[spark]'") from None

    declared = load(file, variables)
    if not declared.written.tree:
        refuse(declared.written.faults)
    return declared
