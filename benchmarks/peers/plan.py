"""Which cells there are, how large each is at each size, and how long it takes.

`full` is for the pages, `quick` for a look within twenty minutes, `small` only sees that everything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from benchmarks.peers.peer import Peer
from benchmarks.peers.workloads import (
    crowd,
    deep,
    delays,
    drain,
    fanout,
    joining,
    large,
    latency,
    poison,
    priorities,
    publish,
)

Size = Literal["full", "quick", "small"]
SIZES: Final[tuple[Size, ...]] = ("full", "quick", "small")
REPEATS: Final[dict[Size, int]] = {"full": 3, "quick": 3, "small": 1}
SMALL_S: Final = 3.0
"""What a small cell is thought to take."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    name: str
    title: str
    workload: Callable[..., Any]
    given: dict[str, Any]
    """What holds at every size; a size that is not named does without this cell."""
    full: dict[str, Any]
    quick: dict[str, Any] | None
    small: dict[str, Any] | None
    took_s: tuple[float, float]
    """What a peer takes for it at full and at quick size, all repeats together: for the first estimate."""
    once: tuple[Size, ...] = ()
    """Sizes at which it is not repeated, or repeats what can be repeated by itself."""

    def at(self, size: Size) -> dict[str, Any] | None:
        sized: dict[str, Any] | None = getattr(self, size)
        return None if sized is None else {**self.given, **sized}

    def repeats(self, size: Size) -> int:
        return 1 if size in self.once else REPEATS[size]

    def estimate_s(self, size: Size) -> float:
        return {"full": self.took_s[0], "quick": self.took_s[1], "small": SMALL_S}[size]

    def run(self, peer: Peer, size: Size) -> Any:
        given = self.at(size)
        assert given is not None, f"{self.name} has no size {size}"
        return self.workload(peer, **given)


def _publish(name: str, title: str, in_quick: bool, in_small: bool, **given: Any) -> Cell:
    return Cell(
        name=name, title=title, workload=publish.in_batches if "batch" in given else publish.singly, given=given,
        full={"seconds": 3.0}, quick={"seconds": 0.5} if in_quick else None,
        small={"seconds": 0.1} if in_small else None, took_s=(12, 3),
    )  # fmt: skip


def _drain(name: str, title: str, in_quick: bool, **given: Any) -> Cell:
    return Cell(
        name=name, title=title, workload=drain.backlog, given=given,
        full={"depth": 100_000, "seconds": 3.0}, quick={"depth": 20_000, "seconds": 1.0} if in_quick else None,
        small={"depth": 300, "seconds": 5.0} if in_quick else None, took_s=(22, 6),
    )  # fmt: skip


def _latency(name: str, rate: int, in_quick: bool) -> Cell:
    return Cell(
        name=name, title=f"publish to acked at {rate:,}/s", workload=latency.steady, given={"rate": rate},
        full={"seconds": 4.0}, quick={"seconds": 2.0} if in_quick else None,
        small={"seconds": 0.5} if in_quick else None, took_s=(18, 8),
    )  # fmt: skip


def _deep(name: str, depth: int, quick: int | None, small: int | None, took_s: tuple[float, float]) -> Cell:
    long = {"fill_s": 45.0, "seconds": 3.0, "replayed": 200_000, "repeats": 3}
    brief = {"fill_s": 4.0, "seconds": 0.7, "replayed": 50_000, "repeats": 2}
    tiny = {"fill_s": 10.0, "seconds": 5.0, "replayed": 200, "repeats": 1}
    return Cell(
        name=name, title=f"a backlog of {depth:,}", workload=deep.store, given={},
        full={"depth": depth, **long}, quick=None if quick is None else {"depth": quick, **brief},
        small=None if small is None else {"depth": small, **tiny}, took_s=took_s, once=SIZES,
    )  # fmt: skip


