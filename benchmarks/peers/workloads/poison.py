"""Poison among good ones: one message in a hundred fails whenever it is tried, until it is given up after five.

The clock stops when the last good one is acked, where acks are not answered: sent.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.peers.peer import Peer, Topic
from benchmarks.peers.race import Figures, Ready, fresh_topic, race

BATCH = 1_000
EVERY = 100
TRIES = 5
GOOD, BAD = b"good" * 25, b"bad." * 25
FETCH = 100


def among_good(peer: Peer, *, messages: int, seconds: float) -> Figures:
    topic = fresh_topic(deliveries_max=TRIES)
    asyncio.run(peer.reset(topic))
    (filled,), _ = race(peer, (fill, {"topic": topic, "messages": messages, "seconds": seconds}))
    (result,), cpu = race(peer, (work, {"topic": topic, "messages": filled["messages"], "seconds": seconds}))
    asyncio.run(peer.drop(topic))
    return {**cpu, **result}


async def fill(peer: Peer, ready: Ready, *, topic: Topic, messages: int, seconds: float) -> Figures:
    producer = await peer.producer(topic)
    await ready()
    payloads = [BAD if number % EVERY == 0 else GOOD for number in range(BATCH)]
    done = 0
    begun = time.monotonic()
    while done < messages and time.monotonic() - begun < seconds:
        await producer.publish_batch(payloads)
        done += BATCH
    await producer.close()
    return {"messages": done}


async def work(peer: Peer, ready: Ready, *, topic: Topic, messages: int, seconds: float) -> Figures:
    """Until every good one is acked and every bad one was tried as often as it may be."""
    consumer = await peer.consumer(topic, topic.groups[0])
    bad = messages // EVERY
    good = messages - bad
    acked = tried = 0
    all_good = 0.0
    await ready()
    begun = time.monotonic()
    while (acked < good or tried < bad * TRIES) and time.monotonic() - begun < seconds:
        for payload, handle in await consumer.fetch(FETCH, 0.5):
            if payload == BAD:
                tried += 1
                await consumer.retry(handle)
            else:
                acked += 1
                await consumer.ack(handle)
        if acked == good and not all_good:
            all_good = time.monotonic()
    over = time.monotonic()
    await consumer.close()
    spent = (all_good or over) - begun
    return {
        "messages": acked,
        "good": good,
        "tries": tried,
        "tries_expected": bad * TRIES,
        "complete": acked == good and tried == bad * TRIES,
        "rate": acked / spent,
        "seconds": over - begun,
    }
