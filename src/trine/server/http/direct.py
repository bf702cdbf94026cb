"""Direct answers: the calls made most often are answered by the protocol itself.

    headers ─▶ plain enough? ─▶ body ─▶ can be done at once? ─▶ the tick ends ─▶ one write
                     │                        │
                     └────────────────────────┴─▶ the usual way: a task, the gate, a handler

What ASGI costs for a request (a task, a scope, two sends) is more than what a publish costs. So a request that is
plain in every respect is done between two reads of the socket: publish, ack, `/produce` and `/ack`, with a small
JSON body of known length, on a connection that stays open and whose key the gate has let in before. Whatever is not
plain goes the usual way, as if it had come a moment later: nothing is decided here otherwise than it is there.

Until it is answered the request stands in the place of uvicorn's own cycle: what was sent behind it waits its turn,
and goes the usual way; a server that closes waits for the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from trine.model.errors import TrineError
from trine.model.limits import KIB
from trine.server.context import Context
from trine.server.http import groups, problems
from trine.server.http.access import Headers
from trine.server.http.gate import JSON, Gate
from trine.server.http.publishing import publish_at_once
from trine.server.http.requests import Done
from trine.server.http.simple import ack_at_once, produce_at_once
from trine.server.keys import Principal

BODY_BYTES_MAX: Final = 64 * KIB
"""Larger bodies come in many pieces, and the usual way stops reading when they come too fast."""

PUBLISH: Final = re.compile(rb"/v1/topics/([A-Za-z0-9_][A-Za-z0-9._-]*)/publish")
ACK: Final = re.compile(rb"/v1/topics/([A-Za-z0-9_][A-Za-z0-9._-]*)/groups/([A-Za-z0-9_][A-Za-z0-9._-]*)/ack")
"""Names that need no decoding; whether they are some at all is for the engine to say."""
NEVER: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"content-encoding"})
"""Headers of requests that are not plain."""

Work = Callable[[Context, Principal, str, bytes], Done | None]
"""Does all of a call, of the topic in its path and its body; None if it is one for the usual way: nothing was done."""
Call = tuple[str, Work]
"""The topic of the path, and what is to be done."""
Shown = tuple[bytes | None, bytes | None, bytes | None, bytes | None]


class Direct:
    """A request that is answered here. uvicorn takes it for the cycle that is under way."""

    __slots__ = (
        "body",
        "disconnected",
        "keep_alive",
        "path",
        "principal",
        "response_complete",
        "topic",
        "work",
    )

    message_event: ClassVar = asyncio.Event()
    """uvicorn sets it; nobody waits for it."""

    def __init__(self, path: bytes, topic: str, work: Work, principal: Principal) -> None:
        self.path = path
        self.topic = topic
        self.work = work
        self.principal = principal
        self.body = b""
        self.keep_alive = True
        """False when the server closes meanwhile."""
        self.disconnected = False
        self.response_complete = False


class DirectProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which answers some requests before there is a task for them."""

    _direct: Direct | None = None
    """Whose body is being read."""
    _silent_since: float | None = None
    """By the loop's clock; None while a request is under way."""
    _shown: Shown | None = None
    _principal: Principal | None = None
    _same: tuple[bytes, list[tuple[bytes, bytes]]] | None = None
    """The last request that was plain: on one connection most are alike, and looking again would find the same."""
    _call: Call = ("", publish_at_once)
    _common: ClassVar[tuple[object, bytes]] = (None, b"")
    """uvicorn's headers of all answers, and how an answer with them begins: they are made anew each second."""

    def remember(self, headers: Headers, principal: Principal) -> None:
        """The gate has let this one in: the same key from here again need not be looked up."""
        self._shown = shown(headers)
        self._principal = principal
        self._same = None

    # --- in

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["trine.remember"] = self.remember  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        self._direct = self._plain()
        if self._direct is None:
            super().on_headers_complete()
        else:
            self.cycle = cast(Any, self._direct)

    def on_body(self, body: bytes) -> None:
        if self._direct is None:
            super().on_body(body)
        else:
            self._direct.body += body

    def on_message_complete(self) -> None:
        direct, self._direct = self._direct, None
        if direct is None:
            super().on_message_complete()
            return
        context = self._gate.host.context
        done = None
        if context is not None:
            try:
                done = direct.work(context, direct.principal, direct.topic, direct.body)
            except Exception as error:
                self._refuse(direct, context, error)
                return
        if context is None or done is None:
            self._hand_over(direct)
        elif done.lsn is None:
            self._answer(direct, context, done.body)
        else:
            self._answer_when_durable(direct, context, done.body, done.lsn)

    def _plain(self) -> Direct | None:
        """The request whose headers have come, if it can be answered here."""
        principal = self._principal
        if (
            principal is None
            or (self.cycle is not None and not self.cycle.response_complete)
            or self.flow.write_paused
            or (self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency)
            or self.parser.get_method() != b"POST"
            or self.parser.get_http_version() != "1.1"
        ):
            return None
        if (self.url, self.headers) != self._same:
            if (call := called(self.url)) is None or not self._is_plain(dict(self.headers)):
                return None
            self._call = call
            self._same = (self.url, self.headers)
        return Direct(self.url, *self._call, principal)

    def _is_plain(self, headers: Headers) -> bool:
        length = headers.get(b"content-length", b"")
        return (
            self.parser.should_keep_alive()
            and headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == JSON[1]
            and 0 < len(length) <= 6
            and length.isdigit()
            and int(length) <= min(BODY_BYTES_MAX, self._gate.host.config.limits.body_bytes)
            and NEVER.isdisjoint(headers)
            and shown(headers) == self._shown
        )

    def _hand_over(self, direct: Direct) -> None:
        """The usual way, with all of the request at once."""
        self.cycle = cast(Any, None)
        super().on_headers_complete()
        self.cycle.keep_alive = self.cycle.keep_alive and direct.keep_alive
        super().on_body(direct.body)
        super().on_message_complete()

    @property
    def _gate(self) -> Gate:
        gate = self.config.app
        assert isinstance(gate, Gate)
        return gate

    # --- silence

    def _unset_keepalive_if_required(self) -> None:
        """Something came. The timer stays: to start and stop one for each request costs more than to look when it is
        due whether there was silence."""
        self._silent_since = None

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._silent_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_again_in(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self._silent_since is None:
            return  # the answer to what came starts it again
        left = self._silent_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._look_again_in(left)
        else:
            super().timeout_keep_alive_handler()

    def _look_again_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)

    # --- out

    def _answer_when_durable(self, direct: Direct, context: Context, body: bytes, lsn: int) -> None:
        def durable(error: Exception | None) -> None:
            if error is None:
                self._answer(direct, context, body)
            else:
                self._refuse(direct, context, error)

        context.commits.when_durable(lsn, durable)

    def _answer(self, direct: Direct, context: Context, body: bytes) -> None:
        self._gate.count_done(context)
        self._hold(direct, context, b"%bcontent-type: application/json\r\n" % self._beginning(), body)

    def _refuse(self, direct: Direct, context: Context, error: Exception) -> None:
        path = direct.path.decode()
        if not isinstance(error, TrineError):
            problems.log_fault(self._gate.host, error, path)
        problem = problems.problem_of(error, path)
        context.metrics.answered(problem.status)
        headers = [*self.server_state.default_headers, *problems.headers_of(problem)]
        head = STATUS_LINE[problem.status] + _lines(headers)
        self._hold(direct, context, head, problems.encode(problem))

    def _hold(self, direct: Direct, context: Context, head: bytes, body: bytes) -> None:
        """Written when the tick ends, with what others are answered: a write that wakes its reader costs more than
        all the work before it, and a reader that is awake is not woken again."""
        context.commits.flushes.add(partial(self._write, direct, head, body))

    def _write(self, direct: Direct, head: bytes, body: bytes) -> None:
        direct.response_complete = True
        if direct.disconnected or self.transport.is_closing():
            return
        end = b"" if direct.keep_alive else b"connection: close\r\n"
        self.transport.write(b"%bcontent-length: %d\r\n%b\r\n%b" % (head, len(body), end, body))
        if not direct.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _beginning(self) -> bytes:
        headers = self.server_state.default_headers
        known, made = DirectProtocol._common
        if known is not headers:
            made = STATUS_LINE[200] + _lines(headers)
            DirectProtocol._common = (headers, made)
        return made


def called(url: bytes) -> Call | None:
    """What a path asks for, if it can be done at once."""
    if url == b"/produce":
        return "", produce_at_once
    if url == b"/ack":
        return "", ack_at_once
    if match := PUBLISH.fullmatch(url):
        return match[1].decode(), publish_at_once
    if match := ACK.fullmatch(url):
        return match[1].decode(), partial(groups.ack_at_once, group=match[2].decode())
    return None


def shown(headers: Headers) -> Shown:
    """All that `authenticate` looks at: who shows the same again, from the same peer, is the same principal."""
    find = headers.get
    return find(b"authorization"), find(b"x-api-key"), find(b"host"), find(b"origin")


def _lines(headers: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)
