"""A plain reader of the log, with a position that is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trine.broker.operations import (
    read_log,
)
from trine.log.stored import StoredMessage
from trine.model.duration import duration_ms
from trine.model.errors import (
    InvalidOption,
)
from trine.model.message import Duration, Instant

if TYPE_CHECKING:
    from trine.broker.aio.topic import AsyncTopic


class AsyncReader:
    """Reads the log from a position that can be committed under the reader's name."""

    def __init__(self, topic: AsyncTopic, name: str, start: str) -> None:
        if start not in ("earliest", "latest"):
            raise InvalidOption(f"start is 'earliest' or 'latest', not {start!r}")
        self._topic = topic
        self._engine = topic._engine
        self._waits = topic._broker._waits
        self.name = name
        with self._engine.lock:
            state = topic._state()
            committed = state.meta.readers.get(name, {})
            self._positions = {
                one.number: committed.get(
                    one.number, one.log.start_offset if start == "earliest" else one.log.next_offset
                )
                for one in state.partitions
            }

    @property
    def positions(self) -> dict[int, int]:
        return dict(self._positions)

    async def read(self, max: int = 1000, wait: Duration | None = None) -> list[StoredMessage]:
        """The next messages of all partitions; the position moves on, and is kept by `commit`."""
        deadline = self._engine.clock.now_ms() + (0 if wait is None else duration_ms(wait, what="wait"))
        while True:
            found: list[StoredMessage] = []
            with self._engine.lock:
                topic = self._topic._state()
                for one in topic.partitions:
                    position = self._positions.get(one.number, one.log.start_offset)
                    here = read_log(topic, one.number, position, None, None, None, max - len(found))
                    if here:
                        self._positions[one.number] = here[-1].offset + 1
                        found += here
                    if len(found) >= max:
                        break
                seen = self._engine.version
                now = self._engine.clock.now_ms()
            if found or now >= deadline:
                return found
            housekeeper = self._topic._broker._housekeeper
            await self._waits.written(seen, housekeeper.pause_ms(now, deadline))
            housekeeper.step_if_simulated()

    async def seek(
        self, *, offset: int | None = None, time: Instant | None = None, partition: int | None = None
    ) -> None:
        with self._engine.lock:
            topic = self._topic._state()
            chosen = topic.partitions if partition is None else [topic.partition(partition)]
            for one in chosen:
                self._positions[one.number] = one.place_of(offset, time)

    async def commit(self) -> None:
        with self._engine.lock:
            lsn = self._engine.move_reader(self._topic._state(), self.name, self._positions)
        await self._waits.durable(lsn)
