"""A topic: the way in, the log view, and the door to its groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trine.client.aio.consumer import AsyncConsumer
from trine.client.aio.group import AsyncGroup
from trine.client.aio.reader import AsyncReader
from trine.client.aio.sender import AsyncSender
from trine.client.options import plain
from trine.client.reading import letter_of
from trine.client.topics import (
    Batch,
    Known,
    chosen_partition,
    encode_drafts,
    encode_one,
    frames_of,
    level_number,
    needs_server,
    placed,
    replied,
    wire_outgoing,
)
from trine.log.packing import pack_values
from trine.log.stored import DeadLetter, StoredMessage
from trine.model.description import GroupDescription, Lag, Scheduled, TopicDescription
from trine.model.duration import duration_ms, instant_ms
from trine.model.errors import EmptyBatch, InvalidInput, MessageTooLarge, StaleMetadata, UnknownTopic
from trine.model.ids import check_name
from trine.model.limits import KEY_BYTES_MAX, SEND_BUFFER_BYTES
from trine.model.message import (
    Duration,
    Headers,
    Instant,
    Outgoing,
    Published,
    PublishReceipt,
    as_bytes,
    draft,
    outgoing_many,
)
from trine.model.options import GroupConfig
from trine.model.partitioning import partition_of
from trine.wire import calls
from trine.wire.bodies import SERVER_CHOOSES, write_publish
from trine.wire.frames import Command

if TYPE_CHECKING:
    from trine.client.aio.broker import AsyncBroker


Item = bytes | str | Outgoing | Mapping[str, Any]
"""What `publish_many` takes of each message."""

NOTHING_ELSE = (None,) * 8
FRAME_HEAD_BYTES = 1024
"""What a PUBLISH has beside its batches, at most: the fixed fields and the topic's name."""


