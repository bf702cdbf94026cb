"""The sink `trine`: rows become messages, in numbered batches, so that a batch written twice is stored once.

A task of a query writes as the idempotent producer `spark.<query>.<epoch>.<task>`. If it is run again, after a lost
worker, a lost broker or a killed query, it asks how far it had come in each partition and goes on there: the rows of an
epoch come again in the same order. What an earlier epoch's producers were called is forgotten when a later one is
committed.

Messages with a delay, and those with a dedup id, go the way of single messages: the schedule and the dedup window
are the broker's own. A delayed row without a dedup id is given one, made of query, epoch, task and row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from trine.client.topics import Known
from trine.log import batch
from trine.model.duration import duration_ms
from trine.model.errors import InvalidInput, InvalidOption, TopicFull, UnknownPartition, UnknownTopic
from trine.model.message import Draft, Outgoing, draft
from trine.model.partitioning import partition_of
from trine.spark.errors import edge
from trine.spark.place import Place

if TYPE_CHECKING:
    from trine.client.sync import Broker
    from trine.client.sync.producer import Producer

_TEXT: Final = (BinaryType, StringType)
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": _TEXT,
    "value": _TEXT,
    "headers": (ArrayType, MapType),
    "topic": (StringType,),
    "partition": _WHOLE,
    "priority": (StringType,),
    "delay": _WHOLE,
    "deliver_at": (TimestampType,),
    "ttl": _WHOLE,
    "dedup_id": (StringType,),
    "producer": (StringType,),
}
"""Columns that are written, and the types they may have. `delay` and `ttl` are milliseconds."""
PASSED_OVER: Final = frozenset({"offset", "timestamp", "message_id", "schedule_id", "date"})
"""Columns of the source that a message gets anew: a table that was read can be written as it is."""
OPTIONS: Final = frozenset(
    {
        "topic", "durability", "path", "checkpointlocation", "wait", "outputmode", "querytimeout",
        "txnappid", "txnversion",
    }
)  # fmt: skip
STICKY_ROWS: Final = 1_000
"""So many rows without a key go to one partition, then to the next: by their number, so that it is the same again."""
QUERY_ID: Final = "sql.streaming.queryId"
EPOCH_ID: Final = "streaming.sql.batchId"
PRODUCER: Final = "spark"
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 4 * 1024 * 1024
FULL_PAUSE: Final = 0.1
WAIT: Final = "60s"
"""How long a full topic is waited for before the task fails."""


@dataclass
class Written(WriterCommitMessage):
    rows: int
    skipped: int
    """Rows that an earlier attempt had stored."""
    query: str


@dataclass(frozen=True, slots=True)
class Target:
    """What the options say."""

    place: Place
    topic: str | None
    durability: str | None
    wait: str
    turn: tuple[str, int] | None = None
    """Of a batch that may come again, as it does in `foreachBatch`: whose it is, and its number."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Target:
        given = {name.lower(): value for name, value in options.items()}
        for name in given:
            if name not in OPTIONS and not name.startswith("trine."):
                raise InvalidOption(f"there is no option {name!r} of the sink 'trine'")
        wait = given.get("wait", WAIT)
        duration_ms(wait, what="wait")
        place = {name: value for name, value in given.items() if name.startswith("trine.") or name == "path"}
        return cls(Place.of(place), given.get("topic"), given.get("durability"), wait, _turn(given))


def _turn(given: Mapping[str, str]) -> tuple[str, int] | None:
    application, version = given.get("txnappid"), given.get("txnversion")
    if (application is None) != (version is None):
        raise InvalidOption("txnAppId and txnVersion belong together: whose batch it is, and which")
    if application is None or version is None:
        return None
    if not version.isdigit():
        raise InvalidOption(f"txnVersion is the number of the batch, not {version!r}")
    return application, int(version)


