"""Messages again: from the archive and the log together, seamlessly by offset.

Of each partition the archive gives what lies before the offset it was committed to, the log what lies behind it; so no
message comes twice and none is left out. What neither has (a log purged before it was archived) is told as `missing`.

Into a topic the messages go in numbered batches, as the sink's do: a replay that was killed is run again with the same
words, asks how far each of its producers had come, and goes on there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from trine.log.batch import StoredRecord
from trine.log.stored import LogMessage, Origin
from trine.model.duration import instant_ms
from trine.model.errors import InvalidOption, NotFound
from trine.model.message import H_DEDUP, H_EXPIRES, H_PRODUCER, H_SCHEDULE, I64, as_bytes
from trine.spark.archive import Progress, read_files
from trine.spark.columns import NAMES
from trine.spark.delta import File, Table
from trine.spark.errors import plain, told
from trine.spark.place import Place
from trine.spark.runs import Told, telling
from trine.spark.sink import PRODUCER, Target, write_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from trine.client.sync import Broker

SENT: Final = ("key", "value", "headers", "priority", "ttl", "partition", "offset")
"""Columns that a replay into a topic looks at."""
EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages of a topic."""

    topic: str
    from_offset: int | None = None
    to_offset: int | None = None
    partition: int | None = None
    from_time: str | datetime | None = None
    to_time: str | datetime | None = None
    key: str | bytes | None = None
    where: str | None = None
    as_of: str | datetime | None = None
    include_deleted: bool = True
    archive: str | None = None
    """The archive's path, if it is not the one the topic knows."""

    @property
    def simple(self) -> bool:
        """Whether a group's own replay can choose so."""
        return (
            self.where is None
            and self.from_offset is None
            and self.to_offset is None
            and self.partition is None
        )

    def job(self, to: str) -> str:
        """A name that the same replay has again."""
        return hashlib.sha256(f"{self!r} to {to}".encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Seam:
    """A choice as a table, and where archive and log meet."""

    rows: DataFrame
    seam: dict[int, int]
    """By partition: what lies before comes from the archive."""
    ends: dict[int, int]
    missing: dict[int, tuple[int, int]]
    """Offsets that neither has."""


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    topic: str
    to: str
    messages: int
    """Written to the topic."""
    stored_before: int = 0
    """Of them, those an earlier run that was cut off had written."""
    redelivered: int = 0
    """Messages still in the log that the group gets again."""
    missing: dict[int, tuple[int, int]] = field(default_factory=dict)


def joined(spark: SparkSession, place: Place, choice: Choice, *, only_deleted: bool = False) -> Seam:
    """The chosen messages, unordered. `only_deleted` takes those the log no longer has."""
    if choice.as_of is not None and not choice.include_deleted:
        raise InvalidOption(
            "a snapshot includes what was deleted since: leave --as-of out, or say --include-deleted"
        )
    with contextlib.closing(place.connect()) as broker:
        config = broker.topic(choice.topic).describe().config
        spans = dict(broker.topic(choice.topic).offsets())
    if choice.partition is not None:
        spans = {number: span for number, span in spans.items() if number == choice.partition}
    path = choice.archive or config.archive
    if only_deleted and path is None:
        raise NotFound(f"topic {choice.topic!r} has no archive: what its log has deleted is gone")
    table = Table.open(path) if path is not None and choice.include_deleted else None
    seam = dict.fromkeys(spans, 0)
    rows: DataFrame | None = None
    if table is not None:
        committed = table.offsets(choice.topic, spans)
        seam = {
            n: min(committed[n], first) if only_deleted else committed[n] for n, (first, _) in spans.items()
        }
        archived = read_files(spark, table, [choice.topic], wanted=lambda file: _wanted(file, choice))
        rows = archived.where(_before(seam))
    missing = {
        number: (seam[number], first)
        for number, (first, _) in spans.items()
        if table is not None and first > seam[number] and not only_deleted
    }
    starts = {number: max(seam[number], first) for number, (first, _) in spans.items()}
    ends = {number: max(end, starts[number]) for number, (_, end) in spans.items()}
    if not only_deleted:
        # Without the archive, what retention deletes meanwhile is just no longer there.
        logged = _log(spark, place, choice.topic, starts, ends, whole=table is not None)
        rows = logged if rows is None else rows.unionByName(logged)
    assert rows is not None
    return Seam(_chosen(rows, choice), seam, ends, missing)


def _wanted(file: File, choice: Choice) -> bool:
    """Whether a file can have rows of the choice."""
    if choice.from_time is not None and file.last_ms < instant_ms(choice.from_time):
        return False
    for end in (choice.to_time, choice.as_of):
        if end is not None and file.first_ms >= instant_ms(end):
            return False
    if choice.from_offset is not None and file.last_offset < choice.from_offset:
        return False
    return choice.to_offset is None or file.first_offset < choice.to_offset


def _before(seam: dict[int, int]) -> Column:
    found = F.lit(False)
    for number, offset in seam.items():
        found = found | ((F.col("partition") == number) & (F.col("offset") < offset))
    return found


def _log(
    spark: SparkSession,
    place: Place,
    topic: str,
    starts: dict[int, int],
    ends: dict[int, int],
    *,
    whole: bool,
) -> DataFrame:
    def places(offsets: dict[int, int]) -> str:
        return json.dumps({topic: {str(number): offset for number, offset in offsets.items()}})

    return (
        spark.read.format("trine")
        .options(**place.options())
        .options(includeHeaders="true", failOnDataLoss=str(whole).lower())
        .option("assign", json.dumps({topic: list(starts)}))
        .option("startingOffsets", places(starts))
        .option("endingOffsets", places(ends))
        .load()
    )


def _chosen(rows: DataFrame, choice: Choice) -> DataFrame:
    if choice.from_offset is not None:
        rows = rows.where(F.col("offset") >= choice.from_offset)
    if choice.to_offset is not None:
        rows = rows.where(F.col("offset") < choice.to_offset)
    if choice.from_time is not None:
        rows = rows.where(F.col("timestamp") >= F.timestamp_millis(F.lit(instant_ms(choice.from_time))))
    for end in (choice.to_time, choice.as_of):
        if end is not None:
            rows = rows.where(F.col("timestamp") < F.timestamp_millis(F.lit(instant_ms(end))))
    if choice.key is not None:
        rows = rows.where(F.col("key") == F.lit(bytearray(as_bytes(choice.key, "key") or b"")))
    if choice.where is not None:
        with plain():
            rows = rows.where(choice.where)
            _ = rows.schema
    return rows.select(*NAMES)


# --- to the caller


def replay(
    spark: SparkSession, place: Place, choice: Choice, *, only_deleted: bool = False
) -> Iterator[LogMessage]:
    """The chosen messages by time, as the log view gives them."""
    with plain():
        found = joined(spark, place, choice, only_deleted=only_deleted)
    return by_time(found, place, choice.topic)


def by_time(found: Seam, place: Place, topic: str) -> Iterator[LogMessage]:
    with plain():
        rows = found.rows.orderBy("timestamp", "partition", "offset")
    return messages_of(rows, place, topic)


def messages_of(rows: DataFrame, place: Place, topic: str) -> Iterator[LogMessage]:
    """Rows of a topic as messages, in their order, fetched bit by bit."""
    with contextlib.closing(place.connect()) as broker:
        lanes = broker._known(topic).config.lanes
    with plain():
        found = rows.toLocalIterator(prefetchPartitions=True)
    while True:
        with plain():
            row = next(found, None)
        if row is None:
            return
        yield _message(row, lanes)


def _message(row: Any, lanes: tuple[str, ...]) -> LogMessage:
    time_ms = round(row.timestamp.timestamp() * 1000)
    headers: list[tuple[str, bytes | None]] = [(one.key, bytes(one.value)) for one in row.headers or ()]
    if row.ttl is not None:
        headers.append((H_EXPIRES, I64.pack(time_ms + row.ttl)))
    own = ((H_PRODUCER, row.producer), (H_DEDUP, row.dedup_id), (H_SCHEDULE, row.schedule_id))
    headers += [(name, text.encode()) for name, text in own if text is not None]
    key, value = (None if raw is None else bytes(raw) for raw in (row.key, row.value))
    record = StoredRecord(row.offset, time_ms, key, value, headers)
    names = lanes if row.priority in lanes else (*lanes, row.priority)
    return LogMessage(record, Origin(row.topic, row.partition, names), names.index(row.priority))


# --- to a topic


def replay_to_topic(
    spark: SparkSession,
    place: Place,
    choice: Choice,
    to: str,
    *,
    only_deleted: bool = False,
    progress: Progress | None = None,
) -> ReplaySummary:
    """Publishes the chosen messages to another topic, each partition's in order.

    Key, value, headers, priority and ttl are kept; time and offset are new. If it is cut off, the same call goes on.
    """
    if to == choice.topic:
        raise InvalidOption(
            f"a replay of {to!r} into itself would never end, and every group would get it: give another topic, or "
            "replay to a group"
        )
    with telling(place, "replay", f"{choice.topic} to {to}", [choice.topic, to]) as run:
        done = _publish(spark, place, choice, to, only_deleted=only_deleted, progress=progress)
        _tell(run, done)
        return done


def _tell(run: Told, done: ReplaySummary) -> None:
    run.rows = done.messages + done.redelivered
    run.summary = {
        "topic": done.topic,
        "to": done.to,
        "messages": done.messages,
        "stored_before": done.stored_before,
        "redelivered": done.redelivered,
        "missing": sum(end - first for first, end in done.missing.values()),
    }


def _publish(
    spark: SparkSession,
    place: Place,
    choice: Choice,
    to: str,
    *,
    only_deleted: bool,
    progress: Progress | None,
) -> ReplaySummary:
    job = f"replay.{choice.job(to)}{'.deleted' if only_deleted else ''}"
    with contextlib.closing(place.connect()) as broker:
        broker._known(to)
        found = joined(spark, place, choice, only_deleted=only_deleted)
        if progress is not None:
            progress(f"replay {choice.topic} to {to}", 0, None)
        target = Target.of({**place.options(), "topic": to})
        count = max(len(found.ends), 1)
        with plain():
            # A partition of the source is in one task, in its order: what is sent again is then numbered the same.
            rows = found.rows.select(*SENT)
            ordered = rows.repartition(count, "partition").sortWithinPartitions("partition", "offset")

            def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                with told():
                    written = skipped = 0
                    for number, some in _by_partition(batches):
                        done = write_rows(target, job, 0, number, some)
                        written += done.rows
                        skipped += done.skipped
                yield pa.RecordBatch.from_arrays(
                    [pa.array([written], pa.int64()), pa.array([skipped], pa.int64())], ["written", "skipped"]
                )

            parts = ordered.mapInArrow(write, "written bigint, skipped bigint").collect()
        broker.forget_producers(f"{PRODUCER}.{job}.")
    return ReplaySummary(
        choice.topic,
        to,
        sum(part.written for part in parts),
        sum(part.skipped for part in parts),
        missing=found.missing,
    )


def _by_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Sorted rows by their source partition; each must be read to its end before the next."""
    left: list[pa.RecordBatch] = []

    def take() -> pa.RecordBatch | None:
        while not left:
            batch = next(batches, None)
            if batch is None:
                return None
            if batch.num_rows:
                left.append(batch)
        return left.pop()

    def of(number: int) -> Iterator[pa.RecordBatch]:
        while (batch := take()) is not None:
            numbers = batch.column(batch.schema.get_field_index("partition")).to_numpy()
            count = int((numbers == number).sum())  # sorted: they come first
            if count:
                yield batch.slice(0, count).select(["key", "value", "headers", "priority", "ttl"])
            if count < batch.num_rows:
                left.append(batch.slice(count))
                return

    while (first := take()) is not None:
        left.append(first)
        number = first.column(first.schema.get_field_index("partition"))[0].as_py()
        yield number, of(number)


# --- to a group


def replay_topic_name(topic: str, group: str) -> str:
    """Where a group finds what the log of its topic no longer has."""
    return f"{topic}.replay.{group}"


def replay_to_group(
    spark: SparkSession, place: Place, choice: Choice, group: str, *, progress: Progress | None = None
) -> ReplaySummary:
    """Delivers the chosen messages to a group again.

    Those still in the log are delivered again by the group's own replay, with their ids and attempts. Those the log has
    deleted are published to `<topic>.replay.<group>`, for the group of the same name there: no other group sees
    them. A choice by SQL, offset or partition is more than the group's replay can make: then all of it goes there.
    """
    with contextlib.closing(place.connect()) as broker:
        known = {one.name for one in broker.topic(choice.topic).groups()}
        if group not in known:
            raise NotFound(f"topic {choice.topic!r} has no group {group!r}; `trine group list` shows them")
        with telling(place, "replay", f"{choice.topic} to group {group}", [choice.topic]) as run:
            done = _redeliver(spark, place, broker, choice, group, progress)
            _tell(run, done)
            return done


def _redeliver(
    spark: SparkSession, place: Place, broker: Broker, choice: Choice, group: str, progress: Progress | None
) -> ReplaySummary:
    to = replay_topic_name(choice.topic, group)
    archive = choice.archive or broker.topic(choice.topic).describe().config.archive
    written = ReplaySummary(choice.topic, to, 0)
    if not choice.simple or (archive is not None and choice.include_deleted):
        _make(broker, choice.topic, to, group)
        written = _publish(spark, place, choice, to, only_deleted=choice.simple, progress=progress)
    again = 0
    if choice.simple:
        ends = [instant_ms(end) for end in (choice.to_time, choice.as_of) if end is not None]
        again = (
            broker.topic(choice.topic)
            .group(group)
            .replay(
                key=choice.key,
                from_time=EPOCH if choice.from_time is None and choice.key is None else choice.from_time,
                to_time=datetime.fromtimestamp(min(ends) / 1000, UTC) if ends else None,
            )
        )
    return ReplaySummary(choice.topic, to, written.messages, written.stored_before, again, written.missing)


def _make(broker: Broker, topic: str, to: str, group: str) -> None:
    config = broker.topic(topic).describe().config
    made = broker.create_topic(to, exist_ok=True, partitions=config.partitions, lanes=list(config.lanes))
    if group not in {one.name for one in made.groups()}:
        made.create_group(group)
