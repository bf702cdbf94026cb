"""Deliveries: who waits for messages of a group, and how they are handed out.

    RECEIVE ─▶ Poll ─┐
                     ├─▶ Desk of the group: one round, served in turn ─▶ DELIVERY frames
    START ───▶ Push ─┘        ▲
                              └── rung when something may be there (any thread), or when its timer is due

A desk is rung once however many messages come before it is served, and stops serving as soon as a lease gives nothing:
a thousand waiting consumers cost no more than one. Whoever cannot take more (no credits, a connection that does not
drain) steps out of the round and comes back by itself. Everything but `ring` happens in the loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from trine.broker.entry import Entry
from trine.broker.group import GroupState
from trine.broker.group_part import GroupPart
from trine.log import batch
from trine.model.clock import SimulatedClock
from trine.model.durability import Level
from trine.model.errors import Refused, TrineError, UnknownGroup
from trine.model.limits import FRAME_BYTES_MAX, MIB, RECEIVE_MAX
from trine.queue.ledger import Lease
from trine.server.bell import Bell
from trine.wire.bodies import Bytes, write_delivery

if TYPE_CHECKING:
    from trine.server.context import Context

DELIVERY_BYTES_MAX: Final = 8 * MIB
"""What one delivery should hold; a batch that is larger goes alone."""
assert DELIVERY_BYTES_MAX * 3 < FRAME_BYTES_MAX
TURNS_MAX: Final = 64
"""Deliveries a desk makes before the loop looks after others."""
LOOK_AGAIN_MS: Final = 250
"""When something is due that nobody may have (a paused group, a full disk), the desk looks again this often."""

Run = tuple[int, int, int, int, int, int, int, Sequence[Bytes]]
"""(partition, lane, attempt, lease, first, count, deadline, batches): what `write_delivery` takes."""


class Outlet(Protocol):
    """The connection a delivery goes to."""

    @property
    def blocked(self) -> bool:
        """It takes nothing now: it does not drain, or it is closing."""

    def delivered(self, correlation: int, parts: Sequence[Bytes]) -> None:
        """Answers a RECEIVE."""

    def push(self, session: int, parts: Sequence[Bytes]) -> None: ...

    def poll_failed(self, correlation: int, error: TrineError) -> None: ...

    def push_failed(self, session: int, error: TrineError) -> None: ...


class Waiter(Protocol):
    @property
    def member(self) -> str: ...

    def wants(self) -> int:
        """How many messages it takes now; 0 steps out of the round."""

    def give(self, runs: Sequence[Run]) -> None: ...

    def fail(self, error: TrineError) -> None: ...


class Poll:
    """A RECEIVE that waits for the first message."""

    __slots__ = ("_correlation", "_most", "_over", "_session", "_timer")

    def __init__(self, session: Session, correlation: int, most: int, wait_ms: int) -> None:
        self._session = session
        self._correlation = correlation
        self._most = most
        self._over = False
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.end)

    @property
    def member(self) -> str:
        return self._session.member

    def wants(self) -> int:
        return 0 if self._over or self._session.outlet.blocked else self._most

    def give(self, runs: Sequence[Run]) -> None:
        self._finish()
        self._session.outlet.delivered(self._correlation, write_delivery(self._session.number, runs))

    def fail(self, error: TrineError) -> None:
        self._finish()
        self._session.outlet.poll_failed(self._correlation, error)

    def end(self) -> None:
        """Nothing came in time, or the server is closing: an empty delivery."""
        if not self._over:
            self.give(())

    def drop(self) -> None:
        """The connection is gone: nobody is there to be answered."""
        self._finish()

    def _finish(self) -> None:
        self._over = True
        self._timer.cancel()
        self._session.polls.discard(self)
        self._session.desk.forget(self)


class Push:
    """A session that is sent messages as they come, as long as it has credits."""

    __slots__ = ("_session", "credits", "most")

    def __init__(self, session: Session, credits: int, most: int) -> None:
        self._session = session
        self.credits = credits
        self.most = min(most, RECEIVE_MAX) or RECEIVE_MAX

    @property
    def member(self) -> str:
        return self._session.member

    def wants(self) -> int:
        return 0 if self._session.outlet.blocked else min(self.credits, self.most)

    def give(self, runs: Sequence[Run]) -> None:
        self.credits -= sum(run[5] for run in runs)
        self._session.outlet.push(self._session.number, write_delivery(self._session.number, runs))

    def fail(self, error: TrineError) -> None:
        self._session.stop()
        self._session.outlet.push_failed(self._session.number, error)


class Session:
    """One consumer of one connection: a membership, the receives it waits with, and what is pushed to it."""

    __slots__ = ("desk", "group", "keeps_alive", "member", "number", "outlet", "polls", "push")

    def __init__(self, number: int, desk: Desk, member: str, outlet: Outlet, keeps_alive: bool) -> None:
        self.number = number
        self.desk = desk
        self.group = desk.group
        self.member = member
        self.outlet = outlet
        self.keeps_alive = keeps_alive
        self.polls: set[Poll] = set()
        self.push: Push | None = None

    def check(self) -> None:
        if self.group.deleted:
            self.desk._engine.topic(self.group.topic.name)  # with its topic, or by itself
            raise UnknownGroup(
                f"group {self.group.name!r} of topic {self.group.topic.name!r} was deleted; join another one"
            )

    def park(self, correlation: int, most: int, wait_ms: int) -> None:
        """There is nothing now: wait for the first message. Under the lock, right after the look."""
        poll = Poll(self, correlation, most, wait_ms)
        self.polls.add(poll)
        self.desk.join(poll)

    def start(self, credits: int, most: int) -> None:
        self.stop()
        self.push = Push(self, credits, most)
        self.ready()

    def credit(self, more: int) -> None:
        if self.push is not None:
            had = self.push.wants() > 0
            self.push.credits += more
            if not had:
                self.ready()

    def stop(self) -> None:
        if self.push is not None:
            self.desk.forget(self.push)
            self.push = None

    def ready(self) -> None:
        """The connection drains again, or there are credits: back into the round."""
        for poll in self.polls:
            self.desk.join(poll)
        if self.push is not None and self.push.wants() > 0:
            self.desk.join(self.push)
        self.desk.ring()

    def end_polls(self) -> None:
        for poll in tuple(self.polls):
            poll.end()

    def close(self) -> None:
        """Nobody is there any more. The membership itself is ended by who knows how it ended."""
        self.stop()
        for poll in tuple(self.polls):
            poll.drop()


class Desk:
    """Where the consumers of one group wait, on one server."""

    def __init__(self, context: Context, group: GroupState) -> None:
        self.group = group
        self.sessions = 0
        self._engine = context.engine
        self._flushes = context.commits.flushes
        self._log = context.log
        self._loop = asyncio.get_running_loop()
        self._simulated = isinstance(self._engine.clock, SimulatedClock)
        self._round: OrderedDict[Waiter, None] = OrderedDict()
        self._bell = Bell(self._serve)
        self._timer: asyncio.TimerHandle | None = None
        self._due: int | None = None
        self._message_bytes = _average_bytes(group)

    # --- the round

    def join(self, waiter: Waiter) -> None:
        with self._engine.lock:
            self.group.listeners.add(self.ring)
            self._round.setdefault(waiter)
            self._set_timer(self._engine.clock.now_ms())

    def forget(self, waiter: Waiter) -> None:
        self._round.pop(waiter, None)
        if not self._round:
            self._rest()

    def ring(self) -> None:
        """Something may be there. From any thread."""
        self._bell.ring()

    def _rest(self) -> None:
        self.group.listeners.discard(self.ring)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._due = None

    def _serve(self) -> None:
        if not self._round:
            return
        with self._flushes, self._engine.lock:
            now = self._engine.clock.now_ms()
            if self.group.config.order == "partition":
                self._serve_owners(now)
            else:
                self._serve_round(now)
            if self._round:
                self._set_timer(now)
            else:
                self._rest()

    def _serve_round(self, now: int) -> None:
        """In turn, until there is nothing: what one member cannot get, no other can."""
        for _ in range(TURNS_MAX):
            if not self._round:
                return
            waiter, _ = self._round.popitem(last=False)
            outcome = self._serve_one(waiter, now)
            if outcome is None:
                self._round[waiter] = None
                self._round.move_to_end(waiter, last=False)
                return
            if outcome:
                self._round[waiter] = None
        self.ring()

    def _serve_owners(self, now: int) -> None:
        """In partition order each member has its own: all that own something are asked."""
        due = self.group.next_event()
        if due is not None and due <= now:
            self.group.expire(now)
        assigned = self.group.members.assigned
        again = False
        for waiter in tuple(self._round):
            if waiter.member in self.group.members and not assigned(waiter.member):
                continue
            self._round.pop(waiter, None)
            outcome = self._serve_one(waiter, now)
            if outcome is None or outcome:
                self._round[waiter] = None
                again = again or bool(outcome)
        if again:
            self.ring()

    def _serve_one(self, waiter: Waiter, now: int) -> bool | None:
        """Whether it wants more; None if there is nothing for it."""
        most = waiter.wants()
        if most <= 0:
            return False
        try:
            runs = self.lease(waiter.member, most, now)
            if not runs:
                return None
            waiter.give(runs)
        except TrineError as error:
            if isinstance(error, Refused) and isinstance(waiter, Push):
                return None  # it has not been told, and need not be: the desk looks again
            waiter.fail(error)
            return False
        except Exception:
            self._log.exception("a delivery failed", topic=self.group.topic.name, group=self.group.name)
            waiter.fail(TrineError("the delivery failed inside the server; its log says why"))
            return False
        return waiter.wants() > 0

    def _set_timer(self, now: int) -> None:
        """Retries become due and leases end without anybody ringing."""
        if self._simulated:  # time passes only when somebody says so, and that rings
            return
        due = self.group.next_event()
        if due is not None and due <= now:
            due = now + LOOK_AGAIN_MS
        if self._timer is not None and self._due is not None and due is not None and self._due <= due:
            return  # it rings early enough, and looks again
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = due
        if due is not None:
            self._timer = self._loop.call_later((due - now) / 1000, self._timer_rings)

    def _timer_rings(self) -> None:
        self._timer = self._due = None
        self._serve()

    # --- a lease as it is sent

    def lease(self, member: str, most: int, now: int) -> list[Run]:
        """Leases up to `most` messages, and as many as fit one delivery. Under the lock."""
        fitting = max(DELIVERY_BYTES_MAX // self._message_bytes, 1)
        leased = self.group.lease(member, min(most, fitting), now)
        runs: list[Run] = []
        room = DELIVERY_BYTES_MAX
        count = size = 0
        for part, lease in leased:
            batches: Sequence[Bytes] = part.stored(lease)
            messages = lease.count
            total = sum(map(len, batches))
            if total > room and not self.group.config.auto_ack:
                batches, messages = _first_of(lease, batches, room, must=not runs)
                total = sum(map(len, batches))
                if messages < lease.count:
                    self._give_back(part, lease, messages, now)
                if not messages:
                    continue
            room -= total
            count += messages
            size += total
            head = (part.partition.number, lease.lane, lease.attempt, lease.number, lease.first)
            runs.append((*head, messages, lease.deadline, batches))
        if count:
            self._message_bytes = max(size // count, 1)
        return runs

    def _give_back(self, part: GroupPart, lease: Lease, kept: int, now: int) -> None:
        """What does not fit the delivery was never seen by anybody: it is free again, and not counted as tried."""
        entry = Entry()
        rest = [(lease.first + kept, lease.count - kept)]
        self.group._give_back(entry, part, lease, rest, "more than one delivery holds", now)
        self._engine.commit(entry, Level.WRITTEN, reserve=True)


class Desks:
    """The desks of all groups that have consumers on this server."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._desks: dict[GroupState, Desk] = {}

    def open(self, group: GroupState) -> Desk:
        desk = self._desks.get(group)
        if desk is None:
            desk = self._desks[group] = Desk(self._context, group)
        desk.sessions += 1
        return desk

    def close(self, desk: Desk) -> None:
        desk.sessions -= 1
        if not desk.sessions:
            del self._desks[desk.group]

    def __len__(self) -> int:
        return len(self._desks)


def _first_of(
    lease: Lease, batches: Sequence[Bytes], room: int, *, must: bool
) -> tuple[Sequence[Bytes], int]:
    """The batches that fit, at least one if something must go, and how many messages of the lease they hold."""
    taken: list[Bytes] = []
    messages = 0
    for data in batches:
        if len(data) > room and (taken or not must):
            break
        taken.append(data)
        room -= len(data)
        messages = batch.read_header(data).next_offset - lease.first
    return taken, max(min(messages, lease.count), 0)


def _average_bytes(group: GroupState) -> int:
    logs = [part.partition.log for part in group.parts]
    messages = sum(log.next_offset - log.start_offset for log in logs)
    return max(sum(log.size_bytes for log in logs) // messages, 1) if messages else 1
