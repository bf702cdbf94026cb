"""The archive against the log: every offset that both have must be the same message.

Both sides are reduced to a hash a message and joined by partition and offset, on Spark. What only the archive has
is looked at by itself: nothing twice, no hole that the archive does not know of, as many rows as were committed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from trine.model.errors import InvalidOption
from trine.spark.archive import Progress, read_files
from trine.spark.delta import Table
from trine.spark.errors import plain
from trine.spark.place import Place

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COMPARED: Final = (
    "key",
    "value",
    "headers",
    "timestamp",
    "priority",
    "producer",
    "ttl",
    "dedup_id",
    "schedule_id",
)
TOLD_MAX: Final = 20
"""Offsets of one kind that are named; the counts are of all."""
DIFFERS: Final = "differs"
ONLY_LOG: Final = "missing in the archive"
ONLY_ARCHIVE: Final = "missing in the log"
Fault = Callable[[str, int, list[str]], None]


@dataclass(frozen=True, slots=True)
class TopicVerdict:
    topic: str
    path: str
    archived: int
    """Messages of the archive that were looked at."""
    compared: int
    """Of them, those the log has too."""
    faults: dict[str, int] = field(default_factory=dict)
    """What is wrong, and how often."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Message ids, or ranges of them, for each fault."""

    @property
    def sound(self) -> bool:
        return not self.faults


def verify(
    spark: SparkSession,
    place: Place,
    topics: Sequence[str] | None = None,
    *,
    path: str | None = None,
    progress: Progress | None = None,
) -> list[TopicVerdict]:
    """Looks at every topic that has an archive, or at those named."""
    found = []
    with contextlib.closing(place.connect()) as broker:
        known = {one.name: one for one in broker.topics()}
        for name in topics or ():
            broker._known(name)
        chosen = topics or [name for name, one in known.items() if one.config.archive is not None]
        for done, name in enumerate(chosen):
            if progress is not None:
                progress("verify", done, len(chosen))
            where = path or known[name].config.archive
            if where is None:
                raise InvalidOption(
                    f"topic {name!r} has no archive; `trine archive {name} --to PATH` makes one"
                )
            spans = dict(broker.topic(name).offsets())
            with plain():
                found.append(
                    _verify(spark, place, name, Table.open(where), spans, known[name].config.compact)
                )
    return found


def _verify(
    spark: SparkSession,
    place: Place,
    topic: str,
    table: Table,
    spans: dict[int, tuple[int, int]],
    compacts: bool,
) -> TopicVerdict:
    committed = table.offsets(topic, spans)
    faults: dict[str, int] = {}
    examples: dict[str, list[str]] = {}

    def fault(what: str, count: int, some: list[str]) -> None:
        if count:
            faults[what] = faults.get(what, 0) + count
            examples[what] = (examples.get(what, []) + some)[:TOLD_MAX]

    files = table.files([topic])
    archived = (
        read_files(spark, table, [topic]).select("partition", "offset", _hash().alias("archived")).cache()
    )
    try:
        rows = archived.count()
        expected = sum(file.rows for file in files)
        fault(
            "rows lost or added in files",
            abs(expected - rows),
            [f"{expected} were committed, {rows} are there"],
        )
        twice = archived.groupBy("partition", "offset").count().where("count > 1")
        named = [f"{topic}/{row.partition}/{row.offset}" for row in twice.limit(TOLD_MAX).collect()]
        fault("there twice", twice.count() if named else 0, named)
        beyond = archived.where(~_below(committed))
        fault("beyond what was committed", beyond.count(), _ids(topic, beyond))
        if not compacts:
            _holes(archived, table, topic, committed, fault)
        compared = _compare(spark, place, topic, archived, spans, committed, compacts, fault)
    finally:
        archived.unpersist()
    return TopicVerdict(topic, table.path, rows, compared, faults, examples)


def _compare(
    spark: SparkSession,
    place: Place,
    topic: str,
    archived: DataFrame,
    spans: dict[int, tuple[int, int]],
    committed: dict[int, int],
    compacts: bool,
    fault: Fault,
) -> int:
    both = {
        number: (first, min(end, committed[number]))
        for number, (first, end) in spans.items()
        if first < min(end, committed[number])
    }
    if not both:
        return 0
    reader = spark.read.format("trine").options(**place.options()).option("includeHeaders", "true")
    log = (
        reader.option("assign", json.dumps({topic: list(both)}))
        .option("startingOffsets", json.dumps({topic: {str(n): first for n, (first, _) in both.items()}}))
        .option("endingOffsets", json.dumps({topic: {str(n): end for n, (_, end) in both.items()}}))
        .load()
        .select("partition", "offset", _hash().alias("logged"))
    )
    inside = archived.where(_within(both))
    joined = inside.join(log, ["partition", "offset"], "full_outer")
    verdict = (
        F.when(F.col("archived").isNull(), ONLY_LOG)
        .when(F.col("logged").isNull(), ONLY_ARCHIVE)
        .when(F.col("archived") != F.col("logged"), DIFFERS)
    )
    judged = joined.select("partition", "offset", verdict.alias("what"))
    counts = {row.what: row["count"] for row in judged.groupBy("what").count().collect()}
    for what in (DIFFERS, ONLY_LOG, *(() if compacts else (ONLY_ARCHIVE,))):
        if counts.get(what):
            wrong = judged.where(F.col("what") == what)
            fault(what, counts[what], _ids(topic, wrong))
    return int(sum(count for what, count in counts.items() if what in (None, DIFFERS)))


def _holes(archived: DataFrame, table: Table, topic: str, committed: dict[int, int], fault: Fault) -> None:
    """Offsets that should be in the archive and are not, save those it says the log had lost."""
    gaps = table.gaps(topic)
    counts = {
        row.partition: (row.least, row.rows)
        for row in archived.groupBy("partition")
        .agg(F.min("offset").alias("least"), F.countDistinct("offset").alias("rows"))
        .collect()
    }
    for number, end in committed.items():
        known = gaps.get(number, [])
        least, rows = counts.get(number, (end, 0))
        missing = end - rows - sum(until - since for since, until in known)
        if missing > 0:
            fault(
                "holes in the archive",
                missing,
                [f"{topic}/{number}: first is {least}, {rows} of {end} are there"],
            )


def _hash() -> Column:
    """Of everything a message is. Nulls are hashed too: Spark's hash passes over them."""
    nulls = [F.col(name).isNull() for name in COMPARED]
    return F.xxhash64(*COMPARED, *nulls)


def _below(offsets: dict[int, int]) -> Column:
    return _within({number: (0, end) for number, end in offsets.items()})


def _within(spans: dict[int, tuple[int, int]]) -> Column:
    """Rows whose offset lies in the span of their partition."""
    found = F.lit(False)
    for number, (start, end) in spans.items():
        found = found | (
            (F.col("partition") == number) & (F.col("offset") >= start) & (F.col("offset") < end)
        )
    return found


def _ids(topic: str, rows: DataFrame) -> list[str]:
    some = rows.select("partition", "offset").orderBy("partition", "offset").limit(TOLD_MAX).collect()
    return [f"{topic}/{row.partition}/{row.offset}" for row in some]
