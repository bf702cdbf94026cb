"""Stored batches as Arrow columns.

Batches of values of one length are cut out with numpy, without an object a message. Others go through the compiled
codec, which makes a few objects a message; their columns are built from lists, many batches at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trine.log import alike, batch
from trine.model.message import H_DEDUP, H_EXPIRES, H_PRODUCER, H_SCHEDULE, I64, RESERVED
from trine.spark.columns import HEADERS_ARROW, TIME_ARROW, messages_schema

ROWS: Final = 10_000
"""Of one Arrow batch: what Spark was found to take fastest."""

Headers = Sequence[tuple[str, bytes | None]]


class _Piece(NamedTuple):
    """Rows that came together."""

    rows: int
    keys: pa.Array | None
    values: pa.Array | tuple[memoryview, int]
    """Or a stored batch of alike values, and their size: they are copied once, to where they are sent from."""
    offsets: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    lanes: NDArray[np.int32]
    headers: list[Headers] | None


class Decoder:
    """Takes stored batches of one partition in order and gives Arrow batches of about `ROWS` rows."""

    def __init__(
        self, topic: str, partition: int, lanes: Sequence[str], columns: Sequence[str], first: int, end: int
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._lanes = lanes
        self._columns = tuple(columns)
        self._schema = messages_schema(columns)
        self._first = first
        self._end = end
        self._pieces: list[_Piece] = []
        self._rows = 0
        self._same: dict[tuple[str, object], pa.Array] = {}
        """Columns of one value: made once, and cut to length."""
        self._clear()

    def _clear(self) -> None:
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._headers: list[Headers] = []
        self._lane: list[int] = []

    def add(self, data: memoryview) -> Iterator[pa.RecordBatch]:
        """Batches as they are stored, one after the other; what lies outside of the range is left out."""
        position, size = 0, len(data)
        while position < size:
            header = batch.read_header(data, position)
            if header.base_offset < self._end and header.last_offset >= self._first:
                self._take(header, data[position : position + header.size])
                if self._rows + len(self._offsets) >= ROWS:
                    yield from self.rest()
            position += header.size

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What was taken and not given yet."""
        self._close_lists()
        if not self._pieces:
            return
        whole = self._joined(self._pieces, self._rows)
        self._pieces, self._rows = [], 0
        for start in range(0, whole.num_rows, ROWS):
            yield whole.slice(start, ROWS)

    def _take(self, header: batch.Header, data: memoryview) -> None:
        inside = header.base_offset >= self._first and header.next_offset <= self._end
        plain = (
            inside
            and header.count >= batch.ALIKE_MIN
            and header.last_offset_delta == header.count - 1
            and not header.compression
        )
        if plain and (size := alike.size_of(data, batch.HEADER_BYTES, header.count)) is not None:
            self._close_lists()
            self._take_alike(header, size, data)
            return
        offsets, times, keys, values, headers = batch.columns(data)
        if not inside:
            keep = slice(bisect_left(offsets, self._first), bisect_left(offsets, self._end))
            offsets, times, keys = offsets[keep], times[keep], keys[keep]
            values, headers = values[keep], headers[keep]
        self._offsets += offsets
        self._times += times
        self._keys += keys
        self._values += values
        self._headers += headers
        self._lane += [header.lane] * len(offsets)

    def _take_alike(self, header: batch.Header, size: int, data: memoryview) -> None:
        count = header.count
        time_ms = header.max_time_ms if header.attributes & batch.APPEND_TIME else header.base_time_ms
        self._add(
            _Piece(
                count,
                None,
                (data, size),
                np.arange(header.base_offset, header.next_offset, dtype=np.int64),
                np.full(count, time_ms, dtype=np.int64),
                np.full(count, header.lane, dtype=np.int32),
                None,
            )
        )

    def _close_lists(self) -> None:
        count = len(self._offsets)
        if not count:
            return
        self._add(
            _Piece(
                count,
                pa.array(self._keys, pa.binary()),
                pa.array(self._values, pa.binary()),
                np.array(self._offsets, dtype=np.int64),
                np.array(self._times, dtype=np.int64),
                np.array(self._lane, dtype=np.int32),
                self._headers if any(self._headers) else None,
            )
        )
        self._clear()

    def _add(self, piece: _Piece) -> None:
        self._pieces.append(piece)
        self._rows += piece.rows

    def _joined(self, pieces: list[_Piece], rows: int) -> pa.RecordBatch:
        made = [self._column(name, pieces, rows) for name in self._columns]
        return pa.RecordBatch.from_arrays(made, schema=self._schema)

    def _column(self, name: str, pieces: list[_Piece], rows: int) -> pa.Array:
        match name:
            case "key":
                if all(one.keys is None for one in pieces):
                    return self._all(name, None, rows)
                return _concat(
                    [pa.nulls(one.rows, pa.binary()) if one.keys is None else one.keys for one in pieces]
                )
            case "value":
                return _values(pieces, rows)
            case "topic":
                return self._all(name, self._topic, rows)
            case "partition":
                return self._all(name, self._partition, rows)
            case "offset":
                return pa.array(np.concatenate([one.offsets for one in pieces]))
            case "timestamp":
                times_us = np.concatenate([one.times_ms for one in pieces]) * 1000
                return pa.Array.from_buffers(TIME_ARROW, rows, [None, pa.py_buffer(times_us)])
            case "priority":
                lanes = np.concatenate([one.lanes for one in pieces])
                if (lanes == lanes[0]).all():
                    return self._all(name, self._lanes[int(lanes[0])], rows)
                return pa.array(list(self._lanes), pa.string()).take(pa.array(lanes))
            case "message_id":
                offsets = np.concatenate([one.offsets for one in pieces])
                return message_ids(f"{self._topic}/{self._partition}/", offsets)
            case "headers":
                return _concat([_users(one.headers, one.rows) for one in pieces])
            case _:
                if all(one.headers is None for one in pieces):
                    return self._all(name, None, rows)
                kind = self._schema.field(name).type
                return _concat([pa.array(_carried(name, one), kind) for one in pieces])

    def _all(self, name: str, value: object, rows: int) -> pa.Array:
        """A column of one value."""
        known = self._same.get((name, value))
        if known is None or len(known) < rows:
            kind = self._schema.field(name).type
            most = max(rows, 2 * ROWS)
            known = pa.nulls(most, kind) if value is None else pa.repeat(pa.scalar(value, kind), most)
            self._same[name, value] = known
        return known.slice(0, rows)


