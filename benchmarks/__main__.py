"""`python -m benchmarks [--small] [--only NAME] [--json FILE]`: a table here, and JSON in benchmarks/results."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import (
    journal_experiment,
    machine,
    publish,
    rebalance,
    receive,
    schedule,
    server,
    spark,
    store,
)
from benchmarks.bench import Bench, Result

RESULTS = Path(__file__).parent / "results"
SUBJECTS = {
    "publish": publish.run,
    "receive": receive.run,
    "store": store.run,
    "schedule": schedule.run,
    "server": server.run,
    "rebalance": rebalance.run,
    "journal": journal_experiment.run,
    "spark": spark.run,
}


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m benchmarks", description="How fast Trine is here.")
    asked.add_argument(
        "--small", action="store_true", help="only see that everything runs; says nothing of speed"
    )
    asked.add_argument("--only", choices=SUBJECTS, action="append", metavar="NAME", help=", ".join(SUBJECTS))
    asked.add_argument("--json", type=Path, metavar="FILE", help="where to write the results")
    given = asked.parse_args()
    RESULTS.mkdir(exist_ok=True)
    facts = machine.facts(RESULTS)
    if facts["filesystem"] in machine.NOT_A_DISK:
        asked.error(f"{RESULTS} is on {facts['filesystem']}, which is memory: a sync there says nothing")
    console = Console(width=None if sys.stdout.isatty() else 170)
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix="data-") as root:
        bench = Bench(
            Path(root), given.small, on_result=lambda one: console.print(f"  {_line(one)}", highlight=False)
        )
        for name in given.only or SUBJECTS:
            console.print(f"[bold]{name}[/bold]")
            SUBJECTS[name](bench)
    _show(console, bench.results, facts)
    _write(given.json, bench, facts)
    return 0


def _show(console: Console, results: list[Result], facts: dict[str, str | int | float]) -> None:
    table = Table(caption=machine.caption(facts), caption_justify="left")
    for column in ("workload", "durability", "result", "limit", "ratio", "target", "met"):
        table.add_column(column, justify="right" if column in ("result", "ratio") else "left")
    for one in results:
        limit = f"{_number(one.limit_value)} {one.limit}" if one.limit_value else ""
        ratio = f"{one.ratio:.2f}" if one.ratio is not None else ""
        met = {None: "", True: "[green]yes[/green]", False: "[red]no[/red]"}[one.met]
        result = f"{_number(one.value)} {one.unit}"
        table.add_row(one.workload, one.durability, result, limit, ratio, one.target, met)
    console.print(table)


def _line(one: Result) -> str:
    words = [f"{one.workload}: {_number(one.value)} {one.unit}"]
    if one.ratio is not None:
        words.append(f"{one.ratio:.2f} of {one.limit}")
    if one.note:
        words.append(one.note)
    return ", ".join(words)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _write(path: Path | None, bench: Bench, facts: dict[str, str | int | float]) -> None:
    if path is None:
        kind = "small" if bench.small else "full"
        path = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{kind}.json"
    whole = {"machine": facts, "small": bench.small, "results": [one.as_dict() for one in bench.results]}
    path.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
