"""Search in the log: messages by text, key, header, time and place, oldest or newest first.

A call looks at a bounded number of messages and then answers with what it found and a cursor, with which the next call
goes on: so a search through millions is many short calls that can be watched and given up, and none that holds
the server. The partitions are merged by time. The cursor holds where each of them is; nothing is kept here.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import heapq
import zlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal

import msgspec
from litestar import get
from litestar.params import FromPath, FromQuery, QueryParameter

from trine.broker.partition import Partition
from trine.broker.walking import Step, Wanted, backward, forward
from trine.log.stored import LogMessage
from trine.model.errors import InvalidOption, UnknownMessage
from trine.model.limits import KIB, MIB
from trine.server.context import Context
from trine.server.http.bodies import PreviewOut, preview_out
from trine.server.http.publishing import topic_of
from trine.server.http.requests import As, Given, Instant, Preview, Whole, instant_ms_of

LOOKED_MAX: Final = 50_000
"""Messages one call passes; batches that need not be decoded are passed by the thousand."""
DECODED_MAX: Final = 10_000
"""Messages one call decodes and compares: some tens of milliseconds, with others served in between."""
TURN: Final = 200
"""Messages between two turns of the others."""
HEADS: Final = 16
"""Partitions begun between two turns of the others."""
CURSOR_BYTES_MAX: Final = 128 * KIB
"""A place in each of 4,096 partitions, and room."""
ANSWER_BYTES_MAX: Final = 8 * MIB

Way = Literal["forward", "backward"]
Found = Callable[[LogMessage], bool]


class Cursor(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    topic: str
    way: Way
    positions: list[int]


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[PreviewOut]
    cursor: str | None
    """Where to go on; null when there is nothing more."""
    scanned: int
    """Messages that this call looked at."""
    done: bool


@get("/v1/topics/{topic:str}/search", opt={"may": "read"}, tags=["log"], summary="Search the log")
async def search(
    topic: FromPath[str],
    context: Given[Context],
    text: Annotated[
        str | None,
        QueryParameter(
            max_length=1000,
            description="In the key, the value or a header's value, as it stands there; case of ASCII does not matter.",
        ),
    ] = None,
    key: FromQuery[str | None] = None,
    header: Annotated[
        str | None, QueryParameter(description="`name:value`, or a name alone.", max_length=1000)
    ] = None,
    partition: Whole = None,
    from_offset: Whole = None,
    from_time: Instant = None,
    to_time: Instant = None,
    direction: Annotated[Way, QueryParameter(description="`backward` is the newest first.")] = "forward",
    limit: Annotated[int, QueryParameter(ge=1, le=1_000, description="The most that is answered.")] = 100,
    cursor: Annotated[
        str | None, QueryParameter(description="Of the last answer: goes on where it ended.")
    ] = None,
    preview: Preview = 4096,
    show: As = "auto",
) -> Searched:
    """Looks at a bounded number of messages a call: while `done` is false, ask again with the `cursor`, be there
    messages in the answer or not. Over all partitions it goes by time. Values longer than `preview` are cut.
    """
    wanted = Wanted(
        text=text.encode().lower() if text else None,
        key=None if key is None else key.encode(),
        header=_header(header),
        from_ms=instant_ms_of(from_time),
        to_ms=instant_ms_of(to_time),
    )
    if partition is None and from_offset is not None:
        raise InvalidOption("an offset is a place in one partition: say which, with partition=")
    with context.engine.lock:
        state = topic_of(context, topic)
        chosen = state.partitions if partition is None else [state.partition(partition)]
        if cursor is None:
            positions = [start_of(one, direction, from_offset, wanted) for one in chosen]
        else:
            positions = read_cursor(cursor, topic, direction, len(chosen))
    walks = [
        walk_of(one, position, direction, wanted) for one, position in zip(chosen, positions, strict=True)
    ]
    merge = Merge(walks, positions, direction)
    found = await merge.run(limit, preview)
    done = merge.over
    with context.engine.lock:
        messages = [
            LogMessage(step.record, chosen[index].origin, chosen[index].lane_of(step.record.offset))
            for index, step in found
            if step.record is not None
        ]
    return Searched(
        messages=[preview_out(one, show, preview) for one in messages],
        cursor=None if done else write_cursor(Cursor(topic, direction, merge.positions)),
        scanned=merge.looked_at,
        done=done,
    )


@get(
    "/v1/topics/{topic:str}/messages/{partition:int}/{offset:int}",
    opt={"may": "read"},
    tags=["log"],
    summary="One message",
)
async def show_message(
    topic: FromPath[str],
    partition: FromPath[int],
    offset: FromPath[int],
    context: Given[Context],
    show: As = "auto",
) -> PreviewOut:
    """By its place, whole."""
    with context.engine.lock:
        one = topic_of(context, topic).partition(partition)
        if (
            one.log.start_offset <= offset < one.log.next_offset
            and (record := one.record(offset)) is not None
        ):
            return preview_out(LogMessage(record, one.origin, one.lane_of(offset)), show, None)
    raise UnknownMessage(
        f"the log has no message {topic}/{partition}/{offset}; its trace may still be known: "
        f"/v1/traces/{topic}/{partition}/{offset}"
    )


class Merge:
    """Walks through several partitions as one, by time, a bounded way of it."""

    def __init__(self, walks: list[Iterator[Step]], positions: list[int], way: Way) -> None:
        self._walks = walks
        self._way = way
        self.positions = positions
        """Where each walk is: what it has not passed yet begins, or ends, there."""
        self.looked_at = 0
        self.over = False
        self._heap: list[tuple[int, int, Step]] | None = None

    async def run(self, limit: int, preview: int) -> list[tuple[int, Step]]:
        """Up to `limit` steps whose record fits, each with the index of its walk. It can be called again, to go on."""
        sign = 1 if self._way == "forward" else -1
        if self._heap is None:
            self._heap = await self._begin(sign)
        heap, until = self._heap, self.looked_at + LOOKED_MAX
        found: list[tuple[int, Step]] = []
        decoded = size = 0
        while (
            heap
            and len(found) < limit
            and size <= ANSWER_BYTES_MAX
            and self.looked_at < until
            and decoded < DECODED_MAX
        ):
            _, index, step = heap[0]
            self.positions[index] = step.offset
            self.looked_at += step.looked_at
            decoded += 1
            if step.record is not None:
                found.append((index, step))
                size += min(len(step.record.value or b""), preview)
            upcoming = next(self._walks[index], None)
            if upcoming is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (sign * upcoming.at_ms, index, upcoming))
            if decoded % TURN == 0:
                await asyncio.sleep(0)
        self.over = not heap
        return found

    async def _begin(self, sign: int) -> list[tuple[int, int, Step]]:
        heap: list[tuple[int, int, Step]] = []
        for index, walk in enumerate(self._walks):
            if (first := next(walk, None)) is not None:
                heap.append((sign * first.at_ms, index, first))
            if index % HEADS == HEADS - 1:
                await asyncio.sleep(0)
        heapq.heapify(heap)
        return heap


def walk_of(one: Partition, position: int, way: Way, wanted: Wanted, least: int = 0) -> Iterator[Step]:
    """A walk on from a position; nothing below `least` is wanted. Under the engine's lock."""
    log = one.log
    if way == "forward":
        return forward(one, max(position, least, log.start_offset), log.next_offset, wanted)
    lowest = log.start_offset if wanted.from_ms is None else log.offset_at(wanted.from_ms)
    lowest = max(lowest, least)
    return backward(one, lowest, min(position, log.next_offset), wanted)


