# Generated from aio/producer.py by `make generate`. Do not edit.
"""Idempotent producers, and transactions: acks and publishes as one."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from trine.client.leases import merge
from trine.client.sync.consumer import Message
from trine.client.sync.topic import Item
from trine.client.topics import level_number, replied, wire_outgoing
from trine.model.errors import Closed, EmptyBatch
from trine.model.message import Outgoing, Place, Published, draft, outgoing_many
from trine.wire import calls

if TYPE_CHECKING:
    from trine.client.sync.broker import Broker
    from trine.client.sync.consumer import Consumer


class Producer:
    """A producer whose batches are numbered, so that one sent twice is stored once."""

    def __init__(self, broker: Broker, name: str, producer_id: int, epoch: int) -> None:
        self._broker = broker
        self._meta = (producer_id, epoch)
        self.name = name

    def next_sequence(self, topic: str, partition: int) -> int:
        """The number that follows what is stored of this producer: where to go on after a restart."""
        call = calls.NextSequence(topic=topic, partition=partition, producer_id=self._meta[0])
        count: int = (self._broker._call(call)).count
        return count

    def publish_many(
        self,
        topic: str,
        items: Iterable[Item],
        *,
        partition: int,
        sequence: int,
        durability: str | None = None,
    ) -> Published:
        """Stores the items if `sequence` follows what is stored; answers the first places if they are there already.

        After a lost connection it is sent again by itself: being numbered, it is stored once.
        """
        known = self._broker._known(topic)
        now = self._broker._caller.now_ms()
        level_number(durability)
        messages = list(outgoing_many(list(items), Outgoing(value=None, producer=self.name)))
        if not messages:
            raise EmptyBatch("there is nothing to publish: give at least one message")
        call = calls.SendNumbered(
            topic=topic,
            messages=[wire_outgoing(one, draft(one, known.config, now)) for one in messages],
            producer=(self.name, *self._meta),
            partition=partition,
            sequence=sequence,
            durability=durability,
        )
        return replied(topic, self._broker._call(call))

    def publish_batch(
        self, topic: str, partition: int, data: bytearray, *, durability: str | None = None
    ) -> Published:
        """A batch that the caller encoded, numbered in its header: for bulk, see `trine.log.batch.encode`.

        After a lost connection it is sent again by itself: being numbered, it is stored once.
        """
        level_number(durability)
        call = calls.SendBatch(topic=topic, partition=partition, data=bytes(data), durability=durability)
        reply: calls.BatchReply = self._broker._call(call)
        if reply.duplicate:
            places: list[Place] = [
                (partition, reply.first + n if reply.first >= 0 else -1) for n in range(reply.count)
            ]
            twins = frozenset(range(reply.count))
            return Published(topic, reply.durability, places=places, duplicates=twins)
        return Published(topic, reply.durability, run=(partition, reply.first, reply.count))


class Transaction:
    """Acks and publishes as one: all of it is durable, or none of it happened."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._acks: list[Message] = []
        self._messages: dict[str, list[Outgoing]] = {}
        self._over = False
        self.published: dict[str, Published] = {}
        """After the commit: the receipts by topic."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        if kind is None and not self._over:
            self.commit()
        self._over = True

    def ack(self, messages: Message | Sequence[Message]) -> None:
        self._check()
        self._acks.extend([messages] if isinstance(messages, Message) else messages)

    def publish(self, topic: str, value: bytes | str | None, **options: Any) -> None:
        self._check()
        self._messages.setdefault(topic, []).extend(outgoing_many([{"value": value, **options}], None))

    def commit(self) -> None:
        self._check()
        self._over = True
        if not self._acks and not self._messages:
            raise EmptyBatch("the transaction is empty: ack or publish something in it")
        broker = self._broker
        now = broker._caller.now_ms()
        sent = {}
        for topic, messages in self._messages.items():
            known = broker._known(topic)
            sent[topic] = [wire_outgoing(one, draft(one, known.config, now)) for one in messages]
        by_consumer: dict[int, tuple[Consumer, list[Message]]] = {}
        for message in self._acks:
            consumer = message._share.consumer
            by_consumer.setdefault(id(consumer), (consumer, []))[1].append(message)
        acks = []
        bound = 0
        for consumer, some in by_consumer.values():
            session = broker._caller.run(consumer._session.live())
            bound = consumer._session.generation
            offsets = ((one._share.lease.partition, one._share.lease.number, one.offset) for one in some)
            acks += [(session, *held) for held in merge(offsets)]
        call = calls.Transact(acks=acks, messages=sent)
        reply: dict[str, calls.PublishedReply] = broker._caller.run(broker._link.call(call, bound=bound))
        self.published = {topic: replied(topic, one) for topic, one in reply.items()}
        for message in self._acks:
            message._share.lease.settle(message.offset, 1)

    def _check(self) -> None:
        if self._over:
            raise Closed("this transaction is over; begin another one")
