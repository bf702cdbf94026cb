"""W1: one message at a time, each acked before the next. W2: batches, each acked as a whole."""

from __future__ import annotations

import asyncio
import os
import time

from benchmarks.peers.peer import Peer, Topic
from benchmarks.peers.race import Figures, Ready, fresh_topic, percentile, race

WARM = 50


def singly(peer: Peer, *, size: int, seconds: float) -> Figures:
    topic = fresh_topic()
    asyncio.run(peer.reset(topic))
    (result,), cpu = race(peer, (publish_singly, {"topic": topic, "size": size, "seconds": seconds}))
    asyncio.run(peer.drop(topic))
    return {**result, **cpu, "rate": result["messages"] / result["seconds"]}


def in_batches(peer: Peer, *, size: int, batch: int, seconds: float) -> Figures:
    topic = fresh_topic()
    asyncio.run(peer.reset(topic))
    given = {"topic": topic, "size": size, "batch": batch, "seconds": seconds}
    (result,), cpu = race(peer, (publish_batches, given))
    asyncio.run(peer.drop(topic))
    rate = result["messages"] / result["seconds"]
    return {**result, **cpu, "rate": rate, "mb_per_s": rate * size / 1e6}


async def publish_singly(peer: Peer, ready: Ready, *, topic: Topic, size: int, seconds: float) -> Figures:
    producer = await peer.producer(topic)
    payload = os.urandom(size)
    for _ in range(WARM):
        await producer.publish(payload)
    await ready()
    laps = []
    begun = before = time.monotonic()
    while before - begun < seconds:
        await producer.publish(payload)
        after = time.monotonic()
        laps.append(after - before)
        before = after
    await producer.close()
    laps.sort()
    return {
        "messages": len(laps),
        "seconds": before - begun,
        "p50_us": percentile(laps, 0.50) * 1e6,
        "p99_us": percentile(laps, 0.99) * 1e6,
    }


async def publish_batches(
    peer: Peer, ready: Ready, *, topic: Topic, size: int, batch: int, seconds: float
) -> Figures:
    producer = await peer.producer(topic)
    payloads = [os.urandom(size)] * batch
    await producer.publish_batch(payloads)
    await ready()
    count = 0
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        await producer.publish_batch(payloads)
        count += batch
    spent = time.monotonic() - begun
    await producer.close()
    return {"messages": count, "seconds": spent}
