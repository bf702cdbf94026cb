"""The benchmarks beside peers: Trine's own adapters at a small size, a record that is gone on with, and the pages.

The other brokers' adapters run where their servers are installed, with `make test-slow`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.peers import plan
from benchmarks.peers.peer import Cannot
from benchmarks.peers.plan import Cell, chosen
from benchmarks.peers.record import Record
from benchmarks.peers.report import figures, pages, tables
from benchmarks.peers.roster import PEERS
from benchmarks.peers.run import Runner

OTHERS = [name for name, kind in PEERS.items() if kind.broker != "Trine"]


def measured(root: Path, names: list[str], cells: list[Cell], *, again: bool = False) -> dict[str, Any]:
    record = Record.open(root / "record.json", "small", root)
    runner = Runner(record, "small", root, Console(quiet=True))
    assert runner.measure(names, cells, again=again)
    return json.loads((root / "record.json").read_text())  # type: ignore[no-any-return]


def cells_of(content: dict[str, Any], peer: str) -> dict[str, Any]:
    found: dict[str, Any] = content["peers"][peer]["cells"]
    failed = {cell: one["error"] for cell, one in found.items() if "error" in one}
    assert not failed
    return found


def test_trine_over_the_binary_protocol(tmp_path: Path) -> None:
    content = measured(tmp_path, ["trine"], chosen("small", ["W1", "poison", "W6"]))
    found = cells_of(content, "trine")
    assert found["W1 100B"]["runs"][0]["messages"] > 0
    poison = found["poison"]["runs"][0]
    assert (poison["messages"], poison["tries"], poison["complete"]) == (990, 50, True)
    deep = found["W6 10k"]
    assert deep["drain"]["runs"][0]["messages"] >= 150
    assert deep["replay"]["runs"][0]["messages"] >= 200
    assert deep["trace"]["runs"][0]["lookups"] == 50
    assert deep["recovery"]["runs"][0]["depth"] == 300
    assert content["limits"]["fdatasyncs_per_s"]["median"] > 0


def test_trine_over_http(tmp_path: Path) -> None:
    found = cells_of(measured(tmp_path, ["trine-http"], chosen("small", ["W2", "W3 batch"])), "trine-http")
    assert found["W2 100Bx100"]["runs"][0]["messages"] > 0
    assert found["W3 batch"]["runs"][0]["messages"] == 300


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_every_cell_of_every_peer_that_is_installed(name: str, tmp_path: Path) -> None:
    kind = PEERS[name]
    if why := kind.missing():
        pytest.skip(f"{name}: {why}")
    if kind.run_as:
        for folder in (tmp_path, *tmp_path.parents[:2]):  # the server's user must get through to its data
            folder.chmod(0o755)
    found = cells_of(measured(tmp_path, [name], chosen("small", [])), name)
    assert found["W1 100B"]["runs"]


# --- the runner


def fake_cell(name: str, runs: list[str], error: Exception | None = None) -> Cell:
    """A cell that needs no server's work."""

    def work(peer: Any) -> dict[str, Any]:
        runs.append(peer.name)
        if error is not None:
            raise error
        return {"rate": 7.0, "others_cores": 0.0}

    return Cell(name=name, title=name, workload=work, given={}, full={}, quick={}, small={}, took_s=(1, 1))


def test_what_is_measured_is_kept_and_what_failed_is_tried_again(tmp_path: Path) -> None:
    good: list[str] = []
    bad: list[str] = []
    cells = [fake_cell("good", good), fake_cell("bad", bad, ValueError("broken"))]
    content = measured(tmp_path, ["trine"], cells)
    assert content["peers"]["trine"]["cells"]["good"]["runs"] == [{"rate": 7.0, "others_cores": 0.0}]
    assert content["peers"]["trine"]["cells"]["bad"]["error"] == "ValueError: broken"
    measured(tmp_path, ["trine"], cells)
    assert (len(good), len(bad)) == (1, 2)


def test_a_new_record_keeps_the_old_one(tmp_path: Path) -> None:
    record = Record.open(tmp_path / "peers.json", "small", tmp_path)
    record.content["ended"] = "2026-11-18T20:00:00+00:00"
    record.write()
    other = record.anew(tmp_path)
    other.write()
    assert not other.ended
    kept = next(path for path in tmp_path.glob("peers-*.json"))
    assert Record.open(kept, "small", tmp_path).ended
    assert not Record.open(tmp_path / "peers.json", "quick", tmp_path).ended  # of another size: not this one


def test_what_cannot_be_done_is_said_and_not_tried_again(tmp_path: Path) -> None:
    tried: list[str] = []
    cells = [fake_cell("odd", tried, Cannot("there is no such thing"))]
    assert (
        measured(tmp_path, ["trine"], cells)["peers"]["trine"]["cells"]["odd"]["cannot"]
        == "there is no such thing"
    )
    measured(tmp_path, ["trine"], cells)
    assert len(tried) == 1


def test_a_peer_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PEERS["kafka"], "missing", classmethod(lambda kind: "it is not here"))
    content = measured(tmp_path, ["kafka"], [fake_cell("any", [])])
    assert content["skipped"]["kafka"] == {"broker": "Kafka", "why": "it is not here"}


def test_a_run_that_is_ended_leaves_no_server_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []
    stop = PEERS["trine"].stop

    def noted(peer: Any) -> None:
        assert peer.processes()
        stop(peer)
        stopped.append(peer.name)

    def ended(runner: Runner, peer: Any) -> None:
        raise SystemExit("terminated")

    monkeypatch.setattr(PEERS["trine"], "stop", noted)
    monkeypatch.setattr(Runner, "_warm_up", ended)
    with pytest.raises(SystemExit):
        measured(tmp_path, ["trine"], [fake_cell("any", [])])
    assert stopped == ["trine"]


