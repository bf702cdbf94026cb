"""Group commit for all listeners of the process: everything appended in one tick of the loop shares one sync.

    append ─▶ when_durable(lsn, callback) ─┐
    append ─▶ await durable(lsn) ──────────┼─▶ end of the tick: one sync ─▶ all answers
    append ─▶ ... ─────────────────────────┘

While syncs are fast the loop makes them itself: a thread would cost more than it saves. When they are slow, one thread
makes them, and all who come meanwhile share the next one. A sync that fails fails all who wait for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import msgspec

from trine.server.flushes import Flushes

if TYPE_CHECKING:
    from trine.broker.engine import Engine

SLOW_SECONDS: Final = 0.002
"""A sync that takes longer than this is made in the thread: so long may the loop stand still."""
FADE: Final = 0.25
"""How much the last sync counts in what is expected of the next one."""

Answer = Callable[[Exception | None], None]
"""Called with None when it is durable, with the error when it cannot be."""


class CommitsStatistics(msgspec.Struct, frozen=True, kw_only=True):
    syncs: int
    in_thread: int
    waiting: int
    expected_seconds: float


class Commits:
    """Used by one event loop: all but the sync itself happens there."""

    def __init__(self, engine: Engine, observe: Callable[[float], None]) -> None:
        self._engine = engine
        self._observe = observe
        self.flushes = Flushes()
        """What the answers are written to is flushed when all of a sync are given."""
        self._waiting: list[tuple[int, Answer]] = []
        self._asked = False
        self._expected = 0.0
        self._thread: ThreadPoolExecutor | None = None
        self._syncs = 0
        self._in_thread = 0

    def when_durable(self, lsn: int, answer: Answer) -> None:
        """Calls back when all below `lsn` is on disk: at once if it is, else after the sync that ends this tick."""
        if self._engine.store.synced_lsn >= lsn:
            answer(None)
            return
        self._waiting.append((lsn, answer))
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._commit)

    async def durable(self, lsn: int) -> None:
        """Until all below `lsn` is on disk."""
        if self._engine.store.synced_lsn >= lsn:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer(error: Exception | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.when_durable(lsn, answer)
        await done

    def close(self) -> None:
        """Lets the thread go; call it when nobody waits any more."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def statistics(self) -> CommitsStatistics:
        return CommitsStatistics(
            syncs=self._syncs,
            in_thread=self._in_thread,
            waiting=len(self._waiting),
            expected_seconds=self._expected,
        )

    # --- one sync

    def _commit(self) -> None:
        target = max(lsn for lsn, _ in self._waiting)
        if self._expected < SLOW_SECONDS:
            took, error = self._sync(target)
            self._finish(took, error)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="trine-sync")
        self._in_thread += 1
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._sync, target)
        work.add_done_callback(self._thread_done)

    def _sync(self, target: int) -> tuple[float, Exception | None]:
        begin = time.perf_counter()
        try:
            self._engine.sync(target)
        except Exception as error:
            return time.perf_counter() - begin, error
        return time.perf_counter() - begin, None

    def _thread_done(self, work: asyncio.Future[tuple[float, Exception | None]]) -> None:
        if not work.cancelled():
            self._finish(*work.result())

    def _finish(self, took: float, error: Exception | None) -> None:
        self._observe(took)
        self._syncs += 1
        # A slow one counts at once, so that the loop does not stand still twice; fast ones are believed slowly.
        self._expected = took if took > self._expected else self._expected + FADE * (took - self._expected)
        synced = self._engine.store.synced_lsn
        waiting, self._waiting = self._waiting, []
        if error is None:
            self._waiting = [one for one in waiting if one[0] > synced]
        self._asked = bool(self._waiting)
        if self._asked:  # those who came while the thread was busy
            asyncio.get_running_loop().call_soon(self._commit)
        with self.flushes:
            for lsn, answer in waiting:
                if lsn <= synced:
                    answer(None)
                elif error is not None:
                    answer(error)
