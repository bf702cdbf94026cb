"""The table view on Spark, local[2]: the source, the sink and the archive, beside Spark's own Parquet reader and a
source of Python tuples, on the same 100-byte messages in the same run.

Spark compiles while it runs: reads are run three times before they count, the others once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trine
from benchmarks.bench import BATCH, VALUE, Bench, medians, seconds
from benchmarks.serving import Serving
from trine.spark import Place, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
FULL = 1_000_000
SMALL = 20_000
LARGE = 10_000_000
ROUNDS = 3
WARM = 2
"""Turns of the reads before those of `medians`, which does not count its first either."""
SYNCED = "synced"
NOOP, PARQUET, SINK, ARCHIVE = "source to noop", "source to Parquet", "sink", "archive"
Rates = dict[str, float]


def run(bench: Bench) -> None:
    folder = bench.folder()
    spark = spark_session("local[2]", conf={"spark.driver.memory": "3g"})
    try:
        with Serving(folder) as server, trine.connect(server.address) as broker:
            place = Place(server.address)
            count = bench.size(FULL, SMALL)
            _publish(broker, "rows", count)
            rates = _read(bench, spark, place, folder, count)
            rates |= _write(bench, spark, place, broker, count)
            rates |= _archive(bench, spark, place, folder, count)
            if not bench.small:
                _grow(bench, spark, place, broker, folder, rates)
    finally:
        spark.stop()
    bench.remove(folder)


def _publish(broker: Any, name: str, count: int) -> None:
    topic = broker.create_topic(name, partitions=PARTITIONS)
    values = [VALUE] * BATCH
    for number in range(count // BATCH):
        topic.publish_many(values, partition=number % PARTITIONS, durability="written")


def _source(spark: SparkSession, place: Place, topic: str, **options: str) -> DataFrame:
    return spark.read.format("trine").options(**place.options()).options(subscribe=topic, **options).load()


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _read(bench: Bench, spark: SparkSession, place: Place, folder: Path, count: int) -> Rates:
    parquet, out = str(folder / "rows.parquet"), str(folder / "out.parquet")
    frame = _source(spark, place, "rows")
    narrow = _source(spark, place, "rows", columns="key,value,partition,offset,timestamp")
    frame.write.mode("overwrite").parquet(parquet)
    same = spark.read.parquet(parquet)
    tuples = _tuples(spark, count)
    steps: list[Callable[[], None]] = [
        lambda: _noop(frame),
        lambda: _noop(narrow),
        lambda: _noop(same),
        lambda: _noop(tuples),
        lambda: frame.write.mode("overwrite").parquet(out),
        lambda: same.write.mode("overwrite").parquet(out),
    ]
    for _ in range(bench.size(WARM, 0)):
        for step in steps:
            step()
    ours, few, theirs, plain, to_parquet, copy = medians(bench.size(ROUNDS, 1), *steps)
    rate = count / ours
    bench.add(
        workload="Spark: source to noop, all columns", durability="", value=rate, unit="rows/s",
        limit="Spark's Parquet reader", limit_value=count / theirs, target=">= 1,000,000 rows/s and 0.4 of Parquet",
        met=rate >= 1_000_000 and theirs / ours >= 0.4,
    )  # fmt: skip
    bench.add(
        workload="Spark: source to noop, five columns", durability="", value=count / few, unit="rows/s",
        limit="Spark's Parquet reader", limit_value=count / theirs,
    )  # fmt: skip
    bench.add(
        workload="Spark: source to noop, all columns", durability="", value=rate, unit="rows/s",
        limit="a source of Python tuples", limit_value=count / plain,
    )  # fmt: skip
    bench.add(
        workload="Spark: source to Parquet", durability="", value=count / to_parquet, unit="rows/s",
        limit="Parquet to Parquet", limit_value=count / copy, target=">= 500,000 rows/s",
        met=count / to_parquet >= 500_000,
    )  # fmt: skip
    shutil.rmtree(out, ignore_errors=True)
    return {NOOP: rate, PARQUET: count / to_parquet}


def _tuples(spark: SparkSession, count: int) -> DataFrame:
    """What a Python source without Arrow does: a tuple a row."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    each = count // PARTITIONS

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(PARTITIONS)]

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            value = b"v" * 100
            for offset in range(each):
                yield (None, value, "rows", partition.value, offset)

    class Tuples(DataSource):
        @classmethod
        def name(cls) -> str:
            return "benchmark_tuples"

        def schema(self) -> str:
            return "key binary, value binary, topic string, partition int, offset bigint"

        def reader(self, schema: Any) -> Reader:
            return Reader()

    spark.dataSource.register(Tuples)
    return spark.read.format("benchmark_tuples").load()


def _sink(spark: SparkSession, place: Place, count: int) -> None:
    rows = spark.range(0, count, 1, 2).selectExpr("cast(id as string) as key", f"'{'v' * 100}' as value")
    rows.write.format("trine").options(**place.options()).option("topic", "written").mode("append").save()


def _write(bench: Bench, spark: SparkSession, place: Place, broker: Any, count: int) -> Rates:
    broker.create_topic("written", partitions=PARTITIONS)
    (spent,) = medians(bench.size(ROUNDS, 1), lambda: _sink(spark, place, count))
    bench.add(
        workload="Spark: sink, keys and values", durability=SYNCED, value=count / spent, unit="rows/s",
        target=">= 200,000 rows/s", met=count / spent >= 200_000,
    )  # fmt: skip
    return {SINK: count / spent}


def _archive(bench: Bench, spark: SparkSession, place: Place, folder: Path, count: int) -> Rates:
    from trine.spark.archive import archive

    numbers = iter(range(1_000))

    def once() -> None:
        _unarchived(place)
        archive(spark, place, ["rows"], to=str(folder / f"lake-{next(numbers)}"))

    (spent,) = medians(bench.size(ROUNDS, 1), once)
    bench.add(
        workload="Spark: archive to Delta, end to end", durability="committed", value=count / spent, unit="msg/s",
        target=">= 300,000 msg/s", met=count / spent >= 300_000,
    )  # fmt: skip
    return {ARCHIVE: count / spent}


def _unarchived(place: Place) -> None:
    """A topic has one archive; the next round begins another."""
    place.shared().topic("rows").alter(archive=None)


def _grow(bench: Bench, spark: SparkSession, place: Place, broker: Any, folder: Path, before: Rates) -> None:
    """Each of them with ten times as many rows."""
    from trine.spark.archive import archive

    _publish(broker, "many", LARGE)
    frame = _source(spark, place, "many")
    out = str(folder / "many")
    steps: dict[str, tuple[str, Callable[[], object]]] = {
        NOOP: ("", lambda: _noop(frame)),
        PARQUET: ("", lambda: frame.write.mode("overwrite").parquet(f"{out}.parquet")),
        ARCHIVE: ("committed", lambda: archive(spark, place, ["many"], to=f"{out}.lake")),
        SINK: (SYNCED, lambda: _sink(spark, place, LARGE)),
    }
    for name, (durability, step) in steps.items():
        bench.add(
            workload=f"Spark: {name}, 10,000,000 rows", durability=durability, value=LARGE / seconds(step),
            unit="rows/s", limit="the same with 1,000,000", limit_value=before[name],
        )  # fmt: skip
