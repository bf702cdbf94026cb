"""Rebalance pause: two consumers share a steady stream, a third joins and later leaves. How late are messages then?"""

from __future__ import annotations

import asyncio
import time

from benchmarks.peers.peer import Cannot, Peer, Topic
from benchmarks.peers.race import Figures, Ready, fresh_topic, percentile, race
from benchmarks.peers.workloads.latency import STAMP, publish_paced

FETCH = 100
SIZE = 100
GRACE_S = 8.0
WATCHED_S = 1.0
"""How long after a change lateness is put down to it."""

Seen = list[tuple[float, float]]
"""When a message was due, and how much later it came."""


def one_more_and_one_less(peer: Peer, *, rate: int, seconds: float) -> Figures:
    if not peer.shares_groups:
        raise Cannot("consumers cannot share its messages")
    topic = fresh_topic(consumers=3, ack=peer.natural_ack)
    asyncio.run(peer.reset(topic))
    until = seconds + GRACE_S
    (sender, *takers), cpu = race(
        peer,
        (publish_paced, {"topic": topic, "size": SIZE, "rate": rate, "seconds": seconds}),
        (take, {"topic": topic, "after": 0.0, "until": until}),
        (take, {"topic": topic, "after": 0.0, "until": until}),
        (take, {"topic": topic, "after": seconds / 3, "until": seconds * 2 / 3}),
    )
    asyncio.run(peer.drop(topic))
    seen: Seen = [one for taker in takers for one in taker["seen"]]
    changes = (takers[2]["joined"], takers[2]["left"])
    times = [(at + late, late) for at, late in seen]
    during = [late for at, late in times if any(0 <= at - change < WATCHED_S for change in changes)]
    calm = sorted(late for at, late in times if sender["begun"] + 0.3 < at < changes[0])
    if not during or not calm:
        raise RuntimeError("no messages came while consumers came and went")
    return {
        **cpu,
        "messages": len(seen),
        "complete": len(seen) >= sender["messages"],
        "again": max(0, len(seen) - sender["messages"]),
        "by_third": len(takers[2]["seen"]),
        "calm_p99_ms": percentile(calm, 0.99) * 1e3,
        "calm_max_ms": calm[-1] * 1e3,
        "pause_ms": max(during) * 1e3,
    }


async def take(peer: Peer, ready: Ready, *, topic: Topic, after: float, until: float) -> Figures:
    """Joins so long after the shot, or before it, and leaves at its time or once nothing comes any more."""
    consumer = None if after else await peer.consumer(topic, topic.groups[0])
    await ready()
    begun = time.monotonic()
    await asyncio.sleep(after)
    joined = time.monotonic()
    if consumer is None:
        consumer = await peer.consumer(topic, topic.groups[0])
    seen: Seen = []
    quiet_since = time.monotonic()
    while (now := time.monotonic()) - begun < until and now - quiet_since < GRACE_S / 2:
        received = await consumer.fetch(FETCH, 0.2)
        arrival = time.monotonic()
        for payload, _ in received:
            (stamp,) = STAMP.unpack_from(payload)
            seen.append((stamp, arrival - stamp))
        if not received:
            continue
        quiet_since = arrival
        if topic.ack == "each":
            for _, handle in received:
                await consumer.ack(handle)
        else:
            await consumer.ack_batch([handle for _, handle in received])
    left = time.monotonic()
    await consumer.close()
    return {"seen": seen, "joined": joined, "left": left}
