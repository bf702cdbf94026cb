"""Measures the chosen cells of the chosen peers, one after the other, and writes down each as it is done.

A run waits a little for the machine to be idle; one that strangers disturbed is done again, as often as it is
repeated at most, and the quietest are kept. A cell that fails does not cost the others: the server is started anew.
"""

from __future__ import annotations

import contextlib
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console

from benchmarks.peers import limits
from benchmarks.peers.peer import Cannot, Peer
from benchmarks.peers.plan import Cell, Size
from benchmarks.peers.record import Record
from benchmarks.peers.roster import PEERS
from benchmarks.peers.workloads import publish

NOISY_CORES = 0.25
"""What others may use during a run."""
PATIENCE_S: Final[dict[Size, float]] = {"full": 10.0, "quick": 1.0, "small": 0.0}
"""How long a run waits for the machine to be idle."""
START_S = 8.0
"""What starting and warming up a peer takes, for the estimate."""


class NotStarted(Exception):
    """A peer whose server is here and does not come up, or does not take a message."""


@dataclass
class Runner:
    record: Record
    size: Size
    root: Path
    """Where servers keep their data: on a disk."""
    console: Console
    deadline: float = field(default=float("inf"))
    """time.monotonic() after which no other cell begins."""

    def measure(self, names: list[str], cells: list[Cell], again: bool) -> bool:
        """Whether everything that was asked for is in the record now. `again` measures what is there already, too."""
        todo = self._todo(names, cells, again)
        minutes = self.estimate_s(todo) / 60
        count = sum(len(some) for some in todo.values())
        self.console.print(f"{count} cells of {len(todo)} peers, about {minutes:.0f} minutes")
        if todo and (again or not self.record.content["limits"]):
            self.record.content["limits"] = limits.of_the_disk(self.root)
        self.record.write()
        for name, some in todo.items():
            if self._over():
                return False
            self._peer(PEERS[name](self.root), some)
        return not self._over()

    def _todo(self, names: list[str], cells: list[Cell], again: bool) -> dict[str, list[Cell]]:
        todo: dict[str, list[Cell]] = {}
        for name in names:
            kind = PEERS[name]
            if why := kind.missing():
                self.console.print(f"[yellow]{name} is skipped:[/yellow] {why}", highlight=False)
                self.record.content["skipped"][name] = {"broker": kind.broker, "why": why}
                continue
            self.record.content["skipped"].pop(name, None)
            for cell in cells:
                concerns = not kind.only or cell.name.startswith(kind.only)
                if concerns and (again or not self.record.has(name, cell.name)):
                    todo.setdefault(name, []).append(cell)
        return todo

    def estimate_s(self, todo: dict[str, list[Cell]]) -> float:
        total = 0.0
        for name, cells in todo.items():
            total += START_S
            for cell in cells:
                total += self.record.took_s(name, cell.name) or cell.estimate_s(self.size)
        return total

    def _over(self) -> bool:
        return time.monotonic() > self.deadline

    def _peer(self, peer: Peer, cells: list[Cell]) -> None:
        self.console.print(f"[bold]{peer.name}[/bold] {peer.version()}, {peer.promise}", highlight=False)
        try:
            self._started(peer)
            for cell in cells:
                if self._over():
                    return
                self._cell(peer, cell)
        except NotStarted as error:
            self.console.print(f"  [red]did not start:[/red] {error}", highlight=False)
            why = f"it did not start: {error}"
            self.record.content["skipped"][peer.name] = {"broker": peer.broker, "why": why}
            self.record.write()
        finally:
            peer.stop()  # whatever ended this, Ctrl-C too: no server is left behind

    def _started(self, peer: Peer) -> None:
        try:
            part = self.record.peer(peer)
            peer.start()
            part["memory_start"] = peer.memory_bytes()
            self._warm_up(peer)
        except Exception as error:
            raise NotStarted(str(error)) from error

    def _warm_up(self, peer: Peer) -> None:
        """For what compiles, allocates or creates files as it goes."""
        if self.size == "small":
            return
        publish.singly(peer, size=100, seconds=0.5)
        publish.in_batches(peer, size=100, batch=100, seconds=0.5)

    def _cell(self, peer: Peer, cell: Cell) -> None:
        begun = time.monotonic()
        try:
            found = self._runs(peer, cell)
        except Cannot as error:
            found = {"cannot": str(error)}
        except Exception as error:  # whatever it is, it is this cell's
            found = {"error": f"{type(error).__name__}: {error}"}
            peer.stop()
            peer.start()
        self.record.put(peer.name, cell.name, found, time.monotonic() - begun)
        self.console.print(f"  {cell.name:15} {_line(found)}", highlight=False)

    def _runs(self, peer: Peer, cell: Cell) -> dict[str, Any]:
        repeats = cell.repeats(self.size)
        most = 2 * repeats if self.size == "full" else repeats
        runs: list[dict[str, Any]] = []
        tries = 0
        while tries < most and sum(_quiet(one) for one in runs) < repeats:
            tries += 1
            await_quiet(PATIENCE_S[self.size])
            figures = cell.run(peer, self.size)
            if "drain" in figures or "runs" in figures:  # several questions to one store, or several windows
                return dict(figures)
            runs.append(figures)
        return {"runs": sorted(runs, key=lambda one: one["others_cores"])[:repeats]}


def await_quiet(seconds: float) -> None:
    """Until next to nothing runs on this machine, but no longer than that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if psutil.cpu_percent(0.2) / 100 * (psutil.cpu_count() or 1) < NOISY_CORES:
            return


def _quiet(run: dict[str, Any]) -> bool:
    return bool(run["others_cores"] <= NOISY_CORES)


def _line(found: dict[str, Any]) -> str:
    if "cannot" in found:
        return f"cannot: {found['cannot']}"
    if "error" in found:
        return f"[red]failed:[/red] {found['error']}"
    if "drain" in found:
        return ", ".join(f"{question} {_line(one)}" for question, one in found.items())
    runs = found["runs"]
    words = []
    for key, unit in SHOWN:
        if runs and key in runs[0]:
            words.append(" ".join(f"{one[key]:,.4g}" for one in runs if key in one) + unit)
    noise = max((one.get("others_cores", 0.0) for one in runs), default=0.0)
    return "; ".join(words) + (f" (others used {noise:.1f} cores)" if noise > NOISY_CORES else "")


SHOWN = (
    ("rate", "/s"), ("p50_ms", " ms"), ("p99_ms", " ms p99"), ("late_p99_ms", " ms late p99"),
    ("pause_ms", " ms pause"), ("first_ms", " ms to the first"),
)  # fmt: skip


def open_files() -> None:
    """As many as we may have, and the servers with us: a thousand consumers have as many connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextlib.contextmanager
def data_folder(given: Path | None) -> Iterator[Path]:
    """A folder that servers with a user of their own can get at."""
    with tempfile.TemporaryDirectory(dir=given or "/var/tmp", prefix="trine-peers-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder
