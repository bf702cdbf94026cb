"""A range of one partition, read from the broker as it is stored and handed on as Arrow batches.

While one answer is decoded the next one is under way. A broker that goes away and comes back is asked again: reading
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from trine.log import batch
from trine.model.errors import OffsetOutOfRange
from trine.model.limits import MIB
from trine.spark.decode import Decoder
from trine.spark.place import Place
from trine.wire import bodies
from trine.wire.frames import Command

if TYPE_CHECKING:
    from trine.client.sync import Broker

READ_BYTES: Final = 4 * MIB
"""Of one READ: large enough that asking costs nothing, small enough that the server's other clients do not wait."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `start` (included) to `end` (excluded) of a partition."""

    topic: str
    partition: int
    start: int
    end: int
    whole: bool = True
    """Whether what is no longer there is an error (`failOnDataLoss`)."""


def read_range(place: Place, wanted: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    broker = place.shared()
    lanes = broker._known(wanted.topic).config.lanes
    decoder = Decoder(wanted.topic, wanted.partition, lanes, columns, wanted.start, wanted.end)
    with ThreadPoolExecutor(1, thread_name_prefix="trine-read") as ahead:
        position = wanted.start
        answer: Future[bytes] | None = ahead.submit(_ask, broker, wanted, position)
        while answer is not None:
            first, end, data = bodies.read_range(memoryview(answer.result()))
            if first > position and position < wanted.end:
                _missing(wanted, position, min(first, wanted.end))
                position = first
            following = _following(data)
            answer = None
            if not len(data):
                if position < wanted.end and end < wanted.end:
                    _missing(wanted, max(position, end), wanted.end)
            elif following < min(wanted.end, end):
                answer = ahead.submit(_ask, broker, wanted, following)
                position = following
            elif following < wanted.end and end < wanted.end:
                _missing(wanted, following, wanted.end)
            yield from decoder.add(data)
        yield from decoder.rest()


def _ask(broker: Broker, wanted: Range, offset: int) -> bytes:
    body = bodies.write_read(wanted.topic, wanted.partition, offset, READ_BYTES, 0)
    return broker._caller.request(Command.READ, body, safe=True)


def _following(data: memoryview) -> int:
    """The offset after the last of these batches; only the heads are looked at."""
    position, size, following = 0, len(data), -1
    while position < size:
        header = batch.read_header(data, position)
        following = header.next_offset
        position += header.size
    return following


def _missing(wanted: Range, start: int, end: int) -> None:
    if wanted.whole:
        raise OffsetOutOfRange(lost(wanted.topic, wanted.partition, start, end))


def lost(topic: str, partition: int, start: int, end: int) -> str:
    return (
        f"offsets {start} to {end - 1} of {topic}/{partition} are not in the log: retention deleted them, or the topic "
        "was made anew; read them from its archive, start elsewhere, or set failOnDataLoss to false to go on without"
    )
