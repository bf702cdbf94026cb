"""The public interface, async. `sync.py` is generated from this file by `make generate`; never edit it by hand.

Handles (topic, group, consumer) are cheap and hold no state of their own but names: everything is in the engine.
A method waits only for durability, for a message, or for room.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import msgspec

from trine.broker.aio_waits import Waits
from trine.broker.description import (
    CronDescription,
    GroupDescription,
    Lag,
    MemberDescription,
    Scheduled,
    TopicDescription,
    describe_group,
    describe_topic,
    lag_of,
)
from trine.broker.engine import Engine
from trine.broker.group import GroupPart, GroupState, Run
from trine.broker.housekeeping import Housekeeper
from trine.broker.operations import (
    cancel_schedule,
    commit_transaction,
    dead_letters,
    delete_cron,
    find_run,
    move_schedule,
    once,
    outgoing_many,
    purge_dead_letters,
    read_log,
    replay_runs,
    retained_runs,
    scheduled,
    seek_targets,
    set_cron,
)
from trine.broker.partition import Partition
from trine.broker.redrive import RedriveJob, begin_redrive, find_job, jobs
from trine.broker.stored import DeadLetter, StoredMessage
from trine.broker.topic import TopicState
from trine.broker.tracing import trace_message, trace_search
from trine.log.batch import StoredRecord
from trine.model.durability import Level
from trine.model.duration import duration_ms
from trine.model.errors import (
    Closed,
    EmptyBatch,
    GroupExists,
    InvalidInput,
    InvalidOption,
    InvalidReceipt,
    TopicFull,
    UnknownGroup,
)
from trine.model.ids import check_name
from trine.model.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, RECEIVE_MAX
from trine.model.message import Duration, Headers, Instant, Outgoing, Published, PublishReceipt, draft
from trine.model.options import GroupConfig, TopicConfig
from trine.model.receipt import Receipt, write_receipt
from trine.queue.ledger import Lease
from trine.trace.timeline import Found, Trace

Item = bytes | str | Outgoing | Mapping[str, Any]


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

    def topics(self) -> list[TopicDescription]:
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

    def schedules(self, limit: int = 1000) -> list[Scheduled]:
        """What waits for its time in all topics, soonest first."""
        with self._engine.lock:
            self._engine.check_open()
            found = [one for topic in self._engine.topics.values() for one in scheduled(topic, limit)]
        return sorted(found, key=lambda one: one.due_ms)[:limit]

    def crons(self) -> list[CronDescription]:
        with self._engine.lock:
            return [CronDescription.of(cron) for cron in self._engine.meta.crons.values()]

    # --- trace and redrive

    def trace(self, message_id: str) -> Trace:
        """A message's whole life, by message id or schedule id."""
        with self._engine.lock:
            self._engine.check_open()
            return trace_message(self._engine, message_id)

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
        with self._engine.lock:
            self._engine.check_open()
            return trace_search(
                self._engine, topic, key=key, group=group, state=state, older_than=older_than,
                from_time=from_time, to_time=to_time, limit=limit,
            )  # fmt: skip

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
    ) -> AsyncRedrive:
        """A job that sends dead letters back to where they came from, or elsewhere. It begins with `run`."""
        with self._engine.lock:
            self._engine.check_open()
            job, lsn = begin_redrive(
                self._engine, topic, to=to, reason=reason, group=group, key=key, from_time=from_time,
                to_time=to_time, rate=rate, edited=edit is not None,
            )  # fmt: skip
        await self._waits.durable(lsn)
        return AsyncRedrive(self, job, edit)

    def redrives(self) -> list[AsyncRedrive]:
        """All redrives that are remembered, to look at; go on with one by `resume_redrive`."""
        with self._engine.lock:
            return [AsyncRedrive(self, job, None) for job in jobs(self._engine)]

    def resume_redrive(
        self, job_id: str, *, edit: Callable[[DeadLetter], Item | None] | None = None
    ) -> AsyncRedrive:
        """A job that was interrupted, to go on where it stopped."""
        with self._engine.lock:
            return AsyncRedrive(self, find_job(self._engine, job_id, edit is not None), edit)

    # --- upkeep

    async def checkpoint(self) -> None:
        """Syncs the logs and cuts the journal now; it happens by itself too."""
        await self._waits.run(self._engine.checkpoint)

    def tick(self) -> None:
        """Does all that is due: for brokers opened with a simulated clock, which have no thread of their own."""
        self._housekeeper.step(self._engine.clock.now_ms())

    def apply_retention(self) -> None:
        """Looks at retention and compaction now, not at the next turn."""
        with self._engine.lock:
            now = self._engine.clock.now_ms()
            self._housekeeper.upkeep(now)
        self._housekeeper.compact(now)

    def verify(self) -> int:
        """Reads every stored batch and checks it; answers how many bytes, raises Corrupt at the first bad one."""
        return self._engine.verify()

    def statistics(self) -> dict[str, Any]:
        with self._engine.lock:
            return self._engine.statistics()


