"""A deep backlog: what it costs to keep, whether it slows the broker down, and what can be done with all of it.

One store serves several questions, because filling it takes longest:

    fill ─▶ memory, disk ─▶ drain a little ─▶ replay from before the first message ─▶ look up traces
         ─▶ kill -9, start, first message (three times)
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.peers.peer import Cannot, Peer, Topic
from benchmarks.peers.race import Figures, Ready, fresh_topic, race
from benchmarks.peers.workloads.drain import drained, fill

SIZE = 100
SETTLE_S = 2.0
"""What a broker puts off is done by then, or counts as what the backlog costs."""
TRACES = 50
RECOVER_S = 300.0
LONG_S = 20.0
"""A recovery that takes longer is not repeated."""


def store(
    peer: Peer, *, depth: int, fill_s: float, seconds: float, replayed: int, repeats: int
) -> dict[str, Any]:
    """The figures of each question, by its name."""
    peer.stop()
    peer.start()
    idle_memory, idle_disk = peer.memory_bytes(), peer.disk_bytes()
    topic = fresh_topic(ack=peer.natural_ack)
    since = time.time() - 1.0
    filled = fill(peer, topic, SIZE, depth, fill_s)
    count = filled["messages"]
    time.sleep(SETTLE_S)
    kept: Figures = {
        "depth": count,
        "fill_rate": count / filled["seconds"],
        "memory": peer.memory_bytes(),
        "memory_idle": idle_memory,
        "disk_per_message": (peer.disk_bytes() - idle_disk) / count,
    }
    found: dict[str, Any] = {}
    laps = drained(peer, topic, count // 2, seconds, repeats)  # what is left is for the recovery
    kept["memory_worked"] = peer.memory_bytes()
    found["drain"] = {"runs": [{**lap, **kept} for lap in laps if lap["messages"]]}
    found["replay"] = _asked(
        lambda: _repeated(repeats, peer, replay_all, topic, since=since, count=min(replayed, count))
    )
    found["trace"] = _asked(lambda: _repeated(1, peer, look_up, topic, count=count))
    found["recovery"] = _asked(lambda: [{**run, "depth": count} for run in _recoveries(peer, topic, repeats)])
    return found


def _asked(question: Callable[[], list[Figures]]) -> dict[str, Any]:
    """What one question gave: the others are asked whatever became of it."""
    try:
        return {"runs": question()}
    except Cannot as error:
        return {"cannot": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _repeated(
    repeats: int, peer: Peer, role: Callable[..., Awaitable[Figures]], topic: Topic, **given: Any
) -> list[Figures]:
    return [race(peer, (role, {"topic": topic, **given}))[0][0] for _ in range(repeats)]


async def replay_all(peer: Peer, ready: Ready, *, topic: Topic, since: float, count: int) -> Figures:
    await ready()
    begun = time.monotonic()
    first, got = await peer.replay(topic, since, count)
    over = time.monotonic()
    if not got:
        raise RuntimeError("nothing was replayed")
    return {"messages": got, "first_ms": (first - begun) * 1e3, "rate": got / (over - begun)}


async def look_up(peer: Peer, ready: Ready, *, topic: Topic, count: int) -> Figures:
    await ready()
    places = random.Random(7).sample(range(count), min(TRACES, count))
    spent = sorted(await peer.trace(topic, places))
    return {
        "lookups": len(spent),
        "p50_ms": spent[len(spent) // 2] * 1e3,
        "max_ms": spent[-1] * 1e3,
        "depth": count,
    }


def _recoveries(peer: Peer, topic: Topic, repeats: int) -> list[Figures]:
    peer.patience_s = RECOVER_S
    runs: list[Figures] = []
    while len(runs) < repeats and all(one["seconds"] < LONG_S for one in runs):
        peer.kill()
        begun = time.monotonic()
        peer.launch()
        serves = time.monotonic() - begun
        asyncio.run(_first_message(peer, topic))
        runs.append({"seconds": time.monotonic() - begun, "serves_s": serves})
    return runs


async def _first_message(peer: Peer, topic: Topic) -> None:
    deadline = time.monotonic() + RECOVER_S
    while time.monotonic() < deadline:
        try:
            consumer = await peer.consumer(topic, topic.groups[0])
            received = await consumer.fetch(1, 5.0)
            await consumer.close()
        except Exception:
            if time.monotonic() > deadline - 1:
                raise
            await asyncio.sleep(0.05)  # the port is open, the store not yet
            continue
        if received:
            return
    raise RuntimeError("no message came after the restart")