def test_a_server_that_does_not_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(peer: Any) -> None:
        raise RuntimeError("the port is taken")

    monkeypatch.setattr(PEERS["trine"], "launch", refuses)
    content = measured(tmp_path, ["trine"], [fake_cell("any", [])])
    assert content["skipped"]["trine"]["why"] == "it did not start: the port is taken"


def test_the_plan_has_every_workload_at_full_size_and_bounds_the_quick_one() -> None:
    names = {cell.name for cell in chosen("full", [])}
    assert {name.split()[0] for name in names} >= {f"W{number}" for number in range(1, 7)}
    assert len(names) == len(plan.CELLS)
    quick = sum(cell.estimate_s("quick") for cell in chosen("quick", []))
    assert quick * len(PEERS) < 45 * 60
    assert [cell.name for cell in chosen("full", ["w1"])] == ["W1 100B", "W1 1KB"]


# --- the pages


def canned() -> dict[str, Any]:
    """A record as a run would write it: Trine ahead in one thing, behind in another."""

    def runs(key: str, *values: float) -> dict[str, Any]:
        return {"runs": [{key: value, "others_cores": 0.0} for value in values]}

    def latency(p50: float, p99: float) -> dict[str, Any]:
        return {"runs": [{"p50_ms": p50, "p99_ms": p99, "kept_up": True, "others_cores": 0.0}]}

    def deep(**figures: float) -> dict[str, Any]:
        return {"drain": {"runs": [figures]}}

    def part(broker: str, durability: str, *, is_log: bool = False, **cells: Any) -> dict[str, Any]:
        said = dict.fromkeys(("version", "client", "promise", "acks"), "as it is")
        words = {name.replace("_", " "): cell for name, cell in cells.items()}
        return {"broker": broker, "durability": durability, "is_log": is_log, "cells": words, **said}

    return {
        "version": 1, "size": "full", "began": "2026-11-18T20:00:00+00:00", "ended": None,
        "machine": {
            "date": "2026-11-18T20:00:00+00:00", "cpus": 2, "cpu": "some", "load": 0.1, "python": "3.11.7",
            "system": "6.1", "filesystem": "ext4", "trine": "0.1.0", "memory_gb": 24.0,
        },
        "skipped": {"kafka": {"broker": "Kafka", "why": "no Kafka is configured"}},
        "limits": {"fdatasyncs_per_s": {"runs": [6000.0], "median": 6000.0}},
        "audit": {"redis-always": {
            "single": {"per_ack": 1.0}, "batch of 100": {"per_ack": 1.0}, "durability": "synced", "kept": True}},
        "peers": {
            "trine": part(
                "Trine", "synced", W1_100B=runs("rate", 1000.0, 1100.0, 1200.0), W3_batch=runs("rate", 1e6),
                delays=runs("rate", 5.0), **{"W4_1000/s": latency(0.5, 2.0)},
                W6_10k=deep(rate=1e6, depth=1e4, memory=1e8, memory_worked=1e8),
                W6_10M=deep(rate=5e5, depth=1e7, memory=1.5e8, memory_worked=1.6e8),
            ),
            "redis-always": part(
                "Redis Streams", "synced", W1_100B=runs("rate", 4000.0), W3_batch=runs("rate", 5e4),
                delays={"cannot": "it has no delayed messages"}, **{"W4_1000/s": latency(1.5, 3.0)},
            ),
            "rabbit-classic": part("RabbitMQ", "synced", W1_100B={"error": "RuntimeError: it fell over"}),
        },
    }  # fmt: skip


def test_the_page_says_where_trine_is_behind() -> None:
    content = canned()
    assert tables.behind(content) == [
        "- publish, one at a time, 100 B, synced: 1,100 against 4,000 of redis-always: 0.28 of it."
    ]
    ahead = figures.match(content, "synced", "W4 1000/s", "p50_ms", less_is_better=True)
    assert ahead is not None
    assert ahead.ratio == pytest.approx(3.0)


def test_pages_are_made_from_a_record(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps(canned()))
    made = {path.name for path in pages.write(record, tmp_path / "pages")}
    assert made >= {"index.md", "workloads.md", "method.md", "results.json", "throughput-synced.svg"}
    assert made >= {"latency-1000.svg", "depth.svg"}
    index = (tmp_path / "pages" / "index.md").read_text()
    assert "| **trine** | 1,100 ±9% |" in index
    assert "| redis-always | 4,000 (**0.28**) |" in index
    assert "| rabbit-classic | failed |" in index
    assert (
        "| receive and ack in batches of 100, synced | ≥ 10 times the best queue | 20.0 times redis-always | yes |"
        in index
    )
    assert "18%: 1,100 of 6,000 a second | **no** |" in index
    assert "200%: 10k 1.00 µs, 10M 2.00 µs | **no** |" in index
    assert "150 MB, 160 MB | yes |" in index
    assert "- redis-always: it has no delayed messages" in (tmp_path / "pages" / "workloads.md").read_text()
    assert "- kafka: no Kafka is configured" in (tmp_path / "pages" / "method.md").read_text()
    for page in ("index.md", "workloads.md", "method.md"):
        text = (tmp_path / "pages" / page).read_text()
        assert "{{" not in text
        for link in re.findall(r"\]\(([^)]+)\)", text):
            assert (tmp_path / "pages" / link).exists(), link


def test_pages_are_made_from_nothing_at_all(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    content = canned()
    content["peers"], content["audit"], content["limits"] = {}, {}, {}
    record.write_text(json.dumps(content))
    assert all(path.exists() for path in pages.write(record, tmp_path / "pages"))
    assert "Not measured." in (tmp_path / "pages" / "index.md").read_text()
