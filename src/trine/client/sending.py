"""Messages gathered into batches: what stands behind `topic.sender`.

    put ──▶ a pile for each partition and lane ──full, or lingered long enough──▶ queue ──▶ PUBLISH ──▶ receipts

`put` may be called from any thread; all else happens in the link's loop. Up to `in_flight` frames are under way at a
time, over one connection and so in order. What was put and not answered is bounded: a sender that is ahead of the
server waits for room.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trine.client.topics import (
    WORDS,
    Known,
    Topics,
    chosen_partition,
    encode_some,
)
from trine.log.packing import draft_bytes
from trine.model.errors import Closed, StaleMetadata, TrineError, UnknownTopic
from trine.model.limits import BATCH_MESSAGES_MAX
from trine.model.message import Draft, PublishReceipt
from trine.wire import bodies
from trine.wire.frames import Command

if TYPE_CHECKING:
    from trine.client.link import Link

Sent = Any
"""A future of either kind, of a receipt."""


class Pile:
    """Messages that become one batch."""

    __slots__ = ("bytes", "drafts", "key", "sents")

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        """Partition and lane."""
        self.bytes = 0
        self.drafts: list[Draft] = []
        self.sents: list[Sent] = []


class Gathering:
    def __init__(
        self,
        link: Link,
        topics: Topics,
        known: Known,
        soon: Callable[[Callable[[], None]], None],
        *,
        level: int,
        linger_ms: int,
        batch_bytes: int,
        batch_messages: int,
        in_flight: int,
        buffer_bytes: int,
        wait_ms: int,
    ) -> None:
        self.known = known
        self._link = link
        self._topics = topics
        self._soon = soon
        self._level = level
        self._linger_ms = linger_ms
        self._batch_bytes = batch_bytes
        self._batch_messages = min(batch_messages, BATCH_MESSAGES_MAX)
        self._in_flight_max = in_flight
        self._buffer_bytes = buffer_bytes
        self._wait_ms = wait_ms
        self._lock = threading.Lock()
        self._open: dict[tuple[int, int], Pile] = {}
        self._queue: deque[Pile] = deque()
        self._stale: list[Pile] = []
        """Piles the server refused because the topic has changed; they are piled up anew."""
        self._bytes = 0
        self._unanswered = 0
        self._in_flight = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waits: list[asyncio.Future[None]] = []
        self._fault: BaseException | None = None
        self._closed = False

    # --- from any thread

    def put(self, one: Draft, sent: Sent) -> bool:
        """Adds a message; False if there is no room, and it must be waited for."""
        size = draft_bytes(one)
        with self._lock:
            if self._closed:
                raise Closed("this sender is closed; make another one")
            if self._bytes and self._bytes + size > self._buffer_bytes:
                return False
            self._bytes += size
            self._unanswered += 1
            wake = self._pile(one, sent, size)
        if wake is not None:
            self._soon(wake)
        return True

    def _pile(self, one: Draft, sent: Sent, size: int) -> Callable[[], None] | None:
        key = (chosen_partition(one, self.known.config), one.lane)
        pile = self._open.get(key)
        wake: Callable[[], None] | None = None
        if pile is not None and pile.bytes + size > self._batch_bytes:
            self._queue.append(self._open.pop(key))
            pile, wake = None, self._pump
        if pile is None:
            if not self._open and wake is None:
                wake = self._linger
            pile = self._open[key] = Pile(key)
        pile.bytes += size
        pile.drafts.append(one)
        pile.sents.append(sent)
        if len(pile.drafts) >= self._batch_messages:
            self._queue.append(self._open.pop(key))
            wake = self._pump
        return wake

    # --- in the loop

    def _linger(self) -> None:
        if self._linger_ms <= 0:
            self._release()
        elif self._timer is None:
            assert self._link.loop is not None
            self._timer = self._link.loop.call_later(self._linger_ms / 1000, self._release)

    def _release(self) -> None:
        """What is piled up goes, full or not."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            self._queue.extend(self._open.values())
            self._open.clear()
        self._pump()

    def _pump(self) -> None:
        while self._queue and self._in_flight < self._in_flight_max and not self._stale:
            self._in_flight += 1
            self._link.spawn(self._send(self._next_frame(), self.known))
        with self._lock:
            lingering = bool(self._open)
        if lingering:
            self._linger()

    def _next_frame(self) -> list[Pile]:
        """As many piles as are ready and fit one frame."""
        piles: list[Pile] = []
        room = self._link.frame_bytes_max // 2
        with self._lock:
            while self._queue and (not piles or self._queue[0].bytes <= room):
                pile = self._queue.popleft()
                room -= pile.bytes
                piles.append(pile)
        return piles

    async def _send(self, piles: list[Pile], known: Known) -> None:
        try:
            now = self._link.now_ms()
            batches = [(pile.key[0], encode_some(pile.drafts, known, now, pile.key[1])) for pile in piles]
            parts = bodies.write_publish(known.name, self._level, known.version, self._wait_ms, batches)
            body = await self._link.request(Command.PUBLISH, *parts)
        except StaleMetadata:
            self._stale += piles
        except BaseException as error:
            told = Closed("this broker is closed") if isinstance(error, asyncio.CancelledError) else error
            if isinstance(error, UnknownTopic):
                self._topics.forget(known.name)
            self._answer(piles, None, told)
            if not isinstance(error, TrineError):
                raise
        else:
            self._answer(piles, body, None)
        finally:
            self._in_flight -= 1
        if self._stale:
            if not self._in_flight:
                await self._renew()
        else:
            self._pump()

    async def _renew(self) -> None:
        """The topic has changed: asks for it again, and piles up anew what was refused and what is waiting."""
        try:
            known = await self._topics.fetch(self.known.name)
        except BaseException as error:
            stale, self._stale = self._stale, []
            self._answer(stale, None, error)
            raise
        with self._lock:
            again = [*self._stale, *self._queue, *self._open.values()]
            self._stale.clear()
            self._queue.clear()
            self._open.clear()
            self.known = known
            for pile in again:
                for one, sent in zip(pile.drafts, pile.sents, strict=True):
                    self._pile(one, sent, draft_bytes(one))
        self._release()

    def _answer(self, piles: list[Pile], body: bytes | None, error: BaseException | None) -> None:
        if body is not None:
            level, placed = bodies.read_published(memoryview(body))
            for pile, (partition, _, first) in zip(piles, placed, strict=True):
                for step, sent in enumerate(pile.sents):
                    if not sent.done():
                        sent.set_result(
                            PublishReceipt(self.known.name, WORDS[level], partition, first + step)
                        )
        if error is not None:
            self._fault = self._fault or error
            for pile in piles:
                for sent in pile.sents:
                    if not sent.done():
                        sent.set_exception(error)
                        sent.exception()  # `flush` tells it too, so it counts as looked at
        with self._lock:
            self._bytes -= sum(pile.bytes for pile in piles)
            self._unanswered -= sum(len(pile.drafts) for pile in piles)
        waits, self._waits = self._waits, []
        for wait in waits:
            if not wait.done():
                wait.set_result(None)

    async def room(self) -> None:
        """Until something was answered since."""
        self._release()
        if self._bytes:
            await self._answered()

    async def flush(self) -> None:
        """Until all that was put is answered; raises the first error since the last flush."""
        self._release()
        while self._unanswered:
            await self._answered()
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    async def _answered(self) -> None:
        wait = asyncio.get_running_loop().create_future()
        self._waits.append(wait)
        await wait

    async def close(self) -> None:
        with self._lock:
            self._closed = True
        try:
            await self.flush()
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def statistics(self) -> dict[str, int]:
        with self._lock:
            return {
                "unanswered": self._unanswered,
                "bytes": self._bytes,
                "in_flight": self._in_flight,
            }
