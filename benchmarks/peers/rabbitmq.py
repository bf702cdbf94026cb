"""RabbitMQ's queues over AMQP 0-9-1, with pika on asyncio: classic and quorum."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from typing import Any, ClassVar, Self

from benchmarks.peers.peer import Cannot, Class, Consumer, Inbox, Peer, Producer, Topic
from benchmarks.peers.processes import HOST, free_port, output

PREFETCH = 500
EXECUTABLE = "/usr/lib/rabbitmq/bin/rabbitmq-server"
RANKS = 10


class Rabbit(Peer):
    """The server, common to every kind of queue."""

    broker = "RabbitMQ"
    packages = ("rabbitmq-server",)
    queue_arguments: ClassVar[dict[str, Any]] = {}

    @classmethod
    def executable(cls) -> str | None:
        return shutil.which(EXECUTABLE)

    def version(self) -> str:
        return "RabbitMQ " + output("dpkg-query", "-Wf", "${Version}", "rabbitmq-server").partition("-")[0]

    def choose_ports(self) -> None:
        self.amqp, self.stream, self._dist, self._epmd = (free_port() for _ in range(4))

    def launch(self) -> None:
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {HOST}:{self.amqp}\n"
            f"stream.listeners.tcp.1 = {HOST}:{self.stream}\n"
            f"stream.advertised_host = {HOST}\n"
            f"stream.advertised_port = {self.stream}\n"
            "log.file.level = warning\n"
        )
        (self.folder / "enabled_plugins").write_text("[rabbitmq_stream].\n")
        epmd = {"ERL_EPMD_PORT": str(self._epmd), "ERL_EPMD_ADDRESS": HOST}
        self.spawn("epmd", "-port", str(self._epmd), "-address", HOST, env=epmd)
        self.spawn(
            EXECUTABLE,
            env={
                **epmd,
                "RABBITMQ_NODENAME": "peers@localhost",
                "RABBITMQ_NODE_PORT": str(self.amqp),
                "RABBITMQ_DIST_PORT": str(self._dist),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",
                "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
                "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
                "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            },
        )
        self.await_port(self.amqp)
        self.await_port(self.stream)


class Channel:
    """A connection with one channel on the running event loop; calls that the broker answers can be awaited."""

    def __init__(self, connection: Any, channel: Any) -> None:
        self.connection = connection
        self.channel = channel

    @classmethod
    async def open(cls, port: int) -> Self:
        import pika
        from pika.adapters.asyncio_connection import AsyncioConnection

        loop = asyncio.get_running_loop()
        opened = loop.create_future()
        connection = AsyncioConnection(
            pika.ConnectionParameters(HOST, port, heartbeat=0),
            on_open_callback=opened.set_result,
            on_open_error_callback=lambda _c, error: opened.set_exception(error),
            custom_ioloop=loop,
        )
        await opened
        opened = loop.create_future()
        connection.channel(on_open_callback=opened.set_result)
        return cls(connection, await opened)

    async def call(self, method: str, **arguments: Any) -> Any:
        reply = asyncio.get_running_loop().create_future()
        getattr(self.channel, method)(**arguments, callback=reply.set_result)
        return await reply

    async def close(self) -> None:
        closed = asyncio.get_running_loop().create_future()
        self.connection.add_on_close_callback(lambda *_: closed.set_result(None))
        self.connection.close()
        await closed


class RabbitClassic(Rabbit):
    """A durable classic queue, version 2: the only one from RabbitMQ 4 on."""

    name = "rabbit-classic"
    client = "pika (AsyncioConnection)"
    modules = ("pika",)
    durability: ClassVar[Class] = "written"
    promise = (
        "durable classic queue (version 2), persistent messages, publisher confirms (before a sync: audited)"
    )
    acks = "sent, never answered or synced; the clock stops when the broker has taken them in"
    queue_arguments: ClassVar[dict[str, Any]] = {"x-queue-version": 2}
    has_ranks: ClassVar[bool] = True

    async def reset(self, topic: Topic) -> None:
        amqp = await Channel.open(self.amqp)
        arguments = dict(self.queue_arguments)
        if topic.priorities and self.has_ranks:
            arguments["x-max-priority"] = RANKS
        if topic.deliveries_max:
            arguments |= await self._dead_letters(amqp, topic)
        for group in topic.groups:
            queue = f"{topic.name}.{group}"
            await amqp.call("queue_declare", queue=queue, durable=True, arguments=arguments)
            if topic.delays:  # one queue for each delay: what waits in it is due in the order it came
                await amqp.call(
                    "exchange_declare", exchange=f"{topic.name}.due", exchange_type="fanout", durable=True
                )
                await amqp.call("queue_bind", queue=queue, exchange=f"{topic.name}.due")
        if len(topic.groups) > 1:
            await amqp.call("exchange_declare", exchange=topic.name, exchange_type="fanout", durable=True)
            for group in topic.groups:
                await amqp.call("queue_bind", queue=f"{topic.name}.{group}", exchange=topic.name)
        await amqp.close()

    async def _dead_letters(self, amqp: Channel, topic: Topic) -> dict[str, Any]:
        raise Cannot(
            "a classic queue does not count deliveries: the consumer itself must see that one fails for ever"
        )

    async def drop(self, topic: Topic) -> None:
        amqp = await Channel.open(self.amqp)
        for group in topic.groups:
            await amqp.call("queue_delete", queue=f"{topic.name}.{group}")
        await amqp.close()

    async def producer(self, topic: Topic) -> Producer:
        amqp = await Channel.open(self.amqp)
        producer = PikaProducer(amqp, topic, self.queue_arguments)
        await amqp.call("confirm_delivery", ack_nack_callback=producer.on_confirm)
        return producer

    async def consumer(self, topic: Topic, group: str) -> Consumer:
        amqp = await Channel.open(self.amqp)
        await amqp.call("basic_qos", prefetch_count=topic.prefetch or PREFETCH)
        consumer = PikaConsumer(amqp, f"{topic.name}.{group}")
        await amqp.call("basic_consume", queue=consumer.queue, on_message_callback=consumer.on_message)
        return consumer


class RabbitQuorum(RabbitClassic):
    """Raft's log and its sync, on one node: nothing is replicated."""

    name = "rabbit-quorum"
    durability = "synced"
    promise = "quorum queue (one node), publisher confirms after the sync of Raft's log"
    queue_arguments: ClassVar[dict[str, Any]] = {"x-queue-type": "quorum"}
    has_ranks = False

    async def _dead_letters(self, amqp: Channel, topic: Topic) -> dict[str, Any]:
        await amqp.call("queue_declare", queue=f"{topic.name}.dead", durable=True)
        return {
            "x-delivery-limit": topic.deliveries_max - 1,  # it counts redeliveries
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": f"{topic.name}.dead",
        }


