"""Runs of Spark's commands, as they told the broker; and how far the archives of topics are.

Who runs them tells it over the binary protocol: here they are looked at.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from litestar import get
from litestar.params import FromPath, FromQuery, QueryParameter

from trine.model.description import RunDescription, RunState
from trine.model.duration import iso
from trine.model.errors import UnknownJob
from trine.server.context import Context
from trine.server.http.requests import Given
from trine.server.keys import Principal

RunKind = Literal["archive", "replay", "traces", "report", "redrive", "pipeline"]
LIMIT_MAX: Final = 1_000


class RunOut(msgspec.Struct, frozen=True, kw_only=True):
    """A run: what it is, how far it is, and what came out."""

    id: str
    kind: str
    name: str
    topics: list[str]
    state: RunState
    """lost: it has said nothing for a minute, so its process is gone or cannot reach the broker."""
    began: str
    began_ms: int
    ended: str | None
    ended_ms: int | None
    heard_ms: int | None
    seconds: float
    """It took, or has taken so far."""
    rows: int
    summary: dict[str, Any]
    error: str | None
    has_report: bool


class RunWhole(RunOut, frozen=True, kw_only=True):
    report: dict[str, Any] | None
    """The numbers of a report; kept for the last 20."""


class RunsOut(msgspec.Struct, frozen=True):
    runs: list[RunOut]


class ArchivedPartition(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    archived: int
    """The first offset that the archive lacks."""
    first: int
    next: int
    behind: int
    """Messages of the log that the archive lacks."""


class ArchivedTopic(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    path: str
    partitions: list[ArchivedPartition]
    behind: int
    last_at: str | None
    """When the archive last told how far it is."""
    last_at_ms: int | None
    run: RunOut | None
    """The last run that archived it."""


class Archives(msgspec.Struct, frozen=True):
    archives: list[ArchivedTopic]


@get("/v1/runs", opt={"may": "read"}, tags=["runs"], summary="Runs of Spark's commands")
async def list_runs(
    context: Given[Context],
    principal: Given[Principal],
    kind: FromQuery[RunKind | Literal["any"]] = "any",
    topic: FromQuery[str | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=LIMIT_MAX)] = 100,
) -> RunsOut:
    """Archive, replay, traces, report, redrive by a condition, pipelines: the newest first. The last 1,000 are
    remembered, over restarts too.
    """
    return RunsOut(
        [
            _shown(context, one)
            for one in _seen(context, principal)
            if kind in ("any", one.kind) and (topic is None or topic in one.topics)
        ][:limit]
    )


@get(
    "/v1/runs/{run:str}",
    opt={"may": "read", "topic": "later"},
    tags=["runs"],
    summary="One run, with its report",
)
async def show_run(run: FromPath[str], context: Given[Context], principal: Given[Principal]) -> RunWhole:
    with context.engine.lock:
        found = context.engine.runs.get(run)
    if not _sees(principal, found):  # to say no would tell that it is there
        raise UnknownJob(f"there is no run {run!r}; /v1/runs lists those that are remembered")
    report = None if found.report is None else msgspec.json.decode(found.report)
    return RunWhole(report=report, **_fields(context, found))


@get("/v1/archive", opt={"may": "read"}, tags=["runs"], summary="How far the archives are")
async def list_archives(context: Given[Context], principal: Given[Principal]) -> Archives:
    """Of the topics that have one: what it holds, what it lacks, and the last run."""
    runs: dict[str, RunDescription] = {}
    for one in _seen(context, principal):
        if one.kind == "archive":
            for topic in one.topics:
                runs.setdefault(topic, one)
    found = []
    with context.engine.lock:
        context.engine.check_open()
        for name, state in context.engine.topics.items():
            if state.config.archive is None or not principal.may("read", name):
                continue
            known = state.meta.archived
            parts = [
                ArchivedPartition(
                    partition=one.number,
                    archived=known.get(one.number, 0),
                    first=one.log.start_offset,
                    next=one.log.next_offset,
                    behind=max(one.log.next_offset - max(known.get(one.number, 0), one.log.start_offset), 0),
                )
                for one in state.partitions
            ]
            last = state.meta.archived_ms or None
            run = runs.get(name)
            found.append(
                ArchivedTopic(
                    topic=name,
                    path=state.config.archive,
                    partitions=parts,
                    behind=sum(one.behind for one in parts),
                    last_at=None if last is None else iso(last),
                    last_at_ms=last,
                    run=None if run is None else _shown(context, run),
                )
            )
    return Archives(found)


def _seen(context: Context, principal: Principal) -> list[RunDescription]:
    with context.engine.lock:
        context.engine.check_open()
        return [one for one in context.engine.runs.latest() if _sees(principal, one)]


def _sees(principal: Principal, run: RunDescription) -> bool:
    return all(principal.may("read", topic) for topic in run.topics)


def _shown(context: Context, one: RunDescription) -> RunOut:
    return RunOut(**_fields(context, one))


def _fields(context: Context, one: RunDescription) -> dict[str, Any]:
    until = one.ended_ms
    if until is None:
        until = one.heard_ms if one.state == "lost" else context.engine.clock.now_ms()
    return {
        "id": one.id,
        "kind": one.kind,
        "name": one.name,
        "topics": one.topics,
        "state": one.state,
        "began": iso(one.began_ms),
        "began_ms": one.began_ms,
        "ended": None if one.ended_ms is None else iso(one.ended_ms),
        "ended_ms": one.ended_ms,
        "heard_ms": one.heard_ms,
        "seconds": round(max((until or one.began_ms) - one.began_ms, 0) / 1000, 3),
        "rows": one.rows,
        "summary": msgspec.json.decode(one.summary),
        "error": one.error,
        "has_report": one.has_report,
    }


HANDLERS = [list_runs, show_run, list_archives]
