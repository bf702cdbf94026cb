"""Reads of the log that wait for something to be written: the long poll of the log view.

One listener for all of them: when a log grows, those that wait for one of its offsets are answered. Reads wait by log,
so that a write to one partition costs nothing to the readers of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from trine.log.log import Log
from trine.server.bell import Bell

if TYPE_CHECKING:
    from trine.server.context import Context


class PendingRead:
    """A READ at the end of its log. `answer` reads once more and sends what is there, be it nothing."""

    __slots__ = ("answer", "log", "offset", "timer")

    def __init__(self, log: Log, offset: int, answer: Callable[[], None]) -> None:
        self.log = log
        self.offset = offset
        self.answer = answer
        self.timer: asyncio.TimerHandle | None = None


class Reads:
    def __init__(self, context: Context) -> None:
        self._engine = context.engine
        self._flushes = context.commits.flushes
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Log, set[PendingRead]] = {}
        self._bell = Bell(self._serve)

    def park(self, read: PendingRead, wait_ms: int) -> None:
        """Under the lock, right after the look."""
        if not self._waiting:
            self._engine.reader_listeners.add(self._bell.ring)
        self._waiting.setdefault(read.log, set()).add(read)
        read.timer = self._loop.call_later(wait_ms / 1000, self.end, read)

    def end(self, read: PendingRead) -> None:
        """Time is up: answer with what there is."""
        if self.drop(read):
            read.answer()

    def drop(self, read: PendingRead) -> bool:
        """Whether it was still waiting; it is not any more."""
        some = self._waiting.get(read.log)
        if some is None or read not in some:
            return False
        some.discard(read)
        if not some:
            del self._waiting[read.log]
        if not self._waiting:
            self._engine.reader_listeners.discard(self._bell.ring)
        if read.timer is not None:
            read.timer.cancel()
        return True

    def _serve(self) -> None:
        due = [
            read
            for log, some in self._waiting.items()
            for read in some
            if log.next_offset > read.offset or self._engine.closed
        ]
        with self._flushes:
            for read in due:
                self.end(read)
