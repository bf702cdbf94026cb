"""What the verbs that work on Spark share: where it runs, and the broker it talks to."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trine.cli.exits import INTERRUPTED
from trine.cli.interrupts import Interrupted, interrupts
from trine.cli.options import pairs
from trine.cli.session import Session
from trine.cli.target import CONNECT_WAIT, find_place
from trine.model.errors import InvalidOption, NotFound, TrineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trine.client.sync import Broker
    from trine.spark.place import Place

CANCEL_S: Final = 0.25
"""How long after a Ctrl-C jobs that were begun meanwhile are cancelled too."""
PANEL: Final = "Spark"
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
def spark_work(
    session: Session,
    master: str | None,
    conf: list[str] | None,
    *,
    topics: Iterable[str] = (),
    interrupted: str | None = None,
) -> Iterator[tuple[SparkSession, Place]]:
    """A Spark session for a command, and the place. A broker that is not there, or has no such topics, is told before
    Spark is started; `interrupted` is what somebody should know who presses Ctrl-C."""
    words = pairs(conf, "setting")
    place = spark_place(session)
    with connected(place) as broker:
        for name in topics:
            broker.topic(name).describe()
        try:
            with spark_started(session, master, words) as spark:
                yield spark, place
        except Interrupted:
            if interrupted is not None:
                session.note(interrupted)
            raise


@contextlib.contextmanager
def connected(place: Place) -> Iterator[Broker]:
    """A connection for as long as the command takes: the server of a data directory ends when nobody is connected, and
    Spark may take longer to start than it waits."""
    broker = replace(place, timeout=CONNECT_WAIT).connect()
    try:
        yield broker
    finally:
        with contextlib.suppress(TrineError):  # it may be lost; who needed it has said so
            broker.close()


@contextlib.contextmanager
def spark_started(session: Session, master: str | None, words: dict[str, str]) -> Iterator[SparkSession]:
    """A Spark session whose jobs end at Ctrl-C, and whose errors are one sentence."""
    from trine.spark.errors import plain
    from trine.spark.java import hush_java
    from trine.spark.session import spark_session

    try:
        with session.status("starting Spark"), interrupts.waiting():
            spark = spark_session(master, conf=words)
    except KeyboardInterrupt:  # half started, PySpark has put a handler of its own in the place of ours
        raise Interrupted(INTERRUPTED) from None
    ended = threading.Event()

    def cancel() -> None:
        """More than once: the work may be between two jobs."""
        hush_java()
        while not ended.is_set():
            with contextlib.suppress(Exception):
                spark.sparkContext.cancelAllJobs()
            ended.wait(CANCEL_S)

    try:
        with interrupts.cancelling(cancel), plain():
            yield spark
    finally:
        ended.set()
        with contextlib.suppress(Exception):  # Java may be gone, and the command's own error says more
            spark.stop()
