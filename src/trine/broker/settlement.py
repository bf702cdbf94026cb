"""A group settles: acks, nacks, rejects and extends, and what happens to messages that nobody settled in time.

The lowest of a group's three layers: settle (here), deliver (`delivery`), steer (`group`). Everything is called under
the engine's lock and answers at once. Each verb decides first (pure, in `queue/`), puts its rows into a journal entry,
and takes effect when the journal has it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from trine.broker.dead_letters import bury, record_bytes
from trine.broker.entry import Entry
from trine.broker.group_part import GroupPart, Run
from trine.broker.metadata import GroupAltered, GroupMeta
from trine.model.durability import Level
from trine.model.options import GroupConfig
from trine.model.receipt import group_key
from trine.queue.backoff import Backoff
from trine.queue.breaker import Breaker
from trine.queue.ledger import Lease, runs_of
from trine.queue.members import Members
from trine.queue.rows import Kind, Row, make_row
from trine.queue.selection import Selection

if TYPE_CHECKING:
    from trine.broker.topic import TopicState

Failing = tuple[GroupPart, Lease, list[tuple[int, int]]]
"""A lease and what of it was delivered in vain."""
GOOD_COUNTED_MS = 100
"""Acks are counted together for this long before the breaker is told: its buckets are far coarser."""
# For the rows of the hot paths: a member of an enum takes longer to look up than to pack.
_ACKED = int(Kind.ACKED)


class Settlement:
    def __init__(self, topic: TopicState, name: str, meta: GroupMeta, parts: list[GroupPart]) -> None:
        self.topic = topic
        self.engine = topic.engine
        self.name = name
        self.receipt_key = group_key(self.engine.meta.secret, topic.name, name)
        self.meta = meta
        self.parts = parts
        self.arrived = threading.Condition(self.engine.lock)
        self.waiting = 0
        """Threads that wait for a message: nobody is woken when it is zero."""
        self.listeners: set[Callable[[], None]] = set()
        """Called when something may be there for a consumer: how event loops wait."""
        self.version = 0
        """Rises when something may be there for a consumer."""
        self._consumers: Counter[str] = Counter()
        """Open consumers by name: two of one name are one member."""
        self.present: set[str] = set()
        """Members whose heartbeat this process keeps."""
        self._last_seen = self.engine.clock.now_ms()
        self.deleted = False
        self._good = 0
        self._good_ms = 0
        self._turn = 0
        self._served = 0
        """Messages taken since the turn went to another partition."""
        self._quiet_until = 0
        """Before this no lease ends and no member is given up, so `expire` need not look; 0 when not known."""
        self._known_free = 0
        """Messages that may surely be leased: what is in flight is only counted when this is used up."""
        self._credits = [0.0] * len(topic.config.lanes)
        self.members: Members = Members(len(parts), "none", 1, 0)
        self.configure(meta.config)

    @property
    def paused(self) -> str | None:
        return self.meta.paused

    def configure(self, config: GroupConfig) -> None:
        self.meta.config = self.config = config
        self._quiet_until = self._known_free = 0
        self.level = Level[config.durability.upper()]
        rule = config.backoff or self.topic.config.backoff
        self._backoff = Backoff(
            first_ms=rule.first_ms, factor=rule.factor, cap_ms=rule.cap_ms, jitter=rule.jitter
        )
        breaker = config.breaker
        self._breaker = (
            Breaker(breaker.share, breaker.window_ms, breaker.least) if breaker is not None else None
        )
        self.members = self._members_anew(config)
        for part in self.parts:
            self._select(part)
        self._filter = (
            [(name, value.encode()) for name, value in config.headers.items()] if config.headers else None
        )
        self._burns = self.topic.config.kind == "dead_letters"
        """A dead letter is not buried twice: its own groups try it again, for ever if need be."""

    def _members_anew(self, config: GroupConfig) -> Members:
        """Rules may have changed: those who are here join again, in the order they came."""
        members = Members(len(self.parts), config.order, config.member_timeout_ms, config.move_wait_ms)
        now = self.engine.clock.now_ms()
        for name in self.members.names():
            members.join(name, now)
        return members

    def _select(self, part: GroupPart) -> None:
        part.selection = Selection(part.ledger, part.partition.lanes, self.config.order, part.partition.keys)

    def add_part(self, part: GroupPart) -> None:
        self.parts.append(part)
        self._select(part)
        self.members.grow(len(self.parts))
        self._quiet_until = 0

    def grow_lanes(self, lanes: int) -> None:
        self._credits += [0.0] * (lanes - len(self._credits))

    # --- waiting

    def wake(self) -> None:
        self.version += 1
        if self.waiting:
            self.arrived.notify_all()
        for listener in tuple(self.listeners):
            listener()

    def keep_members(self, now: int) -> None:
        """Consumers of this process are alive as long as their objects are: they need not call to say so."""
        for name in self.present:
            self.members.heartbeat(name, now)

    def abandoned(self, now: int) -> bool:
        """Whether an ephemeral group has had no member for as long as one may be silent."""
        if self.present or self.members.names():
            self._last_seen = now
        return now - self._last_seen > self.config.member_timeout_ms

    def next_event(self) -> int | None:
        """When something here happens by itself: a retry is due, a lease ends, a member is given up."""
        times = [
            time for part in self.parts for time in (part.selection.next_due(), part.ledger.next_deadline())
        ]
        times.append(self.members.next_deadline())
        return min((time for time in times if time is not None), default=None)

    # --- settle

    def ack(self, runs: Sequence[tuple[GroupPart, Run]], now: int, entry: Entry | None = None) -> int | None:
        """Settles runs as acked. With an entry the caller commits; else answers the lsn to wait for."""
        if entry is None and len(runs) == 1:
            ((part, run),) = runs
            return self.ack_run(part, *run, now)
        mine = Entry() if entry is None else entry
        total = 0
        for part, (number, first, count) in runs:
            lease = part.ledger.held(number, first, count, now)
            name = part.ledger.name(lease.member)
            mine.rows(part, (Row(_ACKED, lease.lane, lease.attempt, name, 0, now, first, count, 0, number),))
            total += count
        if entry is None:
            lsn = self.engine.commit(mine, self.level, reserve=True)
            self.settled(total, now)
            return lsn
        return None

    def ack_run(self, part: GroupPart, number: int, first: int, count: int, now: int) -> int:
        """`ack` of one run: the same, without an entry to collect in."""
        ledger = part.ledger
        lease = ledger.held(number, first, count, now)
        name = ledger.name(lease.member)
        row = make_row((_ACKED, lease.lane, lease.attempt, name, 0, now, first, count, 0, number))
        lsn = self._commit_rows(part, (row,), self.level)
        self.settled(count, now)
        return lsn

    def _commit_rows(self, part: GroupPart, rows: Sequence[Row], level: Level) -> int:
        """What an entry with the rows of one ledger does, without the entry."""
        engine, ledger = self.engine, part.ledger
        engine.check_open()
        change = ledger.change(rows)
        lsn = engine.store.commit(((part.log_id, change),), level, True)
        ledger.commit(rows, change)
        if ledger.closed_blocks:
            part.store_blocks()
        return lsn

    def settled(self, good: int, now: int) -> None:
        """After acks took effect: the breaker counts, waiting publishers and keys get their turn."""
        self._good += good
        if now - self._good_ms > GOOD_COUNTED_MS:
            self._count_good(now)
        if self.members.moving:
            self._finish_moves(now)
        # Others may go on: the next of a key or partition, or whoever waits because too much was in flight.
        if (self.waiting or self.listeners) and (self.config.order != "none" or self._known_free <= 0):
            self.wake()
        topic = self.topic
        if topic.waiting_publishers or topic.room_listeners:
            topic.made_room()

    def _count_good(self, now: int) -> None:
        """Tells the breaker what was acked since it was last told."""
        if self._breaker is not None and self._good:
            self._breaker.record(now, self._good, 0)
        self._good = 0
        self._good_ms = now

    def nack(
        self, runs: Sequence[tuple[GroupPart, Run]], now: int, delay_ms: int | None, reason: str | None
    ) -> int:
        entry = Entry()
        failing = []
        for part, (number, first, count) in runs:
            lease = part.ledger.held(number, first, count, now)
            failing.append((part, lease, [(first, count)]))
        self._fail(entry, failing, Kind.NACKED, reason or "nacked", now, delay_ms)
        lsn = self.engine.commit(entry, self.level, reserve=True)
        self._after_failures(now)
        return lsn

    def reject(self, runs: Sequence[tuple[GroupPart, Run]], now: int, reason: str) -> int:
        entry = Entry()
        for part, (number, first, count) in runs:
            lease = part.ledger.held(number, first, count, now)
            entry.rows(part, self._bury(entry, part, lease, first, count, reason, now))
        lsn = self.engine.commit(entry, self.level, reserve=True)
        self._after_failures(now)
        return lsn

    def extend(self, runs: Sequence[tuple[GroupPart, Run]], now: int, duration_ms: int) -> int:
        entry = Entry()
        until = now + duration_ms
        self._quiet_until = min(self._quiet_until, until)
        for part, (number, first, count) in runs:
            lease = part.ledger.held(number, first, count, now)
            name = part.ledger.name(lease.member)
            row = Row(Kind.EXTENDED, lease.lane, lease.attempt, name, 0, now, first, count, until, number)
            entry.rows(part, (row,))
        return self.engine.commit(entry, self.level, reserve=True)

    def expire(self, now: int) -> None:
        """Leases that are over and members that are silent: their messages go back."""
        failing: list[Failing] = []
        for part in self.parts:
            if (deadline := part.ledger.next_deadline()) is not None and deadline <= now:
                failing += [(part, lease, runs) for lease, runs in part.ledger.overdue(now)]
        if failing:
            self._return_all(failing, "lease expired", now, None)
            self._after_failures(now)
        if (silent := self.members.next_deadline()) is not None and silent <= now:
            self.keep_members(now)
            for member in self.members.expire(now):
                self.release(member, "member is silent", now)
            self._finish_moves(now)
        ends = [part.ledger.next_deadline() for part in self.parts]
        ends.append(self.members.next_deadline())
        self._quiet_until = min((end for end in ends if end is not None), default=now + 1)

    def release(self, member: str, reason: str, now: int, *, counts: bool = True) -> None:
        """Returns all that a member holds, at once. What it never looked at does not count as a delivery."""
        failing = [
            (part, lease, lease.open_runs()) for part in self.parts for lease in part.ledger.leases_of(member)
        ]
        if not failing:
            return
        if counts:
            self._return_all(failing, reason, now, 0)
        else:
            entry = Entry()
            for part, lease, runs in failing:
                self._give_back(entry, part, lease, runs, reason, now)
            self.engine.commit(entry, self.level, reserve=True)
        self._after_failures(now)

    def leave(self, member: str, now: int) -> None:
        """A consumer closes; the member is gone with the last consumer of its name."""
        self._consumers[member] -= 1
        if self._consumers[member] > 0:
            return
        del self._consumers[member]
        self.present.discard(member)
        self.members.leave(member, now)
        self._quiet_until = 0
        self.release(member, "member closed", now, counts=False)
        self._finish_moves(now)
        self.wake()

    def recovered(self, now: int, grace_ms: int | None) -> None:
        """The broker restarted: nobody holds the leases any more, yet they were deliveries.

        Members that have a connection may come back within the grace, and go on with what they hold.
        """
        if grace_ms is not None:
            for member in {lease.member for part in self.parts for lease in part.ledger.leases.values()}:
                self.members.join(member, now)
                self.members.expect(member, now + grace_ms)
            return
        failing = [
            (part, lease, lease.open_runs()) for part in self.parts for lease in part.ledger.leases.values()
        ]
        if failing:
            self._return_all(failing, "broker restarted", now, 0)

    def _return_all(self, failing: list[Failing], reason: str, now: int, delay_ms: int | None) -> None:
        """`_fail` of any number of messages, nobody's call: dead letters take as many entries as they need."""
        again = []
        for part, lease, runs in failing:
            if lease.attempt < self.config.max_deliveries or self._burns:
                again.append((part, lease, runs))
                continue
            for piece in self._fitting(part, runs):
                entry = Entry()
                self._fail(entry, [(part, lease, piece)], Kind.RETURNED, reason, now, delay_ms)
                self.engine.commit(entry, self.level, reserve=True)
        entry = Entry()
        self._fail(entry, again, Kind.RETURNED, reason, now, delay_ms)
        self.engine.commit(entry, self.level, reserve=True)

    def _fitting(self, part: GroupPart, runs: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        """The runs in pieces whose messages fit one entry of the journal together."""
        room = self.engine.store.entry_bytes_max // 2
        piece: list[int] = []
        size = 0
        for first, count in runs:
            sizes = {record.offset: record_bytes(record) for record in part.partition.records(first, count)}
            for offset in range(first, first + count):
                more = sizes.get(offset, 0)
                if piece and size + more > room:
                    yield runs_of(piece)
                    piece, size = [], 0
                piece.append(offset)
                size += more
        yield runs_of(piece)

    def _finish_moves(self, now: int) -> None:
        for revoked in self.members.tick(now, self._held_by):
            if self.config.order == "partition":
                part = self.parts[revoked.partition]
                entry = Entry()
                for lease in part.ledger.leases_of(revoked.member):
                    self._give_back(entry, part, lease, lease.open_runs(), "partition moved", now)
                self.engine.commit(entry, self.level, reserve=True)
        self.wake()

    def _held_by(self, member: str, partition: int) -> int:
        return sum(lease.left for lease in self.parts[partition].ledger.leases_of(member))

    def _give_back(
        self, entry: Entry, part: GroupPart, lease: Lease, runs: list[tuple[int, int]], reason: str, now: int
    ) -> None:
        """Back to the queue through no fault of the message: this delivery does not count."""
        ledger = part.ledger
        member, why = ledger.name(lease.member), ledger.name(reason)
        entry.rows(
            part,
            [
                Row(
                    Kind.RETURNED,
                    lease.lane,
                    lease.attempt - 1,
                    member,
                    why,
                    now,
                    first,
                    count,
                    now,
                    lease.number,
                )
                for first, count in runs
            ],
        )

    def _fail(
        self,
        entry: Entry,
        failing: list[Failing],
        kind: Kind,
        reason: str,
        now: int,
        delay_ms: int | None,
    ) -> None:
        """Deliveries in vain: each message is tried again after its backoff, or given up."""
        again: dict[tuple[int, int], tuple[GroupPart, int]] = {}
        for part, lease, runs in failing:
            ledger = part.ledger
            if lease.attempt >= self.config.max_deliveries and not self._burns:
                why = f"{lease.attempt} deliveries, the last: {reason}"
                for first, count in runs:
                    entry.rows(part, self._bury(entry, part, lease, first, count, why, now))
                continue
            delay = self._backoff.delay_ms(lease.attempt, self.engine.rng) if delay_ms is None else delay_ms
            member, why_name = ledger.name(lease.member), ledger.name(reason[:500])
            entry.rows(
                part,
                [
                    Row(
                        kind,
                        lease.lane,
                        lease.attempt,
                        member,
                        why_name,
                        now,
                        first,
                        count,
                        now + delay,
                        lease.number,
                    )
                    for first, count in runs
                ],
            )
            if self.config.order == "partition" and runs:
                _, least = again.get((part.log_id, lease.lane), (part, runs[0][0]))
                again[part.log_id, lease.lane] = (part, min(least, runs[0][0]))
        for (_, lane), (part, least) in again.items():
            self._hold_followers(entry, part, lane, least, failing, now)

    def _hold_followers(
        self,
        entry: Entry,
        part: GroupPart,
        lane: int,
        least: int,
        failing: list[Failing],
        now: int,
    ) -> None:
        """In order: what was delivered after a message that is tried again comes again after it."""
        over = {
            offset
            for other, lease, runs in failing
            if other is part and lease.lane == lane
            for first, count in runs
            for offset in range(first, first + count)
        }
        for lease in part.ledger.leases.values():
            if lease.lane != lane:
                continue
            followers = runs_of(
                offset
                for first, count in lease.open_runs()
                for offset in range(first, first + count)
                if offset > least and offset not in over
            )
            self._give_back(entry, part, lease, followers, "an earlier message failed", now)

    def _bury(
        self, entry: Entry, part: GroupPart, lease: Lease, first: int, count: int, reason: str, now: int
    ) -> list[Row]:
        if self._breaker is not None:
            self._breaker.record(now, 0, count)
        if self._burns or not self.config.dead_letters:
            ledger = part.ledger
            member, why = ledger.name(lease.member), ledger.name(reason[:500])
            return [
                Row(Kind.REJECTED, lease.lane, lease.attempt, member, why, now, first, count, 0, lease.number)
            ]
        return bury(entry, self, part, first, count, lease.attempt, reason, lease.member, now, lease.number)

    def _after_failures(self, now: int) -> None:
        if self.members.moving:
            self._finish_moves(now)
        if self._breaker is not None and self.meta.paused is None:
            self._count_good(now)
            why = self._breaker.tripped(now)
            if why is not None:
                self.pause(f"breaker: {why}; mend the cause, then resume the group")
        self.wake()

    def pause(self, reason: str) -> int:
        return self._alter(self.config, reason)

    def _alter(self, config: GroupConfig, paused: str | None) -> int:
        entry = Entry()
        entry.meta(GroupAltered(self.topic.name, self.name, config, paused), self.engine.apply_meta)
        return self.engine.commit(entry, Level.SYNCED)