CELLS: Final = (
    _publish("W1 100B", "publish one at a time, 100 B", True, True, size=100),
    _publish("W1 1KB", "publish one at a time, 1 kB", False, False, size=1_000),
    _publish("W2 100Bx100", "publish batches of 100, 100 B", True, True, size=100, batch=100),
    _publish("W2 100Bx1000", "publish batches of 1,000, 100 B", True, False, size=100, batch=1_000),
    _publish("W2 1KBx100", "publish batches of 100, 1 kB", False, False, size=1_000, batch=100),
    _drain("W3 each", "drain, each message acked, one consumer", True, ack="each", consumers=1),
    _drain("W3 each, 2", "drain, each message acked, two consumers", False, ack="each", consumers=2),
    _drain("W3 batch", "drain, one ack for 100, one consumer", True, ack="batch", consumers=1),
    _drain("W3 batch, 2", "drain, one ack for 100, two consumers", False, ack="batch", consumers=2),
    _latency("W4 1000/s", 1_000, True),
    _latency("W4 5000/s", 5_000, False),
    Cell(
        name="W5", title="fan-out to ten groups", workload=fanout.to_groups, given={},
        full={"groups": 10, "messages": 50_000, "seconds": 3.0},
        quick={"groups": 10, "messages": 10_000, "seconds": 1.5},
        small={"groups": 2, "messages": 200, "seconds": 5.0},
        took_s=(30, 6), once=("quick",),
    ),
    Cell(
        name="large publish", title="publish values of 1 MB", workload=publish.in_batches,
        given={"size": 1_000_000},
        full={"batch": 10, "seconds": 3.0}, quick={"batch": 10, "seconds": 0.5}, small={"batch": 2, "seconds": 0.1},
        took_s=(13, 4),
    ),
    Cell(
        name="large drain", title="drain values of 1 MB, each acked", workload=large.drained, given={},
        full={"depth": 500, "seconds": 3.0}, quick=None, small={"depth": 3, "seconds": 5.0},
        took_s=(18, 0),
    ),
    Cell(
        name="delays", title="delayed messages", workload=delays.outstanding, given={},
        full={"messages": 1_000_000, "probes": 300, "seconds": 45.0, "repeats": 3},
        quick={"messages": 100_000, "probes": 120, "seconds": 2.0, "repeats": 1},
        small={"messages": 200, "probes": 12, "seconds": 5.0, "repeats": 1},
        took_s=(60, 11), once=SIZES,
    ),
    Cell(
        name="priorities", title="a high message behind low ones", workload=priorities.behind_low_ones, given={},
        full={"depth": 1_000_000, "seconds": 3.0, "fill_s": 30.0, "repeats": 3},
        quick={"depth": 100_000, "seconds": 1.5, "fill_s": 2.0, "repeats": 1},
        small={"depth": 1_000, "seconds": 0.5, "fill_s": 5.0, "repeats": 1},
        took_s=(35, 5), once=SIZES,
    ),
    Cell(
        name="poison", title="poison among good ones", workload=poison.among_good, given={},
        full={"messages": 50_000, "seconds": 15.0}, quick={"messages": 10_000, "seconds": 4.0},
        small={"messages": 1_000, "seconds": 15.0},
        took_s=(25, 5), once=("quick",),
    ),
    Cell(
        name="idle consumers", title="1,000 idle consumers", workload=crowd.idle_consumers, given={},
        full={"consumers": 1_000, "seconds": 2.0}, quick={"consumers": 1_000, "seconds": 0.5},
        small={"consumers": 5, "seconds": 0.2},
        took_s=(30, 6), once=("quick",),
    ),
    Cell(
        name="topics", title="1,000 topics", workload=crowd.topics, given={},
        full={"count": 1_000, "seconds": 3.0, "repeats": 3}, quick={"count": 200, "seconds": 0.5, "repeats": 1},
        small={"count": 5, "seconds": 0.2, "repeats": 1},
        took_s=(30, 6), once=SIZES,
    ),
    Cell(
        name="rebalance", title="a consumer joins and leaves", workload=joining.one_more_and_one_less, given={},
        full={"rate": 1_000, "seconds": 6.0}, quick={"rate": 1_000, "seconds": 3.0},
        small={"rate": 200, "seconds": 1.5},
        took_s=(30, 10), once=("quick",),
    ),
    _deep("W6 10k", 10_000, 10_000, 300, (20, 8)),
    _deep("W6 1M", 1_000_000, 300_000, None, (50, 14)),
    _deep("W6 10M", 10_000_000, None, None, (100, 0)),
)  # fmt: skip


def chosen(size: Size, names: list[str]) -> list[Cell]:
    """The cells of a size whose names begin with one of these; none named: all."""
    cells = [cell for cell in CELLS if cell.at(size) is not None]
    return [
        cell for cell in cells if not names or cell.name.lower().startswith(tuple(n.lower() for n in names))
    ]
