"""RabbitMQ's stream over its own protocol, with rstream: a log, read by offset."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from benchmarks.peers.peer import Consumer, Inbox, Producer, Topic
from benchmarks.peers.processes import HOST
from benchmarks.peers.rabbitmq import Rabbit

FRAME_BYTES = 1_000_000
"""The protocol's largest frame is 1 MiB, and rstream does not split."""
HEAD_BYTES = 20


class RabbitStream(Rabbit):
    name = "rabbit-stream"
    client = "rstream"
    modules = ("rstream",)
    durability = "written"
    promise = "stream (one node), publish confirms; never synced"
    acks = "an offset stored by the consumer's name, never answered; once a fetch"
    natural_ack = "batch"
    is_log = True
    shares_groups = False

    def login(self) -> dict[str, Any]:
        return {"host": HOST, "port": self.stream, "username": "guest", "password": "guest"}

    async def reset(self, topic: Topic) -> None:
        import rstream

        async with rstream.Producer(**self.login()) as producer:
            await producer.create_stream(topic.name)

    async def drop(self, topic: Topic) -> None:
        import rstream

        async with rstream.Producer(**self.login()) as producer:
            await producer.delete_stream(topic.name, missing_ok=True)

    async def producer(self, topic: Topic) -> Producer:
        import rstream

        producer = rstream.Producer(**self.login())
        await producer.start()
        return StreamProducer(producer, topic.name)

    async def consumer(self, topic: Topic, group: str) -> Consumer:
        import rstream

        inner = rstream.Consumer(**self.login())
        await inner.start()
        start = rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST, None)
        with contextlib.suppress(rstream.OffsetNotFound):
            stored = await inner.query_offset(topic.name, group)
            start = rstream.ConsumerOffsetSpecification(rstream.OffsetType.OFFSET, stored + 1)
        consumer = StreamConsumer(inner, topic.name, group)
        await inner.subscribe(
            topic.name, consumer.on_message, subscriber_name=group, offset_specification=start
        )
        return consumer

    async def replay(self, topic: Topic, since: float, count: int) -> tuple[float, int]:
        import rstream

        inner = rstream.Consumer(**self.login())
        await inner.start()
        consumer = StreamConsumer(inner, topic.name, "replay")
        start = rstream.ConsumerOffsetSpecification(rstream.OffsetType.TIMESTAMP, int(since * 1000))
        await inner.subscribe(
            topic.name, consumer.on_message, subscriber_name="replay", offset_specification=start
        )
        first, got = 0.0, 0
        while got < count and (found := await consumer.fetch(1_000, 5)):
            first = first or time.monotonic()
            got += len(found)
        await inner.close()
        return first, got


class StreamProducer(Producer):
    def __init__(self, inner: Any, stream: str) -> None:
        self._inner = inner
        self._stream = stream
        self._unconfirmed = 0
        self._waiter: asyncio.Future[None] | None = None

    def _on_confirm(self, status: Any) -> None:
        if not status.is_confirmed:
            raise RuntimeError(f"not confirmed: {status}")
        self._unconfirmed -= 1
        if not self._unconfirmed and self._waiter is not None:
            self._waiter.set_result(None)
            self._waiter = None

    async def publish(self, payload: bytes) -> None:
        await self._inner.send_wait(self._stream, payload)

    async def publish_batch(self, payloads: list[bytes]) -> None:
        await self.send(payloads)
        await self.flush()

    async def send(self, payloads: list[bytes]) -> None:
        self._unconfirmed += len(payloads)
        step = max(1, FRAME_BYTES // (len(payloads[0]) + HEAD_BYTES))
        for first in range(0, len(payloads), step):
            await self._inner.send_batch(
                self._stream, payloads[first : first + step], on_publish_confirm=self._on_confirm
            )

    async def flush(self) -> None:
        if self._unconfirmed:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def turn_to(self, topic: Topic) -> None:
        self._stream = topic.name

    async def close(self) -> None:
        await self._inner.close()


class StreamConsumer(Inbox):
    def __init__(self, inner: Any, stream: str, group: str) -> None:
        super().__init__()
        self._inner = inner
        self._stream = stream
        self._group = group
        self._stored = -1

    def on_message(self, message: bytes, context: Any) -> None:
        self.deliver(message, context.offset)

    async def ack(self, handle: int) -> None:
        await self._inner.store_offset(self._stream, self._group, handle)
        self._stored = handle

    async def ack_batch(self, handles: list[int]) -> None:
        await self.ack(handles[-1])

    async def settle(self) -> None:
        while await self._inner.query_offset(self._stream, self._group) < self._stored:
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self._inner.close()