class AsyncTopic:
    def __init__(self, broker: AsyncBroker, name: str) -> None:
        self._broker = broker
        self._engine = broker._engine
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _state(self) -> TopicState:
        self._engine.check_open()
        return self._engine.topic(self.name)

    # --- in

    async def publish(
        self,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        priority: str | None = None,
        delay: Duration | None = None,
        deliver_at: Instant | None = None,
        ttl: Duration | None = None,
        dedup_id: str | None = None,
        partition: int | None = None,
        producer: str | None = None,
        durability: str | None = None,
        wait: Duration | None = None,
    ) -> PublishReceipt:
        """Publishes one message. `wait` is how long to wait for room in a full topic."""
        message = Outgoing(
            value=value, key=key, headers=headers, priority=priority, delay=delay, deliver_at=deliver_at,
            ttl=ttl, dedup_id=dedup_id, partition=partition, producer=producer,
        )  # fmt: skip
        topic = self._state()
        level = level_of(durability, topic)
        published = await self._admitted(lambda: topic.publish_one(message, level), topic, level, wait)
        return published[0]

    async def publish_many(
        self,
        items: Iterable[Item],
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        priority: str | None = None,
        delay: Duration | None = None,
        deliver_at: Instant | None = None,
        ttl: Duration | None = None,
        partition: int | None = None,
        producer: str | None = None,
        durability: str | None = None,
        wait: Duration | None = None,
    ) -> Published:
        """Publishes thousands at once: values, `Outgoing` messages, or mappings of their fields.

        The options hold for every item that has none of its own. All of it becomes durable together.
        """
        if isinstance(items, str | bytes | bytearray | Mapping):
            raise InvalidInput(
                f"publish_many takes several messages, not one {type(items).__name__}; use publish"
            )
        given: list[Any] = items if isinstance(items, list) else list(items)
        if not given:
            raise EmptyBatch("there is nothing to publish: give at least one message")
        topic = self._state()
        level = level_of(durability, topic)
        plain = key is None and headers is None and delay is None and deliver_at is None and ttl is None
        if plain and partition is None and producer is None and _fits_one_batch(given, topic.config):
            lane = topic.config.lane_number(priority)
            return await self._admitted(lambda: topic.publish_values(given, lane, level), topic, level, wait)
        defaults = Outgoing(
            value=None, key=key, headers=headers, priority=priority, delay=delay, deliver_at=deliver_at,
            ttl=ttl, partition=partition, producer=producer,
        )  # fmt: skip
        now = self._engine.clock.now_ms()
        drafts = [draft(message, topic.config, now) for message in outgoing_many(given, defaults)]
        return await self._admitted(lambda: topic.publish_drafts(drafts, level), topic, level, wait)

    async def _admitted(
        self,
        publish: Callable[[], tuple[Published, int]],
        topic: TopicState,
        level: Level,
        wait: Duration | None,
    ) -> Published:
        waits = self._broker._waits
        deadline = None
        published: Published | None = None
        lsn = 0
        while published is None:
            try:
                published, lsn = publish()
            except TopicFull:
                now = self._engine.clock.now_ms()
                if wait is None:
                    raise
                if deadline is None:
                    deadline = now + duration_ms(wait, what="wait")
                if now >= deadline:
                    raise
                await waits.room(topic, deadline - now)
        if level is Level.SYNCED:
            await waits.durable(lsn)
        return published

    # --- the log view

    async def read(
        self,
        *,
        partition: int | None = None,
        from_offset: int | None = None,
        to_offset: int | None = None,
        from_time: Instant | None = None,
        to_time: Instant | None = None,
        max: int = 1000,
        wait: Duration | None = None,
    ) -> list[StoredMessage]:
        """Reads the log: by offset (of one partition) or by time, oldest first; what is read stays."""
        deadline = self._engine.clock.now_ms() + (0 if wait is None else duration_ms(wait, what="wait"))
        while True:
            with self._engine.lock:
                found = read_log(self._state(), partition, from_offset, to_offset, from_time, to_time, max)
                seen = self._engine.version
                now = self._engine.clock.now_ms()
            if found or now >= deadline:
                return found
            housekeeper = self._broker._housekeeper
            await self._broker._waits.written(seen, housekeeper.pause_ms(now, deadline))
            housekeeper.step_if_simulated()

    async def last(self, count: int = 10, *, partition: int | None = None) -> list[StoredMessage]:
        """The newest messages, oldest of them first."""
        with self._engine.lock:
            topic = self._state()
            chosen = topic.partitions if partition is None else [topic.partition(partition)]
            found = [
                message
                for one in chosen
                for message in read_log(
                    topic, one.number, one.log.next_offset - count, None, None, None, count
                )
            ]
        return sorted(found, key=lambda message: (message.timestamp_ms, message.partition, message.offset))[
            -count:
        ]

    def reader(self, name: str, *, start: str = "earliest") -> AsyncReader:
        """A plain log reader whose position is kept under a name."""
        return AsyncReader(self, check_name(name, "reader"), start)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """(first, next) offset of each partition."""
        with self._engine.lock:
            return {
                one.number: (one.log.start_offset, one.log.next_offset) for one in self._state().partitions
            }

    # --- the queue view

    def group(self, name: str, **options: Any) -> AsyncGroup:
        """The group of this name. Its first consumer creates it, with these options.

        If it exists with other options than these, that is an error: alter it, or leave them out.
        """
        check_name(name, "group")
        config = GroupConfig.make(options)
        with self._engine.lock:
            known = self._state().groups.get(name)
            if known is not None and known.config.altered(options) != known.config:
                raise GroupExists(
                    f"group {name!r} of topic {self.name!r} exists with other options; "
                    "change them with group.alter(...), or leave them out here"
                )
        return AsyncGroup(self, name, config)

    async def create_group(self, name: str, **options: Any) -> AsyncGroup:
        """Creates a group now: with start="latest" it sees what is published from now on."""
        group = AsyncGroup(self, name, GroupConfig.make(options))
        with self._engine.lock:
            if name in self._state().groups:
                raise GroupExists(
                    f"group {name!r} of topic {self.name!r} exists already; use group({name!r})"
                )
            group._made()
            lsn = self._engine.store.end_lsn
        await self._broker._waits.durable(lsn)
        return group

    async def subscribe(
        self,
        name: str | None = None,
        *,
        durable: bool = False,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> AsyncConsumer:
        """Pub/sub: a group of one's own, from now on. Ephemeral unless durable: it goes when the consumer closes.

        In a topic with `retained=True` the last message of each key comes first.
        """
        with self._engine.lock:
            topic = self._state()
            if name is None:
                name = f"subscriber-{self._engine.rng.getrandbits(64):016x}"
            if name not in topic.groups:
                given = {"start": "latest", "ephemeral": not durable, **options}
                if headers is not None:
                    given["headers"] = dict(headers)
                state = self._engine.create_group(topic, name, GroupConfig.make(given))
                if topic.config.retained:
                    state.reopen(retained_runs(topic), self._engine.clock.now_ms())
            lsn = self._engine.store.end_lsn
        await self._broker._waits.durable(lsn)
        return AsyncGroup(self, name, GroupConfig()).consumer(name)

    def groups(self) -> list[GroupDescription]:
        with self._engine.lock:
            return [describe_group(group) for group in self._state().groups.values()]

    # --- schedule and dead letters

    def schedules(self, limit: int = 1000) -> list[Scheduled]:
        """What waits for its time, soonest first."""
        with self._engine.lock:
            return scheduled(self._state(), limit)

    def dead_letters(
        self,
        *,
        reason: str | None = None,
        group: str | None = None,
        key: bytes | str | None = None,
        limit: int = 1000,
    ) -> list[DeadLetter]:
        """Messages of this topic that were given up on and not redriven or purged yet; filters match parts."""
        with self._engine.lock:
            return dead_letters(self._state(), reason, group, key, limit)

    async def purge_dead_letters(self, *, reason: str | None = None) -> int:
        with self._engine.lock:
            count, lsn = purge_dead_letters(self._state(), reason)
        await self._broker._waits.durable(lsn)
        return count

    # --- steering

    def describe(self) -> TopicDescription:
        with self._engine.lock:
            return describe_topic(self._state())

    async def alter(self, **options: Any) -> None:
        with self._engine.lock:
            topic = self._state()
            lsn = self._engine.alter_topic(topic, topic.config.altered(options))
        await self._broker._waits.durable(lsn)

    async def purge(self) -> int:
        """Deletes all messages of the log; answers how many there were. Schedules stay."""
        with self._engine.lock:
            partitions = self._state().partitions
            count = sum(one.log.next_offset - one.log.start_offset for one in partitions)
            lsn = self._engine.start_log_at([(one, one.log.next_offset) for one in partitions])
        await self._broker._waits.durable(lsn)
        return count

    async def delete(self) -> None:
        await self._broker.delete_topic(self.name)


class AsyncQueue(AsyncTopic):
    """A point-to-point queue: publish and receive by one name."""

    def consumer(self, name: str, **options: Any) -> AsyncConsumer:
        return self.group(self.name).consumer(name, **options)

    def lag(self) -> Lag:
        return self.group(self.name).lag()


class AsyncGroup:
    def __init__(self, topic: AsyncTopic, name: str, config: GroupConfig) -> None:
        self._topic = topic
        self._engine = topic._engine
        self._waits = topic._broker._waits
        self._config = config
        self.name = name

    def _state(self) -> GroupState:
        return self._engine.group(self._topic._state(), self.name)

    def _made(self) -> GroupState:
        """The group, created if there is none yet: for consumers, and for a seek before there is one."""
        topic = self._topic._state()
        group = topic.groups.get(self.name)
        if group is None:
            group = self._engine.create_group(topic, self.name, self._config)
        return group

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._topic.name}/{self.name}>"

    def consumer(self, name: str, *, heartbeat: str = "auto") -> AsyncConsumer:
        """A member of the group. With heartbeat="manual" it is given up when it is silent for `member_timeout`."""
        if heartbeat not in ("auto", "manual"):
            raise InvalidOption(f"heartbeat is 'auto' or 'manual', not {heartbeat!r}")
        return AsyncConsumer(self, check_name(name, "member"), heartbeat == "auto")

    # --- settle by receipt

    async def ack(self, receipts: Iterable[str]) -> int:
        return await self._settled(lambda group, runs, now: group.ack(runs, now), receipts)

    async def nack(
        self, receipts: Iterable[str], *, delay: Duration | None = None, reason: str | None = None
    ) -> int:
        delay_ms = None if delay is None else duration_ms(delay, what="delay")
        return await self._settled(lambda group, runs, now: group.nack(runs, now, delay_ms, reason), receipts)

    async def reject(self, receipts: Iterable[str], reason: str = "rejected") -> int:
        return await self._settled(lambda group, runs, now: group.reject(runs, now, reason), receipts)

    async def extend(self, receipts: Iterable[str], duration: Duration) -> int:
        extra = duration_ms(duration, what="duration")
        return await self._settled(lambda group, runs, now: group.extend(runs, now, extra), receipts)

    async def _settled(
        self,
        settle: Callable[[GroupState, list[tuple[GroupPart, Run]], int], int | None],
        receipts: Iterable[str],
    ) -> int:
        with self._engine.lock:
            group = self._state()
            runs = once([find_run(self._engine, group, receipt) for receipt in _many(receipts)])
            lsn = settle(group, runs, self._engine.clock.now_ms())
        if group.level is Level.SYNCED and lsn is not None:
            await self._waits.durable(lsn)
        return len(runs)

    # --- steering

    def lag(self) -> Lag:
        """How far behind the group is, by count and by age."""
        with self._engine.lock:
            return lag_of(self._state(), self._engine.clock.now_ms())

    def describe(self) -> GroupDescription:
        with self._engine.lock:
            return describe_group(self._state())

    def members(self) -> list[MemberDescription]:
        return self.describe().members

    async def pause(self, reason: str = "paused by hand") -> None:
        """Nothing is delivered until `resume`; what is in flight can be settled."""
        with self._engine.lock:
            lsn = self._state().pause(reason)
        await self._waits.durable(lsn)

    async def resume(self) -> None:
        with self._engine.lock:
            lsn = self._state().resume()
        await self._waits.durable(lsn)

    async def seek(
        self,
        *,
        offset: int | None = None,
        time: Instant | None = None,
        to: str | None = None,
        partition: int | None = None,
    ) -> dict[int, int]:
        """Moves a live group to an offset, a time, "earliest" or "latest"; answers the offsets by partition."""
        with self._engine.lock:
            group = self._made()
            targets = seek_targets(group, offset, time, to, partition)
            lsn = group.seek(targets, self._engine.clock.now_ms())
        await self._waits.durable(lsn)
        return targets

    async def replay(
        self,
        *,
        failed: bool = False,
        key: bytes | str | None = None,
        from_time: Instant | None = None,
        to_time: Instant | None = None,
    ) -> int:
        """Delivers settled messages again, beside live traffic: failed ones only, those of a key, or of a time."""
        with self._engine.lock:
            group = self._state()
            runs = replay_runs(group, failed, key, from_time, to_time)
            lsn = group.reopen(runs, self._engine.clock.now_ms())
        await self._waits.durable(lsn)
        return sum(count for _, _, count in runs)

    async def alter(self, **options: Any) -> None:
        with self._engine.lock:
            group = self._state()
            lsn = group.alter(group.config.altered(options))
        await self._waits.durable(lsn)

    async def delete(self) -> None:
        with self._engine.lock:
            topic = self._topic._state()
            lsn = self._engine.delete_group(topic, self._engine.group(topic, self.name).name)
        await self._waits.durable(lsn)


