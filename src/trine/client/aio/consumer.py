"""A consumer, the messages it is given, and how they are settled."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from trine.client.aio_link import AsyncAnswer, AsyncCaller
from trine.client.leases import Lease, Leased, merge
from trine.client.session import EXTEND, NACK, REJECT, Session
from trine.log.batch import StoredRecord
from trine.log.stored import Origin, StoredMessage
from trine.model.duration import duration_ms
from trine.model.errors import Closed, InvalidOption, InvalidReceipt
from trine.model.limits import REASON_CHARS_MAX, RECEIVE_MAX
from trine.model.message import Duration
from trine.model.receipt import Receipt, read_receipt, write_receipt
from trine.wire.bodies import Held

if TYPE_CHECKING:
    from trine.client.aio.group import AsyncGroup

ITERATED = 100
"""Messages a loop over a consumer without prefetch asks for at a time."""

ITERATED_WAIT_MS = 20_000


class AsyncConsumer:
    """One member of a group. Close it, or use it as a context manager: what it holds goes back at once.

    After a lost connection it joins again by itself, under the same name. `async for message in consumer` goes over
    the messages as they come, until the consumer is closed.
    """

    def __init__(self, group: AsyncGroup, name: str, keeps_alive: bool, prefetch: int) -> None:
        self._group = group
        self._caller: AsyncCaller = group._caller
        self._session = Session(
            group._broker._link, group._topic.name, group.name, name, group._options, keeps_alive, prefetch
        )
        self._ahead: list[AsyncMessage] = []
        """Messages of a loop over this consumer, the next one last."""
        self.name = name

    async def __aenter__(self) -> Self:
        await self._caller.run(self._session.live())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncMessage:
        while not self._ahead:
            try:
                found = await self._received(self._session.prefetch or ITERATED, ITERATED_WAIT_MS)
            except Closed:
                raise StopAsyncIteration from None
            self._ahead = list(reversed(found))
        return self._ahead.pop()

    async def receive(self, max: int = 1, wait: Duration | None = None) -> Messages:
        """Leases up to `max` messages; waits up to `wait` for the first. Empty if there are none."""
        if not 1 <= max <= RECEIVE_MAX:
            raise InvalidOption(f"max is {max}; it must be 1 to {RECEIVE_MAX}")
        return await self._received(max, 0 if wait is None else duration_ms(wait, what="wait"))

    async def _received(self, most: int, wait_ms: int) -> Messages:
        most = min(most, RECEIVE_MAX)

        async def once(wait_ms: int) -> list[Leased]:
            return await self._caller.receive(self._session, most, wait_ms)

        messages: list[AsyncMessage] = []
        shares = []
        for leased in await self._caller.poll(once, wait_ms):
            share = AsyncShare(self, leased.lease)
            shares.append(share)
            messages += [AsyncMessage(record, share) for record in leased.records]
        found = Messages(messages)
        found.shares = shares
        return found

    # --- settle

    async def ack(self, messages: AsyncMessage | str | Iterable[AsyncMessage | str]) -> int:
        """Settles messages (or receipts) as done. When it returns, they do not come back."""
        held, leases = await self._held(messages)
        if not held:
            return 0
        count = await self._caller.ack(self._session, held)
        self._mark(held, leases)
        return count

    async def nack(
        self,
        messages: AsyncMessage | str | Iterable[AsyncMessage | str],
        *,
        delay: Duration | None = None,
        reason: str | None = None,
    ) -> int:
        """Gives messages back to be tried again: after the delay, or the group's backoff."""
        delay_ms = -1 if delay is None else duration_ms(delay, what="delay")
        held, _ = await self._held(messages)
        if not held:
            return 0
        told = (reason or "")[:REASON_CHARS_MAX]
        return await self._caller.run(self._session.settle(NACK, held, delay_ms, told))

    async def reject(
        self, messages: AsyncMessage | str | Iterable[AsyncMessage | str], reason: str = "rejected"
    ) -> int:
        """Gives messages up: straight to the dead letters, with the reason."""
        held, leases = await self._held(messages)
        if not held:
            return 0
        count = await self._caller.run(self._session.settle(REJECT, held, 0, reason[:REASON_CHARS_MAX]))
        self._mark(held, leases)
        return count

    async def extend(
        self, messages: AsyncMessage | str | Iterable[AsyncMessage | str], duration: Duration
    ) -> int:
        """The leases end this long from now."""
        extra = duration_ms(duration, what="duration")
        held, leases = await self._held(messages)
        if not held:
            return 0
        count = await self._caller.run(self._session.settle(EXTEND, held, extra, ""))
        deadline = self._caller.now_ms() + extra
        for partition, number, first, some in held:
            for lease in leases.get((partition, number), ()):
                lease.extend(first, some, deadline)
        return count

    async def _held(
        self, messages: AsyncMessage | str | Iterable[AsyncMessage | str]
    ) -> tuple[list[Held], dict[tuple[int, int], list[Lease]]]:
        """What to name to the server, and the leases it is of."""
        if not self._session.alive:
            await self._caller.run(self._session.live())
        leases: dict[tuple[int, int], list[Lease]] = {}
        if isinstance(messages, Messages) and all(self._is_own(share) for share in messages.shares):
            runs = []
            for share in messages.shares:
                leases.setdefault((share.lease.partition, share.lease.number), []).append(share.lease)
                runs += share.lease.unsettled()
            return runs, leases
        named = []
        for message in many(messages):
            if isinstance(message, AsyncMessage):
                if not self._is_own(message._share):
                    raise InvalidReceipt(f"{message!r} was received in another group; settle it there")
                lease = message._share.lease
                key = (lease.partition, lease.number)
                known = leases.setdefault(key, [])
                if not any(one is lease for one in known):
                    known.append(lease)
                named.append((*key, message._record.offset))
            else:
                named.append(self._proven(message))
        return merge(named), leases

    def _is_own(self, share: AsyncShare) -> bool:
        session, other = self._session, share.consumer._session
        return session is other or (
            session.link is other.link and session.topic == other.topic and session.group == other.group
        )

    def _proven(self, text: Any) -> tuple[int, int, int]:
        """What a receipt is proof of."""
        if not isinstance(text, str):
            raise InvalidReceipt(f"a receipt is a string, not {type(text).__name__}; pass message.receipt")
        session = self._session
        receipt = read_receipt(text, session.receipt_key, session.topic, session.group)
        return receipt.partition, receipt.lease, receipt.offset

    def _mark(self, held: list[Held], leases: dict[tuple[int, int], list[Lease]]) -> None:
        for partition, number, first, count in held:
            for lease in leases.get((partition, number), ()):
                lease.settle(first, count)

    # --- membership

    async def heartbeat(self) -> None:
        await self._caller.run(self._session.heartbeat())

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions this member takes new work from first."""
        return self._caller.fresh(self._assigned(), self._session.partitions)

    async def _assigned(self) -> tuple[int, ...]:
        return await self._caller.run(self._session.assigned())

    async def close(self) -> None:
        """Leaves the group; what it held and did not settle goes back at once, and does not count as tried."""
        self._ahead = []
        if not self._session.closed and not self._session.link.closed:
            await self._caller.run(self._session.leave())


class AsyncShare:
    """What the messages of one lease have in common."""

    __slots__ = ("consumer", "lease")

    def __init__(self, consumer: AsyncConsumer, lease: Lease) -> None:
        self.consumer = consumer
        self.lease = lease


class AsyncMessage(StoredMessage, msgspec.Struct, eq=False, gc=False):
    """A message with a lease: settle it with ack, nack or reject, or extend the lease, before its deadline.

    A struct because there is one for each message delivered; the garbage collector passes over it, as nothing it leads
    to leads back to it.
    """

    _record: StoredRecord
    _share: AsyncShare

    @property
    def _origin(self) -> Origin:  # type: ignore[override]
        return self._share.lease.origin

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
            return lease.extended.get(self._record.offset, lease.deadline_ms)
        return lease.deadline_ms

    @property
    def receipt(self) -> str:
        """The proof of the lease as text, to settle from elsewhere with `group.ack([...])`."""
        lease = self._share.lease
        session = self._share.consumer._session
        receipt = Receipt(
            session.topic, session.group, lease.partition, self._record.offset, lease.attempt, lease.number
        )
        return write_receipt(receipt, session.receipt_key)

    def ack(self) -> AsyncAnswer:
        """Settles the message as done. Acks of one moment go out together."""
        share = self._share
        consumer = share.consumer
        return consumer._caller.settle(consumer._session, share.lease, self._record.offset)

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
