# Generated from aio/broker.py by `make generate`. Do not edit.
"""The broker: topics, schedules, traces, redrives and upkeep, from afar."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec

from trine.client.link import Link
from trine.client.options import plain
from trine.client.reading import Log
from trine.client.sync.producer import Producer, Transaction
from trine.client.sync.redrive import Redrive
from trine.client.sync.topic import Item, Queue, Topic
from trine.client.sync_link import Caller
from trine.client.topics import Known, Topics
from trine.log.stored import DeadLetter
from trine.model.description import CronDescription, RunDescription, Scheduled, TopicDescription, as_json
from trine.model.duration import duration_ms, instant_ms
from trine.model.ids import check_name
from trine.model.message import Duration, Headers, Instant, Outgoing, as_bytes, draft
from trine.model.options import TopicConfig
from trine.trace.timeline import Found, Trace
from trine.wire import calls

_TRACE = msgspec.msgpack.Decoder(Trace)
_FOUND = msgspec.msgpack.Decoder(list[Found])


class Broker:
    """A connection to a server. Make one with `connect`; it is also a context manager that closes itself."""

    def __init__(self, link: Link, caller: Caller | None = None) -> None:
        self._link = link
        self._caller = Caller(link) if caller is None else caller
        self._topics = Topics(link)
        self._log = Log(link)
        self._caller.begin()

    def __enter__(self) -> Self:
        self._caller.run(self._link.open())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._link.address}>"

    def close(self) -> None:
        """Leaves all groups, so that what is held goes back at once, and closes the connection."""
        self._caller.end()

    def _call(self, call: calls.Call) -> Any:
        return self._caller.run(self._link.call(call))

    def _known(self, name: str) -> Known:
        known = self._topics.known.get(name)
        if known is None:
            known = self._caller.run(self._topics.fetch(check_name(name, "topic")))
        return known

    # --- topics and queues

    def create_topic(self, name: str, *, exist_ok: bool = False, **options: Any) -> Topic:
        """Creates a topic. Options are those of `TopicConfig`; durations in any form ("7d", 3600, timedelta).

        With `exist_ok` a topic that is there already is left as it is, and given back.
        """
        self._create(name, "topic", options, exist_ok)
        return Topic(self, name)

    def create_queue(self, name: str, *, exist_ok: bool = False, **options: Any) -> Queue:
        """A point-to-point queue: a topic with its one group, of the same name. Takes the options of both."""
        self._create(name, "queue", options, exist_ok)
        return Queue(self, name)

    def _create(self, name: str, kind: str, options: dict[str, Any], exist_ok: bool) -> None:
        check_name(name, "topic")
        call = calls.CreateTopic(name=name, kind=kind, options=plain(options), exist_ok=bool(exist_ok))
        self._topics.keep(self._call(call))

    def topic(self, name: str) -> Topic:
        self._caller.check(self._fetch(name, None))
        return Topic(self, name)

    def queue(self, name: str) -> Queue:
        self._caller.check(self._fetch(name, "queue"))
        return Queue(self, name)

    def _fetch(self, name: str, kind: str | None) -> Known:
        return self._caller.run(self._topics.fetch(name, kind))

    def topics(self) -> list[TopicDescription]:
        found: list[TopicDescription] = self._call(calls.ListTopics())
        return found

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its messages, groups and schedule (not its dead letters)."""
        self._call(calls.DeleteTopic(topic=name))
        self._topics.forget(name)

    # --- producers and transactions

    def producer(self, name: str) -> Producer:
        """An idempotent producer. A second one of the same name puts the first out of use."""
        reply: calls.ProducerReply = self._call(calls.RegisterProducer(name=name))
        return Producer(self, name, reply.id, reply.epoch)

    def forget_producers(self, prefix: str) -> int:
        """Gives up the names that begin so: nobody will publish under them again. How many there were."""
        count: int = (self._call(calls.ForgetProducers(prefix=prefix))).count
        return count

    def transaction(self) -> Transaction:
        """Acks and publishes that happen together or not at all.

        >>> with broker.transaction() as transaction:              # doctest: +SKIP
        ...     transaction.ack(message)
        ...     transaction.publish("invoices", b"...", key=message.key)
        """
        return Transaction(self)

    # --- schedule

    def cancel(self, schedule_id: str) -> None:
        """Takes a scheduled message back before it is due."""
        self._call(calls.CancelSchedule(schedule_id=schedule_id))

    def reschedule(
        self, schedule_id: str, *, delay: Duration | None = None, deliver_at: Instant | None = None
    ) -> None:
        """Gives a scheduled message another time; it keeps its id."""
        call = calls.MoveSchedule(
            schedule_id=schedule_id,
            delay_ms=None if delay is None else duration_ms(delay, what="delay"),
            deliver_at_ms=None if deliver_at is None else instant_ms(deliver_at),
        )
        self._call(call)

    def create_cron(
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
        message = Outgoing(value=value, key=key, headers=headers)
        one = draft(message, TopicConfig(), 0)
        call = calls.CreateCron(
            name=name, topic=topic, expression=expression, value=one.value, key=one.key,
            headers={header: text or b"" for header, text in one.headers} or None,
            priority=priority, timezone=timezone,
        )  # fmt: skip
        made: CronDescription = self._call(call)
        return made

    def delete_cron(self, name: str) -> None:
        self._call(calls.DeleteCron(name=name))

    def schedules(self, limit: int = 1000) -> list[Scheduled]:
        """What waits for its time in all topics, soonest first."""
        found: list[Scheduled] = self._call(calls.ListSchedules(limit=limit))
        return found

    def crons(self) -> list[CronDescription]:
        found: list[CronDescription] = self._call(calls.ListCrons())
        return found

    # --- trace and redrive

    def trace(self, message_id: str) -> Trace:
        """A message's whole life, by message id or schedule id."""
        return _TRACE.decode(self._call(calls.GetTrace(message_id=message_id)))

    def search(
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
        call = calls.Search(
            topic=topic,
            key=as_bytes(key, "key"),
            group=group,
            state=state,
            older_than_ms=None if older_than is None else duration_ms(older_than, what="older_than"),
            from_time_ms=None if from_time is None else instant_ms(from_time),
            to_time_ms=None if to_time is None else instant_ms(to_time),
            limit=limit,
        )
        return _FOUND.decode(self._call(call))

    def redrive(
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
    ) -> Redrive:
        """A job that sends dead letters back to where they came from, or elsewhere. It begins with `run`. `ids` names
        up to 1,000 letters, instead of filters.

        `edit` runs here, not at the server: it is given the letters, and what it makes of them is sent.
        `where` is a condition that the caller evaluates, such as Spark: the job remembers it, and is told with `move`
        which letters it found.
        """
        call = calls.BeginRedrive(
            topic=topic,
            to=to,
            reason=reason,
            group=group,
            key=as_bytes(key, "key"),
            from_time_ms=None if from_time is None else instant_ms(from_time),
            to_time_ms=None if to_time is None else instant_ms(to_time),
            rate=rate,
            edited=edit is not None,
            where=where,
            ids=None if ids is None else list(ids),
        )
        return Redrive(self, self._call(call), edit, to)

    def redrives(self) -> list[Redrive]:
        """All redrives that are remembered, to look at; go on with one by `resume_redrive`."""
        found: list[calls.RedriveReply] = self._call(calls.ListRedrives())
        return [Redrive(self, one, None, None) for one in found]

    def resume_redrive(
        self, job_id: str, *, edit: Callable[[DeadLetter], Item | None] | None = None
    ) -> Redrive:
        """A job that was interrupted, to go on where it stopped."""
        reply = self._call(calls.ResumeRedrive(id=job_id, edited=edit is not None))
        return Redrive(self, reply, edit, None)

    # --- runs

    def begin_run(self, kind: str, name: str, topics: Sequence[str] = ()) -> str:
        """Somebody begins to archive, replay or count: tells the broker, for others to see; answers the run's id."""
        run_id: str = self._call(calls.BeginRun(kind=kind, name=name, topics=list(topics)))
        return run_id

    def tell_run(self, run_id: str, rows: int) -> None:
        """It has come this far. One that says nothing for a minute is shown as lost."""
        self._call(calls.TellRun(id=run_id, rows=rows))

    def end_run(
        self,
        run_id: str,
        *,
        rows: int = 0,
        summary: Mapping[str, Any] | None = None,
        report: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """It is over, with this result; with an error it has failed."""
        told = None if report is None else as_json(report)
        call = calls.EndRun(id=run_id, rows=rows, summary=as_json(summary or {}), report=told, error=error)
        self._call(call)

    def runs(self, kind: str | None = None, limit: int = 100) -> list[RunDescription]:
        """The last runs, the newest first, without their reports."""
        found: list[RunDescription] = self._call(calls.ListRuns(kind=kind, limit=limit))
        return found

    def run(self, run_id: str) -> RunDescription:
        """One of them, with its report."""
        found: RunDescription = self._call(calls.GetRun(id=run_id))
        return found

    # --- upkeep

    def checkpoint(self) -> None:
        """Syncs the logs and cuts the journal now; it happens by itself too."""
        self._call(calls.Checkpoint())

    def tick(self) -> None:
        """Does all that is due: for servers with a simulated clock, where nothing happens by itself."""
        self._call(calls.Tick())

    def apply_retention(self) -> None:
        """Looks at retention and compaction now, not at the next turn."""
        self._call(calls.ApplyRetention())

    def verify(self) -> int:
        """Reads every stored batch and checks it; answers how many bytes, raises Corrupt at the first bad one."""
        reply: calls.CountReply = self._call(calls.Verify())
        return reply.count

    def statistics(self) -> dict[str, Any]:
        found: dict[str, Any] = self._call(calls.Statistics())
        return found
