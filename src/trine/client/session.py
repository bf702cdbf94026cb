"""A consumer's membership of a group, across connections: join, receive, be pushed to, settle, leave.

    outside ──join──▶ member ──connection lost──▶ outside, and joins again by itself under the same name
                         └──leave──▶ closed

With a prefetch the server pushes: it may have sent as many messages as there are *credits*, and each message that is
taken gives one back. What is pushed and not taken yet waits here, bounded by the prefetch; what waited longer than its
lease is dropped, as the server gives it to somebody else.

Acks of single messages that are made in one turn of the loop go out as one frame. If the server refuses the frame,
nothing of it has happened, and each ack is sent by itself, so that everyone gets the answer that is his.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

from trine.client.leases import Lease, Leased, leased
from trine.client.link import Lost
from trine.log.stored import Origin
from trine.model.errors import Closed, TrineError, Unreachable
from trine.wire import bodies
from trine.wire.bodies import Held
from trine.wire.calls import (
    CheckGroup,
    DescribeGroup,
    GetPartitions,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    Options,
    ReturnUnseen,
)
from trine.wire.frames import Command

if TYPE_CHECKING:
    from trine.client.link import Link, Reply

PUSHED_MAX: Final = 2_000
"""Messages of one delivery that is pushed: they are decoded together, and more would not stay in the CPU's cache."""
NACK: Final = 1
REJECT: Final = 2
EXTEND: Final = 3
CLOSING_PAUSE: Final = 0.05
"""Seconds to wait for the end of a connection that takes no more."""


Ack = tuple[Lease, int, "Reply"]
"""A lease, an offset of it, and where the answer goes."""


