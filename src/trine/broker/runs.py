"""Runs: what Spark's commands do with this broker's topics, as they tell it: begun, how far, ended, with what result.

A run is a record of the metadata, like everything the broker knows of itself: it survives a restart, and the last
`RUNS_MAX` are remembered. How far it is a run says now and then; that is kept in memory alone. One that has said
nothing for a while is lost: its process is gone, or cannot reach the broker. If it speaks again it is running again.

All of it is called under the engine's lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from trine.broker.entry import Entry
from trine.broker.metadata import RunForgotten, RunMeta, RunSet
from trine.model.description import RunDescription, RunState
from trine.model.durability import Level
from trine.model.errors import Conflict, InvalidOption, UnknownJob
from trine.model.limits import KIB, NAME_CHARS_MAX

if TYPE_CHECKING:
    from trine.broker.engine import Engine

KINDS: Final = ("archive", "replay", "traces", "report", "redrive", "pipeline")
RUNS_MAX: Final = 1_000
"""Runs remembered; the oldest that is over is forgotten first."""
REPORTS_MAX: Final = 20
"""Runs whose report is kept: it is in every checkpoint."""
TOPICS_MAX: Final = 100
NAME_MAX: Final = 2 * NAME_CHARS_MAX
SUMMARY_BYTES_MAX: Final = 8 * KIB
REPORT_BYTES_MAX: Final = 64 * KIB
ERROR_CHARS_MAX: Final = 1_000
SILENT_MS: Final = 60_000
"""A run that says nothing for this long is lost; it speaks four times as often."""

_JSON: Final = msgspec.json.Decoder(dict)


class Runs:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._opened_ms = engine.clock.now_ms()
        self._heard: dict[str, tuple[int, int]] = {}
        """Of runs under way: when they spoke last, and how many rows they had then."""

    def begin(self, kind: str, name: str, topics: Iterable[str]) -> tuple[str, int]:
        """(its id, lsn)."""
        if kind not in KINDS:
            raise InvalidOption(f"there is no kind of run {kind!r}; they are {', '.join(KINDS)}")
        engine = self._engine
        meta = engine.meta
        run = RunMeta(
            id=f"run-{meta.next_run}",
            kind=kind,
            name=name[:NAME_MAX],
            topics=list(topics)[:TOPICS_MAX],
            began_ms=engine.clock.now_ms(),
        )
        entry = Entry()
        if len(meta.runs) >= RUNS_MAX:
            over = next((one for one in meta.runs.values() if one.state != "running"), None)
            oldest = over if over is not None else next(iter(meta.runs.values()))
            entry.meta(RunForgotten(oldest.id), engine.apply_meta)
            self._heard.pop(oldest.id, None)
        entry.meta(RunSet(run), engine.apply_meta)
        self._heard[run.id] = (run.began_ms, 0)
        return run.id, engine.commit(entry, Level.SYNCED)

    def tell(self, run_id: str, rows: int) -> None:
        """It is alive, and has come this far."""
        self._under_way(run_id)
        self._heard[run_id] = (self._engine.clock.now_ms(), rows)

    def end(
        self, run_id: str, rows: int, summary: str, report: str | None = None, error: str | None = None
    ) -> int:
        """Its result, as JSON objects; with an error it has failed."""
        run = self._under_way(run_id)
        _check_json("summary", summary, SUMMARY_BYTES_MAX)
        if report is not None:
            _check_json("report", report, REPORT_BYTES_MAX)
        engine = self._engine
        entry = Entry()
        if report is not None:
            kept = [one for one in engine.meta.runs.values() if one.report is not None]
            for old in kept[: max(len(kept) - REPORTS_MAX + 1, 0)]:
                entry.meta(RunSet(msgspec.structs.replace(old, report=None)), engine.apply_meta)
        ended = msgspec.structs.replace(
            run,
            state="ended" if error is None else "failed",
            ended_ms=engine.clock.now_ms(),
            rows=rows,
            summary=summary,
            report=report,
            error=None if error is None else error[:ERROR_CHARS_MAX],
        )
        entry.meta(RunSet(ended), engine.apply_meta)
        self._heard.pop(run_id, None)
        return engine.commit(entry, Level.SYNCED)

    def get(self, run_id: str) -> RunDescription:
        return self._described(self._known(run_id), whole=True)

    def latest(self) -> list[RunDescription]:
        """All that are remembered, the newest first, without their reports."""
        return [self._described(run, whole=False) for run in reversed(self._engine.meta.runs.values())]

    def topics_of(self, run_id: str) -> list[str]:
        return self._known(run_id).topics

    def _described(self, run: RunMeta, *, whole: bool) -> RunDescription:
        now = self._engine.clock.now_ms()
        heard, rows = self._heard.get(run.id, (max(run.began_ms, self._opened_ms), 0))
        state: RunState = run.state
        running = state == "running"
        if running and now - heard > SILENT_MS:
            state = "lost"
        return RunDescription(
            id=run.id,
            kind=run.kind,
            name=run.name,
            topics=list(run.topics),
            state=state,
            began_ms=run.began_ms,
            ended_ms=run.ended_ms,
            heard_ms=heard if running else run.ended_ms,
            rows=rows if running else run.rows,
            summary=run.summary,
            error=run.error,
            report=run.report if whole else None,
            has_report=run.report is not None,
        )

    def _known(self, run_id: str) -> RunMeta:
        run = self._engine.meta.runs.get(run_id)
        if run is None:
            raise UnknownJob(
                f"there is no run {run_id!r}, or it was long ago; runs() lists those that are remembered"
            )
        return run

    def _under_way(self, run_id: str) -> RunMeta:
        run = self._known(run_id)
        if run.state != "running":
            raise Conflict(f"run {run_id!r} is over already: {run.state}")
        return run


def _check_json(what: str, text: str, most: int) -> None:
    if len(text.encode()) > most:
        raise InvalidOption(
            f"the {what} of a run has {len(text.encode())} bytes; at most {most} are kept: tell less"
        )
    try:
        _JSON.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidOption(f"the {what} of a run is a JSON object, and this is none: {error}") from error
