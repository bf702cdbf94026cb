"""The gate: what every request passes before it reaches a handler.

health, ready          answered here: they must answer while the store recovers
not ready              503 with Retry-After, whatever was asked
the dashboard's page   answered here too: files that tell nothing
path                   an encoded slash, backslash or NUL in a name is refused
who asks               the key, or the session, becomes a principal, or the request ends here
publish                goes straight to `publishing`; everything else to Litestar

Requests that `direct` answers do not come here: they are those of a connection whose key was let in here before.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec

from trine.model.errors import TrineError, Unauthenticated
from trine.server.context import Context, Host
from trine.server.http import problems
from trine.server.http.access import OPEN, Headers, authenticate, by_session
from trine.server.http.problems import BadRequest, Problem
from trine.server.http.publishing import publish_bytes
from trine.server.http.site import Site
from trine.server.sessions import Sessions

ENCODED: Final = re.compile(rb"%(?:2f|5c|00)", re.IGNORECASE)
"""Slash, backslash and NUL, percent-encoded: no name has them."""
IDS_IN_PATH: Final = ("/v1/traces/",)
"""Message ids have slashes, and some clients encode them."""
PUBLISH: Final = re.compile(r"/v1/topics/([^/]+)/publish")
SEND_SECONDS_MAX: Final = 30.0
"""A reader that takes nothing for this long is let go: what waits for it is not kept for ever."""
JSON: Final = (b"content-type", b"application/json")


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]


class Gate:
    """The application that uvicorn calls."""

    def __init__(self, host: Host, app: ASGIApp, sessions: Sessions) -> None:
        self.host = host
        self._app = app
        self._sessions = sessions
        self._site = Site()
        self._done: Any = None
        """The counter of what went well: to look it up takes longer than to count."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if path == "/health" and scope["type"] == "http":
            await self._health(scope, send)
            return
        if path == "/ready" and scope["type"] == "http":
            await self._ready(scope, send)
            return
        try:
            if scope["type"] == "http" and Site.has(path):
                if not await _only_get(scope, send):
                    await self._site.answer(scope, send)
            else:
                await self._enter(scope, receive, send, path)
        except TrineError as error:
            problem = problems.problem_of(error, path)
            if (context := self.host.context) is not None:
                context.metrics.answered(problem.status)
            await refuse(scope, send, problem)

    async def _enter(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        context = self.host.context
        if context is None:
            told = self.host.readiness.describe()
            raise BadRequest(503, f"the server is not ready: {_in_words(told)}; /ready tells how far it is")
        if ENCODED.search(scope.get("raw_path") or b"") and not path.startswith(IDS_IN_PATH):
            raise BadRequest(
                400, "a name in the path has an encoded slash, backslash or NUL; no name has these"
            )
        scope.setdefault("state", {})
        if path in OPEN:
            await self._app(scope, receive, send)
            return
        headers: Headers = dict(scope["headers"])
        client = scope.get("client")
        peer = client[0] if client else ""
        try:
            principal = authenticate(context, self._sessions, scope, headers, peer)
        except Unauthenticated:
            await asyncio.sleep(
                context.keys.penalty_s(peer)
            )  # a peer that guesses is slowed, and nobody else
            raise
        if (remember := scope.get("trine.remember")) is not None and not by_session(context, headers):
            remember(headers, principal)
        if scope["type"] == "http" and scope["method"] == "POST" and (match := PUBLISH.fullmatch(path)):
            topic = match[1]
            principal.check("publish", topic)
            try:
                await self._publish(context, topic, scope, headers, receive, send)
            except TrineError:
                raise
            except Exception as error:
                problems.log_fault(self.host, error, path)
                await refuse(scope, send, problems.problem_of(error, path))
            return
        scope["state"]["principal"] = principal
        await self._app(scope, receive, _patient(send, scope, context))

    async def _publish(
        self, context: Context, topic: str, scope: Scope, headers: Headers, receive: Receive, send: Send
    ) -> None:
        body = await read_body(receive, headers, self.host.config.limits.body_bytes)
        kind = headers.get(b"content-type", b"").decode("latin-1")
        answered = await publish_bytes(context, topic, body, kind, scope["query_string"])
        self.count_done(context)
        await respond(send, 200, answered, [JSON])

    def count_done(self, context: Context) -> None:
        if self._done is None:
            self._done = context.metrics.http_requests.labels("2xx")
        self._done.inc()

    async def _health(self, scope: Scope, send: Send) -> None:
        if not await _only_get(scope, send):
            await respond(send, 200, b'{"status":"alive"}', [JSON])

    async def _ready(self, scope: Scope, send: Send) -> None:
        if await _only_get(scope, send):
            return
        told = self.host.readiness.describe()
        if self.host.context is not None and told["state"] == "ready":
            await respond(send, 200, msgspec.json.encode(told), [JSON])
            return
        problem = problems.make(503, "not_ready", f"the server is not ready: {_in_words(told)}", "/ready")
        body = msgspec.json.encode({**msgspec.to_builtins(problem), "readiness": told})
        await respond(send, 503, body, problems.headers_of(problem))


async def _only_get(scope: Scope, send: Send) -> bool:
    """Whether the request was refused: these two only tell."""
    if scope.get("method") in ("GET", "HEAD"):
        return False
    problem = problems.problem_of(BadRequest(405, "this path takes GET"), scope["path"])
    await respond(
        send, 405, problems.encode(problem), [*problems.headers_of(problem), (b"allow", b"GET, HEAD")]
    )
    return True


async def read_body(receive: Receive, headers: Headers, most: int) -> bytes:
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > most:
        raise _too_large(most)
    pieces: list[bytes] = []
    size = 0
    more = True
    while more:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest(400, "the connection ended before the body did; nothing was done")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > most:
            raise _too_large(most)
        more = message.get("more_body", False)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(most: int) -> BadRequest:
    return BadRequest(413, f"the body is larger than the {most} bytes this server takes (limits.body_bytes)")


async def respond(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def refuse(scope: Scope, send: Send, problem: Problem) -> None:
    """Ends a request here: also one that asks for a WebSocket, before it is one."""
    if scope["type"] == "http":
        await respond(send, problem.status, problems.encode(problem), problems.headers_of(problem))
        return
    start: Any = {
        "type": "websocket.http.response.start",
        "status": problem.status,
        "headers": problems.headers_of(problem),
    }
    end: Any = {"type": "websocket.http.response.body", "body": problems.encode(problem), "more_body": False}
    await send(start)
    await send(end)


def _patient(send: Send, scope: Scope, context: Context) -> Send:
    """`send` with an end to its patience, for it waits while the client's buffer is full; statuses are counted."""

    async def bounded(message: Any) -> None:
        if message["type"] == "http.response.start":
            context.metrics.answered(message["status"])
        try:
            async with asyncio.timeout(SEND_SECONDS_MAX):
                await send(message)
        except TimeoutError:
            context.log.warning("slow reader closed", path=scope["path"], peer=scope.get("client"))
            scope["trine.abort"]()  # to close it politely would be to wait for it

    return bounded


def _in_words(told: dict[str, Any]) -> str:
    percent = f", {told['percent']} % of the journal is read" if "percent" in told else ""
    return f"it is {told['state']}{percent}"
