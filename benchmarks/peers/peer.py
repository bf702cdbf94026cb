"""What a workload asks of a broker, whichever it is.

Every method of a client is a coroutine. Clients that block (redis-py, psycopg, greenstalk, confluent-kafka) block
inside it: each client of a benchmark has a process of its own, so nobody else waits for that event loop.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from benchmarks.peers.processes import Processes

AckMode = Literal["each", "batch"]
Class = Literal["memory", "written", "synced"]
CLASSES: Final[dict[Class, str]] = {
    "synced": "acked when it is on disk: it survives a power cut",
    "written": "acked when the operating system has it: it survives kill -9, and the disk has it some time later",
    "memory": "acked when the broker has it in its own memory: kill -9 may lose the last of it",
}
"""What the ack of a publish is worth. Peers are compared within a class, never across."""

THROUGHPUT: Final = ("W1", "W2", "W3", "W4", "W5")
"""For peers that are measured for the way in or the class alone."""

Received = tuple[bytes, Any]
"""A payload, and whatever `Consumer.ack` takes for it."""


class Cannot(Exception):
    """This broker has no such thing; the sentence says what its users do instead."""


@dataclass(frozen=True)
class Topic:
    """What a workload asks for, in the broker's own words or the nearest to it.

    Every one of the groups receives every message; the consumers of one group share its messages.
    """

    name: str
    groups: tuple[str, ...] = ("g0",)
    consumers: int = 1
    ack: AckMode = "each"
    delays: bool = False
    """Messages will be published for later."""
    priorities: bool = False
    """Messages will be published as high or low."""
    prefetch: int = 0
    """How many messages a consumer may be sent ahead; 0 is what suits the broker's throughput."""
    deliveries_max: int = 0
    """A message that was given so many times and never acked is put aside; 0 is the broker's default."""


class Producer:
    """Publishes to a topic. An ack is the broker's own, with the peer's durability."""

    async def publish(self, payload: bytes) -> None:
        """One message, until it is acked."""
        raise NotImplementedError

    async def publish_batch(self, payloads: list[bytes]) -> None:
        """Many, as fast as the client can, until all are acked."""
        raise NotImplementedError

    async def send(self, payloads: list[bytes]) -> None:
        """Without waiting for the acks, where the client can; `flush` waits."""
        await self.publish_batch(payloads)

    async def flush(self) -> None:
        """Until all that was sent is acked."""

    async def publish_later(self, payloads: list[bytes], delays_ms: list[int]) -> None:
        """Messages that are due in so many milliseconds, one delay each; until all are acked."""
        raise Cannot("it has no delayed messages")

    async def publish_ranked(self, payloads: list[bytes], high: bool) -> None:
        """Messages of high or of low priority, until all are acked."""
        raise Cannot("it has no priorities")

    async def turn_to(self, topic: Topic) -> None:
        """Publish to another topic from now on, over the same connection."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of the connection."""


class Consumer:
    """Receives the messages of one group of a topic."""

    async def fetch(self, limit: int, timeout: float) -> list[Received]:
        """1 to `limit` messages as soon as there is one; none at the timeout."""
        raise NotImplementedError

    async def ack(self, handle: Any) -> None:
        raise NotImplementedError

    async def ack_batch(self, handles: list[Any]) -> None:
        """The messages of one fetch, in one go where the broker has a way."""
        for handle in handles:
            await self.ack(handle)

    async def retry(self, handle: Any) -> None:
        """This one failed: give it again, until it was given `deliveries_max` times."""
        raise Cannot("a consumer cannot give a message back")

    async def settle(self) -> None:
        """Until the broker has taken in every ack sent so far."""

    async def wait_idle(self) -> None:
        """Be a consumer that waits for work, without being read from."""

    async def close(self) -> None:
        """Let go of the connection."""


class Inbox(Consumer):
    """A consumer to whom the broker pushes: messages wait here until they are fetched."""

    def __init__(self) -> None:
        self._queue: deque[Received] = deque()
        self._wake = asyncio.Event()

    def deliver(self, payload: bytes, handle: Any) -> None:
        """Takes in one message from the client library's callback."""
        self._queue.append((payload, handle))
        self._wake.set()

    async def fetch(self, limit: int, timeout: float) -> list[Received]:
        queue = self._queue
        if not queue:
            self._wake.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                return []
        if len(queue) <= limit:
            received = list(queue)
            queue.clear()
            return received
        return [queue.popleft() for _ in range(limit)]


class Peer(Processes):
    """One broker in one configuration, with servers of its own on an empty folder and free ports."""

    name: ClassVar[str] = ""
    broker: ClassVar[str] = ""
    """What people call it; several peers may be of one broker."""
    client: ClassVar[str] = ""
    """The Python client library."""
    durability: ClassVar[Class] = "written"
    promise: ClassVar[str] = ""
    """What the ack of a publish promises, in the broker's own words."""
    acks: ClassVar[str] = ""
    """What acking a received message is: answered or only sent, and how durable."""
    modules: ClassVar[tuple[str, ...]] = ()
    """Python modules the client needs."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Debian packages that have the server."""
    natural_ack: ClassVar[AckMode] = "each"
    """Logs commit offsets, once a fetch."""
    is_log: ClassVar[bool] = False
    """A log rather than a queue: compared beside the queues, not counted among them."""
    shares_groups: ClassVar[bool] = True
    fans_out: ClassVar[bool] = True

    only: ClassVar[tuple[str, ...]] = ()
    """The workloads this peer is for; none named: all."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / self.name)

    @classmethod
    def missing(cls) -> str | None:
        """Why this peer cannot be measured here, or nothing."""
        lacking = [name for name in cls.modules if importlib.util.find_spec(name) is None]
        if lacking:
            return f"the Python package {', '.join(lacking)} is not installed"
        if cls.executable() is None:
            return f"its server is not installed (Debian: {', '.join(cls.packages)})"
        return None

    @classmethod
    def executable(cls) -> str | None:
        """The server's program, if it is here."""
        raise NotImplementedError

    def version(self) -> str:
        raise NotImplementedError

    # --- topics and clients

    async def reset(self, topic: Topic) -> None:
        """Makes the topic, empty, with its groups."""
        raise NotImplementedError

    async def drop(self, topic: Topic) -> None:
        """Removes the topic."""

    async def producer(self, topic: Topic) -> Producer:
        raise NotImplementedError

    async def consumer(self, topic: Topic, group: str) -> Consumer:
        """A consumer of one group, ready to be handed messages."""
        raise NotImplementedError

    async def preload(self, topic: Topic, payload: bytes, count: int, seconds: float) -> int:
        """Fills the topic, untimed, by the fastest way there is; gives up after so long, and tells how far it came."""
        producer = await self.producer(topic)
        done = 0
        deadline = asyncio.get_running_loop().time() + seconds
        while done < count and asyncio.get_running_loop().time() < deadline:
            some = min(self.bulk, count - done)
            await producer.publish_batch([payload] * some)
            done += some
        await producer.close()
        return done

    bulk: ClassVar[int] = 1_000
    """Messages of one batch of `preload`."""

    async def replay(self, topic: Topic, since: float, count: int) -> tuple[float, int]:
        """Reads so many messages from a time (s since the epoch); when the first came, and how many came."""
        raise Cannot("what was acked is gone: nothing can be read a second time")

    async def trace(self, topic: Topic, places: list[int]) -> list[float]:
        """Looks up what happened to the messages at these places of the topic; how long each look-up took, s."""
        raise Cannot("it keeps no record of what happened to a message")
