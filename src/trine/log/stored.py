"""A message as it is read back: from the log, or with a lease."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from trine.log.batch import StoredRecord
from trine.model.message import (
    H_ATTEMPTS,
    H_DEDUP,
    H_EXPIRES,
    H_FAILED,
    H_GROUP,
    H_ORIGIN,
    H_PRODUCER,
    H_REASON,
    H_SCHEDULE,
    I64,
)


class Origin(NamedTuple):
    """Where messages of one partition come from, and the names of its lanes."""

    topic: str
    partition: int
    lanes: tuple[str, ...]


class StoredMessage:
    """What can be read of a message, in the log view and in the queue view; read-only."""

    __slots__ = ()
    _lane: int
    _origin: Origin
    _record: StoredRecord

    @property
    def id(self) -> str:
        return f"{self._origin.topic}/{self._origin.partition}/{self._record.offset}"

    @property
    def topic(self) -> str:
        return self._origin.topic

    @property
    def partition(self) -> int:
        return self._origin.partition

    @property
    def offset(self) -> int:
        return self._record.offset

    @property
    def key(self) -> bytes | None:
        return self._record.key

    @property
    def value(self) -> bytes | None:
        return self._record.value

    @property
    def headers(self) -> dict[str, bytes]:
        """All headers by name, the broker's own (`trine-…`) among them."""
        return {name: value if value is not None else b"" for name, value in self._record.headers}

    @property
    def timestamp_ms(self) -> int:
        return self._record.timestamp

    @property
    def timestamp(self) -> datetime:
        return datetime.fromtimestamp(self._record.timestamp / 1000, UTC)

    @property
    def priority(self) -> str:
        lanes = self._origin.lanes
        return lanes[self._lane] if self._lane < len(lanes) else str(self._lane)

    @property
    def expires_ms(self) -> int | None:
        raw = self._header(H_EXPIRES)
        return None if raw is None else int(I64.unpack(raw)[0])

    @property
    def dedup_id(self) -> str | None:
        return self._text(H_DEDUP)

    @property
    def producer(self) -> str | None:
        return self._text(H_PRODUCER)

    @property
    def schedule_id(self) -> str | None:
        """The id under which the message waited, if it did."""
        return self._text(H_SCHEDULE)

    def _header(self, name: str) -> bytes | None:
        for known, value in self._record.headers:
            if known == name:
                return value
        return None

    def _text(self, name: str) -> str | None:
        raw = self._header(name)
        return None if raw is None else raw.decode()

    def __repr__(self) -> str:
        value = self._record.value
        shown = value if value is None or len(value) <= 60 else value[:57] + b"..."
        return f"<{type(self).__name__} {self.id} key={self._record.key!r} value={shown!r}>"


class LogMessage(StoredMessage):
    """A message of the log view."""

    __slots__ = ("_lane", "_origin", "_record")

    def __init__(self, record: StoredRecord, origin: Origin, lane: int) -> None:
        self._record = record
        self._origin = origin
        self._lane = lane


class DeadLetter(LogMessage):
    """A message given up on, with why, when, how often and where it came from."""

    __slots__ = ()

    @property
    def reason(self) -> str:
        return self._text(H_REASON) or ""

    @property
    def origin(self) -> str:
        """The id of the message it was."""
        return self._text(H_ORIGIN) or ""

    @property
    def group(self) -> str:
        return self._text(H_GROUP) or ""

    @property
    def attempts(self) -> int:
        return int(self._text(H_ATTEMPTS) or 0)

    @property
    def failed_ms(self) -> int:
        raw = self._header(H_FAILED)
        return self._record.timestamp if raw is None else int(I64.unpack(raw)[0])


def header_of(record: StoredRecord, name: str) -> bytes | None:
    for known, value in record.headers:
        if known == name:
            return value
    return None