class AsyncConsumer:
    """One member of a group. Close it, or use it as a context manager: what it holds goes back at once."""

    def __init__(self, group: AsyncGroup, name: str, keeps_alive: bool) -> None:
        self._group = group
        self._engine = group._engine
        self._waits = group._waits
        self._keeps_alive = keeps_alive
        self._joined: GroupState | None = None
        self._closed = False
        self.name = name

    async def __aenter__(self) -> Self:
        with self._engine.lock:
            self._join()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        await self.close()

    def _join(self) -> GroupState:
        group = self._joined
        if self._closed:
            raise Closed(f"consumer {self.name!r} is closed; make another one")
        if group is not None and group.deleted:
            self._engine.topic(group.topic.name)
            raise UnknownGroup(
                f"group {group.name!r} of topic {group.topic.name!r} was deleted; make another one"
            )
        if group is None:
            group = self._joined = self._group._made()
            group.enter(self.name, self._engine.clock.now_ms(), keeps_alive=self._keeps_alive)
        self._engine.check_open()
        return group

    async def receive(self, max: int = 1, wait: Duration | None = None) -> Messages:
        """Leases up to `max` messages; waits up to `wait` for the first. Empty if there are none."""
        if not 1 <= max <= RECEIVE_MAX:
            raise InvalidOption(f"max is {max}; it must be 1 to {RECEIVE_MAX}")
        engine = self._engine
        deadline = 0
        while True:
            with engine.lock:
                group = self._joined
                if group is None or group.deleted or engine.closed:
                    group = self._join()
                now = engine.clock.now_ms()
                leased = group.receive(self.name, max, now)
                if leased:
                    break
                if wait is None:
                    return Messages()
                if not deadline:
                    deadline = now + duration_ms(wait, what="wait")
                if now >= deadline:
                    return Messages()
                event = group.next_event()
                seen = group.version
            housekeeper = self._group._topic._broker._housekeeper
            await self._waits.arrival(group, seen, housekeeper.pause_ms(now, deadline, event))
            housekeeper.step_if_simulated()
        messages: list[AsyncMessage] = []
        shares = []
        for part, lease, records in leased:
            share = AsyncShare(self, group, part, lease)
            shares.append(share)
            messages += [AsyncMessage(record, share) for record in records]
        found = Messages(messages)
        found.shares = shares
        return found

    # --- settle

    async def ack(self, messages: AsyncMessage | str | Iterable[AsyncMessage | str]) -> int:
        """Settles messages (or receipts) as done. When it returns, they do not come back."""
        with self._engine.lock:
            group = self._join()
            runs = self._runs(messages)
            lsn = group.ack(runs, self._engine.clock.now_ms())
        if group.level is Level.SYNCED and lsn is not None:
            await self._waits.durable(lsn)
        return sum(run[2] for _, run in runs)

    async def nack(
        self,
        messages: AsyncMessage | str | Iterable[AsyncMessage | str],
        *,
        delay: Duration | None = None,
        reason: str | None = None,
    ) -> int:
        """Gives messages back to be tried again: after the delay, or the group's backoff."""
        delay_ms = None if delay is None else duration_ms(delay, what="delay")
        with self._engine.lock:
            group = self._join()
            runs = self._runs(messages)
            lsn = group.nack(runs, self._engine.clock.now_ms(), delay_ms, reason)
        if group.level is Level.SYNCED:
            await self._waits.durable(lsn)
        return sum(run[2] for _, run in runs)

    async def reject(
        self, messages: AsyncMessage | str | Iterable[AsyncMessage | str], reason: str = "rejected"
    ) -> int:
        """Gives messages up: straight to the dead letters, with the reason."""
        with self._engine.lock:
            group = self._join()
            runs = self._runs(messages)
            lsn = group.reject(runs, self._engine.clock.now_ms(), reason)
        if group.level is Level.SYNCED:
            await self._waits.durable(lsn)
        return sum(run[2] for _, run in runs)

    async def extend(
        self, messages: AsyncMessage | str | Iterable[AsyncMessage | str], duration: Duration
    ) -> int:
        """The leases end this long from now."""
        extra = duration_ms(duration, what="duration")
        with self._engine.lock:
            group = self._join()
            runs = self._runs(messages)
            lsn = group.extend(runs, self._engine.clock.now_ms(), extra)
        if group.level is Level.SYNCED:
            await self._waits.durable(lsn)
        return sum(run[2] for _, run in runs)

    def _runs(
        self, messages: AsyncMessage | str | Iterable[AsyncMessage | str]
    ) -> list[tuple[GroupPart, Run]]:
        if isinstance(messages, Messages) and all(share.group is self._joined for share in messages.shares):
            return self._unsettled_runs(messages)
        runs: list[tuple[GroupPart, Run]] = []
        for message in _many(messages):
            if isinstance(message, AsyncMessage):
                if message._share.group is not self._joined:
                    raise InvalidReceipt(f"{message!r} was received in another group; settle it there")
                part, number, offset = (
                    message._share.part,
                    message._share.lease.number,
                    message._record.offset,
                )
            else:
                part, (number, offset, _) = find_run(self._engine, self._join(), message)
            if runs:
                last, (known, first, count) = runs[-1]
                if last is part and known == number and first + count == offset:
                    runs[-1] = (part, (number, first, count + 1))
                    continue
            runs.append((part, (number, offset, 1)))
        return once(runs)

    def _unsettled_runs(self, messages: Messages) -> list[tuple[GroupPart, Run]]:
        """All that one receive gave, less what was settled one by one since. A lost lease is still told."""
        runs: list[tuple[GroupPart, Run]] = []
        for share in messages.shares:
            part, lease = share.part, share.lease
            if lease.left == lease.count:
                runs.append((part, (lease.number, lease.first, lease.count)))
                continue
            held = part.ledger.leases.get(lease.number) is lease
            runs += [
                (part, (lease.number, offset, 1))
                for offset in range(lease.first, lease.first + lease.count)
                if (held and lease.holds(offset)) or not part.ledger.is_settled(offset)
            ]
        return runs

    # --- membership

    def heartbeat(self) -> None:
        with self._engine.lock:
            self._join().members.heartbeat(self.name, self._engine.clock.now_ms())

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions this member takes new work from first."""
        with self._engine.lock:
            return tuple(self._join().members.assigned(self.name))

    async def close(self) -> None:
        """Leaves the group; what it held and did not settle goes back at once, and does not count as tried."""
        if self._closed:
            return
        self._closed = True
        with self._engine.lock:
            group, self._joined = self._joined, None
            if group is None or group.deleted or self._engine.closed:
                return
            now = self._engine.clock.now_ms()
            group.leave(self.name, now)
            if group.config.ephemeral and not group.members.names():
                self._engine.delete_group(group.topic, group.name)
            lsn = self._engine.store.end_lsn
        await self._waits.durable(lsn)


class AsyncShare:
    """What the messages of one lease have in common."""

    __slots__ = ("consumer", "group", "lease", "part")

    def __init__(self, consumer: AsyncConsumer, group: GroupState, part: GroupPart, lease: Lease) -> None:
        self.consumer = consumer
        self.group = group
        self.part = part
        self.lease = lease


class AsyncMessage(StoredMessage, msgspec.Struct, eq=False, gc=False):
    """A message with a lease: settle it with ack, nack or reject, or extend the lease, before its deadline.

    A struct because there is one for each message delivered: it is made in a third of the time, and not traced by
    the garbage collector, which it needs no more than its record does: nothing it leads to leads back to it.
    """

    _record: StoredRecord
    _share: AsyncShare

    @property
    def _partition(self) -> Partition:  # type: ignore[override]
        return self._share.part.partition

    @property
    def _lane(self) -> int:  # type: ignore[override]
        return self._share.lease.lane

    @property
    def attempt(self) -> int:
        """Which delivery this is; the first is 1."""
        return self._share.lease.attempt

    @property
    def deadline_ms(self) -> int:
        lease = self._share.lease
        if lease.extended is not None:
            return lease.extended.get(self._record.offset, lease.deadline)
        return lease.deadline

    @property
    def receipt(self) -> str:
        """The proof of the lease as text, to settle from elsewhere with `group.ack([...])`."""
        share = self._share
        group = share.group
        lease = share.lease
        receipt = Receipt(
            group.topic.name,
            group.name,
            share.part.partition.number,
            self._record.offset,
            lease.attempt,
            lease.number,
        )
        return write_receipt(receipt, group.engine.meta.secret)

    async def ack(self) -> None:
        share = self._share
        group = share.group
        engine = group.engine
        with engine.lock:
            lsn = group.ack_run(share.part, share.lease.number, self._record.offset, 1, engine.clock.now_ms())
        if group.level is Level.SYNCED:
            await share.consumer._waits.durable(lsn)

    async def nack(self, *, delay: Duration | None = None, reason: str | None = None) -> None:
        await self._share.consumer.nack(self, delay=delay, reason=reason)

    async def reject(self, reason: str = "rejected") -> None:
        await self._share.consumer.reject(self, reason)

    async def extend(self, duration: Duration) -> None:
        await self._share.consumer.extend(self, duration)


class Messages(tuple[AsyncMessage, ...]):
    """What one receive gave; pass it to `consumer.ack` as it is to settle all of it in one go."""

    shares: Sequence[AsyncShare] = ()


class AsyncReader:
    """Reads the log from a position that can be committed under the reader's name."""

    def __init__(self, topic: AsyncTopic, name: str, start: str) -> None:
        if start not in ("earliest", "latest"):
            raise InvalidOption(f"start is 'earliest' or 'latest', not {start!r}")
        self._topic = topic
        self._engine = topic._engine
        self._waits = topic._broker._waits
        self.name = name
        with self._engine.lock:
            state = topic._state()
            committed = state.meta.readers.get(name, {})
            self._positions = {
                one.number: committed.get(
                    one.number, one.log.start_offset if start == "earliest" else one.log.next_offset
                )
                for one in state.partitions
            }

    @property
    def positions(self) -> dict[int, int]:
        return dict(self._positions)

    async def read(self, max: int = 1000, wait: Duration | None = None) -> list[StoredMessage]:
        """The next messages of all partitions; the position moves on, and is kept by `commit`."""
        deadline = self._engine.clock.now_ms() + (0 if wait is None else duration_ms(wait, what="wait"))
        while True:
            found: list[StoredMessage] = []
            with self._engine.lock:
                topic = self._topic._state()
                for one in topic.partitions:
                    position = self._positions.get(one.number, one.log.start_offset)
                    here = read_log(topic, one.number, position, None, None, None, max - len(found))
                    if here:
                        self._positions[one.number] = here[-1].offset + 1
                        found += here
                    if len(found) >= max:
                        break
                seen = self._engine.version
                now = self._engine.clock.now_ms()
            if found or now >= deadline:
                return found
            housekeeper = self._topic._broker._housekeeper
            await self._waits.written(seen, housekeeper.pause_ms(now, deadline))
            housekeeper.step_if_simulated()

    def seek(
        self, *, offset: int | None = None, time: Instant | None = None, partition: int | None = None
    ) -> None:
        with self._engine.lock:
            topic = self._topic._state()
            chosen = topic.partitions if partition is None else [topic.partition(partition)]
            for one in chosen:
                self._positions[one.number] = one.place_of(offset, time)

    async def commit(self) -> None:
        with self._engine.lock:
            lsn = self._engine.move_reader(self._topic._state(), self.name, self._positions)
        await self._waits.durable(lsn)


