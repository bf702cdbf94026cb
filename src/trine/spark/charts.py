"""The pictures of a report: throughput, lag, failures and latency over time, drawn with matplotlib.

Series beyond those that can be told apart are drawn as one, "others".
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK: Final = "#1f2933"
FAINT: Final = "#7b8794"
RULE: Final = "#e4e7eb"
COLOURS: Final = ("#2f6fdf", "#0e9f8e", "#e08a1e", "#8a5cd6", "#d1495b", "#5b7083")
FAILURES: Final = {
    "nacked": "#f2b84b",
    "returned": "#e08a1e",
    "rejected": "#d1495b",
    "dead_lettered": "#8f1d2f",
    "expired": "#9aa5b1",
}
SERIES_MAX: Final = len(COLOURS)
BANDS_MAX: Final = 2
"""Groups whose spread is filled; the bands of more hide each other."""
TICKS_MS: Final[tuple[float, ...]] = (
    0.0, 1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 86_400_000, 864_000_000, 8_640_000_000,
)  # fmt: skip
"""Lines of a scale of times, each about ten times the one before."""
SIZE: Final = (9.6, 3.0)
"""In inches."""
PNG_DPI: Final = 160
STYLE: Final[Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "svg.fonttype": "path",
    "axes.edgecolor": RULE,
    "axes.labelcolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "text.color": INK,
}


def throughput(published: pd.DataFrame, window_s: float) -> Figure:
    """Messages published each second, by topic, one on top of the other."""
    wide = _closed(_gridded(_wide(published, "topic", "messages") / window_s, window_s, 0.0), window_s)
    figure, axes = _canvas()
    values = [wide[name].to_numpy() for name in wide.columns]
    if values:
        axes.stackplot(
            wide.index,
            *values,
            labels=list(wide.columns),
            colors=COLOURS,
            alpha=0.85,
            linewidth=0,
            step="post",
        )
    return _finished(figure, axes, wide, "messages / s")


def lag(table: pd.DataFrame) -> Figure:
    """Messages not settled yet at the end of each window, by group."""
    wide = _wide(table, "group", "lag")
    figure, axes = _canvas()
    for name, colour in zip(wide.columns, COLOURS, strict=False):
        axes.plot(wide.index, wide[name], color=colour, linewidth=1.8, label=name)
        axes.fill_between(wide.index, wide[name].to_numpy(), color=colour, alpha=0.08, linewidth=0)
    return _finished(figure, axes, wide, "messages not settled")


def failures(flow: pd.DataFrame, window_s: float) -> Figure:
    """Deliveries that came to nothing, by kind, in each window."""
    kinds = [kind for kind in FAILURES if flow[kind].sum()] if len(flow) else []
    wide = flow.groupby("window")[kinds].sum() if kinds else _none(flow)
    figure, axes = _canvas()
    under = None
    for kind in kinds:
        axes.bar(
            wide.index,
            wide[kind],
            bottom=under,
            width=window_s * 0.86 / 86_400,
            align="edge",
            color=FAILURES[kind],
            label=kind.replace("_", "-"),
        )
        under = wide[kind] if under is None else under + wide[kind]
    if not kinds:
        axes.text(0.5, 0.5, "no failures", transform=axes.transAxes, ha="center", color=FAINT, fontsize=12)
    return _finished(figure, axes, wide, "failed deliveries")


def latency(table: pd.DataFrame, window_s: float) -> Figure:
    """From publish to ack: the middle as a line, and a band up to the 99th percentile."""
    figure, axes = _canvas()
    names = _largest(table, "group", "acked")
    for name, colour in zip(names, COLOURS, strict=False):
        known = table[table["group"] == name].set_index("window")[["p50_ms", "p99_ms"]].sort_index()
        mine = _gridded(known.astype(float), window_s, None)
        axes.plot(mine.index, mine["p50_ms"], color=colour, linewidth=1.8, label=name)
        there = mine["p50_ms"].notna()
        alone = mine[there & ~there.shift(1, fill_value=False) & ~there.shift(-1, fill_value=False)]
        axes.plot(alone.index, alone["p50_ms"], color=colour, linestyle="none", marker="o", markersize=4)
        axes.plot(
            mine.index,
            mine["p99_ms"],
            color=colour,
            linewidth=1.1,
            linestyle=(0, (3, 2)),
        )
        if len(names) <= BANDS_MAX:
            axes.fill_between(
                mine.index,
                mine["p50_ms"].to_numpy(float),
                mine["p99_ms"].to_numpy(float),
                color=colour,
                alpha=0.10,
                linewidth=0,
            )
    if len(table) and float(table["p99_ms"].max()) > 0:
        least, most = float(table["p50_ms"].min()), float(table["p99_ms"].max())
        axes.set_yscale("symlog", linthresh=10)
        below = [tick for tick in TICKS_MS if tick <= least] or [0.0]
        above = [tick for tick in TICKS_MS if tick > most] or [most]
        axes.set_yticks([tick for tick in TICKS_MS if below[-1] <= tick <= above[0]])
        axes.set_ylim(below[-1], above[0])
    else:
        axes.text(
            0.5, 0.5, "nothing was acked", transform=axes.transAxes, ha="center", color=FAINT, fontsize=12
        )
    return _finished(figure, axes, table, "publish to ack", milliseconds=True)


def aligned(figures: Iterable[Figure], first: datetime, end: datetime) -> None:
    """The same times below each other."""
    for figure in figures:
        for axes in figure.axes:
            if len(axes.get_xticks()):
                margin: Any = (end - first) * 0.01
                axes.set_xlim(first - margin, end + margin)


def svg(figure: Figure) -> bytes:
    return _saved(figure, "svg")


def png(figure: Figure) -> bytes:
    return _saved(figure, "png")


def _saved(figure: Figure, form: str) -> bytes:
    import matplotlib as mpl

    held = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(held, format=form, dpi=PNG_DPI, facecolor="white")
    return held.getvalue()


def _canvas() -> tuple[Figure, Axes]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
    return figure, axes


def _finished(
    figure: Figure, axes: Axes, frame: pd.DataFrame, unit: str, *, milliseconds: bool = False
) -> Figure:
    import matplotlib as mpl
    from matplotlib import dates
    from matplotlib.ticker import FuncFormatter

    with mpl.rc_context(STYLE):
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.grid(axis="y", color=RULE, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, labelsize=8.5)
        axes.yaxis.set_major_formatter(FuncFormatter(_ms if milliseconds else _number))
        axes.minorticks_off()
        axes.set_ylabel(unit, fontsize=8.5)
        if len(frame):
            drawn: Any = dates
            locator = drawn.AutoDateLocator(minticks=4, maxticks=9)
            axes.xaxis.set_major_locator(locator)
            form = drawn.ConciseDateFormatter(locator, show_offset=False)
            form.formats[5] = "%H:%M:%S"
            axes.xaxis.set_major_formatter(form)
            axes.margins(x=0.01)
        else:
            axes.set_xticks([])
        if not milliseconds:
            axes.set_ylim(bottom=0)
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            figure.legend(
                handles,
                labels,
                loc="outside upper left",
                ncols=min(len(labels), 6),
                frameon=False,
                fontsize=8.5,
                handlelength=1.2,
                columnspacing=1.4,
            )
    return figure


def _largest(table: pd.DataFrame, by: str, what: str) -> list[str]:
    sums = table.groupby(by)[what].sum().sort_values(ascending=False)
    return [str(name) for name in sums.index[:SERIES_MAX]]


def _wide(table: pd.DataFrame, by: str, what: str) -> pd.DataFrame:
    """A column for each of the largest series; the rest together."""
    if not len(table):
        return _none(table)
    wide = table.pivot_table(index="window", columns=by, values=what, aggfunc="sum").fillna(0.0)
    names = list(wide.sum().sort_values(ascending=False).index)
    if len(names) <= SERIES_MAX:
        return wide[names]
    kept = wide[names[: SERIES_MAX - 1]].copy()
    kept["others"] = wide[names[SERIES_MAX - 1 :]].sum(axis=1)
    return kept


def _closed(wide: pd.DataFrame, window_s: float) -> pd.DataFrame:
    """The last window goes on to its end: one alone is seen too."""
    import pandas as pd

    if not len(wide):
        return wide
    end = wide.iloc[[-1]].copy()
    end.index = end.index + pd.Timedelta(seconds=window_s)
    return pd.concat([wide, end])


def _gridded(wide: pd.DataFrame, window_s: float, nothing: float | None) -> pd.DataFrame:
    """A row for each window, those in which nothing happened too: else what was before would seem to go on."""
    import pandas as pd

    if not len(wide):
        return wide
    grid = pd.date_range(wide.index.min(), wide.index.max(), freq=pd.Timedelta(seconds=window_s))
    return wide.reindex(grid, fill_value=float("nan") if nothing is None else nothing)


def _none(table: pd.DataFrame) -> pd.DataFrame:
    return table.iloc[:0].set_index("window")[[]]


def _number(value: float, _: Any = None) -> str:
    for size, word in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{word}"
    return f"{value:g}"


def _ms(value: float, _: Any = None) -> str:
    if value >= 86_400_000:
        return f"{value / 86_400_000:g} d"
    if value >= 3_600_000:
        return f"{value / 3_600_000:g} h"
    if value >= 60_000:
        return f"{value / 60_000:g} min"
    if value >= 1000:
        return f"{value / 1000:g} s"
    return f"{value:g} ms"
