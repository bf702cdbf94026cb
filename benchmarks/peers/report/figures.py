"""One figure of one peer: the median of its runs and their spread; and who is ahead of whom."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.peers.peer import CLASSES, Class

TRINE: Final[dict[str, str]] = {"synced": "trine", "written": "trine-written", "memory": "trine-memory"}
"""The peer that is Trine, of each class."""

OURS: Final = "Trine"
NOISY_CORES: Final = 0.25
ORDER: Final[tuple[Class, ...]] = ("synced", "written", "memory")
assert set(ORDER) == set(CLASSES)

Content = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    median: float
    spread: float
    """Half of what lies between the least and the greatest, as a share of the median."""
    runs: int
    noisy: bool
    """Others were at work during one of the runs."""
    least: float
    greatest: float

    def scaled(self, by: float) -> Figure:
        return replace(self, median=self.median * by, least=self.least * by, greatest=self.greatest * by)


def found(content: Content, peer: str, cell: str, question: str | None = None) -> dict[str, Any] | None:
    """What there is of a cell: runs, or why there are none."""
    answer = content["peers"].get(peer, {}).get("cells", {}).get(cell)
    if answer is None or question is None or "runs" not in answer.get(question, answer):
        return answer if question is None or answer is None else answer.get(question, answer)
    return answer[question]  # type: ignore[no-any-return]


def figure(content: Content, peer: str, cell: str, key: str, question: str | None = None) -> Figure | None:
    answer = found(content, peer, cell, question)
    values = [run[key] for run in (answer or {}).get("runs", ()) if key in run]
    if not values:
        return None
    median = statistics.median(values)
    spread = (max(values) - min(values)) / median / 2 if median and len(values) > 1 else 0.0
    noisy = any(run.get("others_cores", 0.0) > NOISY_CORES for run in answer["runs"])  # type: ignore[index]
    return Figure(median, spread, len(values), noisy, min(values), max(values))


def peers(content: Content, durability: str | None = None, *, cell: str | None = None) -> list[str]:
    """Peers of a class, as they were measured; with a cell, those that have something to say about it."""
    return [
        name
        for name, part in content["peers"].items()
        if (durability is None or part["durability"] == durability)
        and part["cells"]
        and (cell is None or cell in part["cells"])
    ]


def is_ours(content: Content, peer: str) -> bool:
    return bool(content["peers"][peer]["broker"] == OURS)


@dataclass(frozen=True, slots=True)
class Match:
    """Trine against the best of the others, in one class."""

    durability: str
    ours: Figure
    best: str
    theirs: Figure
    less_is_better: bool

    @property
    def ratio(self) -> float:
        """Above 1: Trine is ahead."""
        if self.less_is_better:
            return self.theirs.median / self.ours.median if self.ours.median else float("inf")
        return self.ours.median / self.theirs.median if self.theirs.median else float("inf")


def match(
    content: Content, durability: str, cell: str, key: str, question: str | None = None, *,
    less_is_better: bool = False, logs: bool = False,
) -> Match | None:  # fmt: skip
    """None if one of the two sides has nothing. Logs are compared apart from queues."""
    ours = figure(content, TRINE[durability], cell, key, question)
    rivals = [
        (peer, theirs)
        for peer in peers(content, durability, cell=cell)
        if not is_ours(content, peer) and content["peers"][peer]["is_log"] == logs
        if (theirs := figure(content, peer, cell, key, question)) is not None
    ]
    if ours is None or not rivals:
        return None
    best, theirs = (min if less_is_better else max)(rivals, key=lambda one: one[1].median)
    return Match(durability, ours, best, theirs, less_is_better)


def noisy_share(content: Content) -> float:
    """How many of all runs were disturbed by others."""
    runs = [
        run["others_cores"] > NOISY_CORES
        for part in content["peers"].values()
        for cell in part["cells"].values()
        for answer in (cell, *(one for one in cell.values() if isinstance(one, dict)))
        for run in answer.get("runs", ())
        if "others_cores" in run
    ]
    return sum(runs) / len(runs) if runs else 0.0


def number(value: float) -> str:
    """Three digits: 1,234, 56.7k, 1.23M."""
    if value >= 999_500:
        return f"{value / 1e6:.3g}M"
    if value >= 9_995:
        return f"{value / 1e3:.3g}k"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def shown(figure: Figure, unit: str = "") -> str:
    text = number(figure.median) + unit
    if figure.runs > 1:
        text += f" ±{figure.spread:.0%}"
    return text + ("\\*" if figure.noisy else "")


def times(ratio: float) -> str:
    """A ratio; where Trine is behind it is bold."""
    text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"
    return f"**{text}**" if ratio < 1 else text