def check_schema(schema: StructType, topic: str | None) -> None:
    """Refuses what cannot be written, before anything runs."""
    names = set(schema.fieldNames())
    if "value" not in names:
        raise InvalidInput("the sink needs a column 'value' (binary or string): select or cast one")
    if topic is None and "topic" not in names:
        raise InvalidInput("say where to write: option 'topic', or a column 'topic'")
    for field in schema.fields:
        if field.name in PASSED_OVER:
            continue
        if field.name not in TYPES:
            raise InvalidInput(
                f"there is no column {field.name!r} of a message; known are {', '.join(TYPES)}"
            )
        if not isinstance(field.dataType, TYPES[field.name]):
            wanted = " or ".join(one.typeName() for one in TYPES[field.name])
            raise InvalidInput(
                f"column {field.name!r} is {field.dataType.simpleString()}; it must be {wanted}"
            )


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("trine").mode("append").save()`: a task that is run again stores nothing twice.

    With `txnAppId` and `txnVersion`, as Delta's writers have them, neither does a whole batch that is.
    """

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidOption("a log is only appended to: write with mode('append')")
        self._target = _checked(options, schema)
        self._turn = self._target.turn or (uuid4().hex, 0)

    @edge
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write_task(self._target, *self._turn, iterator)

    @edge
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._target.turn is None:
            _forget(self._target, *self._turn)
        else:
            _forget_before(self._target, *self._turn)

    @edge
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written stays: a log takes nothing back. Names nobody will come back to are given up."""
        if self._target.turn is None:
            _forget(self._target, *self._turn)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("trine")`: exactly once, by query, epoch and task."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self._target = _checked(options, schema)
        if self._target.turn is not None:
            raise InvalidOption(
                "txnAppId and txnVersion are for batches; a stream has its own query and epoch"
            )

    @edge
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None, "tasks run inside Spark"
        query, epoch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(EPOCH_ID)
        if query is None or epoch is None:
            raise InvalidInput("the stream's query and epoch are not known here; micro-batches only, please")
        return _write_task(self._target, query, int(epoch), iterator)

    @edge
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for query in {one.query for one in messages if isinstance(one, Written)}:
            _forget_before(self._target, query, batchId)

    @edge
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was stored of the epoch is found again when it is written once more."""


def _checked(options: Mapping[str, str], schema: StructType) -> Target:
    target = Target.of(options)
    check_schema(schema, target.topic)
    if target.topic is not None:
        target.place.shared()._known(target.topic)
    return target


def _write_task(target: Target, query: str, epoch: int, batches: Iterator[pa.RecordBatch]) -> Written:
    context = TaskContext.get()
    assert context is not None, "tasks run inside Spark"
    return write_rows(target, query, epoch, context.partitionId(), batches)


def _forget(target: Target, query: str, epoch: int) -> None:
    target.place.shared().forget_producers(f"{PRODUCER}.{query}.{epoch}.")


def _forget_before(target: Target, query: str, epoch: int) -> None:
    """The epoch before this one is in Spark's own log by now, and is never written again."""
    if epoch > 0:
        _forget(target, query, epoch - 1)


class _Lane:
    """An idempotent producer of one lane of one topic, and how far it has come in each partition."""

    def __init__(self, producer: Producer, known: Known, lane: int, target: Target) -> None:
        self._producer = producer
        self._known = known
        self._lane = lane
        self._target = target
        self._next: dict[int, int] = {}
        self._stored: dict[int, int] = {}
        self.skipped = 0

    def put(self, partition: int, records: list[batch.Record], expires: bool) -> None:
        for start, end in _chunks(records):
            self._put(partition, records[start:end], expires)

    def _put(self, partition: int, records: list[batch.Record], expires: bool) -> None:
        if partition not in self._next:
            self._next[partition] = 0
            self._stored[partition] = self._producer.next_sequence(self._known.name, partition)
        first = self._next[partition]
        self._next[partition] = first + len(records)
        there = min(max(self._stored[partition] - first, 0), len(records))
        self.skipped += there
        if there == len(records):
            return
        number, epoch = self._producer._meta
        data = batch.encode(
            records[there:],
            lane=self._lane,
            flags=batch.HAS_TTL if expires else 0,
            compression=self._known.compression,
            producer_id=number,
            producer_epoch=epoch,
            base_sequence=first + there,
        )
        self._send(partition, data)

    def _send(self, partition: int, data: bytearray) -> None:
        deadline = time.monotonic() + duration_ms(self._target.wait, what="wait") / 1000
        while True:
            try:
                self._producer.publish_batch(
                    self._known.name, partition, data, durability=self._target.durability
                )
                return
            except TopicFull:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(FULL_PAUSE)


def _chunks(records: list[batch.Record]) -> Iterator[tuple[int, int]]:
    """Stretches that fit a batch."""
    start = size = 0
    for end, (_, key, value, headers) in enumerate(records):
        size += len(key or b"") + len(value or b"") + 32
        if headers:
            size += sum(len(name) + len(raw or b"") + 8 for name, raw in headers)
        if end > start and (size > BATCH_BYTES or end - start >= BATCH_ROWS):
            yield start, end
            start, size = end, len(key or b"") + len(value or b"") + 32
    yield start, len(records)


