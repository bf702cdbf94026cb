"""What the state machines share: a broker on simulated time and a simulated disk, and how often they run."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, settings

import trine
from trine.broker.opening import open_store
from trine.log.journal import JournalSettings
from trine.log.simulated_disk import SimulatedDisk
from trine.log.store import Store, StoreSettings
from trine.model.limits import KIB

SMALL = StoreSettings(
    journal=JournalSettings(
        file_bytes=128 * KIB, chunk_bytes=8 * KIB, reserve_bytes=16 * KIB, queue_bytes_max=8 * KIB, mapped_bytes_max=512
    ),
    tail_bytes_max=1 * KIB,
    tails_bytes_max=4 * KIB,
    look_bytes=2 * KIB,
)  # fmt: skip
"""Files of the journal roll and tails are flushed within a few dozen steps."""


def runs(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


class World:
    """One broker and the disk under it, which outlives it."""

    def __init__(self) -> None:
        self.clock = trine.SimulatedClock()
        self.disk = SimulatedDisk()
        self.broker = self._open()

    def _open(self) -> trine.Broker:
        return trine.Broker(*open_store("x", clock=self.clock, seed=0, disk=self.disk, settings=SMALL))

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    @property
    def store(self) -> Any:
        return self.broker._engine.store

    def close(self) -> None:
        self.broker.close()
        self.broker = self._open()

    def crash(self, seed: int | None) -> int:
        """A kill, or with a seed a power cut; answers the lsn up to which the journal survived."""
        store = self.store
        firm = store.written_lsn if seed is None else store.synced_lsn
        if seed is None:
            self.disk = self.disk.crash(kill=True)
        else:
            dice = random.Random(seed)
            self.disk = self.disk.crash(dice, dice.choice((None, None, True, False)))
        survived = self._survived()
        assert survived >= firm, f"the journal ends at {survived}, {firm} was promised"
        self.broker = self._open()
        return survived

    def _survived(self) -> int:
        look = Store.open(self.disk.crash(kill=True), settings=SMALL)
        for _ in look.replay():
            pass
        end = int(look.end_lsn)
        look.close()
        return end
