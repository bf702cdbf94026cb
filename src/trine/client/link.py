"""The way to one server: requests and their answers, over connections that come and go.

    connecting ──WELCOME──▶ connected ──lost──▶ connecting (after a pause that grows, with jitter) …
        │                       │
        └──────── close ────────┴──▶ closed

A request is answered through its `reply`: a future of the loop, or a slot a thread waits on. While there is no
connection a request waits for one, up to the link's timeout. When a connection is lost, those that are safe to repeat
are sent again over the next one; the others fail with `Lost`, as nobody knows whether they happened. A request that
names a session is *bound*: sessions are of one connection, so it fails with `Lost` rather than wait for another.

All of it happens in one event loop; other threads hand their requests over with `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from trine.client.address import Address
from trine.client.connection import Connection
from trine.model.errors import Closed, Denied, InvalidInput, TrineError, Unreachable
from trine.model.limits import FRAME_BYTES_MAX
from trine.wire import calls
from trine.wire.calls import Call
from trine.wire.frames import VERSION, Command, Flag, Frame, WireError, write_frame
from trine.wire.hello import Hello, Welcome, read_failure, read_welcome, write_hello

if TYPE_CHECKING:
    from trine.client.session import Session

PAUSE_FIRST: Final = 0.05
PAUSE_MAX: Final = 2.0
"""Seconds between attempts to connect: double each time, less a random half, so that clients do not come in waves."""

LEAVE_SECONDS: Final = 5.0
"""How long closing waits for the answers of groups that are left."""

CORRELATION_MAX: Final = 0x7FFF_FFFF
"""Those above are of threads that ask by themselves (`shortcut`)."""
# Plain numbers: a flag of an enum takes longer to test than a frame to read.
_REPLY: Final = int(Flag.REPLY)
_ERROR: Final = int(Flag.ERROR)
Part = bytes | bytearray | memoryview

SAFE: Final = frozenset(
    {
        calls.GetTopic, calls.ListTopics, calls.DescribeTopic, calls.GetOffsets, calls.NextSequence,
        calls.SendNumbered, calls.SendBatch, calls.RegisterProducer, calls.ForgetProducers,
        calls.CheckGroup, calls.ListGroups, calls.DescribeGroup, calls.GetArchived, calls.SetArchived,
        calls.ReadLedger, calls.GetLag, calls.PauseGroup, calls.ResumeGroup, calls.AlterTopic,
        calls.AlterGroup, calls.OpenReader, calls.CommitReader, calls.FindOffsets, calls.ListSchedules,
        calls.ListCrons, calls.ListDeadLetters, calls.ListRedrives, calls.ResumeRedrive,
        calls.PreviewRedrive, calls.MoveLetters, calls.GetTrace, calls.Search, calls.Checkpoint,
        calls.ApplyRetention, calls.Verify, calls.Statistics,
    }
)  # fmt: skip
"""Calls that may be sent again when nobody knows whether the first one arrived: twice does what once does."""


class Lost(Unreachable):
    """The connection broke while the request was under way."""


class Reply(Protocol):
    """What a request is answered through; a future is one."""

    def set_result(self, result: bytes, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...
    def done(self) -> bool: ...


class Request:
    __slots__ = ("command", "parts", "reply", "safe", "timer")

    def __init__(self, command: int, parts: tuple[Part, ...], reply: Reply, safe: bool) -> None:
        self.command = command
        self.parts = parts
        self.reply = reply
        self.safe = safe
        self.timer: asyncio.TimerHandle | None = None

    def fail(self, error: BaseException) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)


class Link:
    def __init__(self, address: Address, *, tls: ssl.SSLContext | None, timeout_ms: int, client: str) -> None:
        self.address = address
        self.timeout_ms = timeout_ms
        self.generation = 0
        """How many connections there have been; sessions are of one of them."""
        self.connected = False
        self.welcome: Welcome | None = None
        self.sessions: set[Session] = set()
        self.by_number: dict[int, Session] = {}
        self._tls = tls
        self._client = client
        self._closed = False
        self._connection: Connection | None = None
        self._correlation = 0
        self._pending: dict[int, Request] = {}
        self._waiting: dict[Request, None] = {}
        """Requests for the next connection, in order."""
        self._why: Exception | None = None
        self._clock = (0, 0.0)
        self._runner: asyncio.Task[None] | None = None
        self._attempted: asyncio.Future[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None

    # --- its life

    def start(self) -> None:
        """Begins to connect, in the running loop."""
        if self._runner is None and not self._closed:
            self.loop = asyncio.get_running_loop()
            self._ready = self.loop.create_future()
            self._runner = self.loop.create_task(self._run())

    async def open(self) -> None:
        """The first connection; raises why there is none. Later ones are made by themselves."""
        self.start()
        assert self.loop is not None
        if not self.generation and not self._closed:
            self._attempted = self.loop.create_future()
            await self._attempted

    async def close(self) -> None:
        """Leaves all groups, so that what is held goes back at once, and says no more."""
        if self._closed:
            return
        if self.connected:
            leaving = asyncio.gather(*(one.leave() for one in tuple(self.sessions)), return_exceptions=True)
            with contextlib.suppress(TimeoutError):  # then the server gives them up by itself
                await asyncio.wait_for(leaving, min(self.timeout_ms / 1000, LEAVE_SECONDS))
        self._closed = True
        self.connected = False
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for request in (*self._pending.values(), *self._waiting):
            self._unwait(request)
            request.fail(self._over())
        self._pending.clear()
        self._waiting.clear()
        if self._ready is not None and not self._ready.done():
            self._ready.cancel()

    @property
    def closed(self) -> bool:
        return self._closed

    def spawn(self, work: Any) -> None:
        """Work of the link's own, which ends with it."""
        assert self.loop is not None
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def now_ms(self) -> int:
        """The server's time, as far as it can be told from here."""
        base, at = self._clock
        if not base:
            return int(time.time() * 1000)
        return base + int((time.monotonic() - at) * 1000)

    # --- requests

    def send(
        self, command: int, parts: tuple[Part, ...], reply: Reply, *, safe: bool = False, bound: int = 0
    ) -> None:
        """A request; `bound` is the connection it must go over. To be called in the loop."""
        if self.connected and (not bound or bound == self.generation):
            self._write(Request(command, parts, reply, safe))
        elif self._closed:
            reply.set_exception(self._over())
        elif bound:
            reply.set_exception(self._lost())
        else:
            self._wait(Request(command, parts, reply, safe))

    def request(
        self, command: int, *parts: Part, safe: bool = False, bound: int = 0
    ) -> asyncio.Future[bytes]:
        if self.loop is None:
            self.start()
        assert self.loop is not None
        future: asyncio.Future[bytes] = self.loop.create_future()
        self.send(command, parts, future, safe=safe, bound=bound)
        return future

    def flush(self) -> None:
        """What was asked goes out now, not at the end of the turn."""
        if self._connection is not None:
            self._connection.flush()

    def tell(self, command: int, body: bytes, bound: int) -> None:
        """What has no answer. Nothing is lost with its connection that the next one would not be told anew."""
        if self.connected and bound == self.generation and self._connection is not None:
            self._connection.write(write_frame(command, 0, 0, body))

    async def call(self, call: Call, *, bound: int = 0) -> Any:
        """One of the rare operations; answers what `REPLIES` says."""
        body = _checked(call)
        answer = await self.request(Command.CALL, body, safe=type(call) in SAFE, bound=bound)
        return calls.read_reply(type(call), answer)

    async def ready(self) -> None:
        """Until there is a connection; Unreachable after the link's timeout."""
        if self._closed:
            raise self._over()
        self.start()
        if self.connected:
            return
        assert self._ready is not None
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), self.timeout_ms / 1000)
        except TimeoutError:
            raise self._unreachable() from None
        except asyncio.CancelledError:
            if self._closed:
                raise self._over() from None
            raise

    @property
    def frame_bytes_max(self) -> int:
        """What the server takes in one frame."""
        return FRAME_BYTES_MAX if self.welcome is None else self.welcome.frame_bytes_max

    # --- a connection that is lent: see `shortcut`

    @property
    def busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._pending)

    def lendable(self) -> Connection | None:
        """The connection, if nobody but the one who asks for it needs it now."""
        connection = self._connection
        if not self.connected or connection is None or self._pending or self._tls is not None:
            return None
        if any(session.prefetch for session in self.sessions) or not connection.lendable:
            return None
        return connection

    def adopt(self, connection: Connection, number: int, request: Request) -> None:
        """A request that was sent over a lent connection, and is to be answered here."""
        if connection is self._connection and self.connected:
            self._pending[number] = request
        elif request.safe:
            self.send(request.command, request.parts, request.reply, safe=True)
        else:
            request.fail(self._over() if self._closed else self._lost())

    # --- requests under way

    def _write(self, request: Request) -> None:
        assert self._connection is not None
        self._correlation = number = self._correlation + 1 & CORRELATION_MAX or 1
        self._pending[number] = request
        self._connection.write(write_frame(request.command, 0, number, *request.parts))

    def _wait(self, request: Request) -> None:
        assert self.loop is not None
        self._waiting[request] = None
        request.timer = self.loop.call_later(self.timeout_ms / 1000, self._give_up, request)

    def _give_up(self, request: Request) -> None:
        self._waiting.pop(request, None)
        request.fail(self._unreachable())

    @staticmethod
    def _unwait(request: Request) -> None:
        if request.timer is not None:
            request.timer.cancel()
            request.timer = None

    # --- answers

    def _on_frame(self, frame: Frame) -> None:
        if frame.flags & _REPLY:
            request = self._pending.pop(frame.correlation, None)
            if request is None or request.reply.done():
                return  # the caller was cancelled meanwhile
            if frame.flags & _ERROR:
                request.reply.set_exception(read_failure(frame.body))
            else:
                request.reply.set_result(bytes(frame.body))
        elif frame.command == Command.DELIVERY:
            session = self.by_number.get(frame.correlation)
            if session is None:
                return  # it has left meanwhile
            if frame.flags & _ERROR:
                session.failed(read_failure(frame.body))
            else:
                session.delivered(bytes(frame.body))
        elif frame.command == Command.GOODBYE:
            assert self._connection is not None
            self._connection.end(read_failure(frame.body))
        elif frame.command != Command.PING:
            raise WireError(f"the server sent a command that is not known here: {frame.command}")

    # --- connections

    async def _run(self) -> None:
        pause = PAUSE_FIRST
        while not self._closed:
            try:
                connection = await self._connect()
            except (OSError, TimeoutError, TrineError) as error:
                self._failed(error)
            else:
                pause = PAUSE_FIRST
                self._greeted(connection)
                assert self.welcome is not None
                beat = asyncio.ensure_future(self._keep_alive(connection, self.welcome.silence_ms / 1000))
                try:
                    # Shielded: who closes the link ends this task, and then waits for the same end.
                    self._broken(await asyncio.shield(connection.lost))
                finally:
                    beat.cancel()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, PAUSE_MAX)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.timeout_ms / 1000):
            _, connection = await loop.create_connection(
                lambda: Connection(self._on_frame, FRAME_BYTES_MAX),
                self.address.host,
                self.address.port,
                ssl=self._tls,
            )
            self._connection = connection
            try:
                await self._greet(connection)
            except BaseException:
                connection.end()
                self._connection = None
                raise
        return connection

    async def _greet(self, connection: Connection) -> None:
        assert self.loop is not None
        future: asyncio.Future[bytes] = self.loop.create_future()
        hello = Hello(least=VERSION, most=VERSION, client=self._client, key=self.address.key)
        self._write(Request(Command.HELLO, (write_hello(hello),), future, False))
        await asyncio.wait((future, connection.lost), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            self._pending.clear()
            raise connection.lost.result() or Unreachable(
                f"{self.address} closed the connection at once"
                + ("" if self.address.tls else "; if it wants TLS, its address begins with trines://")
            )
        self.welcome = read_welcome(memoryview(future.result()))
        self._clock = (self.welcome.now_ms, time.monotonic())

    def _greeted(self, connection: Connection) -> None:
        assert self._ready is not None
        self.generation += 1
        self.connected = True
        self.by_number.clear()
        self._why = None
        if not self._ready.done():
            self._ready.set_result(None)
        if self._attempted is not None and not self._attempted.done():
            self._attempted.set_result(None)
        waiting, self._waiting = self._waiting, {}
        for request in waiting:
            self._unwait(request)
            if not request.reply.done():
                self._write(request)
        for session in tuple(self.sessions):
            self.spawn(session.revive())

    def _failed(self, error: Exception) -> None:
        """There was no connection to be had."""
        self._why = error
        if self._attempted is not None and not self._attempted.done():
            self._attempted.set_exception(error if isinstance(error, TrineError) else self._unreachable())
        if isinstance(error, Denied):
            waiting, self._waiting = self._waiting, {}
            for request in waiting:
                self._unwait(request)
                request.fail(error)

    def _broken(self, why: Exception | None) -> None:
        assert self.loop is not None
        self.connected = False
        self._connection = None
        self._why = why
        self._ready = self.loop.create_future()
        pending, self._pending = self._pending, {}
        for request in pending.values():
            if request.reply.done():
                continue
            if request.safe:
                self._wait(request)
            else:
                request.fail(self._lost())

    async def _keep_alive(self, connection: Connection, silence: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(silence / 6)
            now = loop.time()
            if now - connection.heard_at > silence:
                connection.end(Unreachable(f"nothing was heard of the server for {silence:g} s"))
                return
            if now - min(connection.sent_at, connection.heard_at) >= silence / 3:
                ignored: asyncio.Future[bytes] = loop.create_future()
                unattended(ignored)
                self.send(Command.PING, (), ignored)

    # --- what to say when it did not work out

    def _over(self) -> Closed:
        return Closed("this broker is closed; connect again with trine.connect(...)")

    def _lost(self) -> Lost:
        return Lost(
            f"the connection to {self.address} was lost{self._because()}; the call may or may not have happened"
        )

    def _unreachable(self) -> Unreachable:
        if isinstance(self._why, ssl.SSLCertVerificationError):
            advice = "name the authority that signed its certificate with ca=, and the host as the certificate does"
        elif isinstance(self._why, ssl.SSLError):
            advice = "does it speak TLS? If not, its address begins with trine://"
        else:
            advice = "is the server running, and is this its address?"
        return Unreachable(f"{self.address} cannot be reached{self._because()}; {advice}")

    def _because(self) -> str:
        return f" ({self._why})" if self._why is not None and str(self._why) else ""


def _checked(call: Call) -> bytes:
    """The body of a CALL. What a user got wrong is told before it is sent, as bad input."""
    body = calls.write_call(call)
    if not isinstance(call, calls.Send | calls.SendNumbered | calls.SendBatch | calls.Transact):
        try:
            calls.read_call(body)
        except WireError as error:
            raise InvalidInput(str(error)) from error
    return body


def unattended(future: asyncio.Future[bytes]) -> None:
    """Nobody may be there to look at how it ends: an error is not to be complained about."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
