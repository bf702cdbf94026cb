"""Pipelines run: a query a sink, each with a checkpoint of its own, and how far they are.

Once: sinks that read what other sinks of the file write come after them. To follow: all run together until they are
told to stop. A killed run goes on from its checkpoints; no row is lost, none is written twice.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyarrow.fs import FileSystem, FileType

from trine.model.errors import Conflict, InvalidOption
from trine.spark.errors import plain
from trine.spark.pipelines.checking import check, feeding
from trine.spark.pipelines.declaration import Declaration, Sink, load
from trine.spark.pipelines.frames import Frames, framed, messages_of, plan_of
from trine.spark.pipelines.reading import refuse
from trine.spark.pipelines.tables import delta_writer
from trine.spark.runs import telling as tell
from trine.spark.runs import untold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from trine.spark.place import Place

Progress = Callable[[str, float, float | None], None]
Show = Callable[[str, list[str], list[tuple[Any, ...]]], None]
IDENTITY: Final = "trine.json"
LOOK_SECONDS: Final = 0.2
"""How often a running query is asked how far it is."""
SHOWN_ROWS: Final = 20
WORDS: Final = {
    "sink": "where it writes",
    "mode": "its mode",
    "sources": "what it reads",
    "state": "what it groups or joins",
}
"""What a checkpoint depends on."""
STATEFUL: Final = re.compile(
    r"^\W*((?:Aggregate|Join|Deduplicate\w*|FlatMapGroups\w*|TransformWithState\w*)\b.*)$", re.MULTILINE
)


class SinkSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    target: str
    batches: int
    rows_in: int
    rows_out: int
    steps: dict[str, int]
    """Rows that came out of each source and step on the way."""
    seconds: float


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    pipeline: str
    sinks: list[SinkSummary]
    seconds: float


def run(
    spark: SparkSession,
    place: Place,
    path: str | Path | Declaration,
    variables: Mapping[str, str] | None = None,
    *,
    follow: bool = False,
    only: Iterable[str] = (),
    checkpoints: str | None = None,
    progress: Progress | None = None,
    show: Show | None = None,
) -> RunSummary:
    """Checks the pipeline and runs it: what is there now, or with `follow` until it is interrupted (`progress` may
    raise)."""
    began = time.monotonic()
    declared = path if isinstance(path, Declaration) else load(path, variables)
    refuse(check(spark, declared, place=place))
    chosen = list(only) or list(declared.sinks)
    for name in chosen:
        if name not in declared.sinks:
            raise InvalidOption(
                f"there is no sink {name!r} in {declared.path}; it has {', '.join(declared.sinks)}"
            )
    root = checkpoints or str(declared.path.resolve().parent / ".trine" / "checkpoints" / declared.path.stem)
    with framed(spark, declared, place) as frames:
        feeds = feeding(declared, frames, set())
    # A pipeline from tables to tables needs no broker, and there is none to be told.
    uses = any(one.table is None for one in declared.sources.values()) or bool(_topics(declared, chosen))
    telling = tell if uses else untold
    with telling(place, "pipeline", declared.name, _topics(declared, chosen)) as told:
        done: list[SinkSummary] = []
        for level in [chosen] if follow else _in_order(chosen, feeds):
            running: list[_Running] = []
            try:
                for name in level:
                    one = _Running(spark, place, declared, declared.sinks[name], root, show)
                    running.append(one)
                    one.start(follow)
                while sum(one.look() for one in running):
                    told.rows = sum(one.rows_out for one in done) + sum(one.rows_out for one in running)
                    if progress is not None and follow:
                        progress(_told(running), sum(one.rows_in for one in running), None)
                    elif progress is not None:
                        progress(level[0], len(done) + sum(one.share for one in running), len(chosen))
                    time.sleep(LOOK_SECONDS)
            finally:
                for one in running:
                    one.stop()
            done += [one.summary() for one in running]
            told.rows = sum(one.rows_out for one in done)
        summary = RunSummary(pipeline=declared.name, sinks=done, seconds=round(time.monotonic() - began, 3))
        told.summary = msgspec.to_builtins(summary)
        return summary


def _topics(declared: Declaration, chosen: Iterable[str]) -> list[str]:
    """The topics that it reads by name, and those that the chosen sinks write."""
    read = [topic for source in declared.sources.values() for topic in source.topics]
    written = [topic for name in chosen if (topic := declared.sinks[name].topic) is not None]
    return list(dict.fromkeys([*read, *written]))


def _told(running: list[_Running]) -> str:
    return ", ".join(f"{one.sink.name}: {one.rows_in} rows in, {one.rows_out} out" for one in running)


def _in_order(names: list[str], feeds: Mapping[str, list[str]]) -> list[list[str]]:
    """One after the other, what is read after what writes it: a query has the whole of Spark for itself."""
    left, order = list(names), []
    while left:
        name = next(name for name in left if not any(one in left and one != name for one in feeds[name]))
        order.append([name])
        left.remove(name)
    return order


class _Running:
    """One sink under way."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        declared: Declaration,
        sink: Sink,
        root: str,
        show: Show | None,
    ) -> None:
        self._spark, self._place, self._declared, self._show = spark, place, declared, show
        self.sink = sink
        self._checkpoint = f"{root}/{sink.name}"
        self._query: StreamingQuery | None = None
        self._seen = -1
        self._began = time.monotonic()
        self._ended: float | None = None
        self.rows_in = self.rows_out = self.batches = 0
        self.share = 0.0
        """Of what was there when it began, how much is done; a guess until its first batch."""
        self.steps: dict[str, int] = {}

    def start(self, follow: bool) -> None:
        with plain(), framed(self._spark, self._declared, self._place) as frames:
            frame = frames.frame(self.sink.source, counted=True)
            if not frame.isStreaming:
                self._write_table(frame)
                return
            application = _identify(self._checkpoint, self._declared, self.sink, frames, frame)
            writer = self._writer(frame, application).option("checkpointLocation", self._checkpoint)
            if follow:
                writer = writer.trigger(processingTime=f"{self.sink.every_ms or 500} milliseconds")
            else:
                writer = writer.trigger(availableNow=True)
            self._query = writer.start()

    def _writer(self, frame: DataFrame, application: str) -> Any:
        sink = self.sink
        if sink.topic is not None:
            made = messages_of(frame, sink)
            options = {**self._place.options(), **sink.options, "topic": sink.topic}
            if sink.mode == "append":
                return made.writeStream.format("trine").options(**options)
            # Spark gives a source in Python only new rows; changed ones are batches that we number ourselves.
            return made.writeStream.outputMode(sink.mode).foreachBatch(_topic_writer(options, application))
        writer = frame.writeStream.outputMode(sink.mode).queryName(f"{self._declared.name}.{sink.name}")
        if sink.table is None:
            return writer.foreachBatch(lambda rows, batch: self._print(rows))
        path = self._declared.near(sink.table)
        if sink.format == "delta":
            return writer.foreachBatch(delta_writer(sink, path, application))
        parquet = writer.format("parquet").options(**sink.options).option("path", path)
        return parquet.partitionBy(*sink.partition_by) if sink.partition_by else parquet

    def _print(self, rows: DataFrame) -> None:
        found = [tuple(row) for row in rows.limit(SHOWN_ROWS).collect()]
        if self._show is not None and found:
            self._show(self.sink.name, rows.columns, found)

    def _write_table(self, frame: DataFrame) -> None:
        """All sources are tables: written in one go. A table is replaced, so that twice is as good as once."""
        sink = self.sink
        if sink.topic is not None:
            options = {**self._place.options(), **sink.options, "topic": sink.topic}
            messages_of(frame, sink).write.format("trine").options(**options).mode("append").save()
        elif sink.table is None:
            self._print(frame)
        elif sink.format == "parquet":
            frame.write.mode("overwrite").partitionBy(*sink.partition_by).parquet(
                self._declared.near(sink.table)
            )
        else:
            replaced = dataclasses.replace(sink, mode="complete")
            path = self._declared.near(sink.table)
            delta_writer(replaced, path, f"trine.{time.time_ns()}")(frame, 0)
        self.batches = 1
        self._ended = time.monotonic()

    def look(self) -> bool:
        """Counts what was done since the last look; whether there is more to come."""
        if self._query is None:
            return False
        active = self._query.isActive
        for one in self._query.recentProgress:
            if one.batchId > self._seen and one.numInputRows + len(one.observedMetrics) > 0:
                self._seen = one.batchId
                self.batches += 1
                self.rows_in += one.numInputRows
                left = sum(_left(source.endOffset, source.latestOffset) for source in one.sources)
                self.share = self.rows_in / (self.rows_in + left) if self.rows_in else self.share
                for name, row in one.observedMetrics.items():
                    self.steps[name] = self.steps.get(name, 0) + row["rows"]
        self.rows_out = self.steps.get(self.sink.source, 0)
        if not active:
            self._ended = self._ended or time.monotonic()
            with plain():
                error = self._query.exception()
                if error is not None:
                    raise error
        return active

    def stop(self) -> None:
        if self._query is not None and self._query.isActive:
            self._query.stop()

    def summary(self) -> SinkSummary:
        return SinkSummary(
            name=self.sink.name,
            target=self.sink.target,
            batches=self.batches,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            steps=self.steps,
            seconds=round((self._ended or time.monotonic()) - self._began, 3),
        )