class AsyncProducer:
    """A producer whose batches are numbered, so that one sent twice is stored once."""

    def __init__(self, broker: AsyncBroker, name: str, producer_id: int, epoch: int) -> None:
        self._broker = broker
        self._engine = broker._engine
        self._meta = (producer_id, epoch)
        self.name = name

    def next_sequence(self, topic: str, partition: int) -> int:
        """The number that follows what is stored of this producer: where to go on after a restart."""
        with self._engine.lock:
            return self._engine.topic(topic).partition(partition).producers.next_sequence(self._meta[0])

    async def publish_many(
        self,
        topic: str,
        items: Iterable[Item],
        *,
        partition: int,
        sequence: int,
        durability: str | None = None,
    ) -> Published:
        """Stores the items if `sequence` follows what is stored; answers the first places if they are there already."""
        with self._engine.lock:
            state = self._engine.topic(topic)
            now = self._engine.clock.now_ms()
            own = Outgoing(value=None, producer=self.name)
            drafts = [draft(one, state.config, now) for one in outgoing_many(list(items), own)]
            if not drafts:
                raise EmptyBatch("there is nothing to publish: give at least one message")
            level = level_of(durability, state)
            published, lsn = state.publish_drafts(drafts, level, (self._meta, partition, sequence))
        if level is Level.SYNCED:
            await self._broker._waits.durable(lsn)
        return published