class Session:
    def __init__(
        self,
        link: Link,
        topic: str,
        group: str,
        member: str,
        options: Options,
        auto_heartbeat: bool,
        prefetch: int,
    ) -> None:
        self.link = link
        self.topic = topic
        self.group = group
        self.member = member
        self.prefetch = prefetch
        self.partitions: tuple[int, ...] = ()
        """The last ones known."""
        self.receipt_key = b""
        self._options = options
        self._auto_heartbeat = auto_heartbeat
        self._number = 0
        self._generation = 0
        """The connection the number is of; 0 before the first join."""
        self._joining = asyncio.Lock()
        self._closed = False
        self._origins: dict[int, Origin] = {}
        self._lanes: tuple[str, ...] = ()
        self._ahead: deque[Leased] = deque()
        self._ahead_count = 0
        self._taken = 0
        self._seen: dict[int, int] = {}
        """The last lease of each partition."""
        self._arrived: asyncio.Future[None] | None = None
        self._fault: TrineError | None = None
        self._acks: list[Ack] = []

    # --- membership

    async def live(self) -> int:
        """The number of this membership on the connection there is; joins if it has none there yet."""
        link = self.link
        while True:
            if self._closed:
                raise Closed(f"consumer {self.member!r} is closed; make another one")
            if link.connected and self._generation == link.generation:
                return self._number
            async with self._joining:
                await link.ready()
                if self._generation == link.generation or self._closed:
                    continue
                try:
                    await self._join()
                except Lost:
                    continue
                except Closed:
                    if self._closed or link.closed:
                        raise
                    await asyncio.sleep(CLOSING_PAUSE)  # the server is shutting down

    async def _join(self) -> None:
        link = self.link
        generation = link.generation
        if self._generation:
            # A group that was deleted meanwhile is not to be made again behind its back.
            await link.call(DescribeGroup(topic=self.topic, group=self.group))
        elif self._options:
            await link.call(CheckGroup(topic=self.topic, group=self.group, options=self._options))
        join = Join(
            topic=self.topic, group=self.group, member=self.member, options=self._options,
            auto_heartbeat=self._auto_heartbeat,
        )  # fmt: skip
        reply: JoinReply = await link.call(join, bound=generation)
        again = bool(self._generation)
        self._fault = None
        self.receipt_key = reply.receipt_key
        self.partitions = tuple(reply.partitions)
        self._lanes = reply.lanes
        self._origins.clear()
        if again:
            await link.call(ReturnUnseen(session=reply.session, seen=self._seen), bound=generation)
        self._number, self._generation = reply.session, generation
        link.sessions.add(self)
        link.by_number[reply.session] = self
        if self.prefetch:
            self._taken = 0
            credits = max(self.prefetch - self._ahead_count, 0)
            start = bodies.write_start(reply.session, credits, min(self.prefetch, PUSHED_MAX))
            await link.request(Command.START, start, bound=generation)

    async def revive(self) -> None:
        """After a new connection: back into the group at once, not when the next message is asked for."""
        if self._generation and not self._closed:
            try:
                await self.live()
            except TrineError as error:
                self._fault = error
                self._wake()

    async def leave(self) -> None:
        """Out of the group; what is held goes back at once. Nobody is told if there is no connection."""
        if self._closed:
            return
        self._closed = True
        link = self.link
        link.sessions.discard(self)
        link.by_number.pop(self._number, None)
        self._ahead.clear()
        self._ahead_count = 0
        self._wake()
        if self._generation and link.connected and self._generation == link.generation:
            with contextlib.suppress(Unreachable):  # the server gives it up by itself
                await link.call(Leave(session=self._number), bound=self._generation)

    async def heartbeat(self) -> None:
        while True:
            number = await self.live()
            try:
                await self.link.call(Heartbeat(session=number), bound=self._generation)
                return
            except Lost:
                continue

    async def assigned(self) -> tuple[int, ...]:
        while True:
            number = await self.live()
            try:
                reply = await self.link.call(GetPartitions(session=number), bound=self._generation)
            except Lost:
                continue
            self.partitions = tuple(reply.partitions)
            return self.partitions

    @property
    def alive(self) -> bool:
        """Whether it is a member over the connection there is: `live` would not have to wait."""
        return not self._closed and self.link.connected and self._generation == self.link.generation

    @property
    def plain(self) -> bool:
        """Whether a receive is one question to the server."""
        return self.alive and not self.prefetch and not self._ahead

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def closed(self) -> bool:
        return self._closed

    # --- messages

    async def receive(self, most: int, wait_ms: int) -> list[Leased]:
        """Up to so many messages; waits for the first. Raises Lost if the connection broke meanwhile."""
        if self.prefetch:
            return await self._take(most, wait_ms)
        await self.live()
        if self._ahead and (found := self._take_now(most)):
            return found
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        body = self.receive_body(most, wait_ms)
        self.link.send(Command.RECEIVE, (body,), _Received(self, future), bound=self._generation)
        try:
            return self.taken(await future)
        except Closed as error:
            await asyncio.sleep(CLOSING_PAUSE)
            raise self.meant(error) from error

    def receive_body(self, most: int, wait_ms: int) -> bytes:
        return bodies.write_receive(self._number, most, wait_ms)

    def taken(self, body: bytes) -> list[Leased]:
        """What a delivery gives."""
        _, runs = bodies.read_delivery(memoryview(body))
        for run in runs:
            self._seen[run.partition] = max(run.lease, self._seen.get(run.partition, -1))
        return [leased(run, self._origin(run.partition)) for run in runs]

    def _origin(self, partition: int) -> Origin:
        origin = self._origins.get(partition)
        if origin is None:
            origin = self._origins[partition] = Origin(self.topic, partition, self._lanes)
        return origin

    # --- push

    def delivered(self, body: bytes) -> None:
        for one in self.taken(body):
            self._ahead.append(one)
            self._ahead_count += one.lease.count
        self._wake()

    def failed(self, error: TrineError) -> None:
        """The server pushes no more, and says why."""
        self._fault = error
        self._wake()

    async def _take(self, most: int, wait_ms: int) -> list[Leased]:
        await self.live()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while not (found := self._take_now(most)):
            left = deadline - loop.time()
            if self._closed:
                raise Closed(f"consumer {self.member!r} is closed; make another one")
            if self._fault is not None:
                raise self._fault
            if left <= 0:
                return []
            if self._arrived is None or self._arrived.done():
                self._arrived = loop.create_future()
            await asyncio.wait((self._arrived,), timeout=left)
        return found

    def _take_now(self, most: int) -> list[Leased]:
        found: list[Leased] = []
        now = self.link.now_ms()
        while self._ahead and most > 0:
            one = self._ahead.popleft()
            count = one.lease.count
            if one.lease.deadline_ms <= now:
                self._took(count)
                continue
            if count > most:
                one, rest = one.split(most)
                self._ahead.appendleft(rest)
                count -= rest.lease.count
            self._took(count)
            most -= count
            found.append(one)
        return found

    def _took(self, count: int) -> None:
        """Credits go back in halves of the prefetch: often enough that the server never waits, and no oftener."""
        self._ahead_count -= count
        if not self.prefetch:
            return
        self._taken += count
        if self._taken * 2 >= self.prefetch:
            credit = bodies.write_credit(self._number, self._taken)
            self.link.tell(Command.CREDIT, credit, self._generation)
            self._taken = 0

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    # --- settle

    async def ack(self, held: list[Held]) -> int:
        await self.live()
        return await self._settled(Command.ACK, self.ack_body(held))

    def ack_body(self, held: list[Held]) -> bytes:
        return bodies.write_ack(self._number, held)

    async def settle(self, what: int, held: list[Held], delay_ms: int, reason: str) -> int:
        number = await self.live()
        return await self._settled(Command.SETTLE, bodies.write_settle(number, what, delay_ms, reason, held))

    async def _settled(self, command: int, body: bytes) -> int:
        try:
            answer = await self.link.request(command, body, bound=self._generation)
        except Closed as error:
            raise self.meant(error) from error
        return bodies.read_settled(memoryview(answer))[0]

    def meant(self, error: BaseException) -> BaseException:
        """A server that shuts down has closed the session, which for its user is a connection that was lost."""
        if isinstance(error, Closed) and not self._closed and not self.link.closed:
            return Lost(f"{self.link.address} is shutting down, and takes no more of {self.member!r}")
        return error

    def ack_one(self, lease: Lease, offset: int, reply: Reply) -> None:
        """Acks a message together with others of this turn of the loop."""
        if not self._acks:
            assert self.link.loop is not None
            self.link.loop.call_soon(self._flush_acks)
        self._acks.append((lease, offset, reply))

    def _flush_acks(self) -> None:
        acks, self._acks = self._acks, []
        if self.link.connected and self._generation == self.link.generation and not self._closed:
            self._send_acks(acks)
        else:
            self.link.spawn(self._ack_later(acks))

    async def _ack_later(self, acks: list[Ack]) -> None:
        try:
            await self.live()
        except (TrineError, asyncio.CancelledError) as error:
            told = error if isinstance(error, TrineError) else Closed("this broker is closed")
            for _, _, reply in acks:
                if not reply.done():
                    reply.set_exception(told)
        else:
            self._send_acks(acks)

    def _send_acks(self, acks: list[Ack]) -> None:
        """As one frame; the second ack of a message in it is for the next one, which is told that it is stale."""
        held: list[Held] = []
        run: Lease | None = None
        first = end = 0
        for lease, offset, _ in acks:
            if lease is run and offset == end:
                end += 1
                continue
            if run is not None:
                held.append((run.partition, run.number, first, end - first))
            run, first, end = lease, offset, offset + 1
        assert run is not None
        held.append((run.partition, run.number, first, end - first))
        if len(held) > 1:
            named = {(lease.partition, lease.number, offset) for lease, offset, _ in acks}
            if len(named) != len(acks):
                self._send_twins(acks)
                return
        body = bodies.write_ack(self._number, held)
        self.link.send(Command.ACK, (body,), _Joined(self, acks), bound=self._generation)

    def _send_twins(self, acks: list[Ack]) -> None:
        """Some messages are acked twice: each once, and then the others."""
        once: dict[tuple[int, int, int], Ack] = {}
        twins = []
        for ack in acks:
            key = (ack[0].partition, ack[0].number, ack[1])
            if once.setdefault(key, ack) is not ack:
                twins.append(ack)
        self._send_acks(list(once.values()))
        self._send_acks(twins)


