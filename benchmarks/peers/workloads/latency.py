"""W4: how long after it was due a message is delivered and acked, at a steady rate that does not wait for anyone."""

from __future__ import annotations

import asyncio
import os
import struct
import time

from benchmarks.peers.peer import AckMode, Peer, Topic
from benchmarks.peers.race import Figures, Ready, fresh_topic, percentile, race

FETCH = 100
SIZE = 100
GRACE_S = 8.0
WARM_S = 1.0
LATE_S = 0.5
STAMP = struct.Struct("d")


def steady(peer: Peer, *, rate: int, seconds: float) -> Figures:
    topic = fresh_topic(ack=peer.natural_ack)
    asyncio.run(peer.reset(topic))
    total = int(rate * seconds)
    (sender, receiver), cpu = race(
        peer,
        (publish_paced, {"topic": topic, "size": SIZE, "rate": rate, "seconds": seconds}),
        (receive_paced, {"topic": topic, "ack": topic.ack, "total": total, "seconds": seconds}),
    )
    asyncio.run(peer.drop(topic))
    spent = receiver["end"] - sender["begun"]
    kept_up = receiver["messages"] == total and spent < seconds + LATE_S
    return {**receiver, **cpu, "rate": receiver["messages"] / spent, "kept_up": kept_up}


async def publish_paced(
    peer: Peer, ready: Ready, *, topic: Topic, size: int, rate: int, seconds: float
) -> Figures:
    """Each message carries the time that it was due.

    What is due when the publisher wakes goes out together. A message that fell due while the one before held the
    publisher up keeps its time, so that a slow broker cannot hide its delay; one that is late only because timers
    tick in milliseconds is stamped with the time it left.
    """
    producer = await peer.producer(topic)
    pad = os.urandom(size - STAMP.size)
    total = int(rate * seconds)
    step = 1 / rate
    await ready()
    begun = free = time.monotonic()
    sent = 0
    while sent < total:
        now = time.monotonic()
        due = min(total, int((now - begun) / step) + 1)
        if due > sent:
            times = [begun + number * step for number in range(sent, due)]
            await producer.send([STAMP.pack(at if at < free else now) + pad for at in times])
            sent = due
            free = time.monotonic()
            await asyncio.sleep(0)  # lets the acks in
        else:
            await asyncio.sleep(begun + sent * step - now)
    await producer.flush()
    end = time.monotonic()
    await producer.close()
    return {"messages": sent, "begun": begun, "end": end}


async def receive_paced(
    peer: Peer, ready: Ready, *, topic: Topic, ack: AckMode, total: int, seconds: float
) -> Figures:
    consumer = await peer.consumer(topic, topic.groups[0])
    delivered: list[float] = []
    acked: list[float] = []
    first = 0.0
    await ready()
    end = deadline = time.monotonic() + seconds + GRACE_S
    count = 0
    while count < total and time.monotonic() < deadline:
        received = await consumer.fetch(FETCH, 0.5)
        arrival = time.monotonic()
        done = []
        if ack == "each":
            for _, handle in received:
                await consumer.ack(handle)
                done.append(time.monotonic())
        elif received:
            await consumer.ack_batch([handle for _, handle in received])
            done = [time.monotonic()] * len(received)
        for (payload, _), end in zip(received, done, strict=True):
            (stamp,) = STAMP.unpack_from(payload)
            first = first or stamp
            if stamp - first >= min(WARM_S, seconds / 4):
                delivered.append(arrival - stamp)
                acked.append(end - stamp)
        count += len(received)
    await consumer.close()
    if not acked:
        return {"messages": count, "end": end}
    delivered.sort()
    acked.sort()
    return {
        "messages": count,
        "end": end,
        "delivered_p50_ms": percentile(delivered, 0.50) * 1e3,
        "delivered_p99_ms": percentile(delivered, 0.99) * 1e3,
        "p50_ms": percentile(acked, 0.50) * 1e3,
        "p99_ms": percentile(acked, 0.99) * 1e3,
        "max_ms": acked[-1] * 1e3,
    }
