"""A redrive under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trine.broker.aio.topic import Item
from trine.broker.redrive import RedriveJob
from trine.log.stored import DeadLetter

if TYPE_CHECKING:
    from trine.broker.aio.broker import AsyncBroker


class AsyncRedrive:
    """A redrive under way; it is durable, and goes on after a restart with `broker.resume_redrive(id)`."""

    def __init__(
        self, broker: AsyncBroker, job: RedriveJob, edit: Callable[[DeadLetter], Item | None] | None
    ) -> None:
        self._broker = broker
        self._engine = broker._engine
        self._job = job
        self._edit = edit

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def progress(self) -> dict[str, Any]:
        with self._engine.lock:
            return self._job.progress()

    async def preview(self, limit: int = 100) -> list[DeadLetter]:
        """A dry run: the dead letters the job would move, without moving any."""
        with self._engine.lock:
            return self._job.preview(limit)

    async def step(self, max: int = 1000) -> int:
        """Moves up to `max` (and what the rate allows now); answers how many dead letters it looked at."""
        with self._engine.lock:
            looked, lsn = self._job.step(max, self._edit)
        await self._broker._waits.durable(lsn)
        return looked

    @property
    def where(self) -> str | None:
        """The condition of a job that is told its letters."""
        with self._engine.lock:
            return self._job.where

    @property
    def ends(self) -> list[int]:
        """Of each partition, where letters begin that are not part of the job: they came after it."""
        with self._engine.lock:
            return self._job.ends

    @property
    def pause_ms(self) -> int:
        """How long until the rate allows another one."""
        with self._engine.lock:
            return self._job.pause_ms()

    async def move(self, letters: Sequence[tuple[int, int]], *, last: bool = False) -> int:
        """Moves the letters that `where` found, by (partition, offset), rising; answers how many of them, from the
        front, are dealt with: the rate may not allow all at once. After `last` the job is over."""
        with self._engine.lock:
            dealt, lsn = self._job.move(letters, last)
        await self._broker._waits.durable(lsn)
        return dealt

    async def run(self, *, on_progress: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """Runs the job to its end, at its rate."""
        while not self._job.done:
            looked = await self.step()
            if on_progress is not None:
                on_progress(self.progress)
            pause_ms = self._job.pause_ms()
            if pause_ms and not self._job.done and not looked:
                await self._broker._waits.written(self._engine.version, pause_ms)
        return self.progress

    async def cancel(self) -> None:
        with self._engine.lock:
            lsn = self._job.cancel()
        await self._broker._waits.durable(lsn)