class AsyncTopic:
    def __init__(self, broker: AsyncBroker, name: str) -> None:
        self._broker = broker
        self._caller = broker._caller
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    async def _known(self) -> Known:
        return self._broker._topics.known.get(self.name) or await self._broker._known(self.name)

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
        known = self._broker._topics.known.get(self.name)
        if (
            type(value) is bytes and known is not None and len(value) <= known.plain_bytes_max
            and (headers, delay, deliver_at, ttl, dedup_id, partition, producer, wait) == NOTHING_ELSE
            and (key is None or type(key) is bytes)
        ):  # fmt: skip
            try:
                return await self._publish_value(known, key, value, priority, level_number(durability))
            except (StaleMetadata, UnknownTopic):
                self._broker._topics.forget(self.name)
        message = Outgoing(
            value=value, key=key, headers=headers, priority=priority, delay=delay, deliver_at=deliver_at,
            ttl=ttl, dedup_id=dedup_id, partition=partition, producer=producer,
        )  # fmt: skip
        level = level_number(durability)

        async def once(wait_ms: int) -> Published:
            known = await self._known()
            now = self._caller.now_ms()
            one = draft(message, known.config, now)
            if needs_server((one,), known.config):
                return await self._send([wire_outgoing(message, one)], durability, wait_ms)
            made = (chosen_partition(one, known.config), encode_one(one, known, now), range(1))
            return await self._put(known, [made], 1, level, wait_ms)

        return (await self._admitted(once, wait))[0]

    async def _publish_value(
        self, known: Known, key: bytes | None, value: bytes, priority: str | None, level: int
    ) -> PublishReceipt:
        """The hot path: a value, perhaps with a key, and nothing to look into."""
        config = known.config
        if key is not None and len(key) > KEY_BYTES_MAX:
            raise MessageTooLarge(f"the key has {len(key)} bytes; {KEY_BYTES_MAX} are allowed")
        lane = config.default_lane if priority is None else config.lane_number(priority)
        number = SERVER_CHOOSES if key is None else partition_of(key, config.partitions)
        return await self._caller.publish(known, level, lane, number, key, value)

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

        The options hold for every item that has none of its own. All of it becomes durable together, if it fits one
        frame (32 MiB); more is sent as several, one after the other.
        """
        if isinstance(items, str | bytes | bytearray | Mapping):
            raise InvalidInput(
                f"publish_many takes several messages, not one {type(items).__name__}; use publish"
            )
        given: list[Any] = items if isinstance(items, list) else list(items)
        if not given:
            raise EmptyBatch("there is nothing to publish: give at least one message")
        level = level_number(durability)
        plain_values = (
            key is None and headers is None and delay is None and deliver_at is None and ttl is None
            and partition is None and producer is None
        )  # fmt: skip
        defaults = Outgoing(
            value=None, key=key, headers=headers, priority=priority, delay=delay, deliver_at=deliver_at,
            ttl=ttl, partition=partition, producer=producer,
        )  # fmt: skip

        async def once(wait_ms: int) -> Published:
            known = await self._known()
            now = self._caller.now_ms()
            if plain_values:
                data = pack_values(given, known.config, known.config.lane_number(priority), now)
                if data is not None:
                    made = [(SERVER_CHOOSES, data, range(len(given)))]
                    return await self._put(known, made, len(given), level, wait_ms)
            messages = list(outgoing_many(given, defaults))
            drafts = [draft(message, known.config, now) for message in messages]
            if needs_server(drafts, known.config):
                pairs = zip(messages, drafts, strict=True)
                sent = [wire_outgoing(message, one) for message, one in pairs]
                return await self._send(sent, durability, wait_ms)
            return await self._put(known, encode_drafts(drafts, known, now), len(given), level, wait_ms)

        return await self._admitted(once, wait)

    async def _admitted(self, once: Callable[[int], Any], wait: Duration | None) -> Published:
        """Publishes, and again if the topic is not what it was known as."""
        wait_ms = 0 if wait is None else duration_ms(wait, what="wait")
        while True:
            try:
                found: Published = await self._caller.admitted(once, wait_ms)
                return found
            except StaleMetadata:
                await self._caller.run(self._broker._topics.fetch(self.name))
            except UnknownTopic:
                self._broker._topics.forget(self.name)
                raise

    async def _put(
        self, known: Known, batches: Sequence[Batch], count: int, level: int, wait_ms: int
    ) -> Published:
        answers = []
        for frame in frames_of(batches, self._broker._link.frame_bytes_max - FRAME_HEAD_BYTES):
            numbered = [(number, data) for number, data, _ in frame]
            parts = write_publish(self.name, level, known.version, wait_ms, numbered)
            answers.append((await self._caller.request(Command.PUBLISH, *parts), frame))
        return placed(self.name, answers, count)

    async def _send(
        self, messages: list[calls.WireOutgoing], durability: str | None, wait_ms: int
    ) -> Published:
        call = calls.Send(topic=self.name, messages=messages, durability=durability, wait_ms=wait_ms or None)
        return replied(self.name, await self._broker._call(call))

    def sender(
        self,
        *,
        linger: Duration = "5ms",
        batch_bytes: int = 256 * 1024,
        batch_messages: int = 10_000,
        durability: str | None = None,
        in_flight: int = 8,
        buffer_bytes: int = SEND_BUFFER_BYTES,
        wait: Duration | None = None,
    ) -> AsyncSender:
        """Publishes in the background: messages are gathered for up to `linger` and go out in batches.

        >>> async with topic.sender(linger="5ms") as sender:              # doctest: +SKIP
        ...     for line in lines:
        ...         await sender.send(line)
        """
        return AsyncSender(
            self, level_number(durability), duration_ms(linger, what="linger"), batch_bytes, batch_messages,
            in_flight, buffer_bytes, 0 if wait is None else duration_ms(wait, what="wait"),
        )  # fmt: skip

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
        from_ms = None if from_time is None else instant_ms(from_time)
        to_ms = None if to_time is None else instant_ms(to_time)
        log = self._broker._log

        async def once(wait_ms: int) -> list[StoredMessage]:
            known = await self._looked_up()
            return await self._caller.run(
                log.read(known, partition, from_offset, to_offset, from_ms, to_ms, max, wait_ms)
            )

        return await self._caller.poll(once, 0 if wait is None else duration_ms(wait, what="wait"))

    async def _looked_up(self) -> Known:
        """The topic as it is now: a read has no version that the server could refuse."""
        return await self._caller.run(self._broker._topics.fetch(self.name))

    async def last(self, count: int = 10, *, partition: int | None = None) -> list[StoredMessage]:
        """The newest messages, oldest of them first."""
        known = await self._looked_up()
        return await self._caller.run(self._broker._log.last(known, count, partition))

    def reader(self, name: str, *, start: str = "earliest") -> AsyncReader:
        """A plain log reader whose position is kept under a name."""
        return AsyncReader(self, check_name(name, "reader"), start)

    async def offsets(self) -> dict[int, tuple[int, int]]:
        """(first, next) offset of each partition."""
        found: dict[int, tuple[int, int]] = await self._broker._call(calls.GetOffsets(topic=self.name))
        return found

    async def archived(self) -> dict[int, int]:
        """What the archive has: partition to the first offset that it lacks."""
        found: dict[int, int] = await self._broker._call(calls.GetArchived(topic=self.name))
        return found

    async def set_archived(self, positions: Mapping[int, int]) -> None:
        """Says what the archive has by now, so that retention may go on. It never goes back."""
        await self._broker._call(calls.SetArchived(topic=self.name, positions=dict(positions)))

    # --- the queue view

    def group(self, name: str, **options: Any) -> AsyncGroup:
        """The group of this name. Its first consumer creates it, with these options.

        If it exists with other options than these, that is an error: alter it, or leave them out.
        """
        check_name(name, "group")
        GroupConfig.make(options)
        made = AsyncGroup(self, name, plain(options))
        self._caller.check(made._check())
        return made

    async def create_group(self, name: str, **options: Any) -> AsyncGroup:
        """Creates a group now: with start="latest" it sees what is published from now on."""
        check_name(name, "group")
        GroupConfig.make(options)
        given = plain(options)
        await self._broker._call(calls.CreateGroup(topic=self.name, group=name, options=given))
        return AsyncGroup(self, name, given)

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
        call = calls.Subscribe(
            topic=self.name, name=name, durable=durable, options=plain(options),
            headers=None if headers is None else dict(headers),
        )  # fmt: skip
        made: str = await self._broker._call(call)
        return AsyncGroup(self, made, {}).consumer(made)

    async def groups(self) -> list[GroupDescription]:
        found: list[GroupDescription] = await self._broker._call(calls.ListGroups(topic=self.name))
        return found

    # --- schedule and dead letters

    async def schedules(self, limit: int = 1000) -> list[Scheduled]:
        """What waits for its time, soonest first."""
        call = calls.ListSchedules(topic=self.name, limit=limit)
        found: list[Scheduled] = await self._broker._call(call)
        return found

    async def dead_letters(
        self,
        *,
        reason: str | None = None,
        group: str | None = None,
        key: bytes | str | None = None,
        limit: int = 1000,
    ) -> list[DeadLetter]:
        """Messages of this topic that were given up on and not redriven or purged yet; filters match parts."""
        call = calls.ListDeadLetters(
            topic=self.name, reason=reason, group=group, key=as_bytes(key, "key"), limit=limit
        )
        return [letter_of(one) for one in await self._broker._call(call)]

    async def purge_dead_letters(
        self,
        *,
        reason: str | None = None,
        group: str | None = None,
        key: bytes | str | None = None,
        ids: Sequence[str] | None = None,
    ) -> int:
        """Deletes those that the filters fit (all without any), or those named by id; answers how many."""
        call = calls.PurgeDeadLetters(
            topic=self.name,
            reason=reason,
            group=group,
            key=as_bytes(key, "key"),
            ids=None if ids is None else list(ids),
        )
        reply = await self._broker._call(call)
        count: int = reply.count
        return count

    # --- steering

    async def describe(self) -> TopicDescription:
        found: TopicDescription = await self._broker._call(calls.DescribeTopic(topic=self.name))
        return found

    async def alter(self, **options: Any) -> None:
        await self._broker._call(calls.AlterTopic(topic=self.name, options=plain(options)))
        self._broker._topics.forget(self.name)

    async def purge(self) -> int:
        """Deletes all messages of the log; answers how many there were. Schedules stay."""
        reply = await self._broker._call(calls.PurgeTopic(topic=self.name))
        count: int = reply.count
        return count

    async def delete(self) -> None:
        await self._broker.delete_topic(self.name)


class AsyncQueue(AsyncTopic):
    """A point-to-point queue: publish and receive by one name."""

    def consumer(self, name: str, **options: Any) -> AsyncConsumer:
        return self.group(self.name).consumer(name, **options)

    async def lag(self) -> Lag:
        return await self.group(self.name).lag()
