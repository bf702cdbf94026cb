"""Topics into their archive, exactly once, and the archive as a table.

A round is: where the table says it has come to, where the log ends, one Spark job whose tasks read the ranges between
from the broker and write files, one commit. Where to go on is read from the table alone, so there is no checkpoint that
could disagree with it: whatever is killed, the next round begins at the last commit. When a commit is on the disk the
broker is told, and retention may delete what it holds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructField, StructType

from trine.model.duration import duration_ms, instant_ms
from trine.model.errors import Conflict, InvalidOption, OffsetOutOfRange
from trine.spark.archive_files import write_range
from trine.spark.columns import NAMES, spark_schema
from trine.spark.delta import KEPT, File, Offsets, Table, absolute
from trine.spark.errors import plain, told
from trine.spark.fetch import Range
from trine.spark.offsets import limited, ranges
from trine.spark.place import Place
from trine.spark.runs import telling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trine.client.sync import Broker

ROUND_OFFSETS: Final = 4_000_000
"""Offsets of one commit at most: what a killed round costs, and how often the broker hears how far it is."""
SPLIT_ROWS: Final = 100_000
"""A range is shared among tasks if each gets at least so many."""
PAUSE: Final = 0.25
"""How soon a waiting archiver notices that it shall stop."""

Progress = Callable[[str, float, float | None], None]
Spans = dict[str, dict[int, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    path: str
    messages: int = 0
    files: int = 0
    bytes: int = 0
    commits: int = 0
    seconds: float = 0.0
    offsets: Offsets = field(default_factory=dict)
    """The next offset that is not archived, by topic and partition."""
    gaps: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """Offsets that the log had lost before they could be archived, where that was allowed."""


def archive(
    spark: SparkSession,
    place: Place,
    topics: Sequence[str] | None = None,
    to: str | None = None,
    *,
    continuously: bool = False,
    trigger: str = "10s",
    max_offsets: int | None = None,
    allow_gaps: bool = False,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> ArchiveSummary:
    """Archives what is in the log now; with `continuously`, also what comes, until `stop` is set.

    Without `topics`, every topic that has an archive; without `to`, where the topics say.
    """
    pause_ms = duration_ms(trigger, what="trigger")
    if max_offsets is not None and max_offsets < 1:
        raise InvalidOption(f"max_offsets is 1 or more, not {max_offsets}")
    began = time.monotonic()
    stop = stop or threading.Event()
    with contextlib.closing(place.connect()) as broker:
        names, path = _chosen(broker, topics, to)
        with telling(place, "archive", path, names) as run:
            work = _Archiver(spark, place, broker, names, path, max_offsets or ROUND_OFFSETS, allow_gaps)
            work.begin()
            while True:
                upto = work.spans()  # what comes later is for the next turn: a busy topic has no end
                goal = work.waiting(upto)
                start = work.messages
                if progress is not None and goal:
                    progress("archive", 0, goal)
                while not stop.is_set() and work.round(upto):
                    run.rows = work.messages
                    if progress is not None:
                        progress("archive", work.messages - start, max(goal, work.messages - start))
                if not continuously or _paused(stop, pause_ms, work, progress):
                    break
            summary = work.summary(time.monotonic() - began)
            run.summary = {
                "path": summary.path,
                "messages": summary.messages,
                "files": summary.files,
                "bytes": summary.bytes,
                "commits": summary.commits,
                "gaps": sum(end - first for some in summary.gaps.values() for first, end in some.values()),
            }
            return summary


def _paused(stop: threading.Event, pause_ms: int, work: _Archiver, progress: Progress | None) -> bool:
    """Waits for the next round; whether there shall be none."""
    end = time.monotonic() + pause_ms / 1000
    while not stop.wait(min(PAUSE, max(end - time.monotonic(), 0))):
        if progress is not None:
            progress(f"archive: {work.messages} archived so far, waiting for more", work.messages, None)
        if time.monotonic() >= end:
            return False
    return True


def _chosen(broker: Broker, topics: Sequence[str] | None, to: str | None) -> tuple[list[str], str]:
    """The topics, and the one table they go to."""
    known = {one.name: one.config.archive for one in broker.topics()}
    if topics:
        names = list(dict.fromkeys(topics))
        for name in names:
            if name not in known:
                broker._known(name)  # says that there is none
    elif to is not None:
        names = sorted(name for name, path in known.items() if path is None or path == absolute(to))
    else:
        names = sorted(name for name, path in known.items() if path is not None)
    if not names:
        raise InvalidOption("no topic has an archive yet: name topics, and say where to with --to PATH")
    paths = {name: known.get(name) for name in names}
    if to is not None:
        to = absolute(to)
        for name, path in paths.items():
            if path is not None and path != to:
                raise InvalidOption(
                    f"topic {name!r} is archived at {path}, and its retention waits for that; leave --to out, or first "
                    "take the option `archive` from the topic"
                )
        return names, to
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        raise InvalidOption(f"topic {missing[0]!r} has no archive yet: say where to with --to PATH")
    tables = sorted({path for path in paths.values() if path is not None})
    if len(tables) > 1:
        raise InvalidOption(
            f"these topics have archives at {' and '.join(tables)}: name those of one of them"
        )
    return names, tables[0]


class _Archiver:
    """Rounds into one table."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        broker: Broker,
        topics: list[str],
        path: str,
        most: int,
        allow_gaps: bool,
    ) -> None:
        self._spark = spark
        self._place = place
        self._broker = broker
        self._topics = topics
        self._table = Table.open_or_make(path)
        self._most = most
        self._allow_gaps = allow_gaps
        self._gaps: dict[str, dict[int, tuple[int, int]]] = {}
        self.messages = self._files = self._bytes = self._commits = 0

    def begin(self) -> None:
        """Retention waits from here on, and knows what earlier runs committed."""
        spans = self.spans()
        self._check_same(spans)
        for name in self._topics:
            handle = self._broker.topic(name)
            if handle.describe().config.archive != self._table.path:
                handle.alter(archive=self._table.path)
        self._tell(self._committed(spans))

    def spans(self) -> Spans:
        return {name: dict(self._broker.topic(name).offsets()) for name in self._topics}

    def _committed(self, spans: Spans) -> Offsets:
        return {name: self._table.offsets(name, some) for name, some in spans.items()}

    def _check_same(self, spans: Spans) -> None:
        """Whether the archive is of these topics, and not of earlier ones with the same names."""
        for name, some in spans.items():
            for number, (first, end) in some.items():
                next_offset = self._table.offset(name, number)
                known_ms = self._table.last_ms(name, number)
                anew = next_offset > end
                if not anew and known_ms is not None and first < next_offset:
                    last = next_offset - 1
                    found = self._broker.topic(name).read(
                        partition=number, from_offset=last, to_offset=next_offset, max=1
                    )
                    anew = bool(found) and found[0].timestamp_ms != known_ms
                if anew:
                    raise Conflict(
                        f"the archive at {self._table.path} has {name}/{number} up to {next_offset}, and that is "
                        "not this log: the topic was deleted and made anew. Archive it to another path"
                    )

    def waiting(self, spans: Spans) -> int:
        """What of these offsets the archive lacks."""
        committed = self._committed(spans)
        return sum(
            max(end - max(committed[name][number], first), 0)
            for name, some in spans.items()
            for number, (first, end) in some.items()
        )

    def round(self, upto: Spans) -> bool:
        """One commit of what lies before these ends; False if there was nothing to do."""
        self._table.refresh()
        spans = self.spans()
        committed = self._committed(spans)
        start, gaps = self._begun(spans, committed)
        ends = {
            name: {number: max(upto[name].get(number, (0, 0))[1], at) for number, at in some.items()}
            for name, some in start.items()
        }
        end = limited(start, ends, self._most)
        wanted = ranges(start, end, True, self._split(start, end))
        if not wanted and not gaps:
            return False
        files = self._write(wanted)
        self._table.commit(files, committed, end, self._last_times(wanted), gaps)
        self._tell(end)
        self.messages += sum(one.rows for one in files)
        self._files += len(files)
        self._bytes += sum(one.size for one in files)
        self._commits += 1
        for name, some in gaps.items():
            self._gaps.setdefault(name, {}).update(some)
        return True

    def _last_times(self, wanted: list[Range]) -> dict[tuple[str, int], int]:
        """The time of the last message of each partition: by it a log that was made anew is told from this one."""
        last: dict[tuple[str, int], int] = {}
        for one in wanted:
            last[one.topic, one.partition] = max(last.get((one.topic, one.partition), 0), one.end - 1)
        found = {}
        for (name, number), offset in last.items():
            rows = self._broker.topic(name).read(
                partition=number, from_offset=offset, to_offset=offset + 1, max=1
            )
            if rows:  # compaction may have taken it
                found[name, number] = rows[0].timestamp_ms
        return found

    def _begun(
        self, spans: Spans, committed: Offsets
    ) -> tuple[Offsets, dict[str, dict[int, tuple[int, int]]]]:
        """Where to read from. Above the archive's end only if the log has lost something and that is allowed."""
        start: Offsets = {}
        gaps: dict[str, dict[int, tuple[int, int]]] = {}
        for name, some in spans.items():
            for number, (first, end) in some.items():
                at = committed[name][number]
                if at > end:
                    raise Conflict(
                        f"{name}/{number} ends at {end}, before its archive ({at}): it was made anew"
                    )
                if first > at:
                    # A log that was never archived may begin anywhere; later, what is missing was lost.
                    if at and not self._allow_gaps:
                        raise OffsetOutOfRange(
                            f"offsets {at} to {first - 1} of {name}/{number} were deleted before they were archived; "
                            "--allow-gaps goes on without them, and the archive says that they are missing"
                        )
                    gaps.setdefault(name, {})[number] = (at, first)
                    at = first
                start.setdefault(name, {})[number] = at
        return start, gaps

    def _split(self, start: Offsets, end: Offsets) -> int:
        rows = sum(
            until - start[name][number] for name, some in end.items() for number, until in some.items()
        )
        return max(min(self._spark.sparkContext.defaultParallelism, rows // SPLIT_ROWS), 1)

    def _write(self, wanted: list[Range]) -> list[File]:
        if not wanted:
            return []
        shares = _shares(wanted, self._spark.sparkContext.defaultParallelism)
        place, path = self._place, self._table.path

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    with told():
                        made = [
                            msgspec.json.encode(file).decode()
                            for one in shares[number]
                            for file in write_range(place, path, one)
                        ]
                    yield pa.RecordBatch.from_arrays([pa.array(made, pa.string())], ["file"])

        with plain():
            rows = (
                self._spark.range(0, len(shares), 1, len(shares)).mapInArrow(write, "file string").collect()
            )
        return [msgspec.json.decode(row.file, type=File) for row in rows]

    def _tell(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        for name, some in offsets.items():
            self._broker.topic(name).set_archived(dict(some))

    def summary(self, seconds: float) -> ArchiveSummary:
        return ArchiveSummary(
            self._table.path,
            self.messages,
            self._files,
            self._bytes,
            self._commits,
            round(seconds, 3),
            self._committed(self.spans()),
            self._gaps,
        )


def _shares(wanted: list[Range], tasks: int) -> list[list[Range]]:
    """Ranges for each task: the largest first, to whoever has least."""
    shares: list[list[Range]] = [[] for _ in range(min(max(tasks, 1), len(wanted)))]
    sizes = [0] * len(shares)
    for one in sorted(wanted, key=lambda one: one.start - one.end):
        least = sizes.index(min(sizes))
        shares[least].append(one)
        sizes[least] += one.end - one.start
    return shares


# --- the archive as a table


def read(
    spark: SparkSession,
    path: str,
    topics: Sequence[str] | None = None,
    as_of: datetime | str | None = None,
    *,
    version: int | None = None,
) -> DataFrame:
    """The archive's messages, with the columns of a topic as a table.

    `as_of` leaves out messages of that time and later; `version` reads an older version of the table.
    """
    return read_files(spark, Table.open(path, version), topics, as_of)


def read_files(
    spark: SparkSession,
    table: Table,
    topics: Sequence[str] | None = None,
    as_of: datetime | str | None = None,
    *,
    wanted: Callable[[File], bool] | None = None,
) -> DataFrame:
    """The rows of the files there are in this version, or of those that are wanted."""
    before_ms = None if as_of is None else instant_ms(as_of)
    files = [
        file
        for file in table.files(topics)
        if (before_ms is None or file.first_ms < before_ms) and (wanted is None or wanted(file))
    ]
    schema = StructType([*spark_schema(KEPT).fields, StructField("date", DateType())])
    if not files:
        rows = spark.createDataFrame([], schema)
    else:
        reader = spark.read.schema(schema).option("basePath", table.path)
        rows = reader.parquet(*(table.uri(file) for file in files))
    if before_ms is not None:
        rows = rows.where(F.col("timestamp") < F.timestamp_millis(F.lit(before_ms)))
    made = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    return rows.withColumn("message_id", made).select(*NAMES)


# --- how it stands


def status(place: Place, topics: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Every topic with an archive: how far it is, what it holds, what waits."""
    found = []
    with contextlib.closing(place.connect()) as broker:
        for name in topics or ():
            broker.topic(name).describe()  # says so if there is no such topic
        for one in broker.topics():
            path = one.config.archive
            if path is None or (topics and one.name not in topics):
                continue
            table = Table.open(path)
            files = table.files([one.name])
            offsets = table.offsets(one.name, [part.number for part in one.partitions])
            found.append(
                {
                    "topic": one.name,
                    "path": path,
                    "messages": sum(file.rows for file in files),
                    "files": len(files),
                    "bytes": sum(file.size for file in files),
                    "waiting": sum(
                        max(part.next_offset - max(offsets[part.number], part.first_offset), 0)
                        for part in one.partitions
                    ),
                    "offsets": {str(number): offset for number, offset in offsets.items()},
                    "first": _iso(min((file.first_ms for file in files), default=None)),
                    "last": _iso(max((file.last_ms for file in files), default=None)),
                    "version": table.version,
                }
            )
    return found


def _iso(ms: int | None) -> str | None:
    from trine.model.duration import iso

    return None if ms is None else iso(ms)
