"""A histogram of times: counts in narrow steps, so that it takes the same room however many there are."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

STEP: Final = 1.02
"""Each step is 2 % wider than the one before: percentiles are that exact, from a microsecond to hours."""

LEAST_MS: Final = 0.001
PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
DRAWN: Final = (1, 2, 5)
"""Where the rows of the drawing begin, in every decade."""

EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
BAR_CHARS: Final = 40


class Histogram:
    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._greatest_ms = 0.0
        self._sum_ms = 0.0

    def __len__(self) -> int:
        return self._counts.total()

    def add(self, ms: float) -> None:
        self._counts[_step(ms)] += 1
        self._sum_ms += ms
        self._greatest_ms = max(self._greatest_ms, ms)

    def join(self, other: Histogram) -> None:
        self._counts.update(other._counts)
        self._sum_ms += other._sum_ms
        self._greatest_ms = max(self._greatest_ms, other._greatest_ms)

    def percentiles(self) -> dict[str, float]:
        """By name, with the greatest; empty if nothing was added."""
        if not self._counts:
            return {}
        found = {name: self._below(share) for name, share in PERCENTILES.items()}
        return {**found, "max": self._greatest_ms, "mean": self._sum_ms / len(self)}

    def _below(self, share: float) -> float:
        wanted = share * len(self)
        passed = 0
        for step in sorted(self._counts):
            passed += self._counts[step]
            if passed >= wanted:
                return min(LEAST_MS * STEP**step, self._greatest_ms)
        return self._greatest_ms

    def rows(self) -> list[tuple[float, float, int]]:
        """(from, to, count) in ms, between round numbers, without a gap from the least to the greatest."""
        if not self._counts:
            return []
        counts: Counter[int] = Counter()
        for step, count in self._counts.items():
            counts[_row(LEAST_MS * STEP ** (step - 0.5))] += count
        return [(_edge(row), _edge(row + 1), counts[row]) for row in range(min(counts), max(counts) + 1)]

    def drawn(self, wide: int = BAR_CHARS) -> list[str]:
        """A line for each row, its bar as long as its share."""
        rows = self.rows()
        if not rows:
            return []
        most = max(count for _, _, count in rows)
        edges = [f"{_short(start)} to {_short(end)} ms" for start, end, _ in rows]
        margin = max(map(len, edges))
        return [
            f"{edge:>{margin}}  {_bar(count / most, wide):<{wide}}  {count / len(self):6.1%}  {count:,}"
            for edge, (_, _, count) in zip(edges, rows, strict=True)
        ]

    def as_dict(self) -> dict[str, Any]:
        return {
            "count": len(self),
            **self.percentiles(),
            "histogram": [{"from": start, "to": end, "count": count} for start, end, count in self.rows()],
        }


def _step(ms: float) -> int:
    return max(0, math.ceil(math.log(max(ms, LEAST_MS) / LEAST_MS, STEP)))


def _row(ms: float) -> int:
    decade = math.floor(math.log10(ms))
    within = ms / 10**decade
    return decade * len(DRAWN) + sum(1 for edge in DRAWN if within >= edge) - 1


def _edge(row: int) -> float:
    decade, within = divmod(row, len(DRAWN))
    return float(f"{DRAWN[within]}e{decade}")


def _short(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 1 else f"{ms:g}"


def _bar(share: float, wide: int) -> str:
    eighths = round(share * wide * 8)
    if eighths == 0 and share > 0:
        eighths = 1  # a few are not none
    return "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
