"""A topic: the way in, the log view, and the door to its groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trine.broker.aio.consumer import AsyncConsumer
from trine.broker.aio.group import AsyncGroup
from trine.broker.aio.reader import AsyncReader
from trine.broker.description import describe_group, describe_topic
from trine.broker.operations import (
    Purge,
    dead_letters,
    read_log,
    retained_runs,
    scheduled,
)
from trine.broker.topic import TopicState
from trine.log.packing import level_named, pack_values
from trine.log.stored import DeadLetter, StoredMessage
from trine.model.description import GroupDescription, Lag, Scheduled, TopicDescription
from trine.model.durability import Level
from trine.model.duration import duration_ms
from trine.model.errors import (
    EmptyBatch,
    GroupExists,
    InvalidInput,
    TopicFull,
)
from trine.model.ids import check_name
from trine.model.message import (
    Duration,
    Headers,
    Instant,
    Outgoing,
    Published,
    PublishReceipt,
    draft,
    outgoing_many,
)
from trine.model.options import GroupConfig

if TYPE_CHECKING:
    from trine.broker.aio.broker import AsyncBroker


Item = bytes | str | Outgoing | Mapping[str, Any]
"""What `publish_many` takes of each message."""


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
        now = self._engine.clock.now_ms()
        if plain and partition is None and producer is None:
            packed = pack_values(given, topic.config, topic.config.lane_number(priority), now)
            if packed is not None:
                return await self._admitted(lambda: topic.publish_packed(packed, level), topic, level, wait)
        defaults = Outgoing(
            value=None, key=key, headers=headers, priority=priority, delay=delay, deliver_at=deliver_at,
            ttl=ttl, partition=partition, producer=producer,
        )  # fmt: skip
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

    async def offsets(self) -> dict[int, tuple[int, int]]:
        """(first, next) offset of each partition."""
        with self._engine.lock:
            return {
                one.number: (one.log.start_offset, one.log.next_offset) for one in self._state().partitions
            }

    async def archived(self) -> dict[int, int]:
        """What the archive has: partition to the first offset that it lacks."""
        with self._engine.lock:
            state = self._state()
            return {one.number: state.meta.archived.get(one.number, 0) for one in state.partitions}

    async def set_archived(self, positions: Mapping[int, int]) -> None:
        """Says what the archive has by now, so that retention may go on. It never goes back."""
        with self._engine.lock:
            lsn = self._state().set_archived(dict(positions))
        await self._broker._waits.durable(lsn)

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

    async def groups(self) -> list[GroupDescription]:
        with self._engine.lock:
            return [describe_group(group) for group in self._state().groups.values()]

    # --- schedule and dead letters

    async def schedules(self, limit: int = 1000) -> list[Scheduled]:
        """What waits for its time, soonest first."""
        with self._engine.lock:
            return scheduled(self._state(), limit)

    async def dead_letters(
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

    async def purge_dead_letters(
        self,
        *,
        reason: str | None = None,
        group: str | None = None,
        key: bytes | str | None = None,
        ids: Sequence[str] | None = None,
    ) -> int:
        """Deletes those that the filters fit (all without any), or those named by id; answers how many."""
        with self._engine.lock:
            purge = Purge(self._state(), reason, group, key, ids)
        while not purge.done:
            with self._engine.lock:
                lsn = purge.step()
            await self._broker._waits.durable(lsn)
        return purge.count

    # --- steering

    async def describe(self) -> TopicDescription:
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

    async def lag(self) -> Lag:
        return await self.group(self.name).lag()


def level_of(durability: str | None, topic: TopicState) -> Level:
    return level_named(topic.config.durability if durability is None else durability)
