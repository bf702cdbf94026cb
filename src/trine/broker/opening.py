"""Opening a store: which disk, which clock, and whether time passes by itself."""

from __future__ import annotations

import random

from trine.broker.engine import Engine
from trine.broker.housekeeping import Housekeeper
from trine.log.disk import Disk, RealDisk
from trine.log.memory_disk import MemoryDisk
from trine.log.salvage import salvage_store
from trine.log.store import Progress, Store, StoreSettings
from trine.model.clock import Clock, SimulatedClock, SystemClock

MEMORY = ":memory:"


def open_store(
    path: str,
    *,
    clock: Clock | None = None,
    seed: int | None = None,
    disk: Disk | None = None,
    settings: StoreSettings | None = None,
    member_grace_ms: int | None = None,
    progress: Progress | None = None,
) -> tuple[Engine, Housekeeper]:
    """An engine that has recovered, and its housekeeper: a running thread, unless time is simulated.

    With a grace the consumers of before keep their leases that long: those of a server may come back.
    `progress` is told how far recovery has come, in this thread.
    """
    chosen = clock or SystemClock()
    in_memory = disk is None and path == MEMORY
    if disk is None:
        disk = MemoryDisk() if in_memory else RealDisk(path)
    rng = random.SystemRandom() if seed is None else random.Random(seed)
    store = Store.open(disk, settings=settings, progress=progress)
    try:
        engine = Engine(
            store, chosen, rng, in_memory=in_memory, member_grace_ms=member_grace_ms, progress=progress
        )
    except BaseException:
        store.close()
        raise
    housekeeper = Housekeeper(engine)
    if not isinstance(chosen, SimulatedClock):
        housekeeper.start()
    return engine, housekeeper


def salvage(path: str) -> list[str]:
    """Saves what can be read of a damaged, closed store; answers a line for each file that was mended."""
    return salvage_store(RealDisk(path, create=False))
