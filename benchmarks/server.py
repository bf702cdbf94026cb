"""The server over loopback: one server process, and this process as its one client."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import uvloop

import trine
import trine.aio
from benchmarks.bench import BATCH, VALUE, Bench, medians
from benchmarks.raw import RawFile
from benchmarks.serving import Serving
from trine.client.aio import AsyncBroker, AsyncConsumer, AsyncTopic

PIPELINED = 16
"""Publishes of one connection under way at once."""
PREFETCH = 20_000
CONNECTIONS = 64


def run(bench: Bench) -> None:
    # Servers of their own: what one leaves to be written back must not be paid for by the next.
    with_server(bench, lambda server, raw: uvloop.run(_singly(bench, server, raw)))
    with_server(bench, lambda server, raw: _one_thread(bench, server, raw))
    with_server(bench, lambda server, _: uvloop.run(_many_connections(bench, server)))
    with_server(bench, lambda server, _: uvloop.run(_latency(bench, server)))
    with_server(bench, lambda server, _: uvloop.run(_http(bench, server)))
    with_server(bench, lambda server, _: _in_bulk(bench, server))


def with_server(bench: Bench, work: Callable[[Serving, RawFile], None]) -> None:
    folder = bench.folder()
    with Serving(folder) as server:
        work(server, RawFile(folder / "raw", 64 << 20))
    bench.remove(folder)


def _in_bulk(bench: Bench, server: Serving) -> None:
    uvloop.run(_publishing(bench, server))
    uvloop.run(_consuming(bench, server))
    bench.add(
        workload="memory of the server after batches in and out", durability="", unit="MB",
        value=server.resident_bytes() / 1e6,
    )  # fmt: skip


async def _rate(bench: Bench, count: int, work: Callable[[], Awaitable[None]]) -> float:
    """Messages a second: the median of the rounds, the first of which is not counted."""
    rates = []
    for turn in range(bench.rounds + 1):
        begun = time.perf_counter()
        await work()
        if turn:
            rates.append(count / (time.perf_counter() - begun))
    return statistics.median(rates)


async def _in_flight(most: int, count: int, work: Callable[[], Awaitable[object]]) -> None:
    """So many calls of one kind, never more than `most` of them under way."""
    left = count

    async def one_after_another() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await work()

    await asyncio.gather(*(one_after_another() for _ in range(most)))


# --- in


async def _publishing(bench: Bench, server: Serving) -> None:
    async with trine.aio.connect(server.address) as broker:
        topic = await broker.create_topic("publishing", partitions=6, retention="1h")
        for durability, target in (("written", 2_000_000), ("synced", 1_500_000)):
            await _batches(bench, topic, durability, target)
        await broker.delete_topic("publishing")


async def _singly(bench: Bench, server: Serving, raw: RawFile) -> None:
    async with trine.aio.connect(server.address) as broker:
        await _singles(bench, await broker.create_topic("singly", partitions=6), raw)


async def _batches(bench: Bench, topic: AsyncTopic, durability: str, target: int) -> None:
    values = [VALUE] * BATCH
    count = bench.size(300, 5)
    rate = await _rate(
        bench,
        count * BATCH,
        lambda: _in_flight(PIPELINED, count, lambda: topic.publish_many(values, durability=durability)),
    )
    bench.add(
        workload="server: publish_many, batches of 1,000", durability=durability, value=rate, unit="msg/s",
        target=f"≥ {target:,}", met=rate >= target, note=f"{PIPELINED} calls under way on one connection",
    )  # fmt: skip


async def _singles(bench: Bench, topic: AsyncTopic, raw: RawFile) -> None:
    count = bench.size(1_500, 20)

    async def publish() -> None:
        for _ in range(count):
            await topic.publish(VALUE, durability="synced")

    async def sync() -> None:
        for _ in range(count):
            raw.append_synced(VALUE)

    rates, limits = [], []
    for _ in range(bench.rounds):
        rates.append(await _once(count, publish))
        limits.append(await _once(count, sync))
    rate, limit = statistics.median(rates), statistics.median(limits)
    bench.add(
        workload="server: publish, one after the other on one connection", durability="synced", value=rate,
        unit="msg/s", limit="append and fdatasync of the same bytes", limit_value=limit, target="≥ 60 % of it",
        met=rate >= 0.6 * limit,
    )  # fmt: skip


async def _once(count: int, work: Callable[[], Awaitable[None]]) -> float:
    begun = time.perf_counter()
    await work()
    return count / (time.perf_counter() - begun)


async def _many_connections(bench: Bench, server: Serving) -> None:
    brokers = [trine.aio.connect(server.address) for _ in range(CONNECTIONS)]
    await asyncio.gather(*(broker.__aenter__() for broker in brokers))
    await brokers[0].create_topic("crowd", partitions=6)
    topics = [broker.topic("crowd") for broker in brokers]
    each = bench.size(150, 3)

    async def publish(topic: AsyncTopic) -> None:
        for _ in range(each):
            await topic.publish(VALUE, durability="synced")

    async def work() -> None:
        await asyncio.gather(*(publish(topic) for topic in topics))

    rate = await _rate(bench, each * CONNECTIONS, work)
    bench.add(
        workload=f"server: publish, one after the other on each of {CONNECTIONS} connections", durability="synced",
        value=rate, unit="msg/s", target="≥ 40,000", met=rate >= 40_000,
    )  # fmt: skip
    await brokers[0].delete_topic("crowd")
    await asyncio.gather(*(broker.close() for broker in brokers))


# --- one thread of the sync client, each call answered before the next


def _one_thread(bench: Bench, server: Serving, raw: RawFile) -> None:
    with trine.connect(server.address) as broker:
        topic = broker.create_topic("thread", partitions=6)
        topic.create_group("g", durability="synced")
        count, some = bench.size(1_500, 20), [VALUE] * 100
        rounds = bench.rounds

        def times(work: Callable[[], object], often: int) -> Callable[[], None]:
            def step() -> None:
                for _ in range(often):
                    work()

            return step

        def take() -> None:
            messages = consumer.receive(max=100)
            assert len(messages) == 100, "the backlog is used up"
            consumer.ack(messages)

        synced, limit, written, batches = medians(
            rounds,
            times(lambda: topic.publish(VALUE, durability="synced"), count),
            times(lambda: raw.append_synced(VALUE), count),
            times(lambda: topic.publish(VALUE, durability="written"), count),
            times(lambda: topic.publish_many(some, durability="written"), count),
        )
        with topic.group("g").consumer("c") as consumer:
            (taking,) = medians(rounds, times(take, bench.size(500, 5)))
        bench.add(
            workload="server: publish, sync client, one thread", durability="synced", value=count / synced,
            unit="msg/s", limit="append and fdatasync of the same bytes", limit_value=count / limit,
        )  # fmt: skip
        for what, durability, rate in (
            ("publish", "written", count / written),
            ("publish_many, batches of 100", "written", 100 * count / batches),
            ("receive(max=100) and ack, as a batch", "synced", 100 * bench.size(500, 5) / taking),
        ):
            bench.add(
                workload=f"server: {what}, sync client, one thread", durability=durability, value=rate,
                unit="msg/s",
            )  # fmt: skip


# --- out


async def _consuming(bench: Bench, server: Serving) -> None:
    async with trine.aio.connect(server.address) as broker:
        await _drain(
            bench,
            broker,
            "batches",
            bench.size(200_000, 3_000),
            _take_batches,
            1_500_000,
            "receive(max=1,000) and ack, as a batch",
        )
        await _drain(
            bench,
            broker,
            "singles",
            bench.size(40_000, 1_000),
            _take_singles,
            200_000,
            "message.ack() for each, pipelined",
        )


async def _drain(
    bench: Bench,
    broker: AsyncBroker,
    name: str,
    count: int,
    take: Callable[[AsyncConsumer, int], Awaitable[None]],
    target: int,
    what: str,
) -> None:
    topic = await broker.create_topic(name, partitions=6)
    await topic.create_group("g", durability="written")
    for _ in range(count * (bench.rounds + 1) // BATCH):
        await topic.publish_many([VALUE] * BATCH, durability="written")
    async with topic.group("g").consumer("c", prefetch=PREFETCH) as consumer:
        rate = await _rate(bench, count, lambda: take(consumer, count))
    bench.add(
        workload=f"server: {what}", durability="written", value=rate, unit="msg/s", target=f"≥ {target:,}",
        met=rate >= target, note=f"pushed, prefetch {PREFETCH:,}",
    )  # fmt: skip
    await broker.delete_topic(name)


async def _take_batches(consumer: AsyncConsumer, count: int) -> None:
    waiting: set[asyncio.Task[int]] = set()
    while count > 0:
        messages = await consumer.receive(max=BATCH, wait="10s")
        assert sum(len(message.value or b"") for message in messages) == len(messages) * len(VALUE)
        count -= len(messages)
        waiting.add(asyncio.ensure_future(consumer.ack(messages)))
        if len(waiting) >= PIPELINED:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if waiting:
        await asyncio.wait(waiting)


async def _take_singles(consumer: AsyncConsumer, count: int) -> None:
    while count > 0:
        messages = await consumer.receive(max=500, wait="10s")
        count -= len(messages)
        for answer in [message.ack() for message in messages]:  # all under way, then each is waited for
            await answer


# --- through


async def _latency(bench: Bench, server: Serving) -> None:
    rate, seconds = 5_000, bench.size(6, 1)
    async with trine.aio.connect(server.address) as sender, trine.aio.connect(server.address) as taker:
        topic = await sender.create_topic("latency", partitions=6)
        await topic.create_group("g", durability="written")
        taken: list[float] = []
        acks: set[asyncio.Task[int]] = set()
        total = rate * seconds

        async def take() -> None:
            async with taker.topic("latency").group("g").consumer("c", prefetch=1_000) as consumer:
                while len(taken) < total:
                    messages = await consumer.receive(max=1_000, wait="10s")
                    now = time.perf_counter()
                    taken.extend(now - float(message.value or b"0") for message in messages)
                    acks.add(
                        asyncio.ensure_future(consumer.ack(messages))
                    )  # the next receive need not wait for it
                    acks.difference_update([one for one in acks if one.done()])
                await asyncio.gather(*acks)

        consuming = asyncio.ensure_future(take())
        publishing: list[asyncio.Task[object]] = []
        begun = time.perf_counter()
        while len(publishing) < total:
            # What is due by now, then a sleep of a millisecond: spinning would take the CPU the client needs.
            by_now = min(int((time.perf_counter() - begun) * rate) + 1, total)
            for _ in range(by_now - len(publishing)):
                stamped = b"%-100.6f" % time.perf_counter()
                publishing.append(asyncio.ensure_future(topic.publish(stamped, durability="written")))
            await asyncio.sleep(0.001)
        await asyncio.gather(*publishing)
        await consuming
        await sender.delete_topic("latency")
    taken.sort()
    middle, late = taken[len(taken) // 2] * 1000, taken[len(taken) * 99 // 100] * 1000
    for what, value, target in (("p50", middle, 0.5), ("p99", late, 3.0)):
        bench.add(
            workload=f"server: publish to delivery at 5,000 msg/s, {what}", durability="written", value=value,
            unit="ms", target=f"< {target} ms", met=value < target, note="two connections of one client process",
        )  # fmt: skip


async def _http(bench: Bench, server: Serving) -> None:
    async with trine.aio.connect(server.address) as broker:
        await broker.create_topic("http", partitions=6)
        count, connections = bench.size(400, 5), 16
        body = b'{"text": "' + VALUE + b'", "durability": "written"}'
        request = (
            b"POST /v1/topics/http/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )

        async def publish() -> None:
            reader, writer = await asyncio.open_connection(*server.http)
            for _ in range(count):
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 2"), head
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
            writer.close()

        async def work() -> None:
            await asyncio.gather(*(publish() for _ in range(connections)))

        rate = await _rate(bench, count * connections, work)
        bench.add(
            workload=f"server: HTTP publish, one after the other on {connections} connections",
            durability="written", value=rate, unit="msg/s", target="≥ 5,000", met=rate >= 5_000,
        )  # fmt: skip
        await broker.delete_topic("http")
