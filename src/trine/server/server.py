"""The server: one store, its listeners, and how they start and stop.

    start   keys, certificates ─▶ HTTP listener (only /health and /ready answer) ─▶ the store recovers, in a thread
            ─▶ binary listener ─▶ ready
    stop    closing is set: no new connections, consumers are told, long polls end ─▶ what is under way is answered,
            for a bounded time ─▶ all is synced, a checkpoint is written, the directory is let go

It runs in any event loop: of its own process (`process`), or of a test. Signals and the terminal are not known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from typing import TYPE_CHECKING, Any, Protocol

from trine.broker.aio import AsyncBroker
from trine.broker.engine import Engine
from trine.broker.housekeeping import Housekeeper
from trine.broker.opening import MEMORY, open_store
from trine.log.disk import RealDisk
from trine.model.clock import Clock
from trine.model.errors import Closed, InvalidConfig, Locked
from trine.model.version import VERSION
from trine.server import tls
from trine.server.commits import Commits
from trine.server.config import ListenerConfig, ServerConfig
from trine.server.context import Context, Readiness
from trine.server.keys import Keys, is_exposed
from trine.server.logs import get_log
from trine.server.metrics import Listener as ListenerName
from trine.server.metrics import Metrics

if TYPE_CHECKING:
    from trine.server.http.listener import HttpListener
    from trine.server.tcp import Listener

KEYS_LOOK_S = 1.0
"""How often the keys file is looked at: a deleted key is of no use a moment later."""
ABORT_S = 1.0
"""How long connections that were ended may take to be gone."""
PROGRESS_S = 1.0
"""How often the log tells how far recovery is."""


class Listening(Protocol):
    """What both listeners are."""

    @property
    def address(self) -> tuple[str, int]: ...

    def close(self) -> None:
        """No new connections; those that are there finish what is under way."""

    async def wait_closed(self) -> None:
        """Until the last connection is gone."""

    def abort(self) -> None:
        """Ends what is left, at once."""


class Server:
    """`await start()`, then use it, then `await stop()`; also `async with`.

    With a simulated clock nothing happens by itself: call `await server.context.broker.tick()`.
    """

    def __init__(
        self, config: ServerConfig, *, clock: Clock | None = None, progress_s: float = PROGRESS_S
    ) -> None:
        self.config = config
        self.readiness = Readiness()
        self.context: Context | None = None
        self.http_tls: ssl.SSLContext | None = None
        self._binary_tls: ssl.SSLContext | None = None
        self._clock = clock
        self._progress_s = progress_s
        self.log: Any = get_log(node=config.broker.node_id)
        self.metrics = Metrics(node_id=config.broker.node_id, version=VERSION)
        self.keys: Keys | None = None
        self._http: HttpListener | None = None
        self._binary: Listener | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def binary_address(self) -> tuple[str, int]:
        if self._binary is None:
            raise Closed("the binary listener has not been started yet, or was stopped")
        return self._binary.address

    def connected(self) -> tuple[int, int]:
        """Connections of the binary listener: how many there are, and how many there ever were."""
        binary = self._binary
        return (0, 0) if binary is None else (len(binary.connections), binary.opened)

    @property
    def http_address(self) -> tuple[str, int]:
        if self._http is None:
            raise Closed("the HTTP listener has not been started yet, or was stopped")
        return self._http.address

    # --- start

    async def start(self) -> None:
        """Returns when everything answers. Raises InvalidConfig, Locked, Corrupt; then nothing is left behind."""
        try:
            await self._start()
        except BaseException:
            self.readiness.state = "failed"
            await self._leave()
            raise

    async def _start(self) -> None:
        config = self.config
        listeners = config.broker.listeners
        self.keys = Keys(config.security.keys_file, log=self.log, refused=self.metrics.refuse)
        self._tell_keys(self.keys)
        if listeners.binary.tls is not None:
            self._binary_tls = tls.make_context(listeners.binary.tls)
        if listeners.http.tls is not None:
            self.http_tls = tls.make_context(listeners.http.tls, alpn=["http/1.1"])
        with self._explaining("binary"):
            _check_free(listeners.binary)  # it is taken when the store is open, which may be minutes from now
        self._http = await self._listen_http()
        self.readiness.recovering()
        self.log.info("recovering", data_dir=config.broker.data_dir)
        self._spawn(self.metrics.sample_loop())
        engine, housekeeper = await self._open()
        broker = AsyncBroker(engine, housekeeper)
        commits = Commits(engine, self.metrics.observe_sync)
        broker._waits.shared = commits.durable
        context = Context(
            config=config,
            broker=broker,
            engine=engine,
            keys=self.keys,
            metrics=self.metrics,
            commits=commits,
            log=self.log,
            binary_tls=self._binary_tls,
            http_tls=self.http_tls,
        )
        self.metrics.watch(engine)
        try:
            self._binary = await self._listen_binary(context)
        except BaseException:
            await broker.close()
            raise
        self._spawn(self._look_at_keys(self.keys))
        self.readiness.recovered()
        self.metrics.recovered(self.readiness)
        self.context = context
        self._http.begin()
        self.log.info(
            "ready",
            binary=_shown(self.binary_address),
            http=_shown(self.http_address),
            seconds=round(self.readiness.seconds, 3),
            journal_bytes=self.readiness.journal_bytes,
            topics=len(engine.topics),
        )

    def _tell_keys(self, keys: Keys) -> None:
        file = self.config.security.keys_file
        if file is None:
            self.log.warning("no API keys: only this machine may connect")
        elif not len(keys):
            self.log.warning("the keys file has no keys: nobody may connect", keys_file=file)
        elif is_exposed(file):
            self.log.warning("others may change the keys file: chmod 600 it", keys_file=file)

    async def _open(self) -> tuple[Engine, Housekeeper]:
        telling = asyncio.get_running_loop().create_task(self._tell_progress())
        opening = asyncio.get_running_loop().run_in_executor(None, self._open_store)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # A thread cannot be stopped: what it opens is closed again, or the directory would stay locked.
            engine, housekeeper = await opening
            await AsyncBroker(engine, housekeeper).close()
            raise
        finally:
            telling.cancel()

    def _open_store(self) -> tuple[Engine, Housekeeper]:
        return open_store(
            self.config.broker.data_dir,
            clock=self._clock,
            member_grace_ms=self.config.limits.member_grace_ms,
            progress=self.readiness.progress,
        )

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(self._progress_s)
            self.log.info("recovering", **self.readiness.describe())

    async def _listen_http(self) -> HttpListener:
        from trine.server.http.listener import listen as listen_http

        with self._explaining("http"):
            listener = await listen_http(self)
        self.metrics.count_connections("http", lambda: listener.connections)
        return listener

    async def _listen_binary(self, context: Context) -> Listener:
        from trine.server.tcp import listen

        with self._explaining("binary"):
            return await listen(context)

    @contextlib.contextmanager
    def _explaining(self, name: ListenerName) -> Any:
        """A socket's error, with the setting that it is about."""
        listener: ListenerConfig = getattr(self.config.broker.listeners, name)
        setting = f"broker.listeners.{name}"
        where = f"{listener.host}:{listener.port}"
        try:
            yield
        except socket.gaierror as error:
            raise InvalidConfig(
                f"{setting}.host is {listener.host!r}, which leads nowhere: {error}"
            ) from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                if self.readiness.state == "starting":  # later the directory is this server's own
                    _check_unlocked(self.config.broker.data_dir)
                raise InvalidConfig(
                    f"port {listener.port} of {listener.host} is in use: stop who has it, or set {setting}.port "
                    f"(TRINE_{name.upper()}_PORT, --{name}-port) to another; 0 takes any free one"
                ) from error
            if error.errno == errno.EADDRNOTAVAIL:
                raise InvalidConfig(
                    f"{setting}.host is {listener.host!r}, which is not an address of this machine"
                ) from error
            if error.errno in (errno.EACCES, errno.EPERM):
                raise InvalidConfig(
                    f"this user may not listen on {where}: set {setting}.port to one above 1023"
                ) from error
            raise

    # --- meanwhile

    def _spawn(self, work: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def _look_at_keys(self, keys: Keys) -> None:
        while True:
            await asyncio.sleep(KEYS_LOOK_S)
            keys.refresh()

    def reload(self) -> None:
        """Certificates and keys as their files are now (SIGHUP). What is off is logged, and the old one holds."""
        listeners = self.config.broker.listeners
        pairs = ((self._binary_tls, listeners.binary), (self.http_tls, listeners.http))
        for context, listener in pairs:
            if context is None or listener.tls is None:
                continue
            try:
                tls.reload(context, listener.tls)
            except InvalidConfig as error:
                self.log.error("the new certificate is off, the old one holds", why=str(error))
            else:
                self.log.info("certificate read again", cert=listener.tls.cert)
        if self.keys is not None:
            self.keys.refresh()

    # --- stop

    async def stop(self) -> None:
        """Drains, for `limits.shutdown` at the most, and closes. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        self.readiness.state = "closing"
        self.metrics.ready.set(0)
        self.log.info("stopping")
        if self.context is not None:
            self.context.closing.set()
        await self._drain(self.config.limits.shutdown_ms / 1000)
        context, self.context = self.context, None
        await self._leave()
        if context is not None:
            context.commits.close()
            await context.broker.close()
        self.log.info("stopped")

    async def _drain(self, seconds: float) -> None:
        listeners: list[Listening] = [one for one in (self._binary, self._http) if one is not None]
        for listener in listeners:
            listener.close()
        ends = [asyncio.ensure_future(listener.wait_closed()) for listener in listeners]
        if not ends:
            return
        _, late = await asyncio.wait(ends, timeout=seconds)
        if late:
            self.log.warning("some requests took too long and were ended", waited_s=seconds)
            for listener in listeners:
                listener.abort()
            await asyncio.wait(ends, timeout=ABORT_S)
        for end in ends:
            if not end.done():
                end.cancel()
            elif not end.cancelled() and (error := end.exception()) is not None:
                self.log.error("a listener ended badly", why=repr(error))

    async def _leave(self) -> None:
        """Lets go of listeners and tasks, whatever there is of them."""
        listeners: list[Listening] = [one for one in (self._binary, self._http) if one is not None]
        self._binary = self._http = None
        for listener in listeners:
            listener.abort()
        if listeners:
            ends = [asyncio.ensure_future(listener.wait_closed()) for listener in listeners]
            _, late = await asyncio.wait(ends, timeout=ABORT_S)
            for end in late:
                end.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


def _shown(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_free(listener: ListenerConfig) -> None:
    """Raises what taking the port would raise, and lets it go again."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the listener does
        probe.bind(address)


def _check_unlocked(data_dir: str) -> None:
    """A port in use is most often that of the same server, started twice: then its lock says so better."""
    if data_dir == MEMORY:
        return
    with contextlib.suppress(OSError):
        disk = RealDisk(data_dir, create=False)
        try:
            disk.lock()
        except Locked:
            raise
        except Exception:
            return
        disk.unlock()
