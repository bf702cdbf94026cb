"""The broker's own state, for the page's first look: its process, its disk, and what is not well.

Health is told in sentences, each with a level and the topic or group it is about. It is made of what the sampler saw
and of what the engine knows anyway: nothing is tried out, and nothing of it acts.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from trine.broker.opening import MEMORY
from trine.model.limits import MIB
from trine.model.version import VERSION
from trine.server.context import Context
from trine.server.http.counters import Sees
from trine.server.http.sampler import Sampler, TopicRow

DISK_LOOK_S: Final = 5.0
"""A file system on the network may take its time to say how full it is."""
PROCESS_LOOK_S: Final = 0.5
DISK_LOW: Final = 0.10
DISK_VERY_LOW: Final = 0.02
DISK_VERY_LOW_BYTES: Final = 256 * MIB
"""Free space of which a running broker's journal and checkpoints soon have too little."""
DEPTH_HIGH: Final = 0.9
"""Of a topic's depth_max, from which publishers may soon be refused."""
DIED_S: Final = 60.0
"""Dead letters are news for this long."""
LATE_S: Final = 0.25
HEALTH_MAX: Final = 20
"""Sentences somebody reads; the worst come first, and one counts the rest."""

Grade = Literal["ok", "warn", "bad"]
ORDER: Final[dict[Grade, int]] = {"bad": 0, "warn": 1, "ok": 2}


class Health(msgspec.Struct, frozen=True, kw_only=True):
    level: Grade
    what: str
    """A sentence."""
    where: str | None = None
    """`topic`, or `topic/group`."""


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    ready: bool
    version: str
    uptime_s: float
    memory_bytes: int
    cpu_percent: float
    """Of one core, over the last second."""
    disk_used_bytes: int | None
    """Of the file system that has the data directory; null of a store in memory."""
    disk_free_bytes: int | None
    data_bytes: int
    """Of the topics' logs, and what a restart would replay of the journal."""
    connections: int
    health: list[Health]
    """The worst first; one that says `ok` when there is nothing else to say."""


class Doctor:
    """Takes the vitals: the process's once a tick for all readers, the disk's more rarely."""

    def __init__(self, context: Context, sampler: Sampler) -> None:
        self._context = context
        self._sampler = sampler
        self._cpu = (0.0, 0.0)
        self._process: tuple[int, float, int] = (0, 0.0, 0)
        self._disk: tuple[int, int, int] | None = None
        self._disk_at = 0.0

    async def vitals(self, sees: Sees) -> Vitals:
        await self._look_at_disk()
        self._look_at_process()
        memory, cpu, connections = self._process
        engine = self._context.engine
        with engine.lock:
            journal = 0 if engine.closed else engine.store.bytes_since_checkpoint
            failure = engine.failure
        found = sorted(self._findings(failure, sees), key=lambda one: ORDER[one.level])
        if len(found) > HEALTH_MAX:
            rest = len(found) - HEALTH_MAX + 1
            found[HEALTH_MAX - 1 :] = [Health(level="warn", what=f"There are {rest} more such findings.")]
        return Vitals(
            ready=not self._context.closing.is_set() and failure is None,
            version=VERSION,
            uptime_s=round(time.monotonic() - self._context.ready_since, 1),
            memory_bytes=memory,
            cpu_percent=cpu,
            disk_used_bytes=None if self._disk is None else self._disk[1],
            disk_free_bytes=None if self._disk is None else self._disk[2],
            data_bytes=self._sampler.totals.size_bytes + journal,
            connections=connections,
            health=found or [Health(level="ok", what="All is well.")],
        )

    def _look_at_process(self) -> None:
        now, used = time.monotonic(), time.process_time()
        before, used_before = self._cpu
        if now - before < PROCESS_LOOK_S:
            return
        self._cpu = (now, used)
        cpu = round(100 * (used - used_before) / max(now - before, 0.001), 1)
        samples = [one for metric in self._context.metrics.connections.collect() for one in metric.samples]
        self._process = (_memory_bytes(), cpu, int(sum(one.value for one in samples)))

    async def _look_at_disk(self) -> None:
        folder = self._context.config.broker.data_dir
        if folder == MEMORY or time.monotonic() - self._disk_at < DISK_LOOK_S:
            return
        self._disk_at = time.monotonic()
        with suppress(OSError):  # then the last answer stands
            self._disk = tuple(await asyncio.to_thread(shutil.disk_usage, folder))  # type: ignore[assignment]

    # --- what is not well

    def _findings(self, failure: BaseException | None, sees: Sees) -> Iterator[Health]:
        if failure is not None:
            yield Health(
                level="bad", what=f"The store failed, and nothing is accepted: {failure}. Restart the server."
            )
        if self._disk is not None:
            yield from _disk_findings(*self._disk)
        if self._sampler.late_s > LATE_S:
            late = round(1000 * self._sampler.late_s)
            yield Health(level="warn", what=f"The server is busy: it was {late} ms late with its own work.")
        now = time.monotonic()
        for row in self._sampler.rows.values():
            if not row.is_dead_letters and sees(row.name):
                yield from self._topic_findings(row, now)

    def _topic_findings(self, row: TopicRow, now: float) -> Iterator[Health]:
        if row.depth >= row.depth_max:
            told = f"Topic {row.name} is full: publishers are refused. Add consumers, or raise its depth_max."
            yield Health(level="bad", what=told, where=row.name)
        elif row.depth > DEPTH_HIGH * row.depth_max:
            told = f"Topic {row.name} holds {row.depth} of at most {row.depth_max} messages."
            yield Health(level="warn", what=told, where=row.name)
        for one in row.groups.values():
            where = f"{row.name}/{one.name}"
            if one.paused is not None:
                told = f"Group {one.name} of {row.name} is paused: {one.paused}."
                yield Health(level="warn", what=told, where=where)
            elif not one.members and one.lag and row.published_rate:
                told = f"Nobody consumes as {one.name} of {row.name}, and {one.lag} messages wait."
                yield Health(level="warn", what=told, where=where)
            if one.died_at and now - one.died_at < DIED_S:
                dead = self._sampler.buried(row)
                told = f"Group {one.name} of {row.name} gives messages up: {dead} dead letters wait."
                yield Health(level="warn", what=told, where=where)


def _disk_findings(total: int, used: int, free: int) -> Iterator[Health]:
    percent = round(100 * free / max(total, 1), 1)
    told = f"The disk has {free // MIB} MiB left ({percent} %)."
    if free < DISK_VERY_LOW_BYTES or free < DISK_VERY_LOW * total:
        yield Health(level="bad", what=f"{told} Make room, or publishers will be refused.")
    elif free < DISK_LOW * total:
        yield Health(level="warn", what=told)


def _memory_bytes() -> int:
    """What of the process is in memory now; where that is not told, the most that ever was."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        kept: Any = resource.getrusage(resource.RUSAGE_SELF)
        return int(kept.ru_maxrss) * 1024
