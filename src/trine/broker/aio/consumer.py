"""A consumer, the messages it is given, and how they are settled."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Self

import msgspec

from trine.broker.group import GroupState
from trine.broker.group_part import GroupPart, Run, once
from trine.broker.operations import (
    find_run,
)
from trine.log.batch import StoredRecord
from trine.log.stored import Origin, StoredMessage
from trine.model.durability import Level
from trine.model.duration import duration_ms
from trine.model.errors import (
    Closed,
    InvalidOption,
    InvalidReceipt,
    UnknownGroup,
)
from trine.model.limits import RECEIVE_MAX
from trine.model.message import Duration
from trine.model.receipt import Receipt, write_receipt
from trine.queue.ledger import Lease

if TYPE_CHECKING:
    from trine.broker.aio.group import AsyncGroup


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
            messages += map(AsyncMessage, records, repeat(share))
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
        for message in many(messages):
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

    async def heartbeat(self) -> None:
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
    def _origin(self) -> Origin:  # type: ignore[override]
        return self._share.part.partition.origin

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
        return write_receipt(receipt, group.receipt_key)

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


def many(messages: Any) -> Iterable[Any]:
    return [messages] if isinstance(messages, AsyncMessage | str) else messages
