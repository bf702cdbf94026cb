"""Pictures: throughput by class, latency percentiles, and the cost of a message by the depth of the backlog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers.report.figures import ORDER, Content, figure, is_ours, number, peers
from benchmarks.peers.report.tables import DEPTHS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK: Final = "#1f2933"
FAINT: Final = "#7b8794"
RULE: Final = "#e4e7eb"
OURS: Final = ("#2f6fdf", "#8fb4f2", "#1a3f85")
THEIRS: Final = (
    "#e08a1e", "#0e9f8e", "#8a5cd6", "#d1495b", "#5b7083", "#b9a13a", "#4c9a4a", "#a05c2c", "#c77fb5", "#3d6f8e",
)  # fmt: skip
STYLE: Final[dict[str, Any]] = {
    "font.family": "DejaVu Sans", "font.size": 9, "text.color": INK, "axes.labelcolor": FAINT,
    "axes.edgecolor": RULE, "xtick.color": FAINT, "ytick.color": FAINT, "svg.hashsalt": "trine",
    "svg.fonttype": "path",
}  # fmt: skip
THROUGHPUT: Final = (
    ("publish\none at a time", "W1 100B"), ("publish\nby 100", "W2 100Bx100"),
    ("publish\nby 1,000", "W2 100Bx1000"), ("drain\neach acked", "W3 each"),
    ("drain\nack for 100", "W3 batch"), ("fan-out\nto ten", "W5"),
)  # fmt: skip
RATES: Final = (1000, 5000)
PERCENTILES: Final = (("p50", "p50_ms"), ("p99", "p99_ms"))
WIDTH: Final = 10.0
MARGIN: Final = 3.0


def draw(content: Content, folder: Path) -> list[Path]:
    """Those for which there are figures; what an older run drew and this one does not is removed."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        pictures = {f"throughput-{durability}": _throughput(content, durability) for durability in ORDER}
        pictures |= {f"latency-{rate}": _latency(content, f"W4 {rate}/s", rate) for rate in RATES}
        pictures["depth"] = _depth(content)
        made = [_saved(picture, folder / f"{name}.svg") for name, picture in pictures.items()]
    return [path for path in made if path is not None]


def _saved(picture: Figure | None, path: Path) -> Path | None:
    if picture is None:
        path.unlink(missing_ok=True)
        return None
    picture.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
    return path


def _figure(height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    picture = Figure(figsize=(WIDTH, height))
    axes = picture.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    return picture, axes


def _plain(*scales: Axis) -> None:
    """Numbers as in the tables, and none between the powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for scale in scales:
        scale.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        scale.set_minor_formatter(NullFormatter())


def _colours(content: Content, names: Sequence[str]) -> dict[str, str]:
    ours, theirs = iter(OURS), iter(THEIRS * 2)
    return {name: next(ours) if is_ours(content, name) else next(theirs) for name in names}


def _throughput(content: Content, durability: str) -> Figure | None:
    """Groups of bars, one a workload; a logarithmic scale, as the ends are thousands apart."""
    candidates = peers(content, durability)
    shown = [one for one in THROUGHPUT if any(figure(content, name, one[1], "rate") for name in candidates)]
    names = [name for name in candidates if any(figure(content, name, cell, "rate") for _, cell in shown)]
    if not shown or not names:
        return None
    picture, axes = _figure(3.6)
    colours = _colours(content, names)
    wide = 0.84 / len(names)
    for place, name in enumerate(names):
        for group, (_, cell) in enumerate(shown):
            one = figure(content, name, cell, "rate")
            if one is None:
                continue
            at = group - 0.42 + wide * (place + 0.5)
            label = None if name in axes.get_legend_handles_labels()[1] else name
            axes.bar(at, one.median, wide * 0.92, color=colours[name], label=label)
            axes.vlines(at, one.least, one.greatest, color=INK, linewidth=0.7)
    axes.set_yscale("log")
    axes.set_xticks(range(len(shown)), [label for label, _ in shown])
    axes.set_ylabel("messages a second")
    _plain(axes.yaxis)
    axes.grid(axis="y", color=RULE)
    axes.set_title(f"Throughput, {durability}: 100 B messages", loc="left", color=INK)
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return picture


def _class(content: Content, name: str) -> int:
    return ORDER.index(content["peers"][name]["durability"])


def _latency(content: Content, cell: str, rate: int) -> Figure | None:
    """A line from p50 to p99 for each peer, class by class, the quickest of each on top."""
    rows = []
    for name in peers(content, cell=cell):
        spans = [figure(content, name, cell, key) for _, key in PERCENTILES]
        if all(spans):
            rows.append((name, [span.median for span in spans if span is not None]))
    if not rows:
        return None
    rows.sort(key=lambda row: (_class(content, row[0]), row[1][0]), reverse=True)
    picture, axes = _figure(0.7 + 0.26 * len(rows))
    for place, (name, spans) in enumerate(rows):
        colour = OURS[0] if is_ours(content, name) else FAINT
        axes.plot(spans, [place] * len(spans), color=colour, linewidth=1.5)
        axes.scatter(spans, [place] * len(spans), color=colour, s=[30, 14], zorder=3)
    axes.set_xscale("log")
    axes.set_yticks(
        range(len(rows)), [f"{name} ({content['peers'][name]['durability']})" for name, _ in rows]
    )
    axes.set_xlabel("ms; large dot p50, small dot p99")
    _plain(axes.xaxis)
    axes.grid(axis="x", color=RULE)
    axes.set_title(f"From publish to acked, at {rate:,} messages a second", loc="left", color=INK)
    return picture


def _depth(content: Content) -> Figure | None:
    """Microseconds to receive and ack a message, by how many wait."""
    lines = []
    for name in peers(content):
        points = []
        for _, cell in DEPTHS:
            rate = figure(content, name, cell, "rate", "drain")
            deep = figure(content, name, cell, "depth", "drain")
            if rate is not None and deep is not None and rate.median:
                points.append((deep.median, 1e6 / rate.median))
        if len(points) > 1:
            lines.append((name, points))
    if not lines:
        return None
    picture, axes = _figure(3.6)
    colours = _colours(content, [name for name, _ in lines])
    for name, points in lines:
        style = {"linewidth": 2.2} if is_ours(content, name) else {"linewidth": 1.0}
        axes.plot(
            *zip(*points, strict=True), marker="o", markersize=3, color=colours[name], label=name, **style
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("messages waiting")
    axes.set_ylabel("µs a message")
    low, high = axes.get_ylim()
    axes.set_ylim(low / MARGIN, high * MARGIN)  # what is nearly flat looks flat
    _plain(axes.xaxis, axes.yaxis)
    axes.grid(color=RULE)
    axes.set_title(
        "What receiving and acking a message costs, by the depth of the backlog", loc="left", color=INK
    )
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return picture