class AsyncTransaction:
    """Acks and publishes as one: all of it is durable, or none of it happened."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self._acks: list[tuple[GroupState, list[tuple[GroupPart, Run]]]] = []
        self._messages: dict[str, list[Outgoing]] = {}
        self._over = False
        self.published: dict[str, Published] = {}
        """After the commit: the receipts by topic."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        if kind is None and not self._over:
            await self.commit()
        self._over = True

    def ack(self, messages: AsyncMessage | Sequence[AsyncMessage]) -> None:
        self._check()
        given: Sequence[AsyncMessage] = [messages] if isinstance(messages, AsyncMessage) else messages
        by_consumer: dict[int, list[AsyncMessage]] = {}
        for message in given:
            by_consumer.setdefault(id(message._share.consumer), []).append(message)
        for some in by_consumer.values():
            share = some[0]._share
            self._acks.append((share.group, share.consumer._runs(some)))

    def publish(self, topic: str, value: bytes | str | None, **options: Any) -> None:
        self._check()
        self._messages.setdefault(topic, []).extend(outgoing_many([{"value": value, **options}], None))

    async def commit(self) -> None:
        self._check()
        self._over = True
        engine = self._broker._engine
        with engine.lock:
            engine.check_open()
            self.published, lsn = commit_transaction(engine, self._acks, self._messages)
        await self._broker._waits.durable(lsn)

    def _check(self) -> None:
        if self._over:
            raise Closed("this transaction is over; begin another one")


