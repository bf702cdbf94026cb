"""W5: ten groups, each with a consumer of its own, receive and ack everything that one publisher sends."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from benchmarks.peers.peer import Cannot, Peer, Topic
from benchmarks.peers.race import SPAWN, Figures, Ready, fresh_topic, race

FETCH = 100
BATCH = 100
SIZE = 100
TAKE_S = 20.0


def to_groups(peer: Peer, *, groups: int, messages: int, seconds: float) -> Figures:
    if not peer.fans_out:
        raise Cannot("a message goes to one queue only")
    topic = fresh_topic(groups=tuple(f"g{number}" for number in range(groups)), ack="batch")
    asyncio.run(peer.reset(topic))
    total = SPAWN.Value("q", -1)
    publisher = {"topic": topic, "messages": messages, "seconds": seconds, "total": total}
    (sender, *receivers), cpu = race(
        peer,
        (publish, publisher),
        *[(receive, {"topic": topic, "group": group, "total": total}) for group in topic.groups],
    )
    asyncio.run(peer.drop(topic))
    got = sum(one["messages"] for one in receivers)
    spent = max(one["end"] for one in receivers) - sender["begun"]
    return {
        **cpu,
        "messages": got,
        "complete": got == groups * sender["messages"],
        "seconds": spent,
        "rate": got / spent,
        "publish_rate": sender["messages"] / (sender["end"] - sender["begun"]),
    }


async def publish(
    peer: Peer, ready: Ready, *, topic: Topic, messages: int, seconds: float, total: Any
) -> Figures:
    """Then tells the subscribers how many there were."""
    producer = await peer.producer(topic)
    payloads = [os.urandom(SIZE)] * BATCH
    await ready()
    count = 0
    begun = time.monotonic()
    while count < messages and time.monotonic() - begun < seconds:
        await producer.publish_batch(payloads)
        count += len(payloads)
    end = time.monotonic()
    total.value = count
    await producer.close()
    return {"messages": count, "begun": begun, "end": end}


async def receive(peer: Peer, ready: Ready, *, topic: Topic, group: str, total: Any) -> Figures:
    consumer = await peer.consumer(topic, group)
    await ready()
    count = 0
    end = time.monotonic()
    deadline = end + TAKE_S
    while count != total.value and time.monotonic() < deadline:
        received = await consumer.fetch(FETCH, 0.2)
        if received:
            await consumer.ack_batch([handle for _, handle in received])
            count += len(received)
            end = time.monotonic()
    await consumer.close()
    return {"messages": count, "end": end}
