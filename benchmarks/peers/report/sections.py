"""The columns of every table of the pages."""

from __future__ import annotations

from typing import Final

from benchmarks.peers.report.figures import Content, peers
from benchmarks.peers.report.tables import DEPTHS, Column

DEEP: Final = "the deepest backlog there is"
"""In the place of a cell's name, as a small run has no deep one."""


def _less(head: str, cell: str, key: str, question: str | None = None, scale: float = 1.0) -> Column:
    return Column(head, cell, key, question, less_is_better=True, scale=scale)


SECTIONS: Final[dict[str, tuple[Column, ...]]] = {
    "delays": (
        Column("outstanding", "delays", "messages"),
        Column("scheduled/s", "delays"),
        _less("bytes of memory each", "delays", "memory_per_message"),
        _less("of disk", "delays", "disk_per_message"),
        _less("late p50, ms", "delays", "late_p50_ms"),
        _less("p99", "delays", "late_p99_ms"),
        _less("early", "delays", "early"),
    ),
    "priorities": (
        Column("low ones waiting", "priorities", "depth"),
        _less("late p50, ms", "priorities", "late_p50_ms"),
        _less("p99", "priorities", "late_p99_ms"),
        Column("low ones/s meanwhile", "priorities"),
    ),
    "poison": (
        Column("good ones/s", "poison"),
        Column("tries of bad ones", "poison", "tries"),
        Column("expected", "poison", "tries_expected"),
        _less("until all is over, s", "poison", "seconds"),
    ),
    "idle": (
        _less("kB of the server each", "idle consumers", "memory_per_consumer", scale=1e-3),
        _less("% of a CPU while idle", "idle consumers", "idle_cpu_percent"),
        Column("publishes/s beside them", "idle consumers"),
    ),
    "topics": (
        Column("topics", "topics", "topics"),
        _less("ms to make one", "topics", "create_ms"),
        _less("kB of the server each", "topics", "memory_per_topic", scale=1e-3),
        Column("publishes/s around", "topics"),
    ),
    "large": (Column("publish/s", "large publish"), Column("drain/s", "large drain")),
    "rebalance": (
        _less("calm p99, ms", "rebalance", "calm_p99_ms"),
        _less("pause, ms", "rebalance", "pause_ms"),
        Column("taken by the third", "rebalance", "by_third"),
        Column("delivered again", "rebalance", "again"),
    ),
    "kept": (
        Column("messages", DEEP, "depth", "drain"),
        Column("filled, messages/s", DEEP, "fill_rate", "drain"),
        _less("server without it, MB", DEEP, "memory_idle", "drain", scale=1e-6),
        _less("with it, MB", DEEP, "memory", "drain", scale=1e-6),
        _less("after work on it, MB", DEEP, "memory_worked", "drain", scale=1e-6),
        _less("bytes of disk a message", DEEP, "disk_per_message", "drain"),
    ),
    "recovery": (
        Column("messages", DEEP, "depth", "recovery"),
        _less("port, s", DEEP, "serves_s", "recovery"),
        _less("first message, s", DEEP, "seconds", "recovery"),
    ),
    "replay": (_less("first, ms", DEEP, "first_ms", "replay"), Column("messages/s", DEEP, "rate", "replay")),
    "trace": (
        Column("messages", DEEP, "depth", "trace"),
        _less("p50, ms", DEEP, "p50_ms", "trace"),
        _less("slowest, ms", DEEP, "max_ms", "trace"),
    ),
}


def columns(content: Content, name: str) -> list[Column]:
    deepest = next((cell for _, cell in reversed(DEPTHS) if peers(content, cell=cell)), DEPTHS[0][1])
    return [
        Column(
            one.head,
            deepest if one.cell == DEEP else one.cell,
            one.key,
            one.question,
            one.less_is_better,
            one.scale,
        )
        for one in SECTIONS[name]
    ]