class _Received:
    """The answer to a RECEIVE. If nobody waits for it any more, the messages are kept for who asks next."""

    __slots__ = ("_future", "_session")

    def __init__(self, session: Session, future: asyncio.Future[bytes]) -> None:
        self._session = session
        self._future = future

    def done(self) -> bool:
        return False

    def set_result(self, result: bytes) -> None:
        if self._future.done():
            self._session.delivered(result)
        else:
            self._future.set_result(result)

    def set_exception(self, exception: BaseException) -> None:
        if not self._future.done():
            self._future.set_exception(exception)


class _Joined:
    """The answer to acks that went out together."""

    __slots__ = ("_acks", "_session")

    def __init__(self, session: Session, acks: list[Ack]) -> None:
        self._session = session
        self._acks = acks

    def done(self) -> bool:
        return False

    def set_result(self, result: bytes) -> None:
        for lease, offset, reply in self._acks:
            lease.settle_one(offset)
            if not reply.done():
                reply.set_result(b"")

    def set_exception(self, exception: BaseException) -> None:
        if len(self._acks) > 1 and not isinstance(exception, Unreachable | Closed):
            for ack in self._acks:
                self._session._send_acks([ack])
            return
        told = self._session.meant(exception)
        for _, _, reply in self._acks:
            if not reply.done():
                reply.set_exception(told)
