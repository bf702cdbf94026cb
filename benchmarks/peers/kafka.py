"""Apache Kafka 3 or 4, one node that is broker and controller (KRaft), with confluent-kafka.

It is in no package registry: `PEERS_KAFKA_HOME` names an unpacked one (the folder that has `libs/`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import Class, Consumer, Peer, Producer, Received, Topic
from benchmarks.peers.processes import HOST, free_port

HOME = "PEERS_KAFKA_HOME"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"  # any 16 bytes in base64
JOIN_S = 30.0
SETTLED_S = 1.0
FLUSH_S = 30.0
MESSAGE_BYTES = 2 << 20


class Kafka(Peer):
    name = "kafka"
    broker = "Kafka"
    client = "confluent-kafka"
    modules = ("confluent_kafka",)
    durability: ClassVar[Class] = "written"
    promise = "acks=all, one broker: acked before the sync (the default)"
    acks = "the offset committed, answered; once a fetch"
    natural_ack = "batch"
    is_log = True
    settings: ClassVar[str] = ""

    @classmethod
    def missing(cls) -> str | None:
        if not os.environ.get(HOME):
            return f"no Kafka is configured ({HOME} names the folder of an unpacked one)"
        if not list(cls._home().glob("libs/kafka-clients-*.jar")):
            return f"{cls._home()}, which {HOME} names, has no libs/kafka-clients-*.jar"
        return "java is not installed" if shutil.which("java") is None else super().missing()

    @classmethod
    def _home(cls) -> Path:
        return Path(os.environ[HOME])

    @classmethod
    def executable(cls) -> str | None:
        return shutil.which("java")

    def version(self) -> str:
        return next(self._home().glob("libs/kafka-clients-*.jar")).stem.replace("kafka-clients-", "Kafka ")

    def choose_ports(self) -> None:
        self._port, self._controller = free_port(), free_port()

    def _java(self, *arguments: str | Path) -> list[str | Path]:
        return ["java", "-Xms1g", "-Xmx1g", "-cp", f"{self._home()}/libs/*", *arguments]

    def launch(self) -> None:
        settings = self.folder / "server.properties"
        settings.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@{HOST}:{self._controller}\n"
            f"listeners=PLAINTEXT://{HOST}:{self._port},CONTROLLER://{HOST}:{self._controller}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={self.folder}/logs\ngroup.initial.rebalance.delay.ms=0\n"
            "offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n"
            f"message.max.bytes={MESSAGE_BYTES}\n{self.settings}\n"
        )
        if not (self.folder / "logs").exists():
            subprocess.run(
                self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", settings),
                check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self.identity,
            )  # fmt: skip
        self.spawn(*self._java("kafka.Kafka", settings))
        self.await_port(self._port)
        self.await_true(self._answers)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return bool(self._admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def options(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": f"{HOST}:{self._port}", "log_level": 2} | more

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self.options())

    async def reset(self, topic: Topic) -> None:
        """With a partition for each consumer of a group."""
        from confluent_kafka.admin import NewTopic

        admin = self._admin()  # what it is asked ends with it
        admin.create_topics([NewTopic(topic.name, topic.consumers, 1)])[topic.name].result(10)

    async def drop(self, topic: Topic) -> None:
        admin = self._admin()
        admin.delete_topics([topic.name])[topic.name].result(10)

    async def producer(self, topic: Topic) -> Producer:
        from confluent_kafka import Producer as Client

        # flush() sends at once, whatever linger.ms says, so that batches do not wait for it.
        client = Client(
            self.options(
                **{
                    "acks": "all",
                    "linger.ms": 0,
                    "delivery.report.only.error": True,
                    "queue.buffering.max.messages": 1_000_000,
                    "message.max.bytes": MESSAGE_BYTES,
                }
            )
        )
        client.list_topics(topic.name, timeout=10)
        return KafkaProducer(client, topic)

    async def consumer(self, topic: Topic, group: str) -> Consumer:
        consumer = KafkaConsumer(self._reader(f"{topic.name}.{group}"), topic)
        consumer.join()
        return consumer

    def _reader(self, group: str) -> Any:
        from confluent_kafka import Consumer as Client

        return Client(
            self.options(
                **{
                    "group.id": group,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "session.timeout.ms": 10_000,
                }
            )
        )

    async def replay(self, topic: Topic, since: float, count: int) -> tuple[float, int]:
        from confluent_kafka import TopicPartition

        client = self._reader(f"{topic.name}.replay")
        client.assign(
            client.offsets_for_times([TopicPartition(topic.name, 0, int(since * 1000))], timeout=30)
        )
        first, got = 0.0, 0
        while got < count and (found := client.consume(1_000, 10)):
            first = first or time.monotonic()
            got += len(found)
        client.close()
        return first, got


class KafkaSynced(Kafka):
    name = "kafka-synced"
    durability = "synced"
    promise = "acks=all, log.flush.interval.messages=1: synced before the ack"
    settings = "log.flush.interval.messages=1"


class KafkaProducer(Producer):
    def __init__(self, client: Any, topic: Topic) -> None:
        self._client = client
        self._topic = topic
        self._next = 0
        self._failed: list[Any] = []

    def _produce(self, payload: bytes) -> None:
        self._next = (self._next + 1) % self._topic.consumers
        self._client.produce(
            self._topic.name,
            payload,
            partition=self._next,
            on_delivery=lambda error, _: self._failed.append(error),
        )

    async def publish(self, payload: bytes) -> None:
        self._produce(payload)
        await self.flush()

    async def publish_batch(self, payloads: list[bytes]) -> None:
        await self.send(payloads)
        await self.flush()

    async def send(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            self._produce(payload)
        self._client.poll(0)

    async def flush(self) -> None:
        left = self._client.flush(FLUSH_S)
        if left or self._failed:
            raise RuntimeError(f"not delivered: {left} {self._failed[:1]}")

    async def turn_to(self, topic: Topic) -> None:
        self._topic = topic

    async def close(self) -> None:
        self._client.flush(FLUSH_S)


class KafkaConsumer(Consumer):
    def __init__(self, client: Any, topic: Topic) -> None:
        self._client = client
        self._topic = topic
        self._early: list[Any] = []
        client.subscribe([topic.name], on_assign=lambda *_: self._early.clear())  # they are fetched again

    def join(self) -> None:
        """Until this consumer has its share of the partitions, and has had it for a while: others may be joining."""
        deadline = time.monotonic() + JOIN_S
        share, since = 0, time.monotonic()
        while not share or time.monotonic() - since < SETTLED_S:
            if time.monotonic() > deadline:
                raise RuntimeError("no partition was assigned")
            if (held := len(self._client.assignment())) != share:
                share, since = held, time.monotonic()
            message = self._client.poll(0.05)
            if message is not None and not message.error():
                self._early.append(message)

    async def fetch(self, limit: int, timeout: float) -> list[Received]:
        if self._early:
            messages, self._early = self._early, []
        else:
            first = self._client.poll(timeout)
            if first is None:
                return []
            messages = [first, *self._client.consume(limit - 1, 0)] if limit > 1 else [first]
        for message in messages:
            if message.error():
                raise RuntimeError(str(message.error()))
        return [(message.value(), message) for message in messages]

    async def ack(self, handle: Any) -> None:
        self._client.commit(message=handle, asynchronous=False)

    async def ack_batch(self, handles: list[Any]) -> None:
        self._client.commit(message=handles[-1], asynchronous=False)

    async def close(self) -> None:
        self._client.close()
