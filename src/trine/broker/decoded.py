"""Stored batches that were opened a moment ago, kept so that small receives of a large batch open it once.

Most are decoded. One of values alike is kept as it is: any part of it is cut out without the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from contextlib import suppress

from trine.log import batch
from trine.log.batch import Alike, StoredRecord
from trine.log.log import Log
from trine.model.errors import InvalidInput
from trine.model.limits import ALIKE_BATCHES_MAX, ALIKE_BYTES_MAX, DECODED_BATCHES_MAX

CHUNK_BYTES = 64 * 1024
"""Read together: hundreds of single messages, or one large batch."""


class Span:
    """The records of consecutive batches; offsets may be missing where compaction took them."""

    __slots__ = ("end", "first", "lanes", "records")

    def __init__(
        self, first: int, end: int, records: list[StoredRecord], lanes: list[tuple[int, int]]
    ) -> None:
        self.first = first
        self.end = end
        self.records = records
        self.lanes = lanes
        """(first offset, lane) of each batch."""

    def part(self, first: int, end: int) -> list[StoredRecord]:
        records = self.records
        if len(records) == self.end - self.first:
            return records[first - self.first : end - self.first]
        return records[bisect_left(records, first, key=_offset) : bisect_left(records, end, key=_offset)]


def _offset(record: StoredRecord) -> int:
    return record.offset


class Decoded:
    __slots__ = ("_alike", "_recent", "_spans")

    def __init__(self) -> None:
        self._alike: OrderedDict[tuple[int, int], Alike] = OrderedDict()
        self._spans: OrderedDict[tuple[int, int], Span] = OrderedDict()
        self._recent: dict[int, Span] = {}

    def records(self, log_id: int, log: Log, first: int, count: int) -> list[StoredRecord]:
        """The records of a run of offsets that the log still has."""
        end = first + count
        span = self._recent.get(log_id)
        if span is not None and span.first <= first and end <= span.end:
            return span.part(first, end)
        found: list[StoredRecord] = []
        while first < end:
            span = self.span(log_id, log, first)
            if span is None or span.first >= end:
                break
            found += span.part(max(first, span.first), min(end, span.end))
            first = span.end
        return found

    def has(self, log_id: int, first: int, count: int, least: int) -> bool:
        """Whether the span used last covers a whole run and at least so many messages."""
        span = self._recent.get(log_id)
        return (
            span is not None
            and span.first <= first
            and first + count <= span.end
            and least <= len(span.records) == span.end - span.first
        )

    def alike(self, log_id: int, first: int, count: int) -> Alike | None:
        """A batch of values alike that was opened a moment ago and has the whole run."""
        for (known, base), like in self._alike.items():
            if known == log_id and base <= first and first + count <= base + like.count:
                return like
        return None

    def open_alike(self, log_id: int, data: bytes) -> Alike | None:
        """The batch, if its values are alike; kept, if it is not too large."""
        like = batch.alike_in(data)
        if like is not None and len(data) <= ALIKE_BYTES_MAX:
            self._alike[log_id, like.base_offset] = like
            if len(self._alike) > ALIKE_BATCHES_MAX:
                self._alike.popitem(last=False)
        return like

    def span(self, log_id: int, log: Log, offset: int) -> Span | None:
        """The span that covers the offset, or the next one after it."""
        span = self._recent.get(log_id)
        if span is not None and span.first <= offset < span.end:
            return span
        for (known, _), span in self._spans.items():
            if known == log_id and span.first <= offset < span.end:
                self._recent[log_id] = span
                return span
        span = self._read(log, offset)
        if span is None:
            return None
        self._spans[log_id, span.first] = span
        self._recent[log_id] = span
        if len(self._spans) > DECODED_BATCHES_MAX:
            (old, _), gone = self._spans.popitem(last=False)
            if self._recent.get(old) is gone:
                del self._recent[old]
        return span

    @staticmethod
    def _read(log: Log, offset: int) -> Span | None:
        stored = log.read(offset, CHUNK_BYTES)
        if not stored:
            return None
        records: list[StoredRecord] = []
        lanes = []
        first = batch.read_header(stored[0]).base_offset
        end = first
        for data in stored:
            header = batch.read_header(data)
            lanes.append((header.base_offset, header.lane))
            with suppress(
                InvalidInput
            ):  # its producer wrote nonsense: its messages are missing, not the others
                records += batch.decode(data)
            end = header.next_offset
        return Span(first, end, records, lanes)

    def forget(self, log_id: int) -> None:
        """The log was cut, compacted or dropped."""
        self._recent.pop(log_id, None)
        for known in [known for known in self._alike if known[0] == log_id]:
            del self._alike[known]
        for known in [known for known in self._spans if known[0] == log_id]:
            del self._spans[known]