class PikaProducer(Producer):
    """Counts the confirms itself, so that many publishes can be under way."""

    def __init__(self, amqp: Channel, topic: Topic, queue_arguments: dict[str, Any]) -> None:
        import pika

        self._properties_type = pika.BasicProperties
        self._amqp = amqp
        self._queue_arguments = queue_arguments
        self._properties = pika.BasicProperties(delivery_mode=2)
        self._route(topic)
        self._tags = itertools.count(1)
        self._unconfirmed: dict[int, None] = {}  # in order of tag, as dicts are
        self._waiter: asyncio.Future[None] | None = None
        self._waiting: set[int] = set()
        """Delays, in ms, for which there is a queue."""

    def _route(self, topic: Topic) -> None:
        # One group: straight to its queue. Several: a fanout exchange copies to each.
        fanout = len(topic.groups) > 1
        self._topic = topic
        self._exchange = topic.name if fanout else ""
        self._key = "" if fanout else f"{topic.name}.{topic.groups[0]}"

    def on_confirm(self, frame: Any) -> None:
        method = frame.method
        if method.NAME != "Basic.Ack":
            raise RuntimeError(f"not confirmed: {method}")
        if method.multiple:
            for tag in list(self._unconfirmed):
                if tag > method.delivery_tag:
                    break
                del self._unconfirmed[tag]
        else:
            del self._unconfirmed[method.delivery_tag]
        if not self._unconfirmed and self._waiter is not None:
            self._waiter.set_result(None)
            self._waiter = None

    async def publish(self, payload: bytes) -> None:
        self._send([payload], self._exchange, self._key, self._properties)
        await self.flush()

    async def publish_batch(self, payloads: list[bytes]) -> None:
        self._send(payloads, self._exchange, self._key, self._properties)
        await self.flush()

    async def send(self, payloads: list[bytes]) -> None:
        self._send(payloads, self._exchange, self._key, self._properties)

    def _send(self, payloads: list[bytes], exchange: str, key: str, properties: Any) -> None:
        publish = self._amqp.channel.basic_publish
        for payload in payloads:
            publish(exchange, key, payload, properties)
            self._unconfirmed[next(self._tags)] = None

    async def flush(self) -> None:
        if self._unconfirmed:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def publish_later(self, payloads: list[bytes], delays_ms: list[int]) -> None:
        """By queues whose messages die after the delay, and go where they were meant to."""
        for payload, delay in zip(payloads, delays_ms, strict=True):
            queue = f"{self._topic.name}.after.{delay}"
            if delay not in self._waiting:
                arguments = self._queue_arguments | {
                    "x-message-ttl": delay,
                    "x-dead-letter-exchange": f"{self._topic.name}.due",
                }
                await self._amqp.call("queue_declare", queue=queue, durable=True, arguments=arguments)
                self._waiting.add(delay)
            self._send([payload], "", queue, self._properties)
        await self.flush()

    async def publish_ranked(self, payloads: list[bytes], high: bool) -> None:
        if self._queue_arguments.get("x-queue-type") == "quorum":
            raise Cannot("quorum queues have no priorities in this release")
        rank = self._properties_type(delivery_mode=2, priority=RANKS if high else 0)
        self._send(payloads, self._exchange, self._key, rank)
        await self.flush()

    async def turn_to(self, topic: Topic) -> None:
        self._route(topic)

    async def close(self) -> None:
        await self._amqp.close()


class PikaConsumer(Inbox):
    def __init__(self, amqp: Channel, queue: str) -> None:
        super().__init__()
        self._amqp = amqp
        self.queue = queue

    def on_message(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self.deliver(body, method.delivery_tag)

    async def ack(self, handle: int) -> None:
        self._amqp.channel.basic_ack(handle)

    async def ack_batch(self, handles: list[int]) -> None:
        self._amqp.channel.basic_ack(handles[-1], multiple=True)

    async def retry(self, handle: int) -> None:
        self._amqp.channel.basic_nack(handle, requeue=True)

    async def settle(self) -> None:
        # The channel works in order: this reply comes after the acks were taken in.
        await self._amqp.call("queue_declare", queue=self.queue, passive=True)

    async def close(self) -> None:
        await self._amqp.close()
