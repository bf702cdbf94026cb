"""A plain reader of the log, with a position that is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trine.log.stored import StoredMessage
from trine.model.duration import duration_ms, instant_ms
from trine.model.errors import InvalidOption
from trine.model.message import Duration, Instant
from trine.wire import calls

if TYPE_CHECKING:
    from trine.client.aio.topic import AsyncTopic


class AsyncReader:
    """Reads the log from a position that can be committed under the reader's name."""

    def __init__(self, topic: AsyncTopic, name: str, start: str) -> None:
        if start not in ("earliest", "latest"):
            raise InvalidOption(f"start is 'earliest' or 'latest', not {start!r}")
        self._topic = topic
        self._broker = topic._broker
        self._caller = topic._caller
        self._start = start
        self._positions: dict[int, int] = {}
        self._opened = False
        self.name = name
        self._caller.check(self._open())

    async def _open(self) -> dict[int, int]:
        if not self._opened:
            call = calls.OpenReader(topic=self._topic.name, reader=self.name, start=self._start)
            self._positions = await self._broker._call(call)
            self._opened = True
        return self._positions

    @property
    def positions(self) -> dict[int, int]:
        return dict(self._positions)

    async def read(self, max: int = 1000, wait: Duration | None = None) -> list[StoredMessage]:
        """The next messages of all partitions; the position moves on, and is kept by `commit`."""
        await self._open()

        async def once(wait_ms: int) -> list[StoredMessage]:
            found = await self._read(max)
            if not found and wait_ms:
                log = self._broker._log
                await self._caller.run(log.wait(self._topic.name, self._positions, wait_ms))
                found = await self._read(max)
            return found

        return await self._caller.poll(once, 0 if wait is None else duration_ms(wait, what="wait"))

    async def _read(self, most: int) -> list[StoredMessage]:
        known = await self._topic._looked_up()
        starts = {number: self._positions.get(number, 0) for number in range(known.config.partitions)}
        read = self._broker._log.read_all(known, starts, None, None, most)
        found = (await self._caller.run(read))[:most]
        self._positions.update({one.partition: one.offset + 1 for one in found})
        return found

    async def seek(
        self, *, offset: int | None = None, time: Instant | None = None, partition: int | None = None
    ) -> None:
        await self._open()
        call = calls.FindOffsets(
            topic=self._topic.name,
            offset=offset,
            time_ms=None if time is None else instant_ms(time),
            partition=partition,
        )
        self._positions.update(await self._broker._call(call))

    async def commit(self) -> None:
        await self._open()
        call = calls.CommitReader(topic=self._topic.name, reader=self.name, positions=self._positions)
        await self._broker._call(call)
