"""The data source `trine`: what Spark calls to read topics and views, in batches and as streams, and to write.

`spark.dataSource.register(TrineDataSource)` works in any session. `register(spark)` also turns filter push-down on,
which Spark has off by default: a source that offers it while it is off would be refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from trine.model.errors import InvalidOption
from trine.spark.columns import chosen, spark_schema
from trine.spark.errors import edge, told
from trine.spark.fetch import Range, read_range
from trine.spark.offsets import (
    Offsets,
    Reading,
    ends_of,
    limited,
    ranges,
    resolve,
    wants_headers,
    write_offsets,
)
from trine.spark.place import Place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from trine.spark.sink import BatchWriter, StreamWriter

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
MESSAGES: Final = "messages"
VIEW: Final = "view"


def register(spark: SparkSession) -> None:
    """Makes `format("trine")` known to a session, with filters pushed down."""
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PushingTrineDataSource)


class TrineDataSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return "trine"

    @property
    def _view(self) -> str:
        return self.options.get(VIEW, MESSAGES)

    @property
    def _columns(self) -> tuple[str, ...]:
        return chosen(self.options.get("columns"), headers=wants_headers(self.options))

    @edge
    def schema(self) -> StructType:
        if self._view == MESSAGES:
            return spark_schema(self._columns)
        from trine.spark.views import VIEWS

        if self._view not in VIEWS:
            raise InvalidOption(f"there is no view {self._view!r}; known are {', '.join((MESSAGES, *VIEWS))}")
        return VIEWS[self._view].schema

    @edge
    def reader(self, schema: StructType) -> DataSourceReader:
        if self._view != MESSAGES:
            return ViewReader(self._view, dict(self.options))
        return TopicReader(dict(self.options), self._columns)

    @edge
    def streamReader(self, schema: StructType) -> TopicStreamReader:
        if self._view != MESSAGES:
            raise InvalidOption(f"view {self._view!r} is read in batches; only messages are a stream")
        return TopicStreamReader(dict(self.options), self._columns)

    @edge
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from trine.spark.sink import BatchWriter

        return BatchWriter(dict(self.options), schema, overwrite)

    @edge
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from trine.spark.sink import StreamWriter

        return StreamWriter(dict(self.options), schema, overwrite)


class PushingTrineDataSource(TrineDataSource):
    """For sessions with filter push-down on."""

    @edge
    def reader(self, schema: StructType) -> DataSourceReader:
        if self._view != MESSAGES:
            return ViewReader(self._view, dict(self.options))
        return PushingTopicReader(dict(self.options), self._columns)


class Share(InputPartition):
    """What one task reads. The place is settled when it is planned: a data directory has a server by then."""

    def __init__(self, place: Place, wanted: Any) -> None:
        super().__init__(None)
        self.place = place
        self.wanted = wanted


class ViewReader(DataSourceReader):
    def __init__(self, view: str, options: dict[str, str]) -> None:
        self._view = view
        self._options = options

    @edge
    def partitions(self) -> Sequence[InputPartition]:
        from trine.spark.views import VIEWS

        place = Place.of(self._options)
        return [Share(place, one) for one in VIEWS[self._view].plan(place, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Share):  # Spark's stand-in for no partitions at all
            return
        from trine.spark.views import VIEWS

        with told():
            yield from VIEWS[self._view].read(partition.place, partition.wanted)


class TopicReader(DataSourceReader):
    def __init__(self, options: dict[str, str], columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._reading = Reading.of(options, streaming=False)

    @edge
    def partitions(self) -> Sequence[InputPartition]:
        reading = self._reading
        place = Place.of(self._options)
        broker = place.shared()
        topics = reading.subscription.partitions(broker)
        spans = ends_of(broker, topics)
        start = resolve(broker, reading.start, spans, whole=reading.whole)
        end = resolve(broker, reading.end, spans, whole=reading.whole)
        found = ranges(start, end, reading.whole, reading.min_partitions)
        return [Share(place, one) for one in self.pruned(place, found)]

    def pruned(self, place: Place, found: list[Range]) -> list[Range]:
        """The ranges that can have rows that are asked for."""
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Share):
            return
        with told():
            yield from read_range(partition.place, partition.wanted, self._columns)


class PushingTopicReader(TopicReader):
    """Filters on topic, partition, offset and timestamp choose what is read at all; Spark looks at each row again."""

    def __init__(self, options: dict[str, str], columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._least: dict[str, int] = {}
        self._most: dict[str, int] = {}
        """Of offset and timestamp (ms): the least wanted, and the first not wanted."""
        self._only: dict[str, frozenset[Any]] = {}

    @edge
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            self._learn(one)
            yield one  # each row is compared again: ranges and times are not exact

    def _learn(self, one: Filter) -> None:
        if not isinstance(one, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            return
        (name, *deeper) = one.attribute
        if deeper or name not in ("topic", "partition", "offset", "timestamp"):
            return
        values = one.value if isinstance(one, In) else (one.value,)
        if any(value is None for value in values):
            return
        if name in ("topic", "partition"):
            if isinstance(one, EqualTo | In):
                self._only[name] = self._only.get(name, frozenset(values)) & frozenset(values)
            return
        numbers = [_number(value) for value in values]
        if isinstance(one, EqualTo | In):
            self._least[name] = max(self._least.get(name, min(numbers)), min(numbers))
            self._most[name] = min(self._most.get(name, max(numbers) + 1), max(numbers) + 1)
        elif isinstance(one, GreaterThan | GreaterThanOrEqual):
            # A time has a finer grain than the log's: what is after 12.3 ms may be at 12.
            least = numbers[0] + (1 if isinstance(one, GreaterThan) and name == "offset" else 0)
            self._least[name] = max(self._least.get(name, least), least)
        else:
            most = numbers[0] + (0 if isinstance(one, LessThan) and name == "offset" else 1)
            self._most[name] = min(self._most.get(name, most), most)

    def pruned(self, place: Place, found: list[Range]) -> list[Range]:
        kept = []
        starts: dict[str, dict[int, int]] = {}
        for one in found:
            if one.topic not in self._only.get("topic", {one.topic}):
                continue
            if one.partition not in self._only.get("partition", {one.partition}):
                continue
            start = max(one.start, self._least.get("offset", one.start))
            end = min(one.end, self._most.get("offset", one.end))
            if "timestamp" in self._least:
                if one.topic not in starts:
                    starts[one.topic] = _offsets_at(place, one.topic, self._least["timestamp"])
                start = max(start, starts[one.topic].get(one.partition, start))
            if start < end:
                kept.append(dataclasses.replace(one, start=start, end=end))
        return kept


def _offsets_at(place: Place, topic: str, time_ms: int) -> dict[int, int]:
    from trine.wire.calls import FindOffsets

    found: dict[int, int] = place.shared()._call(FindOffsets(topic=topic, time_ms=time_ms))
    return found


def _number(value: Any) -> int:
    """A filter's value as a number: times in ms, rounded down."""
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    return int(value)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets of a checkpoint are `{"orders": {"0": 23}}`: the next offset of each partition."""

    def __init__(self, options: dict[str, str], columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._reading = Reading.of(options, streaming=True)
        self._target: Offsets | None = None
        self._place: Place | None = None

    @property
    def place(self) -> Place:
        if self._place is None:
            self._place = Place.of(self._options)
        return self._place

    def _spans(self) -> dict[str, dict[int, tuple[int, int]]]:
        broker = self.place.shared()
        return ends_of(broker, self._reading.subscription.partitions(broker))

    @edge
    def initialOffset(self) -> dict[str, dict[str, int]]:
        reading = self._reading
        start = resolve(self.place.shared(), reading.start, self._spans(), whole=reading.whole)
        return write_offsets(start)

    @edge
    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._reading.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @edge
    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:
        since = _read(start)
        end = self._target if self._target is not None else self._ends()
        for name, some in since.items():  # a topic that is gone stays where it was read to
            for number, offset in some.items():
                end.setdefault(name, {}).setdefault(number, offset)
        if isinstance(limit, ReadMaxRows):
            end = limited(since, end, limit.max_rows)
        return write_offsets(end)

    def _ends(self) -> Offsets:
        return {
            name: {number: following for number, (_, following) in some.items()}
            for name, some in self._spans().items()
        }

    @edge
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    @edge
    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        return write_offsets(self._ends())

    @edge
    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> Sequence[InputPartition]:
        found = ranges(_read(start), _read(end), self._reading.whole, self._reading.min_partitions)
        return [Share(self.place, one) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Share):
            return
        with told():
            yield from read_range(partition.place, partition.wanted, self._columns)


def _read(offsets: dict[str, dict[str, int]]) -> Offsets:
    return {name: {int(number): at for number, at in some.items()} for name, some in (offsets or {}).items()}
