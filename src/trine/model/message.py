"""A message on its way in (`Outgoing`), and the answer to a publish (`PublishReceipt`, `Published`).

Names of headers that begin with `trine-` are the broker's own; they carry the options that are per message, so
that a batch can be stored and served as it came.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, overload

import msgspec

from trine.model import limits
from trine.model.duration import duration_ms, instant_ms
from trine.model.errors import (
    DelayTooLong,
    InvalidInput,
    InvalidOption,
    MessageTooLarge,
    UnknownPartition,
)
from trine.model.ids import check_name
from trine.model.options import TopicConfig

Duration = float | int | str | timedelta
Instant = datetime | str | float | int
Headers = Mapping[str, bytes | str]

RESERVED: Final = "trine-"
H_EXPIRES: Final = "trine-expires"
"""When the message's ttl is over, i64 ms."""
H_DEDUP: Final = "trine-dedup-id"
H_PRODUCER: Final = "trine-producer"
H_SCHEDULE: Final = "trine-schedule-id"
H_PUBLISHED: Final = "trine-published"
"""Of a message that was scheduled: when it was given to the broker, i64 ms."""
H_PARTITION: Final = "trine-partition"
"""Of a scheduled message: the partition its producer chose; it is taken off when the message is due."""
H_CRON: Final = "trine-cron"
H_ORIGIN: Final = "trine-origin"
"""Of a dead letter: the id of the message it was made of."""
H_GROUP: Final = "trine-group"
H_REASON: Final = "trine-reason"
H_ATTEMPTS: Final = "trine-attempts"
H_FAILED: Final = "trine-failed-at"
H_MEMBER: Final = "trine-member"
H_REDRIVEN: Final = "trine-redriven-from"
DEAD_LETTER_HEADERS: Final = frozenset({H_ORIGIN, H_GROUP, H_REASON, H_ATTEMPTS, H_FAILED, H_MEMBER})

I64: Final = struct.Struct(">q")


