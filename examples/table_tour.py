"""The third view of a topic, as the tour of the server shows it: archived by Spark, deleted from the log by retention,
asked in SQL, and replayed from the archive.

    show(address, folder, chapter, said)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import trine
from trine.spark import Place, spark_session
from trine.spark.archive import archive
from trine.spark.archive_verify import verify
from trine.spark.replay import Choice, replay
from trine.spark.sql import sql

SENSORS = 4
MESSAGES = 20_000
KEPT_BYTES = 256 * 1024
"""What the log keeps of each partition: less than is published, so that retention has something to delete."""

Chapter = Callable[[int, str, str], None]
Said = Callable[[str, str], None]


def show(number: int, address: str, folder: Path, chapter: Chapter, said: Said) -> None:
    place, lake = Place(address), str(folder / "archive")
    chapter(
        number,
        "The table: an archive made by Spark",
        "The log keeps 256 KiB; the archive, a Delta table, keeps everything.",
    )
    with trine.connect(address) as broker:
        readings = broker.create_topic(
            "readings", partitions=2, segment_bytes=64 * 1024, retention_bytes=KEPT_BYTES, archive=lake
        )
        for start in range(0, MESSAGES, 1_000):
            readings.publish_many(
                {"key": f"sensor-{n % SENSORS}", "value": f'{{"n": {n}, "celsius": {15 + n % 70 / 10}}}'}
                for n in range(start, start + 1_000)
            )
        said("tour", f"published {MESSAGES:,} readings; the log has {_logged(readings):,}")
        began = time.monotonic()
        spark = spark_session()
        try:
            cores = spark.sparkContext.defaultParallelism
            said(
                "spark",
                f"Spark {spark.version} on {spark.sparkContext.master}, {cores} cores, in {_since(began)}",
            )
            made = archive(spark, place, ["readings"], lake)
            said(
                "spark",
                f"archived {made.messages:,} messages in {made.files} Parquet files and {made.commits} commit, "
                f"{made.bytes:,} bytes, in {made.seconds:.1f} s",
            )
            broker.apply_retention()
            left = _logged(readings)
            said(
                "server",
                f"retention deleted {MESSAGES - left:,} messages that the archive has; the log has {left:,}",
            )
            (verdict,) = verify(spark, place, ["readings"])
            said(
                "spark",
                f"archive against log: {verdict.archived:,} archived, {verdict.compared:,} in both, "
                f"{'all the same' if verdict.sound else verdict.faults}",
            )

            chapter(number + 1, "SQL, and what is no longer in the log", QUERY)
            for row in sql(spark, place, QUERY).collect():
                said(
                    "spark", f"{row.sensor}: {row.readings:,} readings, {row.celsius:.2f} degrees on average"
                )
            choice = Choice(
                "readings", key="sensor-1", where="get_json_object(cast(value AS string), '$.n') < 10"
            )
            for message in replay(spark, place, choice, only_deleted=True):
                said("spark", f"replayed from the archive: {message.id} {(message.value or b'').decode()}")
        finally:
            spark.stop()


QUERY = """\
SELECT key AS sensor, count(*) AS readings, avg(get_json_object(value, '$.celsius')) AS celsius
FROM readings$archive GROUP BY key ORDER BY key"""


def _logged(topic: trine.Topic) -> int:
    return sum(end - first for first, end in topic.offsets().values())


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"
