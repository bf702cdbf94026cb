"""What the verbs that work on Spark share: where it runs, and the broker it talks to."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.options import pairs
from trine.cli.session import Session
from trine.cli.target import find_place
from trine.model.errors import InvalidOption, NotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trine.spark.place import Place

PANEL = "Spark"
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[*] (the default), spark://…, yarn, k8s://…; or TRINE_SPARK_MASTER.",
        rich_help_panel=PANEL,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", help="A setting of Spark. Repeatable.", rich_help_panel=PANEL
    ),
]


def spark_place(session: Session) -> Place:
    """Where the broker is, for executors. A data directory gets a server for as long as somebody uses it."""
    place = find_place(session.given, os.environ)
    try:
        from trine.spark.place import Place
    except ModuleNotFoundError as error:
        raise InvalidOption(f"{error.name} is missing: pip install 'trine[spark]'") from None

    if place.data is not None:
        if not Path(place.data).is_dir():
            raise NotFound(f"there is no data directory {place.data!r}")
        from trine.spark.local import serve_directory

        return Place(serve_directory(place.data))
    assert place.server is not None
    return Place(place.server, place.key, place.ca)


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Java inherits where its warnings go: to a file, which is shown if it does not start."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(kept, said.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextlib.contextmanager
def spark_work(
    session: Session, master: str | None, conf: list[str] | None
) -> Iterator[tuple[SparkSession, Place]]:
    """A Spark session for a command, and the place; both are looked at before anything runs."""
    place = spark_place(session)
    with contextlib.closing(place.connect()):  # a broker that is not there is told before Spark is started
        pass
    from trine.spark.errors import plain
    from trine.spark.session import spark_session

    session.note("starting Spark …")
    with _hushed():
        spark = spark_session(master, conf=pairs(conf, "setting"))
    try:
        with plain():
            yield spark, place
    finally:
        spark.stop()
