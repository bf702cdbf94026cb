"""A process full of clients: consumers and producers of one server, each with a connection of its own.

    python -m tests.soak.crowd '{"url": …, "first": 0, "consumers": 500, "producers": 100, "pace_s": 0.2}'

It says "ready" when all are connected, and then does what it is told, a line each way:

    go        the producers publish, each at its pace     -> "going"
    pause     they stop                                   -> "paused", when all that is under way is answered
    report    what each of them did so far                -> JSON
    end       all leave                                   -> the process ends
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

import uvloop

import trine.aio
from trine.client.aio import AsyncBroker
from trine.model.errors import Closed, Conflict, Unreachable

TOPICS = 4
"""Each with one group, in which a quarter of the consumers are."""
CONNECTING = 50
"""Connections that are being made at once."""
VALUE = b"v" * 2_000
"""Large enough that buffers of a fixed size, such as the tails of logs, are full well before the run is over."""
PREFETCH = 10
RECEIVED = 5
"""Messages a client is given at once, at most: small, so that one burst is shared by many."""


def topic_of(number: int) -> str:
    return f"crowd-{number % TOPICS}"


class Crowd:
    def __init__(self, *, url: str, first: int, consumers: int, producers: int, pace_s: float) -> None:
        self.url = url
        self.pace_s = pace_s
        self.taken = dict.fromkeys(range(first, first + consumers), 0)
        self.published = dict.fromkeys(range(first, first + producers), 0)
        self.failures: list[str] = []
        self._gate = asyncio.Event()
        self._slots = asyncio.Semaphore(CONNECTING)
        self._under_way = 0
        self._joined: asyncio.Queue[None] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def assemble(self) -> None:
        for number in self.taken:
            self._tasks.append(asyncio.create_task(self._guarded(self._consume(number))))
        for number in self.published:
            self._tasks.append(asyncio.create_task(self._guarded(self._produce(number))))
        for _ in self._tasks:
            await self._joined.get()

    async def obey(self, word: str) -> str:
        if word == "go":
            self._gate.set()
            return "going"
        if word == "pause":
            self._gate.clear()
            while self._under_way:
                await asyncio.sleep(0.01)
            return "paused"
        assert word == "report", word
        taken, published = list(self.taken.values()), list(self.published.values())
        return json.dumps({"taken": taken, "published": published, "failures": self.failures})

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except Exception as error:
            self.failures.append(repr(error))
            self._joined.put_nowait(None)

    async def _connected(self) -> AsyncBroker:
        broker = trine.aio.connect(self.url)
        async with self._slots:
            await broker.__aenter__()
        return broker

    async def _consume(self, number: int) -> None:
        """Every other one of a group is pushed to; the others ask."""
        async with await self._connected() as broker:
            group = broker.topic(topic_of(number)).group("g")
            prefetch = PREFETCH if number // TOPICS % 2 else 0
            async with group.consumer(f"consumer-{number}", prefetch=prefetch) as consumer:
                self._joined.put_nowait(None)
                while True:
                    try:
                        messages = await consumer.receive(max=RECEIVED, wait="10s")
                        self.taken[number] += await consumer.ack(messages)
                    except (Unreachable, Closed, Conflict):
                        await asyncio.sleep(0.1)  # the server is going away, or gone

    async def _produce(self, number: int) -> None:
        rng = random.Random(number)
        async with await self._connected() as broker:
            topic = broker.topic(topic_of(number))
            self._joined.put_nowait(None)
            while True:
                await self._gate.wait()
                self._under_way += 1
                try:
                    self.published[number] += (await topic.publish(VALUE)).offset >= 0
                except (Unreachable, Closed):
                    pass
                finally:
                    self._under_way -= 1
                await asyncio.sleep(self.pace_s * rng.uniform(0.5, 1.5))


async def main() -> None:
    crowd = Crowd(**json.loads(sys.argv[1]))
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    await crowd.assemble()
    say("ready")
    while (word := (await commands.readline()).decode().strip()) not in ("end", ""):
        say(await crowd.obey(word))
    await crowd.end()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(main())
