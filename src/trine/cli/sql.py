"""`trine sql "select …"`: SQL over topics, their ledgers and archives."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from trine.cli.cells import plain, shown
from trine.cli.session import Session
from trine.cli.spark import Conf, Master, spark_place, spark_work

TABLE_ROWS: Final = 1000
"""Shown as a table unless --limit says otherwise: people do not read more, and a table must fit into memory."""
FLUSH_ROWS: Final = 1000


class Output(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"


def sql(
    session: Session,
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="In single quotes, as $ means something to the shell."),
    ] = None,
    output: Annotated[
        Output | None, typer.Option("--output", "-o", help="table, csv, or json lines.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="How many rows at most; 1000 for tables, else all.")
    ] = None,
    binary: Annotated[bool, typer.Option("--bytes", help="Keys and values as bytes, not as text.")] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Ask topics, ledgers and archives in SQL. Without a query: list the tables.

    Tables: orders, orders$deliveries, orders$dead_letters, orders$schedule, orders$archive. Names with dots or dashes
    stand in backquotes.
    """
    chosen = output or (Output.json if session.json else Output.table)
    if query is None:
        from trine.spark.sql import table_names

        names = table_names(spark_place(session))
        session.listing(
            [{"table": name} for name in names], {"table": lambda one: one["table"]}, none="no tables yet"
        )
        return
    most = limit if limit is not None else TABLE_ROWS if chosen is Output.table else None
    with spark_work(session, master, conf) as (spark, place):
        from trine.spark.sql import sql as run

        frame = run(spark, place, query, binary=binary)
        heads = list(frame.columns)
        some = frame if most is None else frame.limit(most + 1)
        rows = session.awaited("query", (tuple(row) for row in some.toLocalIterator()))
        kept = rows if most is None else itertools.islice(rows, most)
        if chosen is Output.table:
            session.table(heads, [[shown(value) for value in row] for row in kept])
        elif chosen is Output.csv:
            _write_csv(session, heads, kept)
        else:
            _write_json(session, heads, kept)
        if most is not None and next(rows, None) is not None:
            session.note(f"there are more rows than these {most}: --limit shows more, -o csv and -o json all")


def _write_csv(session: Session, heads: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow(heads)
    for number, row in enumerate(rows, 1):
        writer.writerow([shown(value) for value in row])
        if number % FLUSH_ROWS == 0:
            session.write(held.getvalue().encode())
            held.seek(0)
            held.truncate()
    session.write(held.getvalue().encode())


def _write_json(session: Session, heads: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    for row in rows:
        session.record(dict(zip(heads, map(plain, row), strict=True)))
