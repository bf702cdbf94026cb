"""Tables in Markdown: what each peer did, class by class, and how Trine stands to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.peers.report.figures import (
    ORDER,
    TRINE,
    Content,
    Figure,
    figure,
    found,
    is_ours,
    match,
    number,
    peers,
    shown,
    times,
)


@dataclass(frozen=True, slots=True)
class Column:
    head: str
    cell: str
    key: str = "rate"
    question: str | None = None
    less_is_better: bool = False
    scale: float = 1.0
    unit: str = ""


PUBLISH: Final = (
    Column("one at a time, 100 B", "W1 100B"),
    Column("1 kB", "W1 1KB"),
    Column("batches of 100, 100 B", "W2 100Bx100"),
    Column("of 1,000", "W2 100Bx1000"),
    Column("of 100, 1 kB", "W2 1KBx100"),
)
DRAIN: Final = (
    Column("each acked", "W3 each"),
    Column("two consumers", "W3 each, 2"),
    Column("one ack for 100", "W3 batch"),
    Column("two consumers", "W3 batch, 2"),
)
LATENCY: Final = (
    Column("1,000/s p50", "W4 1000/s", "p50_ms", less_is_better=True, unit=" ms"),
    Column("p99", "W4 1000/s", "p99_ms", less_is_better=True, unit=" ms"),
    Column("5,000/s p50", "W4 5000/s", "p50_ms", less_is_better=True, unit=" ms"),
    Column("p99", "W4 5000/s", "p99_ms", less_is_better=True, unit=" ms"),
)
FANOUT: Final = (
    Column("deliveries/s", "W5"),
    Column("publishes/s", "W5", "publish_rate"),
)
DEPTHS: Final = (("10k", "W6 10k"), ("1M", "W6 1M"), ("10M", "W6 10M"))
DEPTH: Final = tuple(Column(f"of {label}", cell, question="drain") for label, cell in DEPTHS)
HEADLINES: Final = (
    ("W1", "publish, one at a time, 100 B", Column("", "W1 100B")),
    ("W1", "publish, one at a time, 1 kB", Column("", "W1 1KB")),
    ("W2", "publish, batches of 100", Column("", "W2 100Bx100")),
    ("W2", "publish, batches of 1,000", Column("", "W2 100Bx1000")),
    ("W3", "drain, each message acked", Column("", "W3 each")),
    ("W3", "drain, one ack for 100", Column("", "W3 batch")),
    ("W4", "publish to acked at 1,000/s, p50, ms", Column("", "W4 1000/s", "p50_ms", less_is_better=True)),
    ("W4", "publish to acked at 1,000/s, p99, ms", Column("", "W4 1000/s", "p99_ms", less_is_better=True)),
    ("W4", "publish to acked at 5,000/s, p50, ms", Column("", "W4 5000/s", "p50_ms", less_is_better=True)),
    ("W4", "publish to acked at 5,000/s, p99, ms", Column("", "W4 5000/s", "p99_ms", less_is_better=True)),
    ("W5", "fan-out to ten groups, deliveries", Column("", "W5")),
    ("W6", "drain with 10,000 waiting", Column("", "W6 10k", question="drain")),
    ("W6", "drain with 1,000,000 waiting", Column("", "W6 1M", question="drain")),
    ("W6", "drain with 10,000,000 waiting", Column("", "W6 10M", question="drain")),
)


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def headlines(content: Content, durability: str) -> list[str]:
    """Trine, the best queue and the best log of the class, workload by workload."""
    rows = []
    for workload, title, column in HEADLINES:
        given = {"question": column.question, "less_is_better": column.less_is_better}
        queue = match(content, durability, column.cell, column.key, **given)  # type: ignore[arg-type]
        log = match(content, durability, column.cell, column.key, logs=True, **given)  # type: ignore[arg-type]
        either = queue or log
        if either is None:
            continue
        row = [f"{workload} {title}", shown(either.ours)]
        for one in (queue, log):
            row += ["", ""] if one is None else [f"{one.best} {shown(one.theirs)}", times(one.ratio)]
        rows.append(row)
    if not rows:
        return ["Nothing of this class was measured on both sides."]
    heads = ["", "Trine", "best queue", "Trine to it", "best log", "Trine to it"]
    if all(not row[4] for row in rows):
        return markdown(heads[:4], (row[:4] for row in rows))
    return markdown(heads, rows)


def behind(content: Content) -> list[str]:
    """A sentence for each workload and class in which another one is ahead of Trine."""
    sentences = []
    for durability in ORDER:
        for _, title, column in HEADLINES:
            for logs in (False, True):
                one = match(
                    content, durability, column.cell, column.key, column.question,
                    less_is_better=column.less_is_better, logs=logs,
                )  # fmt: skip
                if one is not None and one.ratio < 1:
                    sentences.append(
                        f"- {title}, {durability}: {number(one.ours.median)} against "
                        f"{number(one.theirs.median)} of {one.best}{', a log' if logs else ''}: {one.ratio:.2f} of it."
                    )
    return sentences


def by_class(content: Content, columns: Sequence[Column], *, ratios: bool = True) -> list[str]:
    """A table for each class; under each figure of another peer, how Trine stands to it."""
    lines: list[str] = []
    for durability in ORDER:
        names = [
            name for name in peers(content, durability) if any(_cell(content, name, one) for one in columns)
        ]
        shows = [one for one in columns if any(_figure(content, name, one) for name in names)]
        if not shows:
            continue
        rows = []
        for name in names:
            row = [name if not is_ours(content, name) else f"**{name}**"]
            for column in shows:
                text = _cell(content, name, column)
                if ratios and not is_ours(content, name) and (against := _ratio(content, name, column)):
                    text += f" ({against})"
                row.append(text)
            rows.append(row)
        lines += [f"**{durability}**", "", *markdown(["", *(one.head for one in shows)], rows), ""]
    return lines or ["Not measured.", ""]


def flat(content: Content, columns: Sequence[Column]) -> list[str]:
    """One table of all peers that could be asked; under it, why the others could not."""
    rows, why = [], []
    for name in peers(content):
        figures = [_figure(content, name, one) for one in columns]
        if any(figures):
            shown_name = f"**{name}**" if is_ours(content, name) else name
            durability = content["peers"][name]["durability"]
            rows.append([shown_name, durability, *(_cell(content, name, one) for one in columns)])
        elif reason := _reason(content, name, columns[0]):
            why.append((name, reason))
    lines = markdown(["", "class", *(one.head for one in columns)], rows) + [""] if rows else []
    return lines + _reasons(why)


def _reasons(why: list[tuple[str, str]]) -> list[str]:
    """Those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in why:
        by_reason.setdefault(reason, []).append(name)
    lines = [f"- {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    return [*lines, ""] if lines else []


def _reason(content: Content, name: str, column: Column) -> str | None:
    answer = found(content, name, column.cell, column.question)
    if answer is None:
        return None
    if "cannot" in answer:
        return str(answer["cannot"])
    return f"failed: {answer['error'].splitlines()[0][:200]}" if "error" in answer else None


def _figure(content: Content, name: str, column: Column) -> Figure | None:
    one = figure(content, name, column.cell, column.key, column.question)
    if one is None or column.scale == 1.0:
        return one
    return one.scaled(column.scale)


def _cell(content: Content, name: str, column: Column) -> str:
    one = _figure(content, name, column)
    if one is not None:
        text = shown(one, column.unit)
        late = column.key.endswith("_ms") and not _kept_up(content, name, column)
        return text + (", did not keep up" if late else "")
    answer = found(content, name, column.cell, column.question)
    if answer is None:
        return ""
    return "cannot" if "cannot" in answer else "failed" if "error" in answer else ""


def _kept_up(content: Content, name: str, column: Column) -> bool:
    answer = found(content, name, column.cell, column.question) or {}
    return all(run.get("kept_up", True) for run in answer.get("runs", ()))


def _ratio(content: Content, name: str, column: Column) -> str:
    theirs = _figure(content, name, column)
    ours = _figure(content, TRINE[content["peers"][name]["durability"]], column)
    if theirs is None or ours is None or not theirs.median or not ours.median:
        return ""
    ratio = theirs.median / ours.median if column.less_is_better else ours.median / theirs.median
    return f"{times(ratio)}"
