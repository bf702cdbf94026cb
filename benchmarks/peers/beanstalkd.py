"""beanstalkd with its write-ahead log, with greenstalk."""

from __future__ import annotations

import shutil
import socket
import time
from typing import Any, ClassVar

from benchmarks.peers.peer import THROUGHPUT, Class, Consumer, Peer, Producer, Received, Topic
from benchmarks.peers.processes import HOST, free_port, output

PIPELINED = 200
TTR_S = 600
JOB_BYTES = 2 << 20
HIGH, NORMAL, LOW = 0, 65_536, 1_000_000


class Beanstalkd(Peer):
    """A sync every 50 ms at most, the default."""

    name = "beanstalkd"
    broker = "beanstalkd"
    client = "greenstalk"
    modules = ("greenstalk",)
    packages = ("beanstalkd",)
    durability: ClassVar[Class] = "written"
    promise = "binlog, -f50 (the default): acked before the sync, up to 50 ms may be lost"
    acks = "delete, answered, one at a time; as durable as a publish"
    fsync_ms: ClassVar[int] = 50

    @classmethod
    def executable(cls) -> str | None:
        return shutil.which("beanstalkd")

    def version(self) -> str:
        return output("beanstalkd", "-v")

    def choose_ports(self) -> None:
        self._port = free_port()

    def launch(self) -> None:
        binlog = self.folder / "binlog"
        binlog.mkdir(exist_ok=True)
        self.own(binlog)
        self.spawn(
            "beanstalkd", "-l", HOST, "-p", str(self._port), "-b", binlog, "-f", str(self.fsync_ms),
            "-z", str(JOB_BYTES),
        )  # fmt: skip
        self.await_port(self._port)

    def connect(self, **tubes: Any) -> Any:
        import greenstalk

        return greenstalk.Client((HOST, self._port), encoding=None, **tubes)

    async def reset(self, topic: Topic) -> None:
        """Tubes come into being when they are first used."""

    async def drop(self, topic: Topic) -> None:
        """It can only be emptied job by job, which takes as long as draining it: it stays until the server ends."""

    async def producer(self, topic: Topic) -> Producer:
        return BeanstalkdProducer(self.connect(), topic)

    async def consumer(self, topic: Topic, group: str) -> Consumer:
        return BeanstalkdConsumer(self.connect(watch=f"{topic.name}.{group}"), topic.deliveries_max)

    async def preload(self, topic: Topic, payload: bytes, count: int, seconds: float) -> int:
        return self.pipelined(topic, payload, count, seconds, NORMAL, 0)

    def pipelined(
        self, topic: Topic, payload: bytes, count: int, seconds: float, rank: int, delay_s: int
    ) -> int:
        """Puts over a bare socket, many under way at once, which greenstalk cannot."""
        put = b"put %d %d %d %d\r\n%s\r\n" % (rank, delay_s, TTR_S, len(payload), payload)
        deadline = time.monotonic() + seconds
        done = 0
        with socket.create_connection((HOST, self._port)) as link:
            replies = link.makefile("rb")
            for group in topic.groups:
                link.sendall(f"use {topic.name}.{group}\r\n".encode())
                replies.readline()
                done = 0
                while done < count and time.monotonic() < deadline:
                    burst = min(PIPELINED, count - done)
                    link.sendall(put * burst)
                    for _ in range(burst):
                        if not replies.readline().startswith(b"INSERTED"):
                            raise RuntimeError("beanstalkd did not take a job")
                    done += burst
        return done


class BeanstalkdAlways(Beanstalkd):
    name = "beanstalkd-always"
    only = (*THROUGHPUT, "W6")
    durability = "synced"
    promise = "binlog, -f0: synced before the ack"
    fsync_ms = 0


class BeanstalkdProducer(Producer):
    """One round trip a message: neither put nor greenstalk knows batches."""

    def __init__(self, client: Any, topic: Topic) -> None:
        self._client = client
        self._route(topic)

    def _route(self, topic: Topic) -> None:
        self._tubes = [f"{topic.name}.{group}" for group in topic.groups]
        self._client.use(self._tubes[0])

    def _put(self, payload: bytes, **options: Any) -> None:
        if len(self._tubes) == 1:
            self._client.put(payload, ttr=TTR_S, **options)
            return
        for tube in self._tubes:  # there is no fan-out: the publisher copies
            self._client.use(tube)
            self._client.put(payload, ttr=TTR_S, **options)

    async def publish(self, payload: bytes) -> None:
        self._put(payload)

    async def publish_batch(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            self._put(payload)

    async def publish_later(self, payloads: list[bytes], delays_ms: list[int]) -> None:
        """Whole seconds: the next one, so that nothing is early."""
        for payload, delay in zip(payloads, delays_ms, strict=True):
            self._put(payload, delay=-(-delay // 1000))

    async def publish_ranked(self, payloads: list[bytes], high: bool) -> None:
        for payload in payloads:
            self._put(payload, priority=HIGH if high else LOW)

    async def turn_to(self, topic: Topic) -> None:
        self._route(topic)

    async def close(self) -> None:
        self._client.close()


class BeanstalkdConsumer(Consumer):
    def __init__(self, client: Any, deliveries_max: int) -> None:
        import greenstalk

        self._client = client
        self._deliveries_max = deliveries_max
        self._timed_out = greenstalk.TimedOutError

    async def fetch(self, limit: int, timeout: float) -> list[Received]:
        try:
            job = self._client.reserve(timeout=max(1, round(timeout)))
        except self._timed_out:
            return []
        return [(job.body, job)]

    async def ack(self, handle: Any) -> None:
        self._client.delete(handle)

    async def retry(self, handle: Any) -> None:
        """It counts reserves; burying what was tried often enough is the consumer's work."""
        if self._client.stats_job(handle)["reserves"] >= self._deliveries_max:
            self._client.bury(handle)
        else:
            self._client.release(handle)

    async def wait_idle(self) -> None:
        self._client._sock.sendall(b"reserve\r\n")  # only the request: its answer comes when there is work

    async def close(self) -> None:
        self._client.close()
