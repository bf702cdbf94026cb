"""Idempotent producers, and transactions: acks and publishes as one."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from trine.broker.aio.consumer import AsyncMessage
from trine.broker.aio.topic import Item, level_of
from trine.broker.group import GroupState
from trine.broker.group_part import GroupPart, Run
from trine.broker.operations import commit_transaction
from trine.model.durability import Level
from trine.model.errors import (
    Closed,
    EmptyBatch,
)
from trine.model.message import Outgoing, Published, draft, outgoing_many

if TYPE_CHECKING:
    from trine.broker.aio.broker import AsyncBroker


class AsyncProducer:
    """A producer whose batches are numbered, so that one sent twice is stored once."""

    def __init__(self, broker: AsyncBroker, name: str, producer_id: int, epoch: int) -> None:
        self._broker = broker
        self._engine = broker._engine
        self._meta = (producer_id, epoch)
        self.name = name

    async def next_sequence(self, topic: str, partition: int) -> int:
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

    async def publish_batch(
        self, topic: str, partition: int, data: bytearray, *, durability: str | None = None
    ) -> Published:
        """A batch that the caller encoded, numbered in its header: for bulk, see `trine.log.batch.encode`."""
        with self._engine.lock:
            state = self._engine.topic(topic)
            level = level_of(durability, state)
            published, lsn = state.publish_numbered_batch(data, partition, level)
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
