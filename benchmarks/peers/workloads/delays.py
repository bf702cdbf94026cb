"""Delayed messages: what scheduling costs, what waiting costs, and how late a message is while so many others wait.

All but a few are due in an hour, by the default of this workload; the probes are due within seconds, one after the
other, and a consumer notes when each of them came. Nothing may come early.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time

from benchmarks.peers.peer import Peer, Topic
from benchmarks.peers.race import Figures, Ready, fresh_topic, percentile, race

BATCH = 1_000
SIZE = 100
FAR_MS = 3_600_000
FIRST_PROBE_MS = 2_000
STAMP = struct.Struct("d")
GRACE_S = 5.0


def outstanding(peer: Peer, *, messages: int, probes: int, seconds: float, repeats: int) -> Figures:
    """Scheduled once, probed several times."""
    topic = fresh_topic(delays=True)
    asyncio.run(peer.reset(topic))
    memory = peer.memory_bytes()
    disk = peer.disk_bytes()
    (scheduled,), cpu = race(peer, (schedule, {"topic": topic, "messages": messages, "seconds": seconds}))
    cost = {
        "memory_per_message": max(0, peer.memory_bytes() - memory) / scheduled["messages"],
        "disk_per_message": (peer.disk_bytes() - disk) / scheduled["messages"],
    }
    rate = scheduled["messages"] / scheduled["seconds"]
    given = {"topic": topic, "probes": probes}
    runs = []
    for _ in range(repeats):
        (_, taken), _ = race(peer, (probe, given), (take, given))
        runs.append({**cpu, **cost, **scheduled, **taken, "rate": rate})
    asyncio.run(peer.drop(topic))
    return {"runs": runs}


async def schedule(peer: Peer, ready: Ready, *, topic: Topic, messages: int, seconds: float) -> Figures:
    producer = await peer.producer(topic)
    payload = os.urandom(SIZE)
    await producer.publish_later([payload], [FAR_MS])
    await ready()
    done = 0
    begun = time.monotonic()
    while done < messages and time.monotonic() - begun < seconds:
        some = min(BATCH, messages - done)
        await producer.publish_later([payload] * some, [FAR_MS] * some)
        done += some
    spent = time.monotonic() - begun
    await producer.close()
    return {"messages": done, "seconds": spent}


async def probe(peer: Peer, ready: Ready, *, topic: Topic, probes: int) -> Figures:
    """Half a hundred at each of a few delays: a broker may need a queue for each."""
    producer = await peer.producer(topic)
    await ready()
    step = 500
    delays = [FIRST_PROBE_MS + step * (number * 6 // probes) for number in range(probes)]
    for first in range(0, probes, 10):
        some = delays[first : first + 10]
        now = time.time()
        payloads = [STAMP.pack(now + delay / 1000) + bytes(SIZE - STAMP.size) for delay in some]
        await producer.publish_later(payloads, some)
    await producer.close()
    return {}


async def take(peer: Peer, ready: Ready, *, topic: Topic, probes: int) -> Figures:
    consumer = await peer.consumer(topic, topic.groups[0])
    await ready()
    late: list[float] = []
    deadline = time.monotonic() + FIRST_PROBE_MS / 1000 + 3 + GRACE_S
    while len(late) < probes and time.monotonic() < deadline:
        for payload, handle in await consumer.fetch(100, 0.5):
            late.append(time.time() - STAMP.unpack_from(payload)[0])
            await consumer.ack(handle)
    await consumer.close()
    late.sort()
    if not late:
        raise RuntimeError("no delayed message came")
    return {
        "probes": len(late),
        "early": sum(1 for one in late if one < -0.001),
        "late_p50_ms": percentile(late, 0.5) * 1e3,
        "late_p99_ms": percentile(late, 0.99) * 1e3,
        "late_max_ms": late[-1] * 1e3,
    }
