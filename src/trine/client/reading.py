"""The log, read over the wire: the same answers as the embedded library's, made of READ frames.

Who waits for messages of several partitions has one waiting READ in each of them. Those that are not answered when
the first one is stay, and serve the next wait: there is never more than one of them a partition.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from trine.client.link import unattended
from trine.log import batch
from trine.log.batch import StoredRecord
from trine.log.stored import DeadLetter, LogMessage, Origin, StoredMessage
from trine.model.errors import InvalidOption, UnknownPartition
from trine.model.limits import KIB, MIB
from trine.wire import bodies
from trine.wire.calls import FindOffsets, GetOffsets, WireMessage
from trine.wire.frames import Command

if TYPE_CHECKING:
    from trine.client.link import Link
    from trine.client.topics import Known

READ_MAX: Final = 100_000
"""Messages one read may give, as in the embedded library."""
READ_BYTES_LEAST: Final = 64 * KIB
READ_BYTES_MOST: Final = 4 * MIB
"""What one READ asks for: about what is wanted, and never so much that other answers wait long behind it."""
PEEK_BYTES: Final = 1
"""Of a READ that only waits."""


class Log:
    """Reads of all topics over one link."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._peeks: dict[tuple[str, int], asyncio.Future[bytes]] = {}

    async def read(
        self,
        known: Known,
        partition: int | None,
        from_offset: int | None,
        to_offset: int | None,
        from_ms: int | None,
        to_ms: int | None,
        most: int,
        wait_ms: int,
    ) -> list[StoredMessage]:
        if most < 1 or most > READ_MAX:
            raise InvalidOption(
                f"max is {most}; it must be 1 to {READ_MAX}: read further from the last offset"
            )
        if partition is None and (from_offset is not None or to_offset is not None):
            raise InvalidOption("an offset is a place in one partition: say which, with partition=")
        chosen = _chosen(known, partition)
        starts = dict.fromkeys(chosen, max(from_offset or 0, 0))
        if from_ms is not None:
            at = await self._link.call(FindOffsets(topic=known.name, time_ms=from_ms, partition=partition))
            starts = {number: max(starts[number], at.get(number, 0)) for number in chosen}
        found = await self.read_all(known, starts, to_offset, to_ms, most)
        if not found and wait_ms > 0:
            await self.wait(known.name, starts, wait_ms)
            found = await self.read_all(known, starts, to_offset, to_ms, most)
        if len(chosen) > 1:
            found.sort(key=lambda message: (message.timestamp_ms, message.partition, message.offset))
        return found[:most]

    async def read_all(
        self, known: Known, starts: dict[int, int], to_offset: int | None, to_ms: int | None, most: int
    ) -> list[StoredMessage]:
        """Up to so many of each partition."""
        parts = await asyncio.gather(
            *(self.read_one(known, number, start, to_offset, to_ms, most) for number, start in starts.items())
        )
        return [message for part in parts for message in part]

    async def read_one(
        self, known: Known, number: int, start: int, to_offset: int | None, to_ms: int | None, most: int
    ) -> list[StoredMessage]:
        origin = Origin(known.name, number, known.config.lanes)
        found: list[StoredMessage] = []
        while len(found) < most and (to_offset is None or start < to_offset):
            wanted = min(max((most - len(found)) * 512, READ_BYTES_LEAST), READ_BYTES_MOST)
            body = await self._link.request(
                Command.READ, bodies.write_read(known.name, number, start, wanted, 0), safe=True
            )
            _, end, data = bodies.read_range(memoryview(body))
            if not len(data):
                break
            position = 0
            following = start
            while position < len(data):
                header = batch.read_header(data, position)
                following = header.next_offset
                for record in batch.decode(data[position : position + header.size]):
                    if record.offset < start:
                        continue
                    if len(found) >= most or (to_offset is not None and record.offset >= to_offset):
                        return found
                    if to_ms is not None and record.timestamp >= to_ms:
                        return found
                    found.append(LogMessage(record, origin, header.lane))
                position += header.size
            if following <= start or following >= end:
                break
            start = following
        return found

    async def last(self, known: Known, count: int, partition: int | None) -> list[StoredMessage]:
        chosen = _chosen(known, partition)
        ends = await self._link.call(GetOffsets(topic=known.name))
        starts = {number: max(ends[number][1] - count, 0) for number in chosen}
        found = await self.read_all(known, starts, None, None, count)
        return sorted(found, key=lambda message: (message.timestamp_ms, message.partition, message.offset))[
            -count:
        ]

    async def wait(self, topic: str, starts: dict[int, int], wait_ms: int) -> None:
        """Until there may be something at one of these places."""
        peeks = []
        for number, start in starts.items():
            peek = self._peeks.get((topic, number))
            if peek is None or peek.done():
                body = bodies.write_read(topic, number, start, PEEK_BYTES, wait_ms)
                peek = self._peeks[topic, number] = self._link.request(Command.READ, body, safe=True)
                unattended(peek)  # it may outlive whoever waits for it
            peeks.append(peek)
        await asyncio.wait(peeks, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        for key in [key for key, peek in self._peeks.items() if peek.done()]:
            self._peeks.pop(key).result()


def _chosen(known: Known, partition: int | None) -> list[int]:
    count = known.config.partitions
    if partition is None:
        return list(range(count))
    if not 0 <= partition < count:
        raise UnknownPartition(f"topic {known.name!r} has partitions 0 to {count - 1}, not {partition}")
    return [partition]


def letter_of(message: WireMessage) -> DeadLetter:
    """A dead letter as the server lists it."""
    record = StoredRecord(message.offset, message.timestamp_ms, message.key, message.value, message.headers)
    return DeadLetter(record, Origin(message.topic, message.partition, (message.priority,)), 0)
