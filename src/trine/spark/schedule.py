"""view=schedule: messages that wait for their time. Recurring schedules are not messages yet and are not in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from trine.spark.columns import TIME_ARROW
from trine.spark.place import Place
from trine.spark.shares import chosen_topics, schemas

COLUMNS: Final = {
    "schedule_id": "string",
    "topic": "string",
    "due": "timestamp",
    "published": "timestamp",
    "key": "binary",
    "value": "binary",
    "priority": "string",
}
SPARK, ARROW = schemas(COLUMNS)
ROWS: Final = 10_000
LISTED_MAX: Final = 1_000_000
"""Of one topic: the broker lists what waits in one answer, which is limited by the size of a frame too (32 MiB)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    topic: str


class ScheduleView:
    @property
    def schema(self) -> StructType:
        return SPARK

    def plan(self, place: Place, options: Mapping[str, str]) -> list[Waiting]:
        topics, _ = chosen_topics(place.shared(), options, "schedule")
        return [Waiting(name) for name in topics]

    def read(self, place: Place, share: Waiting) -> Iterator[pa.RecordBatch]:
        found = place.shared().topic(share.topic).schedules(limit=LISTED_MAX)
        for start in range(0, len(found), ROWS):
            some = found[start : start + ROWS]
            made = {
                "schedule_id": pa.array([one.id for one in some], pa.string()),
                "topic": pa.repeat(pa.scalar(share.topic), len(some)),
                "due": pa.array(np.array([one.due_ms for one in some], np.int64) * 1000).cast(TIME_ARROW),
                "published": pa.array(np.array([one.published_ms for one in some], np.int64) * 1000).cast(
                    TIME_ARROW
                ),
                "key": pa.array([one.key for one in some], pa.binary()),
                "value": pa.array([one.value for one in some], pa.binary()),
                "priority": pa.array([one.priority for one in some], pa.string()),
            }
            yield pa.RecordBatch.from_arrays([made[name] for name in COLUMNS], schema=ARROW)
