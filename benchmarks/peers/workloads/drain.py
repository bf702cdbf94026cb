"""W3: a backlog is consumed and acked, by one consumer or by two of a group. W6: the same, with deeper backlogs."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from benchmarks.peers.peer import AckMode, Cannot, Peer, Topic
from benchmarks.peers.race import SPAWN, Figures, Ready, fresh_topic, race

FETCH = 100
"""Messages asked for at once, and acked at once in batch mode."""
SIZE = 100
FILL_S = 20.0
"""A broker that is slow to fill has a shallower backlog, and says so."""


def backlog(
    peer: Peer, *, ack: AckMode, consumers: int, depth: int, seconds: float, size: int = SIZE
) -> Figures:
    if consumers > 1 and not peer.shares_groups:
        raise Cannot("two consumers cannot share its messages")
    topic = fresh_topic(ack=ack, consumers=consumers)
    filled = fill(peer, topic, size, depth)
    (figures,) = drained(peer, topic, filled["messages"], seconds)
    asyncio.run(peer.drop(topic))
    return {**figures, "depth": filled["messages"], "mb_per_s": figures["rate"] * size / 1e6}


def fill(peer: Peer, topic: Topic, size: int, count: int, seconds: float = FILL_S) -> Figures:
    """A topic with a backlog; tells how many messages it has."""
    asyncio.run(peer.reset(topic))
    (filled,), _ = race(peer, (preload, {"topic": topic, "size": size, "count": count, "seconds": seconds}))
    return filled


async def preload(
    peer: Peer, ready: Ready, *, topic: Topic, size: int, count: int, seconds: float
) -> Figures:
    await ready()
    begun = time.monotonic()
    done = await peer.preload(topic, os.urandom(size), count, seconds)
    return {"messages": done, "seconds": time.monotonic() - begun}


def drained(peer: Peer, topic: Topic, quota: int, seconds: float, windows: int = 1) -> list[Figures]:
    """The group's consumers drain the quota in windows that follow on each other; the figures of each."""
    given = {
        "topic": topic,
        "quota": quota,
        "windows": windows,
        "taken": SPAWN.Value("q", 0),
        "seconds": seconds,
    }
    results, cpu = race(peer, *[(drain, given)] * topic.consumers)
    figures = []
    for laps in zip(*(result["laps"] for result in results), strict=True):
        messages = sum(lap["messages"] for lap in laps)
        spent = max(lap["end"] for lap in laps) - min(lap["begun"] for lap in laps)
        figures.append({**cpu, "messages": messages, "seconds": spent, "rate": messages / spent})
    return figures


async def drain(
    peer: Peer, ready: Ready, *, topic: Topic, quota: int, windows: int, taken: Any, seconds: float
) -> Figures:
    """Consumes and acks, with the others of the group, until the quota or the time is up."""
    consumer = await peer.consumer(topic, topic.groups[0])
    await ready()
    laps = []
    for window in range(1, windows + 1):
        count = 0
        begun = end = time.monotonic()
        while taken.value < quota * window // windows and end - begun < seconds:
            received = await consumer.fetch(FETCH, 0.5)
            if received:
                if topic.ack == "each":
                    for _, handle in received:
                        await consumer.ack(handle)
                else:
                    await consumer.ack_batch([handle for _, handle in received])
                count += len(received)
                with taken.get_lock():
                    taken.value += len(received)
            if received or taken.value < quota:  # nothing for long: time that counts
                end = time.monotonic()
        if topic.consumers == 1:
            await consumer.settle()
            end = time.monotonic()
        laps.append({"messages": count, "begun": begun, "end": end})
    await consumer.close()
    return {"laps": laps}