class _Topic:
    """Rows of one topic on their way in."""

    def __init__(self, broker: Broker, name: str, writer: str, task: int, target: Target) -> None:
        self._broker = broker
        self._known = broker._known(name)
        self._writer = writer
        self._task = task
        self._target = target
        self._lanes: dict[int, _Lane] = {}
        self._rows = 0

    @property
    def skipped(self) -> int:
        return sum(one.skipped for one in self._lanes.values())

    def _lane(self, number: int) -> _Lane:
        found = self._lanes.get(number)
        if found is None:
            name = f"{PRODUCER}.{self._writer}.{self._task}.{number}"
            producer = self._broker.producer(name)
            found = self._lanes[number] = _Lane(producer, self._known, number, self._target)
        return found

    def put(self, columns: Mapping[str, list[Any]], count: int, now: int) -> None:
        config = self._known.config
        first = self._rows
        self._rows += count
        plain = columns.keys() <= {"key", "value", "partition", "priority"}
        if plain and config.ttl_ms is None and not config.dedup_by_content:
            self._put_plain(columns, count, first, now)
            return
        single: list[Outgoing] = []
        groups: dict[tuple[int, int], list[Draft]] = {}
        for row in range(count):
            fields = {name: some[row] for name, some in columns.items() if some[row] is not None}
            fields.setdefault("value", None)
            message = Outgoing(**fields)
            delayed = message.delay is not None or message.deliver_at is not None
            if delayed and message.dedup_id is None:
                message.dedup_id = f"{PRODUCER}.{self._writer}.{self._task}.{first + row}"
            if message.dedup_id is not None or config.dedup_by_content:
                single.append(message)
                continue
            one = draft(message, config, now)
            number = self._partition(one.key, one.partition, first + row)
            groups.setdefault((number, one.lane), []).append(one)
        for (number, lane), drafts in groups.items():
            records: list[batch.Record] = [(now, one.key, one.value, one.headers) for one in drafts]
            self._lane(lane).put(number, records, any(one.flags_ttl for one in drafts))
        if single:
            topic = self._broker.topic(self._known.name)
            topic.publish_many(single, durability=self._target.durability, wait=self._target.wait)

    def _put_plain(self, columns: Mapping[str, list[Any]], count: int, first: int, now: int) -> None:
        """Keys and values, and nothing to look into."""
        config = self._known.config
        keys: list[bytes | None] = columns.get("key") or [None] * count
        numbers = columns.get("partition")
        lanes = columns.get("priority")
        most = config.message_bytes_max
        groups: dict[tuple[int, int], list[batch.Record]] = {}
        default = config.default_lane
        for row, (key, value) in enumerate(zip(keys, columns["value"], strict=True)):
            if value is not None and len(value) > most:
                draft(Outgoing(value=value), config, now)  # raises what publish does
            number = self._partition(key, None if numbers is None else numbers[row], first + row)
            lane = default if lanes is None else config.lane_number(lanes[row])
            place = (number, lane)
            some = groups.get(place)
            if some is None:
                some = groups[place] = []
            some.append((now, key, value, batch.NO_HEADERS))
        for (number, lane), records in groups.items():
            self._lane(lane).put(number, records, False)

    def _partition(self, key: bytes | None, given: int | None, row: int) -> int:
        count = self._known.config.partitions
        if given is not None:
            if not 0 <= given < count:
                raise UnknownPartition(
                    f"a row names partition {given}; topic {self._known.name!r} has 0 to {count - 1}"
                )
            return given
        if key is not None:
            return partition_of(key, count)
        return (row // STICKY_ROWS + self._task) % count


def write_rows(
    target: Target, query: str, epoch: int, task: int, batches: Iterator[pa.RecordBatch]
) -> Written:
    """All rows of a task."""
    broker = target.place.shared()
    topics: dict[str, _Topic] = {}
    rows = 0
    for arrow in batches:
        if not arrow.num_rows:
            continue
        rows += arrow.num_rows
        for name, some in _by_topic(arrow, target.topic):
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = _Topic(broker, name, f"{query}.{epoch}", task, target)
            topic.put(_lists(some), some.num_rows, broker._caller.now_ms())
    return Written(rows, sum(topic.skipped for topic in topics.values()), query)


def _by_topic(rows: pa.RecordBatch, topic: str | None) -> list[tuple[str, pa.RecordBatch]]:
    """The option wins over the column, as in Spark's Kafka sink."""
    if topic is not None:
        return [(topic, rows)]
    names = rows.column("topic")
    if names.null_count:
        raise UnknownTopic("a row has no topic: fill the column 'topic', or give the option")
    distinct = names.unique().to_pylist()
    if len(distinct) == 1:
        return [(distinct[0], rows)]
    return [(name, rows.filter(pc.equal(names, name))) for name in distinct]


def _lists(rows: pa.RecordBatch) -> dict[str, list[Any]]:
    """The columns of messages as lists; columns without anything in them are left out."""
    found: dict[str, list[Any]] = {}
    for name in rows.schema.names:
        if name not in TYPES or name == "topic":
            continue
        column = rows.column(name)
        if column.null_count == rows.num_rows and name != "value":
            continue
        if name in ("key", "value"):
            found[name] = column.cast(pa.binary()).to_pylist()
        elif name == "headers":
            found[name] = [_headers(some) for some in column.to_pylist()]
        elif name in ("delay", "ttl"):
            found[name] = [None if ms is None else f"{ms}ms" for ms in column.to_pylist()]
        else:
            found[name] = column.to_pylist()
    return found


def _headers(given: Any) -> dict[str, bytes] | None:
    """An array of key/value structs, or a map."""
    if not given:
        return None
    pairs = ((one["key"], one["value"]) if isinstance(one, dict) else one for one in given)
    return {name: b"" if raw is None else raw for name, raw in pairs}
