"""What a thousand of something costs: idle consumers, each with a connection of its own, and topics."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.peers.peer import Peer, Topic
from benchmarks.peers.race import SPAWN, Figures, Ready, fresh_topic, percentile, race
from benchmarks.peers.workloads.publish import publish_singly

SIZE = 100
TOGETHER = 50
"""Connections made at once."""
MAKE_S = 30.0
"""A broker that is slow to make topics has fewer, and says so."""


def idle_consumers(peer: Peer, *, consumers: int, seconds: float) -> Figures:
    """They wait for work on a topic of their own, while another one is published to."""
    waiting, busy = fresh_topic(), fresh_topic()
    asyncio.run(peer.reset(waiting))
    asyncio.run(peer.reset(busy))
    memory = peer.memory_bytes()
    over = SPAWN.Event()
    (_, watched, published), cpu = race(
        peer,
        (wait_idle, {"topic": waiting, "consumers": consumers, "over": over}),
        (watch, {"seconds": seconds, "processes": [one.pid for one in peer.processes()]}),
        (publish_after, {"topic": busy, "size": SIZE, "seconds": seconds, "over": over}),
    )
    asyncio.run(peer.drop(waiting))
    asyncio.run(peer.drop(busy))
    return {
        **cpu,
        **watched,
        "consumers": consumers,
        "memory_per_consumer": max(0, watched["memory"] - memory) / consumers,
        "rate": published["messages"] / published["seconds"],
        "p99_us": published["p99_us"],
    }


async def wait_idle(peer: Peer, ready: Ready, *, topic: Topic, consumers: int, over: Any) -> Figures:
    made = []
    for first in range(0, consumers, TOGETHER):
        some = min(TOGETHER, consumers - first)
        made += await asyncio.gather(*(peer.consumer(topic, topic.groups[0]) for _ in range(some)))
    for one in made:
        await one.wait_idle()
    await ready()
    while not over.is_set():  # not a blocking wait: clients answer heartbeats meanwhile
        await asyncio.sleep(0.05)
    return {"messages": 0}


async def watch(peer: Peer, ready: Ready, *, seconds: float, processes: list[int]) -> Figures:
    """The servers' CPU and memory while nothing but waiting goes on."""
    import psutil

    servers = [psutil.Process(pid) for pid in processes]
    await ready()
    used, begun = sum(sum(one.cpu_times()[:2]) for one in servers), time.monotonic()
    await asyncio.sleep(seconds)
    spent = sum(sum(one.cpu_times()[:2]) for one in servers) - used
    memory = sum(one.memory_full_info().pss for one in servers)
    return {"idle_cpu_percent": 100 * spent / (time.monotonic() - begun), "memory": memory}


async def publish_after(
    peer: Peer, ready: Ready, *, topic: Topic, size: int, seconds: float, over: Any
) -> Figures:
    async def once_quiet() -> None:
        await ready()
        await asyncio.sleep(seconds + 0.2)  # the watch is over by then

    try:
        return await publish_singly(peer, once_quiet, topic=topic, size=size, seconds=seconds)
    finally:
        over.set()


def topics(peer: Peer, *, count: int, seconds: float, repeats: int) -> Figures:
    """Made one after the other; then a message to each in turn, each acked before the next, over one connection.

    Memory is that after the first window: every topic has been published to by then.
    """
    memory = peer.memory_bytes()
    begun = time.monotonic()
    made = asyncio.run(_made(peer, count, begun + MAKE_S))
    spent = time.monotonic() - begun
    count = len(made)
    cost = {"topics": count, "create_ms": spent / count * 1e3}
    runs = []
    for _ in range(repeats):
        (result,), cpu = race(peer, (publish_around, {"topics": made, "seconds": seconds}))
        cost.setdefault("memory_per_topic", max(0, peer.memory_bytes() - memory) / count)
        runs.append({**cpu, **result, **cost, "rate": result["messages"] / result["seconds"]})
    peer.stop()  # sooner done than to drop them one by one
    peer.start()
    return {"runs": runs}


async def _made(peer: Peer, count: int, deadline: float) -> list[Topic]:
    """So many topics, or as many as there is time for."""
    made: list[Topic] = []
    while len(made) < count and time.monotonic() < deadline:
        made.append(fresh_topic())
        await peer.reset(made[-1])
    return made


async def publish_around(peer: Peer, ready: Ready, *, topics: list[Topic], seconds: float) -> Figures:
    producer = await peer.producer(topics[0])
    payload = bytes(SIZE)
    for topic in topics:  # what is made when a topic is first published to is made now
        await producer.turn_to(topic)
        await producer.publish(payload)
    await ready()
    laps = []
    begun = before = time.monotonic()
    while before - begun < seconds:
        await producer.turn_to(topics[len(laps) % len(topics)])
        await producer.publish(payload)
        after = time.monotonic()
        laps.append(after - before)
        before = after
    await producer.close()
    laps.sort()
    return {"messages": len(laps), "seconds": before - begun, "p99_us": percentile(laps, 0.99) * 1e6}
