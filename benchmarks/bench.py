"""What every subject measures with: a folder on a real disk, rounds with a median, and rows for the table.

The machine may be shared, so nothing is measured once: a workload and its limit take turns, round by round, and
the median of each is kept.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

VALUE = b"v" * 100
BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    workload: str
    durability: str
    value: float
    unit: str
    limit: str = ""
    """What the value is held against, measured in the same run."""
    limit_value: float | None = None
    target: str = ""
    met: bool | None = None
    """None: there is no target, or this was a small run, which says nothing about speed."""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.limit_value if self.limit_value else None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


@dataclass(slots=True)
class Bench:
    root: Path
    small: bool
    results: list[Result] = field(default_factory=list)
    on_result: Callable[[Result], None] = lambda _: None

    def size(self, full: int, small: int) -> int:
        return small if self.small else full

    @property
    def rounds(self) -> int:
        return 2 if self.small else 7

    def folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.root))

    def remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def add(self, met: bool | None = None, **fields: Any) -> None:
        result = Result(met=None if self.small else met, **fields)
        self.results.append(result)
        self.on_result(result)


def seconds(step: Callable[[], object]) -> float:
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


class Spent(float):
    """Seconds by the clock on the wall, which targets are held against, and those the thread had a CPU for.

    On a machine with nothing else to do the two are alike; where they are not, the difference is the neighbours'.
    """

    cpu: float


def medians(rounds: int, *steps: Callable[[], object]) -> list[Spent]:
    """The median seconds of each step; the steps take turns, and the first turn of each is not counted."""
    taken: list[list[float]] = [[] for _ in steps]
    cpu: list[list[float]] = [[] for _ in steps]
    for turn in range(rounds + 1):
        for number, step in enumerate(steps):
            begun = time.thread_time()
            spent = seconds(step)
            if turn:
                taken[number].append(spent)
                cpu[number].append(time.thread_time() - begun)
    answer = []
    for times, cpu_times in zip(taken, cpu, strict=True):
        median = Spent(statistics.median(times))
        median.cpu = statistics.median(cpu_times)
        answer.append(median)
    return answer


def in_child(work: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of a function run in a fresh process, whose memory and page tables are its own.

    The function is given a `send` first, so that it may answer before it kills itself.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(there, work, arguments))
    child.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        raise RuntimeError(f"{work.__name__} ended without an answer") from None
    finally:
        child.join()


def _answer(connection: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    work(connection.send, *arguments)


def resident_bytes() -> int:
    """Memory of this process that is in use, mapped files included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not say how much memory a process uses")
