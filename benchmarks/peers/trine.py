"""Trine's server over the binary protocol, with its own Python client: a peer for each durability."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import deque
from typing import Any, ClassVar

import trine
import trine.aio
from benchmarks.peers.peer import THROUGHPUT, Class, Consumer, Peer, Producer, Received, Topic
from benchmarks.peers.processes import HOST, free_port
from trine.client.aio import AsyncBroker, AsyncConsumer, AsyncGroup
from trine.client.aio.consumer import AsyncMessage, Messages
from trine.client.sync import Broker, Sender

PREFETCH = 5_000
BATCHES_UNDER_WAY = 8
ACKS_UNDER_WAY = 5_000
READ = 1_000


class Trine(Peer):
    """The server and the client as they are, but for the number of partitions: what the others have is one sequence."""

    broker = "Trine"
    client = "trine (publish: sync; consume: async, pushed)"
    run_as = None  # the program may be in a home directory
    acks = "sent as they come, each answered at the group's durability; the clock stops at the last answer"
    durability: ClassVar[Class]
    bulk = 10_000

    @classmethod
    def executable(cls) -> str | None:
        return sys.executable

    def version(self) -> str:
        return f"Trine {trine.__version__}"

    def choose_ports(self) -> None:
        self._binary, self._http = free_port(), free_port()

    def launch(self) -> None:
        ready = self.folder / "ports.json"
        ready.unlink(missing_ok=True)
        self.spawn(
            sys.executable, "-m", "trine.cli", "serve", "--data-dir", self.folder / "data", "--ports-file", ready,
            "--binary-port", str(self._binary), "--http-port", str(self._http), "--log-level", "warning",
            env={name: os.environ[name] for name in ("PYTHONPATH", "VIRTUAL_ENV") if name in os.environ},
        )  # fmt: skip
        self.await_true(lambda: ready.exists() and json.loads(ready.read_text()))

    @property
    def address(self) -> str:
        return f"trine://{HOST}:{self._binary}"

    @property
    def http_address(self) -> tuple[str, int]:
        return HOST, self._http

    async def reset(self, topic: Topic) -> None:
        async with trine.aio.connect(self.address) as broker:
            made = await broker.create_topic(
                topic.name, partitions=topic.consumers, durability=self.durability, delay_max="30d"
            )
            options: dict[str, Any] = {"durability": self.durability}
            if topic.deliveries_max:
                options |= {"max_deliveries": topic.deliveries_max, "backoff": {"first": 0, "cap": 0}}
            for group in topic.groups:
                await made.create_group(group, **options)

    async def drop(self, topic: Topic) -> None:
        async with trine.aio.connect(self.address) as broker:
            await broker.delete_topic(topic.name)

    async def producer(self, topic: Topic) -> Producer:
        return TrineProducer(trine.connect(self.address), topic.name)

    async def consumer(self, topic: Topic, group: str) -> Consumer:
        broker = trine.aio.connect(self.address)
        await broker.__aenter__()
        joined = broker.topic(topic.name).group(group)
        consumer = joined.consumer(f"c{os.getpid()}-{id(broker)}", prefetch=topic.prefetch or PREFETCH)
        await consumer.__aenter__()
        return TrineConsumer(broker, joined, consumer)

    async def replay(self, topic: Topic, since: float, count: int) -> tuple[float, int]:
        async with trine.aio.connect(self.address) as broker:
            reader = broker.topic(topic.name).reader("replay")
            await reader.seek(time=since)
            first, got = 0.0, 0
            while got < count:
                found = await reader.read(max=READ)
                if not found:
                    break
                first = first or time.monotonic()
                got += sum(1 for message in found if message.value is not None)
            return first, got

    async def trace(self, topic: Topic, places: list[int]) -> list[float]:
        spent = []
        async with trine.aio.connect(self.address) as broker:
            for place in places:
                begun = time.monotonic()
                found = await broker.trace(f"{topic.name}/0/{place}")
                spent.append(time.monotonic() - begun)
                assert found.events, place
        return spent


class TrineProducer(Producer):
    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topics = {topic: broker.topic(topic)}
        self._topic = self._topics[topic]
        self._sender: Sender | None = None

    async def publish(self, payload: bytes) -> None:
        self._topic.publish(payload)

    async def publish_batch(self, payloads: list[bytes]) -> None:
        self._topic.publish_many(payloads)

    async def send(self, payloads: list[bytes]) -> None:
        if self._sender is None:
            self._sender = self._topic.sender(linger=0)
        for payload in payloads:
            self._sender.send(payload)

    async def flush(self) -> None:
        if self._sender is not None:
            self._sender.flush()

    async def publish_later(self, payloads: list[bytes], delays_ms: list[int]) -> None:
        now = time.time()
        pairs = zip(payloads, delays_ms, strict=True)
        self._topic.publish_many(
            [{"value": value, "deliver_at": now + delay / 1000} for value, delay in pairs]
        )

    async def publish_ranked(self, payloads: list[bytes], high: bool) -> None:
        self._topic.publish_many(payloads, priority="high" if high else "low")

    async def turn_to(self, topic: Topic) -> None:
        if topic.name not in self._topics:
            self._topics[topic.name] = self._broker.topic(topic.name)
        self._topic = self._topics[topic.name]

    async def close(self) -> None:
        if self._sender is not None:
            self._sender.close()
        self._broker.close()


class TrineConsumer(Consumer):
    """Pushed to; acks are answered while the next messages are worked on."""

    def __init__(self, broker: AsyncBroker, group: AsyncGroup, consumer: AsyncConsumer) -> None:
        self._broker = broker
        self._group = group
        self._consumer = consumer
        self._fetched: Messages = Messages()
        self._answers: deque[Any] = deque()

    async def fetch(self, limit: int, timeout: float) -> list[Received]:
        self._fetched = await self._consumer.receive(max=limit, wait=timeout)
        return [(message.value or b"", message) for message in self._fetched]

    async def ack(self, handle: AsyncMessage) -> None:
        self._answers.append(handle.ack())
        if len(self._answers) >= ACKS_UNDER_WAY:
            await self._answers.popleft()

    async def ack_batch(self, handles: list[AsyncMessage]) -> None:
        self._answers.append(asyncio.ensure_future(self._consumer.ack(self._fetched)))
        if len(self._answers) >= BATCHES_UNDER_WAY:
            await self._answers.popleft()

    async def retry(self, handle: AsyncMessage) -> None:
        await handle.nack()

    async def settle(self) -> None:
        while self._answers:
            await self._answers.popleft()

    async def close(self) -> None:
        await self.settle()
        await self._consumer.close()
        await self._broker.close()


class TrineSynced(Trine):
    name = "trine"
    durability = "synced"
    promise = 'durability "synced" (the default): acked after fdatasync'


class TrineWritten(Trine):
    name = "trine-written"
    durability = "written"
    promise = 'durability "written": acked when the operating system has it'


class TrineMemory(Trine):
    name = "trine-memory"
    durability = "memory"
    promise = 'durability "memory": acked when the broker has it'
    only = THROUGHPUT
