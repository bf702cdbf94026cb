"""How the sync interface reaches the link: over to a thread with an event loop, and back.

One daemon thread for all brokers a process is connected to; it ends with the last of them. Any number of threads may
call; what they ask for at the same moment goes out together.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from trine.client.bursts import Bursts
from trine.client.link import Link, Lost, Part
from trine.client.session import CLOSING_PAUSE
from trine.client.shortcut import Shortcut
from trine.client.slot import Slot
from trine.client.topics import encode_value, receipt_of, single_parts
from trine.model.errors import Closed, TrineError
from trine.model.message import PublishReceipt
from trine.wire.bodies import read_settled
from trine.wire.frames import Command

if TYPE_CHECKING:
    from trine.client.leases import Lease, Leased
    from trine.client.session import Session
    from trine.client.topics import Known
    from trine.wire.bodies import Held

T = TypeVar("T")

POLL_MS_MAX: Final = 20_000
"""The longest one question waits at the server: a longer wait asks again, so that a lost answer costs no more."""

Answer: TypeAlias = None
"""Of a single ack: it has been waited for."""
Sent = Future[PublishReceipt]
"""Of a message given to a sender: `sent.result()` waits for the receipt."""


class LoopThread:
    """The thread and its loop, for as long as somebody uses them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def join(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():  # a fork has no thread of its parent's
                self._users = 0
                self._process = os.getpid()
                self._loop = _new_loop()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._loop,), name="trine-client", daemon=True
                )
                self._thread.start()
            self._users += 1
            return self._loop

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users or self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_default_executor())  # names are looked up in it
        loop.close()


LOOP_THREAD: Final = LoopThread()


class Caller:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.bursts = Bursts(link)
        self._loop = LOOP_THREAD.join()
        self._shortcut = Shortcut(link, self._loop)
        self._ending = threading.Lock()
        self._over = False

    def begin(self) -> None:
        """Connects, or raises why not."""
        try:
            self.run(self.link.open())
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        with self._ending:
            if self._over:
                return
            try:
                self.run(self._close())
            finally:
                self._over = True
                LOOP_THREAD.leave()

    async def _close(self) -> None:
        await self._shortcut.close()
        await self.link.close()

    def now_ms(self) -> int:
        return self.link.now_ms()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        slot: Slot[T] = Slot()
        try:
            self._hand(self._begin, work, slot)
        except BaseException:
            work.close()
            raise
        return slot.wait()

    @staticmethod
    def _begin(work: Coroutine[Any, Any, T], slot: Slot[T]) -> None:
        task = asyncio.ensure_future(work)

        def done(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                slot.set_exception(Closed("this broker was closed meanwhile"))
            elif (error := task.exception()) is not None:
                slot.set_exception(error)
            else:
                slot.set_result(task.result())

        task.add_done_callback(done)

    def request(self, command: int, *parts: Part, safe: bool = False) -> bytes:
        answer = self._shortcut.ask(command, parts, safe=safe)
        if answer is not None:
            return answer
        slot: Slot[bytes] = Slot()
        self._hand(self._send, command, parts, slot, safe)
        return slot.wait()

    def _send(self, command: int, parts: tuple[Part, ...], slot: Slot[bytes], safe: bool) -> None:
        self.link.send(command, parts, slot, safe=safe)

    def publish(
        self, known: Known, level: int, lane: int, number: int, key: bytes | None, value: bytes
    ) -> PublishReceipt:
        """A message that goes by itself, or with all that other threads publish in this turn of the loop."""
        if self._shortcut.open():
            data = encode_value(known, lane, key, value, self.link.now_ms())
            answer = self._shortcut.ask(Command.PUBLISH, single_parts(known, level, number, data))
            if answer is not None:
                return receipt_of(known.name, answer)
        slot: Slot[PublishReceipt] = Slot()
        self._hand(self.bursts.put, known, level, lane, number, key, value, slot)
        return slot.wait()

    def _hand(self, call: Callable[..., None], *arguments: Any) -> None:
        if self._over:
            raise self.link._over()
        self._loop.call_soon_threadsafe(call, *arguments)

    def poll(self, ask: Callable[[int], T], wait_ms: int) -> T:
        """Asks until there is something, or the wait is over; a broken connection is no answer."""
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            left = max(math.ceil((deadline - time.monotonic()) * 1000), 0)
            try:
                found = ask(min(left, POLL_MS_MAX))
            except Lost:
                continue
            if found or time.monotonic() >= deadline:
                return found

    def admitted(self, publish: Callable[[int], T], wait_ms: int) -> T:
        """A publish that may wait for room: the server does the waiting."""
        return publish(wait_ms)

    def sleep(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def check(self, _: Any) -> None:
        """The server has been asked already: to make the argument."""

    def fresh(self, found: T, _: T) -> T:
        """The server has been asked already."""
        return found

    def receive(self, session: Session, most: int, wait_ms: int) -> list[Leased]:
        if session.plain:
            body = session.receive_body(most, wait_ms)
            try:
                answer = self._shortcut.ask(Command.RECEIVE, (body,), bound=session.generation)
            except Closed as error:
                time.sleep(CLOSING_PAUSE)
                raise session.meant(error) from error
            if answer is not None:
                return session.taken(answer)
        return self.run(session.receive(most, wait_ms))

    def ack(self, session: Session, held: list[Held]) -> int:
        answer = self._ack(session, held)
        return self.run(session.ack(held)) if answer is None else read_settled(memoryview(answer))[0]

    def _ack(self, session: Session, held: list[Held]) -> bytes | None:
        if not session.alive:
            return None
        try:
            return self._shortcut.ask(Command.ACK, (session.ack_body(held),), bound=session.generation)
        except TrineError as error:
            raise session.meant(error) from error

    def settle(self, session: Session, lease: Lease, offset: int) -> Answer:
        if self._ack(session, [(lease.partition, lease.number, offset, 1)]) is not None:
            lease.settle_one(offset)
            return
        slot: Slot[bytes] = Slot()
        self._hand(session.ack_one, lease, offset, slot)
        slot.wait()

    def sent(self) -> Sent:
        return Future()

    def soon(self, call: Callable[[], None]) -> None:
        self._hand(call)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