class AsyncRedrive:
    """A redrive under way; it is durable, and goes on after a restart with `broker.resume_redrive(id)`."""

    def __init__(
        self, broker: AsyncBroker, job: RedriveJob, edit: Callable[[DeadLetter], Item | None] | None
    ) -> None:
        self._broker = broker
        self._engine = broker._engine
        self._job = job
        self._edit = edit

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def progress(self) -> dict[str, Any]:
        with self._engine.lock:
            return self._job.progress()

    def preview(self, limit: int = 100) -> list[DeadLetter]:
        """A dry run: the dead letters the job would move, without moving any."""
        with self._engine.lock:
            return self._job.preview(limit)

    async def step(self, max: int = 1000) -> int:
        """Moves up to `max` (and what the rate allows now); answers how many dead letters it looked at."""
        with self._engine.lock:
            looked, lsn = self._job.step(max, self._edit)
        await self._broker._waits.durable(lsn)
        return looked

    async def run(self, *, on_progress: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """Runs the job to its end, at its rate."""
        while not self._job.done:
            looked = await self.step()
            if on_progress is not None:
                on_progress(self.progress)
            pause_ms = self._job.pause_ms()
            if pause_ms and not self._job.done and not looked:
                await self._broker._waits.written(self._engine.version, pause_ms)
        return self.progress

    async def cancel(self) -> None:
        with self._engine.lock:
            lsn = self._job.cancel()
        await self._broker._waits.durable(lsn)


def topic_config(options: dict[str, Any], kind: str) -> TopicConfig:
    if "kind" in options:
        raise InvalidOption("a topic's kind is not an option: use create_topic or create_queue")
    return TopicConfig.make({**options, "kind": kind})


def level_of(durability: str | None, topic: TopicState) -> Level:
    name = topic.config.durability if durability is None else durability
    try:
        return _LEVELS[name]
    except (KeyError, TypeError):
        raise InvalidOption(f"durability is 'memory', 'written' or 'synced', not {name!r}") from None


_LEVELS = {"memory": Level.MEMORY, "written": Level.WRITTEN, "synced": Level.SYNCED}


def _fits_one_batch(given: list[Any], config: TopicConfig) -> bool:
    """Whether this is the hot path: bytes alone, small enough for one batch, and nothing to look into."""
    if config.ttl_ms is not None or config.dedup_by_content or len(given) > BATCH_MESSAGES_MAX:
        return False
    if set(map(type, given)) != {bytes}:
        return False
    total = sum(map(len, given))
    if total > BATCH_BYTES_MAX:
        return False
    return total <= config.message_bytes_max or max(map(len, given)) <= config.message_bytes_max


def _many(messages: Any) -> Iterable[Any]:
    return [messages] if isinstance(messages, AsyncMessage | str) else messages
