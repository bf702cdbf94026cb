"""The broker: topics, schedules, traces, redrives and upkeep, from outside."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from trine.broker.aio.producer import AsyncProducer, AsyncTransaction
from trine.broker.aio.redrive import AsyncRedrive
from trine.broker.aio.topic import AsyncQueue, AsyncTopic, Item
from trine.broker.aio_waits import Waits
from trine.broker.description import describe_cron, describe_topic
from trine.broker.engine import Engine
from trine.broker.housekeeping import Housekeeper
from trine.broker.operations import (
    cancel_schedule,
    delete_cron,
    move_schedule,
    scheduled,
    set_cron,
)
from trine.broker.redrive import begin_redrive, find_job, jobs
from trine.broker.tracing import trace_message, trace_search
from trine.log.stored import DeadLetter
from trine.model.description import CronDescription, RunDescription, Scheduled, TopicDescription, as_json
from trine.model.errors import (
    InvalidOption,
)
from trine.model.message import Duration, Headers, Instant
from trine.model.options import GroupConfig, TopicConfig
from trine.trace.timeline import Found, Trace


class AsyncBroker:
    """An open store. Make one with `open`; it is also a context manager that closes itself."""

    def __init__(self, engine: Engine, housekeeper: Housekeeper) -> None:
        self._engine = engine
        self._housekeeper = housekeeper
        self._waits = Waits(engine)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Syncs everything, cuts the journal and lets go of the data directory."""
        await self._waits.run(self._shut)

    def _shut(self) -> None:
        self._housekeeper.stop()
        self._engine.close()

    # --- topics and queues

    async def create_topic(self, name: str, *, exist_ok: bool = False, **options: Any) -> AsyncTopic:
        """Creates a topic. Options are those of `TopicConfig`; durations in any form ("7d", 3600, timedelta).

        With `exist_ok` a topic that is there already is left as it is, and given back.
        """
        config = topic_config(options, "topic")
        with self._engine.lock:
            self._engine.check_open()
            if not exist_ok or name not in self._engine.topics:
                self._engine.create_topic(name, config)
            lsn = self._engine.store.end_lsn
        await self._waits.durable(lsn)
        return AsyncTopic(self, name)

    async def create_queue(self, name: str, *, exist_ok: bool = False, **options: Any) -> AsyncQueue:
        """A point-to-point queue: a topic with its one group, of the same name. Takes the options of both."""
        if exist_ok and name in self._engine.topics:
            return self.queue(name)
        group_words = {field.removesuffix("_ms") for field in GroupConfig.__struct_fields__}
        group_words |= set(GroupConfig.__struct_fields__)
        topic_words = {"durability", "compression"}
        for_group = {word: value for word, value in options.items() if word in group_words - topic_words}
        for_topic = {word: value for word, value in options.items() if word not in for_group}
        if "durability" in options:
            for_group["durability"] = options["durability"]
        group = GroupConfig.make(for_group)
        config = topic_config(for_topic, "queue")
        with self._engine.lock:
            self._engine.check_open()
            topic = self._engine.create_topic(name, config)
            self._engine.create_group(topic, name, group)
            lsn = self._engine.store.end_lsn
        await self._waits.durable(lsn)
        return AsyncQueue(self, name)

    def topic(self, name: str) -> AsyncTopic:
        with self._engine.lock:
            self._engine.check_open()
            self._engine.topic(name)
        return AsyncTopic(self, name)

    def queue(self, name: str) -> AsyncQueue:
        with self._engine.lock:
            self._engine.check_open()
            topic = self._engine.topic(name)
            if topic.config.kind != "queue":
                raise InvalidOption(f"{name!r} is a {topic.config.kind}, not a queue; use topic({name!r})")
        return AsyncQueue(self, name)

    async def topics(self) -> list[TopicDescription]:
        with self._engine.lock:
            self._engine.check_open()
            return [describe_topic(topic) for topic in self._engine.topics.values()]

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic with its messages, groups and schedule (not its dead letters)."""
        with self._engine.lock:
            lsn = self._engine.delete_topic(self._engine.topic(name))
        await self._waits.durable(lsn)

    # --- producers and transactions

    async def producer(self, name: str) -> AsyncProducer:
        """An idempotent producer. A second one of the same name puts the first out of use."""
        with self._engine.lock:
            self._engine.check_open()
            meta, lsn = self._engine.register_producer(name)
        await self._waits.durable(lsn)
        return AsyncProducer(self, name, meta.id, meta.epoch)

    async def forget_producers(self, prefix: str) -> int:
        """Gives up the names that begin so: nobody will publish under them again. How many there were."""
        with self._engine.lock:
            self._engine.check_open()
            count, lsn = self._engine.forget_producers(prefix)
        await self._waits.durable(lsn)
        return count

    def transaction(self) -> AsyncTransaction:
        """Acks and publishes that happen together or not at all.

        >>> async with broker.transaction() as transaction:              # doctest: +SKIP
        ...     transaction.ack(message)
        ...     transaction.publish("invoices", b"...", key=message.key)
        """
        return AsyncTransaction(self)

    # --- schedule

    async def cancel(self, schedule_id: str) -> None:
        """Takes a scheduled message back before it is due."""
        with self._engine.lock:
            self._engine.check_open()
            lsn = cancel_schedule(self._engine, schedule_id)
        await self._waits.durable(lsn)

    async def reschedule(
        self, schedule_id: str, *, delay: Duration | None = None, deliver_at: Instant | None = None
    ) -> None:
        """Gives a scheduled message another time; it keeps its id."""
        with self._engine.lock:
            self._engine.check_open()
            lsn = move_schedule(self._engine, schedule_id, delay, deliver_at)
        await self._waits.durable(lsn)

    async def create_cron(
        self,
        name: str,
        *,
        topic: str,
        expression: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        priority: str | None = None,
        timezone: str = "UTC",
    ) -> CronDescription:
        """Publishes a message again and again: "0 3 * * *", "@hourly", "every 30s"."""
        with self._engine.lock:
            self._engine.check_open()
            description, lsn = set_cron(
                self._engine, name, topic, expression, value, key, headers, priority, timezone
            )
        self._housekeeper.call()
        await self._waits.durable(lsn)
        return description

    async def delete_cron(self, name: str) -> None:
        with self._engine.lock:
            self._engine.check_open()
            lsn = delete_cron(self._engine, name)
        await self._waits.durable(lsn)

    async def schedules(self, limit: int = 1000) -> list[Scheduled]:
        """What waits for its time in all topics, soonest first."""
        with self._engine.lock:
            self._engine.check_open()
            found = [one for topic in self._engine.topics.values() for one in scheduled(topic, limit)]
        return sorted(found, key=lambda one: one.due_ms)[:limit]

    async def crons(self) -> list[CronDescription]:
        with self._engine.lock:
            return [describe_cron(cron) for cron in self._engine.meta.crons.values()]

    # --- trace and redrive

    async def trace(self, message_id: str) -> Trace:
        """A message's whole life, by message id or schedule id."""

        def look() -> Trace:
            with self._engine.lock:
                self._engine.check_open()
                return trace_message(self._engine, message_id)

        return await self._waits.run(look)

    async def search(
        self,
        topic: str,
        *,
        key: bytes | str | None = None,
        group: str | None = None,
        state: str | None = None,
        older_than: Duration | None = None,
        from_time: Instant | None = None,
        to_time: Instant | None = None,
        limit: int = 100,
    ) -> list[Found]:
        """Messages by key, and by state in a group: "unacked" (older_than="5m"), "in flight", "retrying", ..."""

        def look() -> list[Found]:
            with self._engine.lock:
                self._engine.check_open()
                return trace_search(
                    self._engine, topic, key=key, group=group, state=state, older_than=older_than,
                    from_time=from_time, to_time=to_time, limit=limit,
                )  # fmt: skip

        return await self._waits.run(look)

    async def redrive(
        self,
        topic: str,
        *,
        to: str | None = None,
        reason: str | None = None,
        group: str | None = None,
        key: bytes | str | None = None,
        from_time: Instant | None = None,
        to_time: Instant | None = None,
        rate: float | None = None,
        edit: Callable[[DeadLetter], Item | None] | None = None,
        where: str | None = None,
        ids: Sequence[str] | None = None,
    ) -> AsyncRedrive:
        """A job that sends dead letters back to where they came from, or elsewhere. It begins with `run`. `ids` names
        up to 1,000 letters, instead of filters.

        `where` is a condition that the caller evaluates, such as Spark: the job remembers it, and is told with `move`
        which letters it found.
        """
        with self._engine.lock:
            self._engine.check_open()
            job, lsn = begin_redrive(
                self._engine, topic, to=to, reason=reason, group=group, key=key, from_time=from_time,
                to_time=to_time, rate=rate, edited=edit is not None, where=where, ids=ids,
            )  # fmt: skip
        await self._waits.durable(lsn)
        return AsyncRedrive(self, job, edit)

    async def redrives(self) -> list[AsyncRedrive]:
        """All redrives that are remembered, to look at; go on with one by `resume_redrive`."""
        with self._engine.lock:
            return [AsyncRedrive(self, job, None) for job in jobs(self._engine)]

    async def resume_redrive(
        self, job_id: str, *, edit: Callable[[DeadLetter], Item | None] | None = None
    ) -> AsyncRedrive:
        """A job that was interrupted, to go on where it stopped."""
        with self._engine.lock:
            return AsyncRedrive(self, find_job(self._engine, job_id, edit is not None), edit)

    # --- runs

    async def begin_run(self, kind: str, name: str, topics: Sequence[str] = ()) -> str:
        """Somebody begins to archive, replay or count: tells the broker, for others to see; answers the run's id."""
        with self._engine.lock:
            self._engine.check_open()
            run_id, lsn = self._engine.runs.begin(kind, name, topics)
        await self._waits.durable(lsn)
        return run_id

    async def tell_run(self, run_id: str, rows: int) -> None:
        """It has come this far. One that says nothing for a minute is shown as lost."""
        with self._engine.lock:
            self._engine.runs.tell(run_id, rows)

    async def end_run(
        self,
        run_id: str,
        *,
        rows: int = 0,
        summary: Mapping[str, Any] | None = None,
        report: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """It is over, with this result; with an error it has failed."""
        with self._engine.lock:
            told = None if report is None else as_json(report)
            lsn = self._engine.runs.end(run_id, rows, as_json(summary or {}), told, error)
        await self._waits.durable(lsn)

    async def runs(self, kind: str | None = None, limit: int = 100) -> list[RunDescription]:
        """The last runs, the newest first, without their reports."""
        with self._engine.lock:
            return [one for one in self._engine.runs.latest() if kind in (None, one.kind)][:limit]

    async def run(self, run_id: str) -> RunDescription:
        """One of them, with its report."""
        with self._engine.lock:
            return self._engine.runs.get(run_id)

    # --- upkeep

    async def checkpoint(self) -> None:
        """Syncs the logs and cuts the journal now; it happens by itself too."""
        await self._waits.run(self._engine.checkpoint)

    async def tick(self) -> None:
        """Does all that is due: for brokers opened with a simulated clock, which have no thread of their own."""
        self._housekeeper.step(self._engine.clock.now_ms())

    async def apply_retention(self) -> None:
        """Looks at retention and compaction now, not at the next turn."""
        with self._engine.lock:
            now = self._engine.clock.now_ms()
            self._housekeeper.upkeep(now)
        self._housekeeper.compact(now)

    async def verify(self) -> int:
        """Reads every stored batch and checks it; answers how many bytes, raises Corrupt at the first bad one."""
        return await self._waits.run(self._engine.verify)

    async def statistics(self) -> dict[str, Any]:
        with self._engine.lock:
            return self._engine.statistics()


def topic_config(options: dict[str, Any], kind: str) -> TopicConfig:
    if "kind" in options:
        raise InvalidOption("a topic's kind is not an option: use create_topic or create_queue")
    return TopicConfig.make({**options, "kind": kind})
