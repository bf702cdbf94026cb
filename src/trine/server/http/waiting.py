"""Waiting in a request: until something rings, the time is over, the server closes, or the client is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from litestar import Request

from trine.broker.engine import Engine
from trine.model.duration import duration_ms
from trine.model.errors import InvalidOption
from trine.server.context import Context

WAIT_MS_MAX: Final = 60_000
"""The longest a long poll may wait: proxies and browsers give up at about this time."""


@contextlib.contextmanager
def ringing(engine: Engine, listeners: set[Callable[[], None]]) -> Iterator[asyncio.Event]:
    """An event that is set when the listeners are called, by whatever thread."""
    loop = asyncio.get_running_loop()
    bell = asyncio.Event()

    def ring() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(bell.set)

    with engine.lock:
        listeners.add(ring)
    try:
        yield bell
    finally:
        with engine.lock:
            listeners.discard(ring)


async def first_of(
    context: Context, bell: asyncio.Event, timeout_ms: float, gone: asyncio.Future[None] | None = None
) -> None:
    """Until the bell rings or the time is over; at once when the server closes or the client is gone."""
    rung = asyncio.ensure_future(bell.wait())
    closing = asyncio.ensure_future(context.closing.wait())
    waited: set[asyncio.Future[Any]] = {rung, closing}
    if gone is not None:
        waited.add(gone)
    try:
        await asyncio.wait(waited, timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
    finally:
        rung.cancel()
        closing.cancel()


@contextlib.asynccontextmanager
async def watching(request: Request[Any, Any, Any]) -> Any:
    """A future that is done when the client of a request has gone away. The body must have been read."""
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        yield gone
    finally:
        gone.cancel()


async def _disconnected(request: Request[Any, Any, Any]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def wait_ms(wait: float | str | None) -> int:
    if wait is None:
        return 0
    given = duration_ms(wait, what="wait")
    if given > WAIT_MS_MAX:
        raise InvalidOption(f"wait is {given} ms; a request may wait up to {WAIT_MS_MAX} ms: ask again then")
    return given
