"""`python -m benchmarks.peers run | audit | report | list`: see `--help` of each."""

from __future__ import annotations

import argparse
import fnmatch
import signal
import sys
import time
from pathlib import Path

from rich.console import Console

from benchmarks import machine
from benchmarks.peers import audit, packages
from benchmarks.peers.plan import SIZES, chosen
from benchmarks.peers.record import Record, now
from benchmarks.peers.report import pages
from benchmarks.peers.roster import PEERS
from benchmarks.peers.run import Runner, data_folder, open_files

RESULTS = Path(__file__).parent.parent / "results"
PAGES = Path(__file__).parent.parent.parent / "docs" / "benchmarks"
"""Of full runs; those of others are only for a look."""


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Trine beside its peers.")
    verbs = asked.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser(
        "run", help="measure; what an interrupted run has is kept and not measured again"
    )
    running.add_argument("--fresh", action="store_true", help="begin anew, whatever is there")
    running.add_argument("--minutes", type=float, help="begin no cell after so long; run again to go on")
    auditing = verbs.add_parser("audit", help="count syncs per ack, with strace (as root)")
    for one in (running, auditing):
        one.add_argument(
            "--peers", type=_words, default=[], metavar="A,B", help="names or patterns: trine,redis-*"
        )
        one.add_argument("--data", type=Path, metavar="FOLDER", help="for the servers' data; on a disk")
    running.add_argument(
        "--workloads", type=_words, default=[], metavar="A,B", help="W1,W3,delays: how cells begin"
    )
    for one in (
        running,
        auditing,
        reporting := verbs.add_parser("report", help="pages from what was measured"),
    ):
        one.add_argument("--size", choices=SIZES, default="full")
        one.add_argument("--json", type=Path, metavar="FILE", help="the record")
    reporting.add_argument("--to", type=Path, metavar="FOLDER", help="docs/benchmarks, if the size is full")
    verbs.add_parser("list", help="peers and cells")
    verbs.add_parser("install", help="the servers, from Debian's packages")
    given = asked.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # servers are stopped on the way out
    console = Console(width=None if sys.stdout.isatty() else 200)
    if given.verb == "list":
        return _list(console)
    if given.verb == "install":
        return packages.install(console)
    path = given.json or RESULTS / f"peers-{given.size}.json"
    if given.verb == "report":
        if not path.exists():
            asked.error(f"{path} is not there; `make bench-peers` makes it")
        folder = given.to or (PAGES if given.size == "full" else RESULTS / f"pages-{given.size}")
        for made in pages.write(path, folder):
            console.print(made, highlight=False)
        return 0
    names = _peers(asked, given.peers)
    open_files()
    with data_folder(given.data) as root:
        if machine.filesystem(root) in machine.NOT_A_DISK:
            asked.error(
                f"{root} is in memory, where a sync says nothing; name a folder on a disk with --data"
            )
        work = _run if given.verb == "run" else _audit
        try:
            return work(given, names, path, root, console)
        except KeyboardInterrupt:
            console.print("interrupted; what was measured is kept, and the same command goes on there")
            return 130


def _run(given: argparse.Namespace, names: list[str], path: Path, root: Path, console: Console) -> int:
    cells = chosen(given.size, given.workloads)
    partly = bool(given.peers or given.workloads)
    record = Record.open(path, given.size, root)
    if given.fresh or (record.ended and not partly):
        record = record.anew(root)
    deadline = float("inf") if given.minutes is None else time.monotonic() + given.minutes * 60
    runner = Runner(record, given.size, root, console, deadline)
    whole = runner.measure(names, cells, again=partly)
    if whole and not partly:
        record.content["ended"] = now()
    record.write()
    console.print(f"{path}" if whole else f"{path}: time is up; run the same again to go on")
    return 0


def _audit(given: argparse.Namespace, names: list[str], path: Path, root: Path, console: Console) -> int:
    if why := audit.missing():
        console.print(f"no audit: {why}")
        return 0
    record = Record.open(path, given.size, root)
    for name in names:
        if PEERS[name].missing() is None:
            try:
                record.content["audit"][name] = audit.audit(PEERS[name](root), console)
            except Exception as error:  # the others are counted whatever became of it
                console.print(f"{name:20} [red]not counted:[/red] {error}", highlight=False)
            record.write()
    return 0


def _list(console: Console) -> int:
    for name, kind in PEERS.items():
        console.print(f"{name:20} {kind.durability:8} {kind.missing() or 'installed'}", highlight=False)
    for cell in chosen("full", []):
        console.print(f"{cell.name:20} {cell.title}", highlight=False)
    return 0


def _peers(asked: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """Names, or patterns of them."""
    if not words:
        return list(PEERS)
    found = []
    for word in words:
        some = fnmatch.filter(PEERS, word)
        if not some:
            asked.error(f"there is no peer {word!r}; there are {', '.join(PEERS)}")
        found += some
    return list(dict.fromkeys(found))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


if __name__ == "__main__":
    sys.exit(main())