def _left(reached: str | None, latest: str | None) -> int:
    """Messages between two offsets as the source writes them; none if they are another source's."""
    try:
        at, end = json.loads(reached or "{}"), json.loads(latest or "{}")
        return sum(
            max(offset - at.get(topic, {}).get(number, 0), 0)
            for topic, some in end.items()
            for number, offset in some.items()
        )
    except (ValueError, AttributeError, TypeError):
        return 0


def _topic_writer(options: dict[str, str], application: str) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch`: what comes again after a failure is stored once."""

    def write(rows: DataFrame, batch: int) -> None:
        turn = {"txnAppId": application, "txnVersion": str(batch)}
        rows.write.format("trine").options(**options, **turn).mode("append").save()

    return write


# --- whether a checkpoint is still the query's


def _identify(checkpoint: str, declared: Declaration, sink: Sink, frames: Frames, frame: DataFrame) -> str:
    """Keeps beside the checkpoint what it was made by, and refuses to go on with another query; answers the name its
    commits have in tables."""
    sources = [declared.sources[name] for name in frames.behind(sink.source) if name in declared.sources]
    mine = {
        "sink": sink.target,
        "mode": sink.mode,
        "sources": [
            f"{one.name}: {', '.join(one.topics) or one.pattern or one.table}"
            for one in sources
            if one.is_stream
        ],
        "state": [re.sub(r"#\d+L?|-T\d+ms", "", found) for found in STATEFUL.findall(plan_of(frame))],
    }
    files, folder = FileSystem.from_uri(
        checkpoint if "://" in checkpoint else Path(checkpoint).absolute().as_uri()
    )
    file = f"{folder}/{IDENTITY}"
    if files.get_file_info(file).type is FileType.File:
        with files.open_input_stream(file) as found:
            known = json.loads(found.read())
        changed = [what for word, what in WORDS.items() if known[word] != mine[word]]
        if changed:
            raise Conflict(
                f"sink {sink.name!r} has changed ({', '.join(changed)}), and its checkpoint belongs to what it was: "
                f"take the change back, give the sink another name, or begin anew by removing {checkpoint}"
            )
        return str(known["application"])
    application = f"trine.{declared.name}.{sink.name}.{time.time_ns()}"
    files.create_dir(folder, recursive=True)
    with files.open_output_stream(f"{file}.new") as new:
        new.write(json.dumps({"application": application, **mine}, indent=2).encode())
    files.move(f"{file}.new", file)
    return application
