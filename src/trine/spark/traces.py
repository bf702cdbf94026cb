"""Traces: every message's life as Delta tables, made anew as one version of each table.

    messages    one row a message: published, key, size, and its state in each group
    lives       one row a message and group: state, attempts, times, why
    attempts    one row a delivery: to whom, how it ended, how long it took
    latencies   one row a group: p50, p95 and p99 from publish to first delivery and to the ack
    stuck       lives that are not settled and older than `stuck_after`
    poison      lives with at least `poison_after` deliveries, or dead-lettered

A run that is interrupted leaves the tables as they were: each is committed in one step, when its files are complete.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trine.model.duration import duration_ms
from trine.spark.errors import plain
from trine.spark.lives import UNSETTLED, Lives, read_lives
from trine.spark.runs import telling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trine.spark.place import Place

Progress = Callable[[str, float, float | None], None]

TABLES: Final = ("messages", "lives", "attempts", "latencies", "stuck", "poison")
STUCK_AFTER: Final = "5m"
POISON_AFTER: Final = 3
KEPT_HOURS: Final = 7 * 24
"""How long files of earlier versions stay: readers of them finish."""
TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"

_MESSAGES: Final = """
SELECT m.message_id, m.topic, m.partition, m.offset, m.published, m.key, m.size, m.priority, m.producer, m.schedule_id,
       coalesce(s.states, map()) AS states
FROM {messages} m LEFT JOIN (
  SELECT message_id, map_from_entries(collect_list(struct(`group`, state))) AS states
  FROM {lives} GROUP BY message_id
) s USING (message_id)
"""
_LATENCIES: Final = """
SELECT topic, `group`, messages, delivered, acked, unsettled, dead_lettered,
       d[0] AS delivery_p50_ms, d[1] AS delivery_p95_ms, d[2] AS delivery_p99_ms,
       a[0] AS ack_p50_ms, a[1] AS ack_p95_ms, a[2] AS ack_p99_ms
FROM (
  SELECT topic, `group`, count_if(state <> 'skipped') AS messages, count(first_delivered) AS delivered,
         count_if(state = 'acked') AS acked,
         count_if(state IN ('waiting', 'in flight', 'retrying')) AS unsettled,
         count_if(state = 'dead-lettered') AS dead_lettered,
         percentile_approx(wait_ms, array(0.5, 0.95, 0.99), 10000) AS d,
         percentile_approx(CASE WHEN state = 'acked' THEN settle_ms END, array(0.5, 0.95, 0.99), 10000) AS a
  FROM {lives} GROUP BY topic, `group`
) ORDER BY topic, `group`
"""


@dataclass(frozen=True, slots=True)
class TracesSummary:
    topics: tuple[str, ...]
    to: str | None
    rows: dict[str, int]
    """By table."""
    versions: dict[str, int] = field(default_factory=dict)
    latencies: list[dict[str, Any]] = field(default_factory=list)
    """A mapping a group, as in the table."""


def tables_of(
    spark: SparkSession, lives: Lives, *, stuck_after_ms: int, poison_after: int, now_ms: int
) -> dict[str, DataFrame]:
    """The tables as DataFrames."""
    age = f"{now_ms} - unix_millis(coalesce(published, first_delivered))"
    stuck = lives.lives.where(f"state IN ({UNSETTLED}) AND {age} >= {stuck_after_ms}")
    return {
        "messages": spark.sql(_MESSAGES, messages=lives.messages, lives=lives.lives),
        "lives": lives.lives,
        "attempts": lives.attempts,
        "latencies": spark.sql(_LATENCIES, lives=lives.lives),
        "stuck": stuck.selectExpr("*", f"{age} AS age_ms").orderBy("published"),
        "poison": lives.lives.where(f"deliveries >= {poison_after} OR state = 'dead-lettered'"),
    }


def traces(
    spark: SparkSession,
    place: Place,
    topics: Sequence[str] | None = None,
    to: str | None = None,
    *,
    stuck_after: float | str = STUCK_AFTER,
    poison_after: int = POISON_AFTER,
    progress: Progress | None = None,
) -> TracesSummary:
    """Writes the tables under `to`, each replaced in one step; without `to` they are only counted."""
    said = progress or (lambda what, done, total: None)
    stuck_ms = duration_ms(stuck_after, what="stuck_after")
    now_ms = int(time.time() * 1000)
    if to is not None:
        from trine.spark.delta import absolute, make_directory

        make_directory(absolute(to))
    with telling(place, "traces", to or "counted", topics) as run, plain():
        said("reading the ledgers", 0, len(TABLES))
        lives = read_lives(spark, place, topics)
        try:
            made = tables_of(spark, lives, stuck_after_ms=stuck_ms, poison_after=poison_after, now_ms=now_ms)
            rows, versions = {}, {}
            for number, (name, frame) in enumerate(made.items()):
                said(name, number, len(TABLES))
                if to is None:
                    rows[name] = frame.count()
                else:
                    rows[name], versions[name] = replace_table(spark, frame, f"{to.rstrip('/')}/{name}")
            said("done", len(TABLES), len(TABLES))
            latencies = [row.asDict() for row in made["latencies"].collect()]
            run.rows = sum(rows.values())
            run.summary = {"to": to, "rows": rows, "versions": versions}
        finally:
            lives.close()
    return TracesSummary(lives.topics, to, rows, versions, latencies)


def replace_table(spark: SparkSession, frame: DataFrame, path: str) -> tuple[int, int]:
    """Writes the rows with Spark and makes them the next version of the Delta table; how many, and which version.

    The files are there before the commit names them; nobody sees a part of them.
    """
    from deltalake import DeltaTable
    from deltalake.schema import Schema
    from deltalake.transaction import AddAction
    from pyspark.sql.pandas.types import to_arrow_schema

    from trine.spark.delta import absolute

    path = absolute(path)
    folder = f"run-{uuid.uuid4().hex}"
    before = spark.conf.get(TIMESTAMPS) or "INT96"
    spark.conf.set(TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        frame.write.parquet(f"{path}/{folder}")
    finally:
        spark.conf.set(TIMESTAMPS, before)
    rows = spark.read.parquet(f"{path}/{folder}").count()
    schema = Schema.from_arrow(to_arrow_schema(frame.schema, timezone="UTC"))
    now = int(time.time() * 1000)
    files: list[Any] = [
        AddAction(f"{folder}/{name}", size, {}, now, True, json.dumps({}))
        for name, size in _files(spark, f"{path}/{folder}")
    ]
    if not DeltaTable.is_deltatable(path):
        DeltaTable.create(path, schema=schema, mode="ignore")
    table = DeltaTable(path)
    table.create_write_transaction(files, "overwrite", schema)
    table.update_incremental()
    table.vacuum(retention_hours=KEPT_HOURS, dry_run=False)
    return rows, table.version()


def _files(spark: SparkSession, folder: str) -> list[tuple[str, int]]:
    """Names and sizes of the Parquet files of a folder, wherever Spark can write."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    found = path.getFileSystem(spark._jsc.hadoopConfiguration()).listStatus(path)
    named = [(str(one.getPath().getName()), int(one.getLen())) for one in found]
    return [(name, size) for name, size in named if name.endswith(".parquet")]
