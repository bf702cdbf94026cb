"""Looking after the archive: small files merged, leftovers swept away, old history ended, and the latest by key.

Every change is one commit of the table. Who reads an older version goes on reading it: merged files stay until
`vacuum` finds that they are older than anybody reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.sql import functions as F

from trine.model.duration import duration_ms
from trine.model.errors import InvalidOption, StoreFailed
from trine.model.limits import MIB
from trine.spark.archive import Progress, read_files
from trine.spark.archive_files import merge
from trine.spark.columns import NAMES
from trine.spark.delta import File, Table
from trine.spark.errors import plain, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGET_BYTES: Final = 256 * MIB
"""Of a merged file."""
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
SAFE_AGE: Final = "7d"
"""Older leftovers belong to nobody who still writes or reads."""
SAFE_AGE_LEAST: Final = "1h"
"""Younger files may be of a round that is not committed yet, or of somebody who reads."""


@dataclass(frozen=True, slots=True)
class CompactSummary:
    path: str
    merged: int
    """Files that were merged,"""
    made: int
    """into so many."""
    rows: int
    version: int


def compact(
    spark: SparkSession,
    path: str,
    topics: Sequence[str] | None = None,
    *,
    target_bytes: int = TARGET_BYTES,
    progress: Progress | None = None,
) -> CompactSummary:
    """Merges the small files of each topic and date, in one commit."""
    if target_bytes < 1:
        raise InvalidOption(f"target_bytes is 1 or more, not {target_bytes}")
    table = Table.open(path)
    works = _merges(table.files(topics), target_bytes)
    if not works:
        return CompactSummary(table.path, 0, 0, 0, table.version)
    if progress is not None:
        progress("compact", 0, len(works))
    where = table.path

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with told():
                    made = msgspec.json.encode(merge(where, works[number])).decode()
                yield pa.RecordBatch.from_arrays([pa.array([made], pa.string())], ["file"])

    with plain():
        tasks = min(len(works), max(spark.sparkContext.defaultParallelism, 1))
        found = spark.range(0, len(works), 1, tasks).mapInArrow(run, "file string").collect()
    new = [msgspec.json.decode(row.file, type=File) for row in found]
    old = [file for some in works for file in some]
    rows = sum(file.rows for file in new)
    if rows != sum(file.rows for file in old):
        raise StoreFailed(
            f"{path}: the files to be merged do not have the rows they were committed with; nothing was changed. "
            "`trine archive verify` says more"
        )
    version = table.replace(old, new)
    if progress is not None:
        progress("compact", len(works), len(works))
    return CompactSummary(table.path, len(old), len(new), rows, version)


def _merges(files: Sequence[File], target: int) -> list[list[File]]:
    """Which files become one: neighbours of a topic and date, up to the target, at least two."""
    by_place: dict[tuple[str, object], list[File]] = {}
    for file in files:
        if file.size < target // 2:
            by_place.setdefault((file.topic, file.date), []).append(file)
    found: list[list[File]] = []
    for some in by_place.values():
        some.sort(key=lambda file: (file.first_partition, file.first_offset))
        work: list[File] = []
        size = 0
        for file in some:
            if work and size + file.size > target:
                found.append(work)
                work, size = [], 0
            work.append(file)
            size += file.size
        found.append(work)
    return [work for work in found if len(work) > 1]


def vacuum(path: str, *, older_than: str = SAFE_AGE, dry_run: bool = False) -> list[str]:
    """Deletes files that no version needs: merged ones and leftovers of killed tasks, if they are old enough."""
    age_ms = duration_ms(older_than, what="older_than")
    if age_ms < duration_ms(SAFE_AGE_LEAST, what="age"):
        raise InvalidOption(
            f"--older-than {older_than} is too young: files of a round that is being written would go too. "
            f"Give {SAFE_AGE_LEAST} or more"
        )
    return sweep(Table.open(path), -(-age_ms // HOUR_MS), dry_run)


def sweep(table: Table, hours: int, dry_run: bool) -> list[str]:
    """As `vacuum`, at any age: for who knows that nobody writes or reads."""
    try:
        return table.delta.vacuum(
            retention_hours=hours, dry_run=dry_run, enforce_retention_duration=False, full=True
        )
    except DeltaError as error:
        raise StoreFailed(f"{table.path} could not be vacuumed: {error}") from error


def expire(path: str, *, older_than: str = "30d") -> tuple[int, int]:
    """Ends the history of versions that are older; the oldest version and the newest there are then.

    The content stays: a checkpoint holds the table as it is now, how far it has come included.
    """
    days = -(-duration_ms(older_than, what="older_than") // DAY_MS)
    table = Table.open(path)
    try:
        table.delta.alter.set_table_properties({"delta.logRetentionDuration": f"interval {days} days"})
        table.refresh()
        table.delta.create_checkpoint()
        table.delta.cleanup_metadata()
    except DeltaError as error:
        raise StoreFailed(f"the history of {table.path} could not be ended: {error}") from error
    history = table.delta.history()
    return min((one["version"] for one in history), default=table.version), table.version


def latest(spark: SparkSession, path: str, topic: str, *, tombstones: bool = False) -> DataFrame:
    """The last message of each key: what a compacted topic comes to. Keys whose last value is null are gone."""
    rows = read_files(spark, Table.open(path), [topic]).where(F.col("key").isNotNull())
    newest = F.max_by(F.struct(*NAMES), "offset").alias("last")
    last = rows.groupBy("partition", "key").agg(newest).select("last.*")
    return last if tombstones else last.where(F.col("value").isNotNull())