def _values(pieces: list[_Piece], rows: int) -> pa.Array:
    sizes = {one.values[1] if isinstance(one.values, tuple) else None for one in pieces}
    if len(sizes) == 1 and None not in sizes:
        return _alike_values(pieces, rows)
    return _concat(
        [_alike_values([one], one.rows) if isinstance(one.values, tuple) else one.values for one in pieces]
    )


def _alike_values(pieces: list[_Piece], rows: int) -> pa.Array:
    """Values of one size, copied out of their stored batches."""
    size = pieces[0].values[1]
    buffer = pa.allocate_buffer(rows * size)
    into = np.frombuffer(buffer, np.uint8)
    done = 0
    for one in pieces:
        end = done + one.rows * size
        alike.copy(one.values[0], batch.HEADER_BYTES, one.rows, size, into[done:end])
        done = end
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, _ends(rows, size), buffer])


def message_ids(head: str, offsets: NDArray[np.int64]) -> pa.Array:
    """`head` with each offset behind it. Offsets in a row have almost all digits in common: a thousand at a time."""
    first, last = int(offsets[0]), int(offsets[-1])
    digits = len(str(first))
    if last - first + 1 != len(offsets) or len(str(last)) != digits:
        return pc.binary_join_element_wise(head, pa.array(offsets).cast(pa.string()), "")
    low = min(digits, 3)
    width = len(head.encode()) + digits
    made = np.empty((len(offsets), width), np.uint8)
    at = first
    while at <= last:
        end = min(at - at % 1000 + 1000, last + 1)
        rows = made[at - first : end - first]
        rows[:, : width - low] = np.frombuffer(f"{head}{str(at)[: digits - low]}".encode(), np.uint8)
        rows[:, width - low :] = _DIGITS[at % 1000 : at % 1000 + end - at, 3 - low :]
        at = end
    return pa.StringArray.from_buffers(len(offsets), _ends(len(offsets), width), pa.py_buffer(made))


_DIGITS: Final = np.frombuffer("".join(f"{n:03}" for n in range(1000)).encode(), np.uint8).reshape(1000, 3)


def _ends(rows: int, size: int) -> pa.Buffer:
    """Where values of one size begin and end."""
    return pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(size))


def _concat(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


_TEXTS: Final = {"producer": H_PRODUCER, "dedup_id": H_DEDUP, "schedule_id": H_SCHEDULE}
"""Columns that stand in headers of the broker's own."""


def _carried(name: str, piece: _Piece) -> list[Any]:
    """A column that the broker's own headers carry."""
    found: list[Any] = [None] * piece.rows
    wanted = _TEXTS.get(name, H_EXPIRES)
    for row, some in enumerate(piece.headers or ()):
        for known, raw in some:
            if known == wanted and raw is not None:
                if wanted == H_EXPIRES:
                    found[row] = I64.unpack(raw)[0] - int(piece.times_ms[row])
                else:
                    found[row] = raw.decode("utf-8", "replace")
    return found


def _users(headers: list[Headers] | None, rows: int) -> pa.Array:
    """The headers that are not the broker's own."""
    if headers is None:
        return pa.array([[]] * rows, HEADERS_ARROW)
    shown = [
        [
            {"key": name, "value": value if value is not None else b""}
            for name, value in some
            if not name.startswith(RESERVED)
        ]
        for some in headers
    ]
    return pa.array(shown, HEADERS_ARROW)
