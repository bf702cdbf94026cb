"""Calls about runs: Spark's commands tell what they do, and others look at it.

Who may consume from or publish to all topics of a run may tell of it; who may read all of them may see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trine.model.description import RunDescription
from trine.model.errors import UnknownJob
from trine.wire import calls

if TYPE_CHECKING:
    from trine.server.connection import Connection


async def begin_run(connection: Connection, call: calls.BeginRun) -> str:
    _check_tells(connection, call.topics)
    context = connection.context
    with context.engine.lock:
        context.engine.check_open()
        run_id, lsn = context.engine.runs.begin(call.kind, call.name, call.topics)
    await context.commits.durable(lsn)
    return run_id


async def tell_run(connection: Connection, call: calls.TellRun) -> None:
    with connection.context.engine.lock:
        runs = connection.context.engine.runs
        _check_tells(connection, runs.topics_of(call.id))
        runs.tell(call.id, call.rows)


async def end_run(connection: Connection, call: calls.EndRun) -> None:
    context = connection.context
    with context.engine.lock:
        context.engine.check_open()
        runs = context.engine.runs
        _check_tells(connection, runs.topics_of(call.id))
        lsn = runs.end(call.id, call.rows, call.summary, call.report, call.error)
    await context.commits.durable(lsn)


async def list_runs(connection: Connection, call: calls.ListRuns) -> list[RunDescription]:
    with connection.context.engine.lock:
        found = [
            one
            for one in connection.context.engine.runs.latest()
            if call.kind in (None, one.kind) and _sees(connection, one)
        ]
    return found[: max(call.limit, 0)]


async def get_run(connection: Connection, call: calls.GetRun) -> RunDescription:
    with connection.context.engine.lock:
        found = connection.context.engine.runs.get(call.id)
    if not _sees(connection, found):  # to say no would tell that it is there
        raise UnknownJob(f"there is no run {call.id!r}; runs() lists those that are remembered")
    return found


def _check_tells(connection: Connection, topics: list[str]) -> None:
    asked: list[str | None] = [*topics] or [None]
    for topic in asked:
        if not connection.may("publish", topic):
            connection.check("consume", topic)


def _sees(connection: Connection, run: RunDescription) -> bool:
    return all(connection.may("read", topic) for topic in run.topics)
