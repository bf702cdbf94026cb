"""Counts, with strace, the sync calls of a server while it acks publishes.

It tells what an ack is worth, whatever the documentation says. The rates mean nothing: strace slows a server down.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from typing import Any

from rich.console import Console

from benchmarks.peers.peer import Peer
from benchmarks.peers.workloads import publish

CALLS = "trace=fsync,fdatasync,sync_file_range,syncfs,msync"
ATTACH_S = 1.0
SECONDS = 1.5
SYNCED_SHARE = 0.9
"""Syncs for each ack of a single publish from which an ack is believed to wait for one."""


def missing() -> str | None:
    return None if shutil.which("strace") else "strace is not installed"


def audit(peer: Peer, console: Console) -> dict[str, Any]:
    """Syncs per ack, of single publishes and of batches of 100; and whether the peer is in the class it says."""
    peer.start()
    try:
        found = {
            "single": _counted(peer, 1),
            "batch of 100": _counted(peer, 100),
        }
    finally:
        peer.stop()
    per_ack = found["single"]["per_ack"]
    kept = (per_ack >= SYNCED_SHARE) == (peer.durability == "synced")
    console.print(
        f"{peer.name:20} {peer.durability:8} {per_ack:6.2f} syncs an ack, {found['batch of 100']['per_ack']:6.2f} "
        f"of a batch of 100{'' if kept else '  [red]not what it says[/red]'}",
        highlight=False,
    )
    return {**found, "durability": peer.durability, "kept": kept}


def _counted(peer: Peer, batch: int) -> dict[str, float]:
    with tempfile.NamedTemporaryFile("r") as log:
        pids = [f"-p{one.pid}" for one in peer.processes()]
        tracer = subprocess.Popen(
            ["strace", "-f", "-q", "-e", CALLS, "-o", log.name, *pids], stderr=subprocess.DEVNULL
        )
        time.sleep(ATTACH_S)
        if tracer.poll() is not None:
            raise RuntimeError("strace cannot attach to the server: run the audit as root")
        try:
            if batch == 1:
                figures = publish.singly(peer, size=100, seconds=SECONDS)
                acks = figures["messages"] + publish.WARM
            else:
                figures = publish.in_batches(peer, size=100, batch=batch, seconds=SECONDS)
                acks = figures["messages"] // batch + 1
        finally:
            tracer.terminate()
            tracer.wait()
        # A call that another thread interrupts takes two lines: the first one counts.
        syncs = len(re.findall(r"^\d+ +\w*sync\w*\(", log.read(), re.MULTILINE))
    return {"acks": acks, "syncs": syncs, "per_ack": syncs / acks}
