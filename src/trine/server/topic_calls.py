"""Calls about topics: the way in, the log, the schedule, traces and upkeep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from trine.broker.aio.producer import AsyncProducer
from trine.broker.topic import TopicState
from trine.model.clock import SimulatedClock
from trine.model.description import CronDescription, Scheduled, TopicDescription
from trine.model.errors import InvalidOption, TopicFull
from trine.model.message import Outgoing, PublishReceipt
from trine.wire import calls
from trine.wire.calls import BatchReply, CountReply, ProducerReply, PublishedReply, TopicReply, WireOutgoing

if TYPE_CHECKING:
    from trine.broker.aio import AsyncTopic
    from trine.server.connection import Connection

KINDS = ("topic", "queue")
PACK = msgspec.msgpack.Encoder()


def span(ms: int | None) -> str | None:
    """A duration of the wire as the broker takes one."""
    return None if ms is None else f"{ms}ms"


def instant(ms: int | None) -> float | None:
    """A time of the wire as the broker takes one: seconds, exact to the millisecond for thousands of years."""
    return None if ms is None else ms / 1000


def outgoing(message: WireOutgoing) -> Outgoing:
    return Outgoing(
        value=message.value,
        key=message.key,
        headers=message.headers,
        priority=message.priority,
        delay=span(message.delay_ms),
        deliver_at=instant(message.deliver_at_ms),
        ttl=span(message.ttl_ms),
        dedup_id=message.dedup_id,
        partition=message.partition,
        producer=message.producer,
    )


def published(durability: str, receipts: Iterable[PublishReceipt]) -> PublishedReply:
    places: list[Any] = []
    duplicates: list[int] = []
    for index, one in enumerate(receipts):
        places.append(one.schedule_id if one.schedule_id is not None else (one.partition, one.offset))
        if one.duplicate:
            duplicates.append(index)
    return PublishedReply(durability, places, duplicates)


def _topic(connection: Connection, name: str) -> AsyncTopic:
    return connection.context.broker.topic(name)


# --- topics


async def create_topic(connection: Connection, call: calls.CreateTopic) -> TopicReply:
    context = connection.context
    if call.kind not in KINDS:
        raise InvalidOption(f"a topic's kind is {' or '.join(map(repr, KINDS))}, not {call.kind!r}")
    if call.kind == "queue":
        options = {**context.config.queue_defaults(), **call.options}
        await context.broker.create_queue(call.name, exist_ok=call.exist_ok, **options)
    else:
        options = {**context.config.topic_defaults(), **call.options}
        await context.broker.create_topic(call.name, exist_ok=call.exist_ok, **options)
    return _reply(connection, context.engine.topic(call.name))


async def get_topic(connection: Connection, call: calls.GetTopic) -> TopicReply:
    if call.kind == "queue":
        connection.context.broker.queue(call.name)
    else:
        connection.context.broker.topic(call.name)
    return _reply(connection, connection.context.engine.topic(call.name))


def _reply(connection: Connection, topic: TopicState) -> TopicReply:
    config = topic.config
    fields = {name: msgspec.to_builtins(getattr(config, name)) for name in config.__struct_fields__}
    version = connection.listener.version_of(topic)
    return TopicReply(name=topic.name, kind=config.kind, config=fields, version=version)


async def list_topics(connection: Connection, call: calls.ListTopics) -> list[TopicDescription]:
    return [one for one in await connection.context.broker.topics() if connection.may("read", one.name)]


async def describe_topic(connection: Connection, call: calls.DescribeTopic) -> TopicDescription:
    return await _topic(connection, call.topic).describe()


async def alter_topic(connection: Connection, call: calls.AlterTopic) -> None:
    await _topic(connection, call.topic).alter(**call.options)


async def delete_topic(connection: Connection, call: calls.DeleteTopic) -> None:
    await connection.context.broker.delete_topic(call.topic)


async def purge_topic(connection: Connection, call: calls.PurgeTopic) -> CountReply:
    return CountReply(await _topic(connection, call.topic).purge())


async def get_offsets(connection: Connection, call: calls.GetOffsets) -> dict[int, tuple[int, int]]:
    return await _topic(connection, call.topic).offsets()


async def get_archived(connection: Connection, call: calls.GetArchived) -> dict[int, int]:
    return await _topic(connection, call.topic).archived()


async def set_archived(connection: Connection, call: calls.SetArchived) -> None:
    await _topic(connection, call.topic).set_archived(call.positions)


# --- in


async def send(connection: Connection, call: calls.Send) -> PublishedReply:
    topic = _topic(connection, call.topic)
    items = [outgoing(message) for message in call.messages]
    wait = span(call.wait_ms)
    if wait is not None and isinstance(connection.context.engine.clock, SimulatedClock):
        try:
            found = await topic.publish_many(items, durability=call.durability)
        except TopicFull:
            connection.pass_time(call.wait_ms or 0)
            found = await topic.publish_many(items, durability=call.durability)
    else:
        found = await topic.publish_many(items, durability=call.durability, wait=wait)
    return published(found.durability, found)


async def send_numbered(connection: Connection, call: calls.SendNumbered) -> PublishedReply:
    name, producer_id, epoch = call.producer
    producer = AsyncProducer(connection.context.broker, name, producer_id, epoch)
    items: Sequence[Outgoing] = [outgoing(message) for message in call.messages]
    found = await producer.publish_many(
        call.topic, items, partition=call.partition, sequence=call.sequence, durability=call.durability
    )
    return published(found.durability, found)


async def send_batch(connection: Connection, call: calls.SendBatch) -> BatchReply:
    producer = AsyncProducer(connection.context.broker, "", -1, 0)
    found = await producer.publish_batch(
        call.topic, call.partition, bytearray(call.data), durability=call.durability
    )
    first = found[0]
    return BatchReply(
        durability=found.durability,
        first=-1 if first.offset is None else first.offset,
        count=len(found),
        duplicate=first.duplicate,
    )


async def register_producer(connection: Connection, call: calls.RegisterProducer) -> ProducerReply:
    producer = await connection.context.broker.producer(call.name)
    return ProducerReply(*producer._meta)


async def forget_producers(connection: Connection, call: calls.ForgetProducers) -> CountReply:
    return CountReply(await connection.context.broker.forget_producers(call.prefix))


async def next_sequence(connection: Connection, call: calls.NextSequence) -> CountReply:
    producer = AsyncProducer(connection.context.broker, "", call.producer_id, 0)
    return CountReply(await producer.next_sequence(call.topic, call.partition))


# --- the log


async def open_reader(connection: Connection, call: calls.OpenReader) -> dict[int, int]:
    return _topic(connection, call.topic).reader(call.reader, start=call.start).positions


async def commit_reader(connection: Connection, call: calls.CommitReader) -> None:
    reader = _topic(connection, call.topic).reader(call.reader)
    for partition, offset in call.positions.items():
        await reader.seek(offset=offset, partition=partition)
    await reader.commit()


async def find_offsets(connection: Connection, call: calls.FindOffsets) -> dict[int, int]:
    engine = connection.context.engine
    with engine.lock:
        topic = engine.topic(call.topic)
        chosen = topic.partitions if call.partition is None else [topic.partition(call.partition)]
        return {one.number: one.place_of(call.offset, instant(call.time_ms)) for one in chosen}


# --- the schedule


async def list_schedules(connection: Connection, call: calls.ListSchedules) -> list[Scheduled]:
    if call.topic is not None:
        connection.check("read", call.topic)
        return await _topic(connection, call.topic).schedules(call.limit)
    connection.check("read", None)
    found = await connection.context.broker.schedules(call.limit)
    return [one for one in found if connection.may("read", one.topic)]


async def cancel_schedule(connection: Connection, call: calls.CancelSchedule) -> None:
    await connection.context.broker.cancel(call.schedule_id)


async def move_schedule(connection: Connection, call: calls.MoveSchedule) -> None:
    await connection.context.broker.reschedule(
        call.schedule_id, delay=span(call.delay_ms), deliver_at=instant(call.deliver_at_ms)
    )


async def create_cron(connection: Connection, call: calls.CreateCron) -> CronDescription:
    return await connection.context.broker.create_cron(
        call.name,
        topic=call.topic,
        expression=call.expression,
        value=call.value,
        key=call.key,
        headers=call.headers,
        priority=call.priority,
        timezone=call.timezone,
    )


async def list_crons(connection: Connection, call: calls.ListCrons) -> list[CronDescription]:
    return [one for one in await connection.context.broker.crons() if connection.may("read", one.topic)]


async def delete_cron(connection: Connection, call: calls.DeleteCron) -> None:
    await connection.context.broker.delete_cron(call.name)


# --- trace


async def get_trace(connection: Connection, call: calls.GetTrace) -> bytes:
    return PACK.encode(await connection.context.broker.trace(call.message_id))


async def search(connection: Connection, call: calls.Search) -> bytes:
    found = await connection.context.broker.search(
        call.topic,
        key=call.key,
        group=call.group,
        state=call.state,
        older_than=span(call.older_than_ms),
        from_time=instant(call.from_time_ms),
        to_time=instant(call.to_time_ms),
        limit=call.limit,
    )
    return PACK.encode(found)


# --- upkeep


async def checkpoint(connection: Connection, call: calls.Checkpoint) -> None:
    await connection.context.broker.checkpoint()


async def tick(connection: Connection, call: calls.Tick) -> None:
    await connection.context.broker.tick()


async def apply_retention(connection: Connection, call: calls.ApplyRetention) -> None:
    await connection.context.broker.apply_retention()


async def verify(connection: Connection, call: calls.Verify) -> CountReply:
    return CountReply(await connection.context.broker.verify())


async def statistics(connection: Connection, call: calls.Statistics) -> dict[str, Any]:
    found = await connection.context.broker.statistics()
    found["topics"] = {
        name: counts for name, counts in found["topics"].items() if connection.may("read", name)
    }
    found["groups"] = {
        name: counts
        for name, counts in found["groups"].items()
        if connection.may("read", name.partition("/")[0])
    }
    return found
