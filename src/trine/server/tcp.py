"""The binary listener: the socket, the connections that came through it, and what they share.

It is as `asyncio.Server` is: `sockets`, `close` (no new connections; those that are there finish what is under way),
`wait_closed`. When the server's shutdown begins it closes by itself; `abort` is for those that take too long.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from trine.broker.redrive import RedriveJob
from trine.broker.topic import TopicState
from trine.model.errors import TooMany, TrineError
from trine.model.options import TopicConfig
from trine.server.connection import Connection
from trine.server.deliveries import Desks
from trine.server.reads import Reads

if TYPE_CHECKING:
    from trine.server.context import Context

BACKLOG = 1_024
"""Connections the system holds while the loop is busy: a fleet that starts at once is not refused."""


class Listener:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.desks = Desks(context)
        self.reads = Reads(context)
        self.jobs: dict[str, RedriveJob] = {}
        """Redrives that were stepped through here: what their rate is counted by. Bounded as the jobs are."""
        self.connections: set[Connection] = set()
        self.opened = 0
        """How many there ever were."""
        self._refused: set[Connection] = set()
        """Those among them that are one too many, and are only told so."""
        self._versions: dict[str, tuple[TopicConfig, int]] = {}
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    async def start(self) -> None:
        context = self.context
        wanted = context.config.broker.listeners.binary
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self), wanted.host, wanted.port, ssl=context.binary_tls, backlog=BACKLOG
        )
        self._watch = asyncio.get_running_loop().create_task(self._until_closing())

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        return tuple(self._server.sockets) if self._server is not None else ()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: (host, port)."""
        host, port, *_ = self.sockets[0].getsockname()
        return host, port

    # --- the end

    async def _until_closing(self) -> None:
        await self.context.closing.wait()
        self.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.shut()
        if self._watch is not None and self._watch is not asyncio.current_task():
            self._watch.cancel()

    async def wait_closed(self) -> None:
        """Until the last connection is gone."""
        await self._empty.wait()
        if self._watch is not None:
            await asyncio.wait((self._watch,))

    def abort(self) -> None:
        """Ends all connections at once; what was not answered may or may not have happened."""
        self.close()
        for connection in tuple(self.connections):
            connection.abort()

    # --- what connections tell

    def admit(self, connection: Connection) -> TrineError | None:
        """Counts a connection; answers why it may not stay, if it may not."""
        most = self.context.config.limits.connections
        full = len(self.connections) - len(self._refused) >= most
        self.connections.add(connection)
        self.opened += 1
        self._empty.clear()
        self.context.metrics.connection_opened("binary")
        if not full:
            return None
        self._refused.add(connection)
        self.context.metrics.connection_refused("binary")
        self.context.log.warning("too many connections", listener="binary", most=most, peer=connection.peer)
        return TooMany(
            f"the server has {most} connections, the most it takes (limits.connections); try later"
        )

    def gone(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self._refused.discard(connection)
            self.context.metrics.connection_closed("binary")
        if not self.connections:
            self._empty.set()

    def broken(self, connection: Connection, error: TrineError) -> None:
        """Somebody does not speak the protocol."""
        self.context.metrics.protocol_error()
        self.context.log.warning("connection closed", peer=connection.peer, why=error.message)

    def version_of(self, topic: TopicState) -> int:
        """The version of a topic's metadata, worked out once for each configuration."""
        known = self._versions.get(topic.name)
        if known is None or known[0] is not topic.config:
            known = self._versions[topic.name] = (topic.config, topic.version)
            if len(self._versions) > len(self.context.engine.topics):
                self._versions = {topic.name: known}  # some are deleted
        return known[1]


async def listen(context: Context) -> Listener:
    listener = Listener(context)
    await listener.start()
    return listener
