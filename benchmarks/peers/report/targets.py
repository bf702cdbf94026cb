"""What Trine set out to reach beside its peers, and whether it did."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.peers.report.figures import ORDER, TRINE, Content, figure, match, number
from benchmarks.peers.report.tables import DEPTHS, HEADLINES, markdown

BATCHES = 10.0
"""Times the best queue, for what is published, received and acked in batches."""
OF_THE_DISK = 0.7
FLAT = 1.2
MEMORY_MB = 200.0
IN_BATCHES = (
    ("W2 100Bx100", "publish in batches of 100"),
    ("W2 100Bx1000", "publish in batches of 1,000"),
    ("W3 batch", "receive and ack in batches of 100"),
)

Row = tuple[str, str, str, bool]


def table(content: Content) -> list[str]:
    rows = [*_ahead(content), *_batches(content), *_disk(content), *_flat(content), *_memory(content)]
    if not rows:
        return ["Not measured."]
    return markdown(
        ["", "target", "found", "met"],
        ([what, target, got, "yes" if met else "**no**"] for what, target, got, met in rows),
    )


def _ahead(content: Content) -> Iterator[Row]:
    for durability in ORDER:
        ratios = []
        for _, title, column in HEADLINES:
            for logs in (False, True):
                one = match(
                    content, durability, column.cell, column.key, column.question,
                    less_is_better=column.less_is_better, logs=logs,
                )  # fmt: skip
                if one is not None:
                    ratios.append((one.ratio, title))
        if ratios:
            least, title = min(ratios)
            ahead = sum(1 for ratio, _ in ratios if ratio > 1)
            yield (
                f"W1 to W6, {durability}", "ahead of every peer",
                f"{ahead} of {len(ratios)}; least {least:.2f}: {title}", ahead == len(ratios),
            )  # fmt: skip


def _batches(content: Content) -> Iterator[Row]:
    for durability in ORDER:
        for cell, title in IN_BATCHES:
            one = match(content, durability, cell, "rate")
            if one is not None:
                yield (
                    f"{title}, {durability}", f"≥ {BATCHES:.0f} times the best queue",
                    f"{one.ratio:.1f} times {one.best}", one.ratio >= BATCHES,
                )  # fmt: skip


def _disk(content: Content) -> Iterator[Row]:
    ours = figure(content, TRINE["synced"], "W1 100B", "rate")
    limit = content["limits"].get("fdatasyncs_per_s")
    if ours is not None and limit:
        share = ours.median / limit["median"]
        found = f"{share:.0%}: {number(ours.median)} of {number(limit['median'])} a second"
        yield (
            "publish one at a time, synced",
            f"≥ {OF_THE_DISK:.0%} of the disk's fdatasyncs",
            found,
            share >= OF_THE_DISK,
        )


def _flat(content: Content) -> Iterator[Row]:
    for durability in ORDER:
        costs = []
        for label, cell in DEPTHS:
            one = figure(content, TRINE[durability], cell, "rate", "drain")
            if one is not None and one.median:
                costs.append((1e6 / one.median, label))
        if len(costs) > 1:
            ratio = costs[-1][0] / costs[0][0]
            yield (
                f"cost of a message by depth, {durability}", f"{costs[-1][1]} ≤ {FLAT:.0%} of {costs[0][1]}",
                f"{ratio:.0%}: " + ", ".join(f"{label} {cost:.2f} µs" for cost, label in costs), ratio <= FLAT,
            )  # fmt: skip


def _memory(content: Content) -> Iterator[Row]:
    for durability in ORDER:
        for label, cell in reversed(DEPTHS):
            kept = figure(content, TRINE[durability], cell, "memory", "drain")
            worked = figure(content, TRINE[durability], cell, "memory_worked", "drain")
            if kept is not None and worked is not None:
                first, then = kept.median / 1e6, worked.median / 1e6
                yield (
                    f"memory of the server with {label} waiting, and after work on them, {durability}",
                    f"< {MEMORY_MB:.0f} MB", f"{first:.0f} MB, {then:.0f} MB", max(first, then) < MEMORY_MB,
                )  # fmt: skip
                break
