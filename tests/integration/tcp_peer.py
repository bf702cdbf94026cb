"""A client of a few lines over the wire room, and a binary listener to talk to: what the tests of the server need."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import structlog

from trine.broker.aio import AsyncBroker
from trine.broker.opening import open_store
from trine.log import batch
from trine.model.clock import Clock
from trine.server.commits import Commits
from trine.server.config import ServerConfig
from trine.server.context import Context
from trine.server.keys import Keys
from trine.server.metrics import Metrics
from trine.server.tcp import Listener, listen
from trine.wire import bodies
from trine.wire.bodies import SERVER_CHOOSES, TOPICS_OWN, Bytes, Run
from trine.wire.calls import Call, JoinReply, read_reply, write_call
from trine.wire.frames import Command, Flag, Frame, Frames, write_frame
from trine.wire.hello import Hello, Welcome, read_failure, read_welcome, write_hello

__all__ = ["Peer", "Served", "serving", "values"]

PATIENCE = 10.0
"""Nothing here takes this long; a test that waits longer has failed."""


class Served:
    def __init__(self, context: Context, listener: Listener) -> None:
        self.context = context
        self.listener = listener
        self.engine = context.engine
        self._peers: list[Peer] = []

    async def peer(self, *, key: str | None = None, hello: bool = True) -> Peer:
        peer = await Peer.connect(*self.listener.address)
        self._peers.append(peer)
        if hello:
            await peer.hello(key)
        return peer

    async def close(self) -> None:
        for peer in self._peers:
            peer.drop()
        self.context.closing.set()
        self.listener.close()
        async with asyncio.timeout(PATIENCE):
            await self.listener.wait_closed()
        self.context.commits.close()
        await self.context.broker.close()


@contextlib.asynccontextmanager
async def serving(
    path: str = ":memory:",
    *,
    clock: Clock | None = None,
    keys_file: str | None = None,
    tls: ssl.SSLContext | None = None,
    **limits: int,
) -> AsyncIterator[Served]:
    """A binary listener on a free port, without the rest of the server."""
    engine, housekeeper = open_store(path, clock=clock)
    log = structlog.get_logger()
    metrics = Metrics()
    config = ServerConfig()
    config = msgspec.convert(
        {
            **msgspec.to_builtins(config),
            "broker": {"listeners": {"binary": {"port": 0}}},
            "limits": {**msgspec.to_builtins(config.limits), **limits},
        },
        ServerConfig,
    )
    context = Context(
        config=config,
        broker=AsyncBroker(engine, housekeeper),
        engine=engine,
        keys=Keys(keys_file, log=log, refused=metrics.refuse),
        metrics=metrics,
        commits=Commits(engine, metrics.observe_sync),
        log=log,
        binary_tls=tls,
    )
    served = Served(context, await listen(context))
    try:
        yield served
    finally:
        await served.close()


class Peer:
    """One connection. Replies are kept by their correlation, pushes in the order they came."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.replies: dict[int, Frame] = {}
        self.pushes: list[Frame] = []
        self.order: list[int] = []
        """Correlations in the order their replies came."""
        self._frames = Frames()
        self._last = 0
        self.at_end = False

    @classmethod
    async def connect(cls, host: str, port: int, **options: Any) -> Peer:
        return cls(*await asyncio.open_connection(host, port, **options))

    def drop(self) -> None:
        """As a client that dies: no word, no farewell."""
        self.writer.transport.abort()

    # --- frames

    def send(self, command: int, *body: Bytes, flags: int = 0) -> int:
        self._last += 1
        self.writer.write(write_frame(command, flags, self._last, *body))
        return self._last

    async def _more(self) -> None:
        async with asyncio.timeout(PATIENCE):
            data = await self.reader.read(256 * 1024)
        if not data:
            self.at_end = True
            self.writer.close()
            raise EOFError("the server closed the connection")
        for frame in self._frames.feed(data):
            kept = frame._replace(body=memoryview(bytes(frame.body)))
            if frame.flags & Flag.REPLY:
                self.replies[frame.correlation] = kept
                self.order.append(frame.correlation)
            else:
                self.pushes.append(kept)

    async def reply(self, correlation: int) -> Frame:
        while correlation not in self.replies:
            await self._more()
        frame = self.replies.pop(correlation)
        if frame.flags & Flag.ERROR:
            raise read_failure(frame.body)
        return frame

    async def ask(self, command: int, *body: Bytes) -> Frame:
        return await self.reply(self.send(command, *body))

    async def pushed(self) -> Frame:
        while not self.pushes:
            await self._more()
        return self.pushes.pop(0)

    async def farewell(self) -> Exception:
        """The reason of the GOODBYE; the connection must end after it."""
        with contextlib.suppress(EOFError):
            while True:
                await self._more()
        (goodbye,) = [frame for frame in self.pushes if frame.command == Command.GOODBYE]
        return read_failure(goodbye.body)

    # --- commands

    async def hello(self, key: str | None = None, least: int = 1, most: int = 1) -> Welcome:
        body = write_hello(Hello(least=least, most=most, client="test", key=key))
        return read_welcome((await self.ask(Command.HELLO, body)).body)

    async def call(self, call: Call) -> Any:
        frame = await self.ask(Command.CALL, write_call(call))
        return read_reply(type(call), frame.body)

    def send_publish(
        self,
        topic: str,
        *some: bytes,
        partition: int = SERVER_CHOOSES,
        durability: int = TOPICS_OWN,
        version: int = 0,
        wait_ms: int = 0,
    ) -> int:
        data = batch.encode_values(list(some), 0)
        return self.send(
            Command.PUBLISH, *bodies.write_publish(topic, durability, version, wait_ms, [(partition, data)])
        )

    async def publish(self, topic: str, *some: bytes, **options: int) -> tuple[int, list[Any]]:
        """(durability, [(partition, count, first offset)])."""
        return bodies.read_published((await self.reply(self.send_publish(topic, *some, **options))).body)

    async def join(self, topic: str, group: str, member: str = "m", **options: Any) -> JoinReply:
        from trine.wire.calls import Join

        joined: JoinReply = await self.call(Join(topic=topic, group=group, member=member, options=options))
        return joined

    async def receive(self, session: int, most: int = 100, wait_ms: int = 0) -> list[Run]:
        frame = await self.ask(Command.RECEIVE, bodies.write_receive(session, most, wait_ms))
        number, runs = bodies.read_delivery(frame.body)
        assert number == session
        return runs

    async def delivery(self) -> tuple[int, list[Run]]:
        frame = await self.pushed()
        assert frame.command == Command.DELIVERY
        if frame.flags & Flag.ERROR:
            raise read_failure(frame.body)
        return bodies.read_delivery(frame.body)

    async def ack(self, session: int, runs: list[Run]) -> tuple[int, int]:
        held = [(run.partition, run.lease, run.first, run.count) for run in runs]
        return bodies.read_settled((await self.ask(Command.ACK, bodies.write_ack(session, held))).body)

    async def settle(
        self, session: int, what: int, runs: list[Run], delay_ms: int = -1, reason: str = ""
    ) -> tuple[int, int]:
        held = [(run.partition, run.lease, run.first, run.count) for run in runs]
        body = bodies.write_settle(session, what, delay_ms, reason, held)
        return bodies.read_settled((await self.ask(Command.SETTLE, body)).body)


def values(runs: list[Run]) -> list[bytes | None]:
    """What the runs hold, in order."""
    found = []
    for run in runs:
        data = run.batches
        while data:
            size = batch.read_header(data).size
            found += [
                record.value
                for record in batch.decode(bytes(data[:size]))
                if run.first <= record.offset < run.first + run.count
            ]
            data = data[size:]
    return found
