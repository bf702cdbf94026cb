"""Priority under load: how late is a high message behind a deep backlog of low ones, which a consumer works off?

The consumer takes ten at a time, is busy with them for two milliseconds, and acks them together: the backlog outlives
the workload. It is sent few messages ahead, as one would have it where priorities matter.
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
EVERY_S = 0.02
FETCH = 10
BUSY_S = 0.002
STAMP = struct.Struct("d")


def behind_low_ones(peer: Peer, *, depth: int, seconds: float, fill_s: float, repeats: int) -> Figures:
    """Filled once, worked off in several windows."""
    topic = fresh_topic(priorities=True, prefetch=2 * FETCH, ack="batch")
    asyncio.run(peer.reset(topic))
    (filled,), _ = race(peer, (fill_low, {"topic": topic, "depth": depth, "seconds": fill_s}))
    given = {"topic": topic, "seconds": seconds}
    runs = []
    for _ in range(repeats):
        (_, taken), cpu = race(peer, (publish_high, given), (take, given))
        runs.append({**cpu, **taken, "depth": filled["messages"]})
    asyncio.run(peer.drop(topic))
    return {"runs": runs}


async def fill_low(peer: Peer, ready: Ready, *, topic: Topic, depth: int, seconds: float) -> Figures:
    producer = await peer.producer(topic)
    payload = STAMP.pack(0.0) + os.urandom(SIZE - STAMP.size)
    await ready()
    done = 0
    begun = time.monotonic()
    while done < depth and time.monotonic() - begun < seconds:
        await producer.publish_ranked([payload] * BATCH, high=False)
        done += BATCH
    await producer.close()
    return {"messages": done}


async def publish_high(peer: Peer, ready: Ready, *, topic: Topic, seconds: float) -> Figures:
    producer = await peer.producer(topic)
    await ready()
    count = 0
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        await producer.publish_ranked([STAMP.pack(time.monotonic()) + bytes(SIZE - STAMP.size)], high=True)
        count += 1
        await asyncio.sleep(EVERY_S)
    await producer.close()
    return {"messages": count}


async def take(peer: Peer, ready: Ready, *, topic: Topic, seconds: float) -> Figures:
    consumer = await peer.consumer(topic, topic.groups[0])
    await ready()
    late: list[float] = []
    low = 0
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        received = await consumer.fetch(FETCH, 0.2)
        arrival = time.monotonic()
        for payload, _ in received:
            (stamp,) = STAMP.unpack_from(payload)
            if stamp:
                late.append(arrival - stamp)
            else:
                low += 1
        await asyncio.sleep(BUSY_S)
        if received:
            await consumer.ack_batch([handle for _, handle in received])
    await consumer.settle()
    spent = time.monotonic() - begun
    await consumer.close()
    late.sort()
    if not late:
        raise RuntimeError("no high message came while the low ones were worked off")
    return {
        "high": len(late),
        "rate": low / spent,
        "late_p50_ms": percentile(late, 0.5) * 1e3,
        "late_p99_ms": percentile(late, 0.99) * 1e3,
    }
