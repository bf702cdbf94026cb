"""How the async interface waits: on futures of the running event loop. The disk is waited for in a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from trine.broker.engine import Engine
    from trine.broker.group import GroupState
    from trine.broker.topic import TopicState

T = TypeVar("T")
Ring = Callable[[], None]


class Waits:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._syncing: asyncio.Future[None] | None = None
        self.shared: Callable[[int], Awaitable[None]] | None = None
        """A server's group commit, which its listeners share with whoever waits here."""

    async def durable(self, lsn: int) -> None:
        """Until all below `lsn` is on disk. One sync runs at a time; all that wait meanwhile share the next."""
        if self.shared is not None:
            await self.shared(lsn)
            return
        store = self._engine.store
        while store.synced_lsn < lsn:
            if self._syncing is None or self._syncing.done():
                loop = asyncio.get_running_loop()
                self._syncing = asyncio.ensure_future(
                    loop.run_in_executor(None, self._engine.sync, store.end_lsn)
                )
            await asyncio.shield(self._syncing)

    async def arrival(self, group: GroupState, seen: int, timeout_ms: int) -> None:
        """Until something may have come for the group since it was at version `seen`."""
        with self._engine.lock:
            if group.version != seen:
                return
            event, ring = _bell()
            group.listeners.add(ring)
        await self._until(event, timeout_ms, group.listeners, ring)

    async def room(self, topic: TopicState, timeout_ms: int) -> None:
        """Until the topic may take messages again."""
        event, ring = _bell()
        with self._engine.lock:
            topic.room_listeners.add(ring)
        await self._until(event, timeout_ms, topic.room_listeners, ring)

    async def written(self, seen: int, timeout_ms: int) -> None:
        """Until some log has grown since the engine was at version `seen`."""
        with self._engine.lock:
            if self._engine.version != seen:
                return
            event, ring = _bell()
            self._engine.reader_listeners.add(ring)
        await self._until(event, timeout_ms, self._engine.reader_listeners, ring)

    async def run(self, work: Callable[[], T]) -> T:
        """Slow work, off the loop."""
        return await asyncio.get_running_loop().run_in_executor(None, work)

    async def _until(self, event: asyncio.Event, timeout_ms: int, listeners: set[Ring], ring: Ring) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), timeout_ms / 1000)
        finally:
            with self._engine.lock:
                listeners.discard(ring)


def _bell() -> tuple[asyncio.Event, Ring]:
    """An event, and a function that any thread may call to set it."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def ring() -> None:
        if not loop.is_closed():  # a loop that was torn down with its waits left: nobody is there to be woken
            loop.call_soon_threadsafe(event.set)

    return event, ring
