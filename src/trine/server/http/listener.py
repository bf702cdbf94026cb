"""The HTTP listener: uvicorn in the server's own loop, started before the store has recovered.

uvicorn is run by its parts: signals and the bound on the end are the server's.
"""

from __future__ import annotations

import asyncio
import math
import socket
from typing import Any, Final

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from trine.model.limits import KIB, MIB
from trine.server.context import Host
from trine.server.http.app import App, make_app
from trine.server.http.direct import DirectProtocol
from trine.server.http.gate import Gate
from trine.server.metrics import Metrics

HEADERS_BYTES_MAX: Final = 64 * KIB
"""Of one request; the parser itself has no limit."""
KEEP_ALIVE_S: Final = 65
"""A silent connection is closed after this: a little more than a long poll may take."""
HEAD_S: Final = 10.0
"""A new connection's first request, and the headers of each, must be whole by then: who sends them byte by byte, or
nothing, needs no key to hold a connection."""
BODY_S: Final = 30.0
"""A body must go on within this."""
SWEEP_S: Final = 1.0
"""How often those that are late are looked for: timers of their own would cost each request more than the look."""
FRAME_BYTES_MAX: Final = 1 * MIB
"""One WebSocket frame from a client: receipts, and no messages."""
BACKLOG: Final = 2048
GOODBYE_S: Final = 1.0
"""How long streams may take to say that the server closes: they are told at once."""


class Counted:
    """A connection that is in the metrics; those that came before the server was ready are not."""

    _metrics: Metrics | None = None

    def opened(self, gate: Any) -> None:
        assert isinstance(gate, Gate)
        if (context := gate.host.context) is not None:
            self._metrics = context.metrics
            self._metrics.connection_opened("http")

    def closed(self) -> None:
        if self._metrics is not None:
            self._metrics.connection_closed("http")
            self._metrics = None


class Protocol(DirectProtocol, Counted):
    """uvicorn's, with a limit on what headers may hold, and a way to end a connection that takes nothing."""

    _in_headers = False
    _header_bytes = 0
    _due = math.inf
    """By the loop's clock: when what is missing of a request must have come."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._due = self.loop.time() + HEAD_S
        self.opened(self.config.app)

    def end_if_late(self, now: float) -> None:
        if now > self._due:
            self._due = math.inf
            if self._metrics is not None:
                self._metrics.protocol_error("http")
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        self._due = math.inf
        self.closed()  # the connection is the other protocol's now

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > HEADERS_BYTES_MAX:
                if self._metrics is not None:
                    self._metrics.protocol_error("http")
                self.transport.abort()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._in_headers = True
        self._header_bytes = 0
        self._due = self.loop.time() + HEAD_S
        super().on_message_begin()
        self.scope["trine.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._due = self.loop.time() + BODY_S
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._due = self.loop.time() + BODY_S
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._due = math.inf
        super().on_message_complete()


class WebSocketProtocol(WebSocketsSansIOProtocol, Counted):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.opened(self.config.app)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed()
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):  # it was a good request
            self.scope["trine.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]


class HttpListener:
    """Serves one host. `address` is known once it was started."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.app: App = make_app(host)
        self.address: tuple[str, int] = ("", 0)
        self._uvicorn: uvicorn.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        config = self._host.config
        listener = config.broker.listeners.http
        bound = bind(listener.host, listener.port)
        settings = uvicorn.Config(
            self.app.gate,
            http=Protocol,
            ws=WebSocketProtocol,
            ws_max_size=FRAME_BYTES_MAX,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # a peer must not choose the address it is known by
            limit_concurrency=config.limits.connections,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        settings.load()
        settings.ssl = self._host.http_tls
        server = uvicorn.Server(settings)
        server.lifespan = settings.lifespan_class(settings)
        await server.startup(sockets=[bound])
        self._uvicorn = server
        self._ticking = asyncio.create_task(server.main_loop(), name="trine http")
        self._sweeping = asyncio.create_task(self._sweep(server), name="trine http late requests")
        host, port = bound.getsockname()[:2]
        self.address = (host, port)

    @property
    def connections(self) -> int:
        """How many are open, WebSockets too."""
        return len(self._uvicorn.server_state.connections) if self._uvicorn is not None else 0

    def begin(self) -> None:
        """The server is ready."""
        self.app.shared.begin()

    def close(self) -> None:
        """No new connections; requests that are under way finish."""
        if self._uvicorn is not None and self._ending is None:
            self._uvicorn.should_exit = True
            self._ending = asyncio.create_task(self._end(self._uvicorn), name="trine http closing")

    async def wait_closed(self) -> None:
        """Until the last connection is gone."""
        if self._ending is not None:
            await asyncio.shield(self._ending)

    def abort(self) -> None:
        """Ends what is left, at once."""
        server = self._uvicorn
        if server is None:
            return
        self.close()
        server.force_exit = True
        for connection in list(server.server_state.connections):
            transport: asyncio.WriteTransport | None = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        for task in list(server.server_state.tasks):
            task.cancel()
        self.app.stop()

    async def _sweep(self, server: uvicorn.Server) -> None:
        """Ends connections whose request does not come on."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            now = loop.time()
            for connection in list(server.server_state.connections):
                if isinstance(connection, Protocol):
                    connection.end_if_late(now)

    async def _end(self, server: uvicorn.Server) -> None:
        assert self._ticking is not None
        assert self._sweeping is not None
        for listening in server.servers:
            listening.close()
        # Streams say why they end; uvicorn would cut them off first.
        await self.app.shared.streams.ended(GOODBYE_S)
        await server.shutdown()
        await self._ticking
        self._sweeping.cancel()
        self.app.stop()
        self._uvicorn = None


async def listen(host: Host) -> HttpListener:
    """A listener that was started. Errors of the socket are told as they are: the server knows the setting."""
    listener = HttpListener(host)
    await listener.start()
    return listener


def bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)  # asyncio sends at once only where it knows that it is TCP
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound
