"""Runs are told to the broker: what is done with its topics, how far it is, and what came out.

    with telling(place, "archive", name="/lake/orders", topics=["orders"]) as run:
        run.rows += 100            # told every now and then
        run.summary["commits"] = 3

It is for those who look, and nothing of the run depends on it: a key that may not tell, or a broker that has gone by
the end, is a line in the log. While a run is under way a thread says that it is alive, on a connection of its own.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from trine.broker.runs import REPORT_BYTES_MAX, SILENT_MS, SUMMARY_BYTES_MAX
from trine.model.description import as_json
from trine.model.errors import Denied, TrineError
from trine.model.ids import DLQ_SUFFIX

if TYPE_CHECKING:
    from trine.client.sync import Broker
    from trine.spark.place import Place

BEAT_SECONDS: Final = SILENT_MS / 4000
log = logging.getLogger("trine")


class Told:
    """A run under way. What is set here is told."""

    def __init__(self, broker: Broker | None, run_id: str | None) -> None:
        self.rows = 0
        self.summary: dict[str, Any] = {}
        self.report: dict[str, Any] | None = None
        """Numbers for a picture, if that is what the run makes."""
        self._broker = broker
        self._id = run_id
        self._over = threading.Event()
        self._beating: threading.Thread | None = None

    def begin(self) -> None:
        if self._id is not None:
            self._beating = threading.Thread(target=self._beat, name="trine-run", daemon=True)
            self._beating.start()

    def _beat(self) -> None:
        assert self._broker is not None
        assert self._id is not None
        while not self._over.wait(BEAT_SECONDS):
            try:
                self._broker.tell_run(self._id, self.rows)
            except TrineError as error:
                log.info("%s is not told: %s", self._id, error.message)
                if isinstance(error, Denied):
                    return

    def end(self, error: str | None) -> None:
        self._over.set()
        if self._beating is not None:
            self._beating.join()
        if self._broker is None or self._id is None:
            return
        summary = self.summary if len(as_json(self.summary).encode()) <= SUMMARY_BYTES_MAX else {}
        report = self.report
        if report is not None and len(as_json(report).encode()) > REPORT_BYTES_MAX:
            log.info("the numbers of %s are more than the broker keeps", self._id)
            report = None
        try:
            self._broker.end_run(self._id, rows=self.rows, summary=summary, report=report, error=error)
        except TrineError as told:
            log.info("the end of %s is not told: %s", self._id, told.message)


@contextlib.contextmanager
def telling(place: Place, kind: str, name: str, topics: Sequence[str] | None) -> Iterator[Told]:
    """Tells the broker of what is done inside. Without topics it is about all of them."""
    with contextlib.closing(place.connect()) as broker:
        run = _begun(broker, kind, name, topics)
        run.begin()
        try:
            yield run
        except BaseException as error:
            run.end(_sentence(error))
            raise
        run.end(None)


@contextlib.contextmanager
def untold(place: Place, kind: str, name: str, topics: Sequence[str] | None) -> Iterator[Told]:
    """As `telling`, where there is nobody to tell."""
    yield Told(None, None)


def _begun(broker: Broker, kind: str, name: str, topics: Sequence[str] | None) -> Told:
    try:
        if topics is None:
            topics = [one.name for one in broker.topics() if not one.name.endswith(DLQ_SUFFIX)]
        return Told(broker, broker.begin_run(kind, name, topics))
    except Denied as error:
        log.info("this run is not told to the broker: %s", error.message)
        return Told(None, None)


def _sentence(error: BaseException) -> str:
    if isinstance(error, TrineError):
        return error.message
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "interrupted"
    return f"{type(error).__name__}: {error}"
