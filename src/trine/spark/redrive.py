"""Dead letters at scale: Spark finds them by a condition in SQL, the broker's own job moves exactly those.

Moving stays one journal entry (append there, settle here, and how far the job is), so a letter is moved once whatever
happens. A run that was killed is repeated, or resumed by its job's id: letters that were moved are not there any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from trine.model.errors import InvalidOption, UnknownTopic
from trine.model.ids import DLQ_SUFFIX
from trine.spark.errors import plain
from trine.spark.runs import telling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trine.client.sync import Redrive
    from trine.spark.place import Place

Progress = Callable[[str, float, float | None], None]
MOVE_MAX: Final = 5_000
"""Letters a call: some hundred kilobytes of journal at a time, so that other work comes in between."""
PAUSE_SECONDS: Final = 0.2
"""The longest a run that waits for its rate does not look up."""


class RedriveSummary(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    where: str
    job: str | None
    """None for a dry run."""
    matched: int
    moved: int
    passed_over: int
    """Found, but gone when they were to be moved: another redrive or a purge came first."""
    seconds: float


def letters(spark: SparkSession, place: Place, topic: str, where: str) -> DataFrame:
    """The dead letters of a topic that are still there and for which the condition holds."""
    frame = (
        spark.read.format("trine")
        .options(**place.options())
        .option("view", "dead_letters")
        .option("subscribe", topic.removesuffix(DLQ_SUFFIX))
        .load()
    )
    return frame.where("state = 'waiting'").where(where)


def redrive(
    spark: SparkSession,
    place: Place,
    topic: str | None = None,
    where: str | None = None,
    *,
    to: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    resume: str | None = None,
    progress: Progress | None = None,
) -> RedriveSummary:
    """Moves the dead letters of a topic for which `where` holds, back or `to` elsewhere; or goes on with a job."""
    began = time.monotonic()
    with plain(), place.connect() as broker:
        if resume is not None:
            known = broker.resume_redrive(resume)
            topic, where = str(known.progress["topic"]), known.where
            if where is None:
                raise InvalidOption(f"{resume} has no condition in SQL: trine dlq redrive --resume {resume}")
        if topic is None or where is None:
            raise InvalidOption("give a topic and a condition, or the id of a job to resume")
        name = topic.removesuffix(DLQ_SUFFIX)
        if f"{name}{DLQ_SUFFIX}" not in {one.name for one in broker.topics()}:
            broker.topic(name)
            raise UnknownTopic(f"topic {name!r} has no dead letters: nothing of it was ever given up on")
        found = letters(spark, place, name, where)
        if dry_run:
            return RedriveSummary(
                topic=name, where=where, job=None, matched=found.count(), moved=0, passed_over=0,
                seconds=round(time.monotonic() - began, 3),
            )  # fmt: skip
        # A condition that is off was told above, before a job is begun.
        job = broker.resume_redrive(resume) if resume else broker.redrive(name, to=to, rate=rate, where=where)
        with telling(place, "redrive", f"{name} where {where}", [name]) as run:
            places = _places(found, job.ends)
            _move(job, places, progress)
            done = job.progress
            summary = RedriveSummary(
                topic=name, where=where, job=job.id, matched=len(places), moved=done["moved"],
                passed_over=done["passed_over"], seconds=round(time.monotonic() - began, 3),
            )  # fmt: skip
            run.rows = summary.moved
            run.summary = msgspec.structs.asdict(summary)
            return summary


def _places(found: DataFrame, ends: list[int]) -> np.ndarray:
    """(partition, offset) of what was found when the job began, rising: sixteen bytes a letter pass the driver."""
    table = found.select("partition", "offset").toArrow()
    numbers = table["partition"].to_numpy().astype(np.int64)
    offsets = table["offset"].to_numpy().astype(np.int64)
    known = offsets < np.asarray([*ends, 0], dtype=np.int64)[np.minimum(numbers, len(ends))]
    numbers, offsets = numbers[known], offsets[known]
    order = np.lexsort((offsets, numbers))
    return np.stack((numbers[order], offsets[order]), axis=1)


def _move(job: Redrive, places: np.ndarray, progress: Progress | None) -> None:
    at, total = 0, len(places)
    while True:
        chunk = [(number, offset) for number, offset in places[at : at + MOVE_MAX].tolist()]
        dealt = job.move(chunk, last=at + len(chunk) == total)
        at += dealt
        if progress is not None:
            progress(f"redrive {job.id}", at, total)
        if at >= total:
            return
        if not dealt:
            time.sleep(min(PAUSE_SECONDS, (job.pause_ms or 50) / 1000))
