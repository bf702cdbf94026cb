"""The queue over a WebSocket: messages are pushed while there is credit, and settled by frames of JSON.

    client   {"credit": 100}                                      that many more messages may be sent
             {"ack": ["…receipt…"], "ref": 7}                     also nack, reject, extend, as in their requests
    server   {"messages": [ … ]}                                  each uses one credit
             {"settled": {"count": 1, "durability": "synced", "failed": []}, "ref": 7}
             {"error": {problem}, "ref": 7}
             {"closing": "the server is closing"}

The consumer is a member for as long as the socket is open: what it holds goes back when it closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Annotated, Any, Final

import msgspec
from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.params import FromPath, FromQuery
from msgspec import Meta

from trine.broker.aio import AsyncConsumer, AsyncMessage
from trine.model.duration import iso
from trine.model.errors import TrineError
from trine.model.ids import check_name
from trine.model.limits import RECEIVE_MAX
from trine.server.context import Context
from trine.server.http import problems
from trine.server.http.bodies import Delivered, Show, decode_body, fields_of
from trine.server.http.delivery import Settle, fitting, group_of
from trine.server.http.groups import (
    GROUP,
    ExtendIn,
    NackIn,
    Receipts,
    RejectIn,
    ack_runs,
    extend_runs,
    nack_runs,
    reject_runs,
    settled,
)
from trine.server.http.requests import As, Given
from trine.server.http.streams import Streams, close
from trine.server.keys import Principal

CREDIT_MAX: Final = RECEIVE_MAX
"""Credit one consumer may have: so much is sent to it before it must say something."""
PUSH_MAX: Final = 500
"""Messages in one frame."""
POLL: Final = "5s"
"""How long one look for messages waits; nothing is missed between two."""


class ClientFrame(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    credit: Annotated[int, Meta(ge=0, le=CREDIT_MAX)] = 0
    ack: list[str] | None = None
    nack: NackIn | None = None
    reject: RejectIn | None = None
    extend: ExtendIn | None = None
    ref: int | str | None = None


FRAMES: Final = msgspec.json.Decoder(ClientFrame)


@websocket(f"{GROUP}/consume", opt={"may": "consume"})
async def consume(
    socket: WebSocket[Any, Any, Any],
    topic: FromPath[str],
    group: FromPath[str],
    context: Given[Context],
    principal: Given[Principal],
    streams: Given[Streams],
    member: FromQuery[str | None] = None,
    show: As = "auto",
) -> None:
    await socket.accept()
    try:
        name = member if member is not None else f"ws-{principal.id}-{secrets.token_hex(4)}"
        with context.engine.lock:
            group_of(context, topic, group, create=True)
        consumer = context.broker.topic(topic).group(group).consumer(check_name(name, "member"))
        with streams.one_more():
            async with consumer:
                await Pushing(socket, context, principal, consumer, (topic, group), show).run()
    except TrineError as error:
        await close(socket, 1008, error.message)
    except (WebSocketDisconnect, OSError):  # it went away
        pass


class Pushing:
    """One socket: a task that reads frames, and one that pushes while there is credit."""

    def __init__(
        self,
        socket: WebSocket[Any, Any, Any],
        context: Context,
        principal: Principal,
        consumer: AsyncConsumer,
        place: tuple[str, str],
        show: Show,
    ) -> None:
        self._socket = socket
        self._context = context
        self._principal = principal
        self._consumer = consumer
        self._topic, self._group = place
        self._show = show
        self._credit = 0
        self._more = asyncio.Event()

    async def run(self) -> None:
        tasks = [
            asyncio.ensure_future(work) for work in (self._read(), self._push(), self._context.closing.wait())
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._context.closing.is_set():
            with contextlib.suppress(Exception):  # the client may be gone already
                await self._send({"closing": "the server is closing"})
            await close(self._socket, 1001, "the server is closing")
            return
        for task in done:
            task.result()

    async def _read(self) -> None:
        while True:
            text = await self._socket.receive_data(mode="text")
            ref = None
            try:
                frame: ClientFrame = decode_body(text.encode(), FRAMES)
                ref = frame.ref
                await self._take(frame)
            except TrineError as error:
                problem = problems.problem_of(error, self._socket.url.path)
                await self._send({"error": msgspec.to_builtins(problem), "ref": ref})

    async def _take(self, frame: ClientFrame) -> None:
        if frame.credit:
            self._credit = min(self._credit + frame.credit, CREDIT_MAX)
            self._more.set()
        if frame.ack is not None:
            await self._settle(Receipts(receipts=frame.ack), ack_runs, frame.ref)
        if frame.nack is not None:
            await self._settle(frame.nack, nack_runs(frame.nack.delay, frame.nack.reason), frame.ref)
        if frame.reject is not None:
            await self._settle(frame.reject, reject_runs(frame.reject.reason), frame.ref)
        if frame.extend is not None:
            await self._settle(frame.extend, extend_runs(frame.extend.duration), frame.ref)

    async def _settle(self, given: Receipts, how: Settle, ref: int | str | None) -> None:
        self._principal.check("consume", self._topic)
        told = await settled(self._context, self._topic, self._group, given.receipts, how)
        await self._send({"settled": told, "ref": ref})

    async def _push(self) -> None:
        while True:
            self._more.clear()
            if not self._credit:
                await self._more.wait()
                continue
            self._principal.check("consume", self._topic)  # the key may have been deleted meanwhile
            with self._context.engine.lock:
                state = group_of(self._context, self._topic, self._group)
                most = fitting(state, min(self._credit, PUSH_MAX))
            found = await self._consumer.receive(max=most, wait=POLL)
            if found:
                self._credit -= len(found)
                await self._send({"messages": [_delivered(one, self._show) for one in found]})

    async def _send(self, frame: dict[str, Any]) -> None:
        await self._socket.send_data(msgspec.json.encode(frame).decode(), mode="text")


def _delivered(message: AsyncMessage, show: Show) -> Delivered:
    return Delivered(
        **fields_of(message, show),
        receipt=message.receipt,
        attempt=message.attempt,
        deadline=iso(message.deadline_ms),
        deadline_ms=message.deadline_ms,
    )


HANDLERS = [consume]
