"""What is wrong with a pipeline, all of it, before anything runs.

Queries are analysed by Spark over empty streams and tables of the right columns; functions are looked up, and those
that make frames are called with the empty ones. Topics are looked for if a broker can be asked.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from trine.model.errors import InvalidOption, TrineError
from trine.spark.errors import sentence_of
from trine.spark.pipelines.declaration import Declaration, Sink, load
from trine.spark.pipelines.frames import Frames, columns_of, framed, messages_of
from trine.spark.pipelines.functions import find_function
from trine.spark.pipelines.reading import Fault, Place
from trine.spark.sink import check_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trine.spark.place import Place as Where

LINE = re.compile(r"line (\d+)[, ] ?pos")


def check(
    spark: SparkSession,
    path: str | Path | Declaration,
    variables: Mapping[str, str] | None = None,
    *,
    place: Where | None = None,
) -> list[Fault]:
    """All faults, by line; none if the pipeline can be run."""
    declared = path if isinstance(path, Declaration) else load(path, variables)
    logging.getLogger("SQLQueryContextLogger").setLevel(
        logging.CRITICAL
    )  # they are told with their place instead
    with framed(spark, declared, None) as frames:
        _Check(spark, declared, frames).run()
    if place is not None:
        _check_topics(declared, place)
    return sorted(declared.written.faults, key=lambda fault: fault.line)


class _Check:
    def __init__(self, spark: SparkSession, declared: Declaration, frames: Frames) -> None:
        self._spark = spark
        self._declared = declared
        self._written = declared.written
        self._frames = frames
        self._off: set[str] = set()
        """Sources and steps with a fault: what is built on them is not looked at further."""

    def run(self) -> None:
        whole = {*self._declared.sources, *self._declared.steps}
        self._off |= {name for name in self._declared.names if name not in whole}
        for name, source in self._declared.sources.items():
            for word, ddl in (("json", source.json), ("schema", source.schema)):
                if ddl is not None:
                    self._try(("sources", name, word), name, lambda ddl=ddl: columns_of(ddl))
        for name, step in self._declared.steps.items():
            if step.sql is not None:
                self._try(("steps", name, "sql"), name, lambda step=step: self._frames.inputs(step))
            else:
                self._try(
                    ("steps", name, "python"),
                    name,
                    lambda step=step: find_function(self._declared, step.python),
                )
        looped = self._cycles()
        for name in (*self._declared.sources, *self._declared.steps):
            if name not in looped:
                self._build(name)
        for sink in self._declared.sinks.values():
            self._sink(sink)
        self._loops_through_topics()

    def _try(self, place: Place, name: str, work: Any) -> Any:
        try:
            return work()
        except TrineError as error:
            self._written.fault(place, f"{'.'.join(place[:2])}: {error}")
        except PySparkException as error:
            self._written.fault(
                place, f"{'.'.join(place[:2])}: {sentence_of(error)}", line=self._line(place, error)
            )
        except Exception as error:  # a user's function may raise anything
            self._written.fault(place, f"{'.'.join(place[:2])}: {type(error).__name__}: {error}")
        self._off.add(name)
        return None

    def _line(self, place: Place, error: PySparkException) -> int | None:
        found = LINE.search(str(error))
        start = self._written.text_lines.get(place)
        return None if found is None or start is None else start + int(found[1]) - 1

    def _cycles(self) -> set[str]:
        steps = self._declared.steps
        below = {
            name: [one for one in self._frames.inputs(step) if one in steps]
            for name, step in steps.items()
            if name not in self._off
        }
        looped: set[str] = set()
        for name in below:
            path = _way_back(name, below)
            if path and name not in looped:
                looped |= set(path)
                self._written.fault(("steps", name), f"steps go round in a circle: {' -> '.join(path)}")
        self._off |= looped
        return looped

    def _build(self, name: str) -> None:
        if name in self._off:
            return
        section = "sources" if name in self._declared.sources else "steps"
        if section == "steps":
            for one in self._frames.inputs(self._declared.steps[name]):
                self._build(one)
                if one in self._off:
                    self._off.add(name)
                    return
        step = self._declared.steps.get(name)
        word = ("sql",) if step is not None and step.sql is not None else ()
        self._try((section, name, *word), name, lambda: self._frames.frame(name))

    def _sink(self, sink: Sink) -> None:
        if sink.source in self._off:
            return
        place = ("sinks", sink.name)

        def look() -> None:
            frame = self._frames.frame(sink.source)
            if sink.topic is not None:
                frame = messages_of(frame, sink)
                check_schema(frame.schema, sink.topic)
            for word, names in (("partition_by", sink.partition_by), ("keys", sink.keys)):
                missing = [name for name in names if name not in frame.columns]
                if missing:
                    known = ", ".join(frame.columns)
                    raise InvalidOption(f"{word} names {missing[0]!r}, but the columns are {known}")
            if frame.isStreaming:
                check_stream(self._spark, frame, sink.mode)
            elif sink.mode != "append":
                raise InvalidOption("all its sources are tables: its mode can only be append")

        self._try(place, sink.name, look)

    def _loops_through_topics(self) -> None:
        """Queries that feed each other through topics would never end."""
        feeds = feeding(self._declared, self._frames, self._off)
        seen: set[str] = set()
        for name in feeds:
            path = _way_back(name, feeds)
            if path and name not in seen:
                seen |= set(path)
                self._written.fault(
                    ("sinks", name), f"sinks feed themselves through topics: {' -> '.join(path)}"
                )


def feeding(declared: Declaration, frames: Frames, off: set[str]) -> dict[str, list[str]]:
    """Of each sink, the sinks whose topics or tables it reads: they come first."""
    made = {(sink.topic or declared.near(sink.table or "")): name for name, sink in declared.sinks.items()}
    feeds: dict[str, list[str]] = {}
    for name, sink in declared.sinks.items():
        behind = [] if sink.source in off else frames.behind(sink.source)
        read = [declared.sources[one] for one in behind if one in declared.sources]
        names = [topic for one in read for topic in (one.topics or (declared.near(one.table or ""),))]
        feeds[name] = [made[one] for one in names if one in made]
    return feeds


def check_stream(spark: SparkSession, frame: DataFrame, mode: str) -> None:
    """What Spark would say when the query is started."""
    jvm: Any = spark._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    chosen = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), chosen)


def _way_back(start: str, below: Mapping[str, list[str]]) -> list[str]:
    """The names from one back to itself; empty if there is no such way."""
    open_ways = [[start]]
    seen: set[str] = set()
    while open_ways:
        way = open_ways.pop()
        for one in below.get(way[-1], ()):
            if one == start:
                return [*way, start]
            if one not in seen:
                seen.add(one)
                open_ways.append([*way, one])
    return []


def _check_topics(declared: Declaration, place: Where) -> None:
    with place.connect() as broker:
        known = {topic.name for topic in broker.topics()}
    made = {sink.topic for sink in declared.sinks.values()}
    for name, source in declared.sources.items():
        for topic in source.topics:
            if topic not in known and topic not in made:
                declared.written.fault(("sources", name), f"sources.{name}: there is no topic {topic!r}")
    for name, sink in declared.sinks.items():
        if sink.topic is not None and sink.topic not in known:
            declared.written.fault(
                ("sinks", name),
                f"sinks.{name}: there is no topic {sink.topic!r}; make it with: trine topic create {sink.topic}",
            )
