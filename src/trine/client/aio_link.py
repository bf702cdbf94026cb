"""How the async interface reaches the link: it runs in the caller's own event loop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trine.client.bursts import Bursts
from trine.client.link import Link, Lost, Part
from trine.model.message import PublishReceipt

if TYPE_CHECKING:
    from trine.client.leases import Lease, Leased
    from trine.client.session import Session
    from trine.client.topics import Known
    from trine.wire.bodies import Held

T = TypeVar("T")

POLL_MS_MAX: Final = 20_000
"""The longest one question waits at the server: a longer wait asks again, so that a lost answer costs no more."""

AsyncAnswer = asyncio.Future[Any]
"""Of a single ack: await it, or gather many."""
AsyncSent = asyncio.Future[PublishReceipt]
"""Of a message given to a sender: await it for the receipt."""


class AsyncCaller:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.bursts = Bursts(link)

    def begin(self) -> None:
        """Nothing yet: the link starts with the first call, in the loop that makes it."""

    async def end(self) -> None:
        await self.link.close()

    def now_ms(self) -> int:
        return self.link.now_ms()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def request(self, command: int, *parts: Part, safe: bool = False) -> bytes:
        return await self.link.request(command, *parts, safe=safe)

    async def publish(
        self, known: Known, level: int, lane: int, number: int, key: bytes | None, value: bytes
    ) -> PublishReceipt:
        """A message that goes with all that are published in this turn of the loop."""
        sent = self.sent()
        self.bursts.put(known, level, lane, number, key, value, sent)
        return await sent

    async def poll(self, ask: Callable[[int], Awaitable[T]], wait_ms: int) -> T:
        """Asks until there is something, or the wait is over; a broken connection is no answer."""
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            left = max(math.ceil((deadline - time.monotonic()) * 1000), 0)
            try:
                found = await ask(min(left, POLL_MS_MAX))
            except Lost:
                continue
            if found or time.monotonic() >= deadline:
                return found

    async def admitted(self, publish: Callable[[int], Awaitable[T]], wait_ms: int) -> T:
        """A publish that may wait for room: the server does the waiting."""
        return await publish(wait_ms)

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    def check(self, work: Coroutine[Any, Any, Any]) -> None:
        """A plain call cannot ask the server: what is wrong is told by the first call that waits."""
        work.close()

    def fresh(self, work: Coroutine[Any, Any, T], known: T) -> T:
        """A property cannot ask the server: it tells what was known last."""
        work.close()
        return known

    async def receive(self, session: Session, most: int, wait_ms: int) -> list[Leased]:
        return await session.receive(most, wait_ms)

    async def ack(self, session: Session, held: list[Held]) -> int:
        return await session.ack(held)

    def settle(self, session: Session, lease: Lease, offset: int) -> AsyncAnswer:
        future: AsyncAnswer = asyncio.get_running_loop().create_future()
        session.ack_one(lease, offset, future)
        return future

    def sent(self) -> AsyncSent:
        return asyncio.get_running_loop().create_future()

    def soon(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(call)
