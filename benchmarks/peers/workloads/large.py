"""Values of 1 MB, consumed and acked one by one."""

from __future__ import annotations

from benchmarks.peers.peer import Peer
from benchmarks.peers.race import Figures
from benchmarks.peers.workloads.drain import backlog

SIZE = 1_000_000


def drained(peer: Peer, *, depth: int, seconds: float) -> Figures:
    return backlog(peer, ack="each", consumers=1, depth=depth, seconds=seconds, size=SIZE)