class Outgoing(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One message for `publish_many`, with options of its own.

    >>> Outgoing(value=b"1", key="c-7", delay="5m").key
    'c-7'
    """

    value: bytes | str | None
    key: bytes | str | None = None
    headers: Any = None
    priority: str | None = None
    delay: Any = None
    deliver_at: Any = None
    ttl: Any = None
    dedup_id: str | None = None
    partition: int | None = None
    producer: str | None = None
    """Who published it: carried with the message, for readers and traces."""


def outgoing_many(items: Sequence[Any], defaults: Outgoing | None) -> Iterable[Outgoing]:
    """Values, mappings and `Outgoing`s as `Outgoing`s, with the defaults where they say nothing."""
    shared = {}
    if defaults is not None:
        given = msgspec.structs.asdict(defaults)
        shared = {name: value for name, value in given.items() if value is not None and name != "value"}
    for item in items:
        if isinstance(item, Outgoing):
            own = msgspec.structs.asdict(item)
            yield Outgoing(
                **{
                    **shared,
                    **{name: value for name, value in own.items() if value is not None},
                    "value": item.value,
                }
            )
        elif isinstance(item, Mapping):
            try:
                yield Outgoing(**{**shared, **item})
            except TypeError as error:
                known = ", ".join(Outgoing.__struct_fields__)
                raise InvalidInput(
                    f"a message given as a mapping has these fields: {known} ({error})"
                ) from error
        else:
            yield Outgoing(**{**shared, "value": item})


class Draft:
    """An outgoing message with every option checked and in the units of the engine."""

    __slots__ = ("dedup_id", "due_ms", "flags_ttl", "headers", "key", "lane", "partition", "value")

    def __init__(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        lane: int,
        due_ms: int,
        expires: bool,
        dedup_id: str | None,
        partition: int | None,
    ) -> None:
        self.key = key
        self.value = value
        self.headers = headers
        self.lane = lane
        self.due_ms = due_ms
        """When it is to be delivered, 0 for now."""
        self.flags_ttl = expires
        self.dedup_id = dedup_id
        self.partition = partition


def draft(message: Outgoing, config: TopicConfig, now: int) -> Draft:
    """Checks a message against the topic's configuration; the error says which option is off and why."""
    value = as_bytes(message.value, "value")
    if value is not None and len(value) > config.message_bytes_max:
        raise MessageTooLarge(
            f"the value has {len(value)} bytes; this topic takes {config.message_bytes_max}: "
            "store large content elsewhere and publish a reference"
        )
    key = as_bytes(message.key, "key")
    if key is not None and len(key) > limits.KEY_BYTES_MAX:
        raise MessageTooLarge(f"the key has {len(key)} bytes; {limits.KEY_BYTES_MAX} are allowed")
    headers = _headers(message.headers)
    due = due_ms(message.delay, message.deliver_at, config, now)
    ttl = config.ttl_ms if message.ttl is None else duration_ms(message.ttl, what="ttl")
    if ttl is not None:
        headers.append((H_EXPIRES, I64.pack((due or now) + ttl)))
    if message.dedup_id is not None:
        _check_dedup_id(message.dedup_id)
        headers.append((H_DEDUP, message.dedup_id.encode()))
    if message.producer is not None:
        headers.append((H_PRODUCER, check_name(message.producer, "producer").encode()))
    partition = message.partition
    if partition is not None and not 0 <= partition < config.partitions:
        raise UnknownPartition(
            f"there is no partition {partition}; this topic has 0 to {config.partitions - 1}"
        )
    lane = config.lane_number(message.priority)
    return Draft(key, value, headers, lane, due, ttl is not None, message.dedup_id, partition)


def as_bytes(given: object, what: str) -> bytes | None:
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise InvalidInput(
        f"a {what} is bytes or str, not {type(given).__name__}; encode it first, e.g. with json.dumps"
    )


def due_ms(delay: Any, deliver_at: Any, config: TopicConfig, now: int) -> int:
    """When a message is to be delivered, 0 for at once."""
    if delay is not None and deliver_at is not None:
        raise InvalidOption("give delay or deliver_at, not both")
    if delay is not None:
        due = now + duration_ms(delay, what="delay")
    elif deliver_at is not None:
        due = instant_ms(deliver_at)
    else:
        return 0
    if due - now > config.delay_max_ms:
        raise DelayTooLong(
            f"the delay is {due - now} ms; this topic allows {config.delay_max_ms} ms: "
            "alter its delay_max, or schedule it nearer to its time"
        )
    return due if due > now else 0


def _headers(given: object) -> list[tuple[str, bytes | None]]:
    if not given:
        return []
    if not isinstance(given, Mapping):
        raise InvalidInput(f"headers are a mapping of names to bytes or str, not {type(given).__name__}")
    if len(given) > limits.HEADERS_MAX:
        raise MessageTooLarge(f"a message has {len(given)} headers; {limits.HEADERS_MAX} are allowed")
    headers: list[tuple[str, bytes | None]] = []
    total = 0
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            raise InvalidInput("a header's name is a non-empty string")
        if name.startswith(RESERVED):
            raise InvalidOption(f"header {name!r}: names that begin with {RESERVED!r} are the broker's own")
        raw = as_bytes(value, f"header {name!r}")
        if raw is None:
            raise InvalidInput(f"header {name!r} has no value; leave it out, or give b''")
        total += len(name) + len(raw)
        headers.append((name, raw))
    if total > limits.HEADER_BYTES_MAX:
        raise MessageTooLarge(f"the headers have {total} bytes; {limits.HEADER_BYTES_MAX} are allowed")
    return headers


def _check_dedup_id(dedup_id: object) -> None:
    if not isinstance(dedup_id, str) or not 1 <= len(dedup_id) <= limits.DEDUP_ID_CHARS_MAX:
        raise InvalidOption(f"a dedup_id is a string of 1 to {limits.DEDUP_ID_CHARS_MAX} characters")


class PublishReceipt(msgspec.Struct, frozen=True):
    """The answer to one published message: where it is, and what the answer promises."""

    topic: str
    durability: str
    """How far it had come when this was answered: memory, written or synced."""
    partition: int | None = None
    offset: int | None = None
    schedule_id: str | None = None
    """Set instead of partition and offset while the message waits for its time."""
    duplicate: bool = False
    """It was seen before within the dedup window; this is the first one's place."""

    @property
    def message_id(self) -> str:
        """The message's id, or its schedule id as long as it is not in the log."""
        if self.schedule_id is not None:
            return self.schedule_id
        return f"{self.topic}/{self.partition}/{self.offset}"


Place = tuple[int, int] | str
"""Where a message went: (partition, offset), or a schedule id."""


class Published(Sequence[PublishReceipt]):
    """The answer to `publish_many`: a receipt for each message, in order, made when it is looked at."""

    __slots__ = ("_duplicates", "_places", "_run", "durability", "topic")

    def __init__(
        self,
        topic: str,
        durability: str,
        *,
        run: tuple[int, int, int] | None = None,
        places: list[Place] | None = None,
        duplicates: frozenset[int] = frozenset(),
    ) -> None:
        self.topic = topic
        self.durability = durability
        self._run = run
        self._places = places
        self._duplicates = duplicates

    def __len__(self) -> int:
        if self._run is not None:
            return self._run[2]
        return len(self._places or ())

    @overload
    def __getitem__(self, index: int) -> PublishReceipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[PublishReceipt]: ...
    def __getitem__(self, index: int | slice) -> PublishReceipt | list[PublishReceipt]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        if self._run is not None:
            partition, first, _ = self._run
            return PublishReceipt(self.topic, self.durability, partition, first + index)
        assert self._places is not None
        place = self._places[index]
        duplicate = index in self._duplicates
        if isinstance(place, str):
            return PublishReceipt(self.topic, self.durability, schedule_id=place, duplicate=duplicate)
        return PublishReceipt(self.topic, self.durability, *place, duplicate=duplicate)

    def __iter__(self) -> Iterator[PublishReceipt]:
        return (self[index] for index in range(len(self)))

    @property
    def message_ids(self) -> list[str]:
        return [receipt.message_id for receipt in self]

    def __repr__(self) -> str:
        return f"Published(topic={self.topic!r}, count={len(self)}, durability={self.durability!r})"
