"""Redis Streams with an append-only file, with redis-py and hiredis."""

from __future__ import annotations

import os
import shutil
import time
from typing import Any, ClassVar

from benchmarks.peers.peer import THROUGHPUT, Cannot, Class, Consumer, Peer, Producer, Received, Topic
from benchmarks.peers.processes import HOST, free_port, output

READ = 1_000


class RedisEverysec(Peer):
    name = "redis-everysec"
    broker = "Redis Streams"
    client = "redis-py (sync, hiredis)"
    modules = ("redis", "hiredis")
    packages = ("redis-server",)
    durability: ClassVar[Class] = "written"
    promise = "appendonly, appendfsync everysec: acked before the sync, up to a second may be lost"
    acks = "XACK, answered, as durable as a publish; one for each, or for each fetch"
    fsync: ClassVar[str] = "everysec"

    @classmethod
    def executable(cls) -> str | None:
        return shutil.which("redis-server")

    def version(self) -> str:
        return "Redis " + output("redis-server", "--version").split()[2].removeprefix("v=")

    def choose_ports(self) -> None:
        self._port = free_port()

    def launch(self) -> None:
        self.spawn(
            "redis-server", "--bind", HOST, "--port", str(self._port), "--dir", self.folder,
            "--appendonly", "yes", "--appendfsync", self.fsync, "--save", "",
        )  # fmt: skip
        self.await_port(self._port)
        self.await_true(self._loaded)

    def _loaded(self) -> bool:
        """The port opens before the file is read."""
        import redis

        try:
            return bool(self.connect().ping())
        except redis.BusyLoadingError:
            return False

    def connect(self) -> Any:
        import redis

        return redis.Redis(HOST, self._port, protocol=2, socket_timeout=None)

    async def reset(self, topic: Topic) -> None:
        if topic.deliveries_max:
            raise Cannot("a consumer cannot give a message back: others claim it when it was idle for long")
        client = self.connect()
        for group in topic.groups:
            client.xgroup_create(topic.name, group, id="0", mkstream=True)
        client.close()

    async def drop(self, topic: Topic) -> None:
        client = self.connect()
        client.delete(topic.name)
        client.close()

    async def producer(self, topic: Topic) -> Producer:
        return RedisProducer(self.connect(), topic.name)

    async def consumer(self, topic: Topic, group: str) -> Consumer:
        return RedisConsumer(self.connect(), topic.name, group)

    async def replay(self, topic: Topic, since: float, count: int) -> tuple[float, int]:
        client = self.connect()
        first, got, after = 0.0, 0, f"{int(since * 1000)}-0"
        while got < count and (found := client.xrange(topic.name, min=after, count=READ)):
            first = first or time.monotonic()
            got += len(found)
            after = b"(" + found[-1][0]
        client.close()
        return first, got


class RedisAlways(RedisEverysec):
    name = "redis-always"
    only = (*THROUGHPUT, "W6")
    durability = "synced"
    promise = "appendonly, appendfsync always: synced before the ack"
    fsync = "always"


class RedisProducer(Producer):
    def __init__(self, client: Any, stream: str) -> None:
        self._client = client
        self._stream = stream

    async def publish(self, payload: bytes) -> None:
        self._client.xadd(self._stream, {"d": payload})

    async def publish_batch(self, payloads: list[bytes]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for payload in payloads:
            pipeline.xadd(self._stream, {"d": payload})
        pipeline.execute()

    async def turn_to(self, topic: Topic) -> None:
        self._stream = topic.name

    async def close(self) -> None:
        self._client.close()


class RedisConsumer(Consumer):
    def __init__(self, client: Any, stream: str, group: str) -> None:
        self._client = client
        self._stream = stream
        self._group = group
        self._name = f"c{os.getpid()}-{id(self)}"

    async def fetch(self, limit: int, timeout: float) -> list[Received]:
        block = max(1, int(timeout * 1000))
        reply = self._client.xreadgroup(
            self._group, self._name, {self._stream: ">"}, count=limit, block=block
        )
        return [(fields[b"d"], entry) for entry, fields in reply[0][1]] if reply else []

    async def ack(self, handle: bytes) -> None:
        self._client.xack(self._stream, self._group, handle)

    async def ack_batch(self, handles: list[bytes]) -> None:
        self._client.xack(self._stream, self._group, *handles)

    async def wait_idle(self) -> None:
        # Only the request: its answer comes when there is work.
        self._client.connection_pool.get_connection().send_command(
            "XREADGROUP", "GROUP", self._group, self._name, "COUNT", 1, "BLOCK", 0, "STREAMS", self._stream, ">"
        )  # fmt: skip

    async def close(self) -> None:
        self._client.connection_pool.disconnect()
