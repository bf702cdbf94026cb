"""One connection of the binary protocol: bytes in, commands done, answers out.

    connected ──HELLO──▶ welcomed ──commands, answers, pushes──▶ leaving ──all answered──▶ closed
        │                    │                                      ▲
        └──── refused ───────┴── a frame that is none, silence ─────┘   (the reason goes out as a GOODBYE)

All frames of one read are one burst: handled in order, under one hold of the engine's lock, and answered with one
write. A side that does not read what it is sent is not read from either, and nothing is pushed to it. What goes wrong
here harms this connection alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from trine.model.clock import SimulatedClock
from trine.model.errors import Closed, TooMany, TrineError, Unauthenticated
from trine.model.limits import FRAME_BYTES_MAX, HELLO_BYTES_MAX, KIB, MIB
from trine.model.version import VERSION
from trine.server.answers import Answers
from trine.server.commands import COMMANDS, Turn, settle_acks
from trine.server.deliveries import Session
from trine.server.keys import Action, Principal
from trine.wire.bodies import Held
from trine.wire.frames import Command, Frame, Frames, WireError
from trine.wire.hello import Welcome, agree, read_hello, write_welcome

if TYPE_CHECKING:
    from trine.server.reads import PendingRead
    from trine.server.tcp import Listener

HELLO_SECONDS: Final = 10.0
"""Who has not said who it is by then is no client."""
LINGER_SECONDS: Final = 2.0
"""After a GOODBYE the other side has this long to read it and close."""
TASKS_MAX: Final = 128
"""Calls under way on one connection; beyond it no more is read until some are done."""
PARKED_MAX: Final = 1_024
"""Receives and reads that wait on one connection."""
SESSIONS_MAX: Final = 1_024
"""Consumers on one connection."""
WRITE_BYTES_HIGH: Final = 1 * MIB
WRITE_BYTES_LOW: Final = 256 * KIB
"""What may wait to be sent to somebody who does not read, and when there is room again."""


class Connection(Answers, asyncio.BufferedProtocol):
    def __init__(self, listener: Listener) -> None:
        super().__init__(listener.context)
        self.listener = listener
        self._lock = self.context.engine.lock
        self.principal: Principal | None = None
        self.sessions: dict[int, Session] = {}
        self.reads: set[PendingRead] = set()
        self._frames = Frames(HELLO_BYTES_MAX)  # little is taken from whom we do not know
        self._scratch: bytearray | None = None
        self._full = False
        """The other side does not read: its share of our memory is used up."""
        self._unread = False
        """Whether frames may be left in the buffer, and the transport stopped reading."""
        self._last = False
        """No further command is taken."""
        self._leaving = False
        """The last word is said; nothing is read or written any more."""
        self._at_end = False
        """The other side sends no more."""
        self._farewell: TrineError | None = None
        self.acks: list[tuple[int, Session, list[Held]]] = []
        """Of this burst: correlation, session and runs of each."""
        self.full_topics: dict[str, Turn] = {}
        self.waiting_bytes = 0
        """Of batches that wait for room in full topics."""
        self._last_session = 0
        self._heard = 0.0
        self._waiting_to_send = 0
        self._timer: asyncio.TimerHandle | None = None

    # --- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        transport.set_write_buffer_limits(WRITE_BYTES_HIGH, WRITE_BYTES_LOW)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if isinstance(name, tuple) and name else "local"
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(HELLO_SECONDS, self._no_hello)
        refusal = self.listener.admit(self)
        if refusal is not None:
            self.say_goodbye(refusal)

    def get_buffer(self, sizehint: int) -> Any:
        if self._leaving:
            if self._scratch is None:
                self._scratch = bytearray(4 * KIB)
            return self._scratch
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._leaving:
            return  # what comes after the end is not looked at
        self._heard = self._loop.time()
        self._frames.buffer_updated(nbytes)
        self._work()

    def eof_received(self) -> bool:
        transport = self._transport
        self._at_end = True
        if self._leaving or transport is None:
            return False
        if self._frames.half and not self._unread:
            self.say_goodbye(WireError("the connection ended in the middle of a frame"))
        else:
            self.leave()
        # The answers that are due still go out; TLS cannot be closed by halves.
        return transport.get_extra_info("sslcontext") is None and bool(self._pending)

    def pause_writing(self) -> None:
        self._full = True
        self._waiting_to_send = 0

    def resume_writing(self) -> None:
        self._full = False
        if self._leaving:
            return
        self._go_on()
        for session in self.sessions.values():
            session.ready()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._leaving = True
        self._out.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._drop_reads()
        grace_ms = self.context.config.limits.member_grace_ms
        self._end_sessions(lambda session, now: session.group.lost(session.member, now, grace_ms))
        self.listener.gone(self)

    # --- bursts

    def _work(self) -> None:
        """Handles the frames that are here, as long as there is room for their answers."""
        fault: WireError | None = None
        with self._flushes, self._lock:
            try:
                for frame in self._frames.take():
                    self._handle(frame)
                    if self._full or self._unread or self.leaving or len(self._tasks) >= TASKS_MAX:
                        self._stop_reading()
                        break
            except WireError as error:
                fault = error
            if self.acks:  # of a burst that ends badly too: they came before
                settle_acks(self)
        if fault is not None:
            self.say_goodbye(fault)

    def _stop_reading(self) -> None:
        if not self._unread and self._transport is not None and not self._leaving:
            self._unread = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """There is room again: first what is in the buffer, then what is on the wire."""
        if not self._unread or self._full or self.leaving or len(self._tasks) >= TASKS_MAX:
            return
        self._unread = False
        self._work()
        if not self._unread and self._transport is not None and not self._leaving:
            self._heard = self._loop.time()
            self._transport.resume_reading()

    def _handle(self, frame: Frame) -> None:
        if frame.flags:
            raise WireError(f"a command has no flags, and this one has {frame.flags}")
        if self.principal is None:
            self._welcome(frame)
            return
        handler = COMMANDS.get(frame.command)
        if handler is None:
            raise WireError(f"there is no command {frame.command}; see docs/protocol.md for those there are")
        if self.acks and frame.command != Command.ACK:
            settle_acks(self)
        self.attempt(frame.command, frame.correlation, handler, self, frame)

    # --- hello and goodbye

    def _welcome(self, frame: Frame) -> None:
        if frame.command != Command.HELLO:
            raise WireError("the first frame must be a HELLO")
        hello = read_hello(frame.body)
        context = self.context
        try:
            version = agree(hello)
            self.principal = context.keys.authenticate(hello.key, self.peer)
        except WireError as error:
            self._refuse(frame.correlation, error)
            return
        except Unauthenticated as error:
            self._refuse(frame.correlation, error, context.keys.penalty_s(self.peer))
            return
        self._frames.bytes_max = FRAME_BYTES_MAX
        limits = context.config.limits
        welcome = Welcome(
            version=version,
            server=f"trine/{VERSION}",
            now_ms=context.engine.clock.now_ms(),
            frame_bytes_max=FRAME_BYTES_MAX,
            silence_ms=limits.silence_ms,
            role=self.principal.role,
        )
        self.reply(Command.HELLO, frame.correlation, write_welcome(welcome))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(limits.silence_ms / 1000, self._listen)

    def _refuse(self, correlation: int, error: TrineError, delay: float = 0.0) -> None:
        """Answers a HELLO with an error and ends the connection; after a while, for who tries too often."""

        def tell() -> None:
            if not self._leaving:
                self.fail(Command.HELLO, correlation, error)
                self._shut_down()

        self._stop_reading()
        if delay:
            self._loop.call_later(delay, tell)
        else:
            tell()

    def say_goodbye(self, error: TrineError) -> None:
        """Tells why, and closes."""
        if self._leaving:
            return
        if isinstance(error, WireError):
            self.listener.broken(self, error)
        self.goodbye(error)
        self._shut_down()

    def _shut_down(self) -> None:
        """Ours is said. Closing at once would reset the connection if the other side is still sending, and it would
        never read why: so the writing half is closed, and the rest when the other side is done or time is up."""
        self._leaving = True
        self.flush()
        transport = self._transport
        if transport is None:
            return
        if not self._at_end and transport.can_write_eof() and transport.get_extra_info("sslcontext") is None:
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()
        self._loop.call_later(LINGER_SECONDS, transport.abort)

    def leave(self) -> None:
        """No more commands; what is under way is answered, then the connection is closed."""
        self._last = True
        self._stop_reading()
        self._end_waits()
        self._leave_if_done()

    def _all_answered(self) -> None:
        if self._last:
            self._leave_if_done()

    def _task_over(self) -> None:
        self._go_on()

    def _leave_if_done(self) -> None:
        if self._pending or self._leaving:
            return
        if self._farewell is not None:
            self.say_goodbye(self._farewell)
        else:
            self._shut_down()

    def shut(self) -> None:
        """The server is closing: consumers are told, and what they hold goes back without counting as tried."""
        if self._leaving:
            return
        self._farewell = Closed("the server is shutting down; connect again in a moment")
        self._end_waits()
        # Nobody is left to share their partitions among: only what they hold has to go back.
        self._end_sessions(
            lambda session, now: session.group.release(session.member, "server stopped", now, counts=False)
        )
        self.leave()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end_waits(self) -> None:
        for session in self.sessions.values():
            session.stop()
            session.end_polls()
        for read in tuple(self.reads):
            self.listener.reads.end(read)

    def _drop_reads(self) -> None:
        for read in self.reads:
            self.listener.reads.drop(read)
        self.reads.clear()

    def _end_sessions(self, end: Callable[[Session, int], None]) -> None:
        engine = self.context.engine
        with self._lock:
            now = engine.clock.now_ms()
            for session in self.sessions.values():
                session.close()
                self.listener.desks.close(session.desk)
                if not session.group.deleted and not engine.closed:
                    try:
                        end(session, now)
                    except TrineError as error:  # the store is full or has failed: leases end by themselves
                        self.context.log.warning("a member left untidily", why=str(error))
            self.sessions.clear()

    # --- silence

    def _no_hello(self) -> None:
        if self.principal is None:
            self.say_goodbye(WireError(f"no HELLO came within {HELLO_SECONDS:.0f} s"))

    def _listen(self) -> None:
        """Ends a connection that says nothing, or takes nothing, for too long."""
        if self._leaving or self._transport is None:
            return
        silence = self.context.config.limits.silence_ms / 1000
        now = self._loop.time()
        if self._full:
            waiting = self._transport.get_write_buffer_size()
            if self._waiting_to_send and waiting >= self._waiting_to_send:
                self.context.log.warning("a client does not read", peer=self.peer, bytes=waiting)
                self._transport.abort()
                return
            self._waiting_to_send = waiting
            self._heard = now
        elif self._unread:
            self._heard = now  # we do not listen: that is no silence
        quiet = now - self._heard
        if quiet >= silence:
            self.say_goodbye(
                WireError(f"nothing was heard for {silence:g} s; a client sends PING when it is idle")
            )
            return
        self._timer = self._loop.call_later(silence - quiet, self._listen)

    # --- answers

    @property
    def blocked(self) -> bool:
        return self._full or self._leaving or self._transport is None

    @property
    def leaving(self) -> bool:
        return self._leaving or self._last

    # --- who may, and sessions

    def check(self, action: Action, topic: str | None) -> None:
        assert self.principal is not None
        self.principal.check(action, topic)

    def may(self, action: Action, topic: str | None) -> bool:
        return self.principal is not None and self.principal.may(action, topic)

    def pass_time(self, ms: int) -> None:
        """On simulated time whoever waits lets it pass, and what is due happens."""
        clock = self.context.engine.clock
        assert isinstance(clock, SimulatedClock)
        clock.advance(f"{ms}ms")
        self.context.broker._housekeeper.step_if_simulated()

    def next_session(self) -> int:
        if len(self.sessions) >= SESSIONS_MAX:
            raise TooMany(f"a connection has at most {SESSIONS_MAX} consumers; open another connection")
        self._last_session += 1
        return self._last_session

    def session(self, number: int) -> Session:
        session = self.sessions.get(number)
        if session is None:
            raise Closed(f"session {number} is not open on this connection; join the group again")
        session.check()
        self.check("consume", session.group.topic.name)
        return session

    def check_parked(self) -> None:
        parked = len(self.reads) + sum(len(session.polls) for session in self.sessions.values())
        if parked >= PARKED_MAX:
            raise TooMany(f"{PARKED_MAX} receives and reads wait on this connection; wait for some of them")