def start_of(one: Partition, way: Way, from_offset: int | None, wanted: Wanted) -> int:
    """Where a walk begins. Under the engine's lock."""
    log = one.log
    if way == "forward":
        start = log.start_offset if wanted.from_ms is None else log.offset_at(wanted.from_ms)
        return start if from_offset is None else max(start, from_offset)
    end = log.next_offset
    if wanted.to_ms is not None:
        youngest = next(log.headers(log.offset_at(wanted.to_ms)), None)
        end = end if youngest is None else youngest[1].next_offset
    return end if from_offset is None else min(end, from_offset + 1)


def _header(given: str | None) -> tuple[str, bytes | None] | None:
    if not given:
        return None
    name, colon, value = given.partition(":")
    return name.strip(), value.strip().encode() if colon else None


def write_cursor(cursor: Cursor) -> str:
    packed = zlib.compress(msgspec.msgpack.encode(cursor), 1)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def read_cursor(text: str, topic: str, way: Way, partitions: int) -> list[int]:
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        raw = zlib.decompressobj().decompress(packed, CURSOR_BYTES_MAX)
        cursor = msgspec.msgpack.decode(raw, type=Cursor)
    except (ValueError, binascii.Error, zlib.error, msgspec.MsgspecError) as error:
        raise InvalidOption("this is no cursor of a search; leave it out to begin anew") from error
    if cursor.topic != topic or cursor.way != way or not 0 < len(cursor.positions) <= partitions:
        raise InvalidOption("this cursor is of another search; leave it out to begin anew")
    # Partitions that were added meanwhile are read from where they begin.
    missing = partitions - len(cursor.positions)
    return [max(one, 0) for one in cursor.positions] + [0] * missing


HANDLERS: list[Any] = [search, show_message]
