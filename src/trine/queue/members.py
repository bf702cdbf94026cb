"""The members of one group and which partitions each may take new work from.

A member joins, sends heartbeats, and leaves or falls silent. After each change the partitions are spread
anew: balanced (loads differ by at most one), sticky (no more partitions change hands than balance needs)
and cooperative (a partition that does not move never stops).

How a partition moves depends on the group's order:

    none, key    at once; what its old owner has in flight stays valid there. When there are more members than
                 partitions, the members are spread over the partitions: a partition then has several owners.
    partition    owned ──rebalanced──▶ moving ──released, or its wait is over──▶ owned by the new one
                                         └──rebalanced back──▶ owned by the old one again
                 A moving partition is nobody's to take new work from, so that two members never work on one
                 partition. The wait is counted from when the old owner lost it, and is not prolonged by
                 further rebalancing. Members beyond the number of partitions idle.

A member that leaves or expires holds nothing any more: the caller releases its leases in the same step, and
so its partitions go to their new owners without a wait.

It is pure: time is an argument (and never goes back here: an earlier one counts as the latest seen), and
what is in flight is asked of the caller. It does not know leases, messages or connections.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from trine.model.description import Rebalance
from trine.model.errors import TooMany
from trine.model.limits import MEMBERS_MAX
from trine.queue.assignment import assign

HISTORY_MAX: Final = 100
"""Rebalances remembered for people to look at; each may name as many partitions as there are."""

ORDERS: Final = ("none", "key", "partition")


class Move(NamedTuple):
    """A partition on its way from its old owner to its new one, at the latest at the deadline."""

    old: str
    new: str
    deadline_ms: int


class Revoked(NamedTuple):
    """A partition taken from a member that did not finish in time; its leases there are to be voided."""

    partition: int
    member: str


class MembersStatistics(msgspec.Struct, frozen=True, kw_only=True):
    members: int
    partitions: int
    idle: int
    moving: int
    generation: int
    rebalances: int
    expired: int
    moves_finished: int
    moves_revoked: int
    move_ms_max: int


class Members:
    """The members of one group.

    >>> members = Members(4, "key", member_timeout_ms=10_000, move_wait_ms=1000)
    >>> members.join("a", now_ms=0), members.join("b", now_ms=5), members.assigned("a"), members.assigned("b")
    (True, True, (0, 1), (2, 3))
    """

    def __init__(self, partitions: int, order: str, member_timeout_ms: int, move_wait_ms: int) -> None:
        assert order in ORDERS, f"unknown order {order!r}"
        assert partitions >= 0, "a count of partitions"
        self.order = order
        self.member_timeout_ms = member_timeout_ms
        self.move_wait_ms = move_wait_ms
        self.generation = 0
        self.moving: dict[int, Move] = {}
        self.history: deque[Rebalance] = deque(maxlen=HISTORY_MAX)
        self._partitions = partitions
        self._names: dict[str, None] = {}  # in the order they joined
        self._seen_ms: OrderedDict[str, int] = OrderedDict()  # the longest silent one first
        self._latest_ms = 0
        self._target: dict[str, tuple[int, ...]] = {}  # what each has or will have
        self._assigned: dict[str, tuple[int, ...]] = {}  # the same without what is still moving
        self._rebalances = 0
        self._expired = 0
        self._moves_finished = 0
        self._moves_revoked = 0
        self._move_ms_max = 0

    def names(self) -> list[str]:
        """The members, in the order they joined."""
        return list(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def seen_ms(self, name: str) -> int | None:
        """When a member was last heard of."""
        return self._seen_ms.get(name)

    def assigned(self, name: str) -> tuple[int, ...]:
        """The partitions a member may take new work from now; none if it is no member (any more)."""
        return self._assigned.get(name, ())

    # --- members come and go

    def join(self, name: str, now_ms: int) -> bool:
        """Make it a member, or count it as a heartbeat if it is one; says whether it is new."""
        if self.heartbeat(name, now_ms):
            return False
        if len(self._names) >= MEMBERS_MAX:
            raise TooMany(f"The group has {MEMBERS_MAX} members already; {name!r} cannot join it.")
        now_ms = self._pass(now_ms)
        self._names[name] = None
        self._seen_ms[name] = now_ms
        self._rebalance(now_ms, f"{name} joined", joined=(name,))
        return True

    def expect(self, name: str, by_ms: int) -> None:
        """A member that fell silent must be heard of by then, if that is sooner than its timeout."""
        seen = by_ms - self.member_timeout_ms
        if seen < self._seen_ms.get(name, seen):
            self._seen_ms[name] = seen
            self._seen_ms = OrderedDict(sorted(self._seen_ms.items(), key=lambda one: one[1]))

    def leave(self, name: str, now_ms: int) -> bool:
        """Remove a member, whose leases the caller releases in the same step; False if it is none."""
        now_ms = self._pass(now_ms)
        if name not in self._names:
            return False
        self._remove(name)
        self._rebalance(now_ms, f"{name} left", left=(name,))
        return True

    def heartbeat(self, name: str, now_ms: int) -> bool:
        """Note that a member is alive; False if it is none (it expired, say) and has to join again."""
        if name not in self._names:
            return False
        self._seen_ms[name] = self._pass(now_ms)
        self._seen_ms.move_to_end(name)
        return True

    def expire(self, now_ms: int) -> list[str]:
        """Remove the members that were silent for longer than allowed. The caller releases their leases."""
        now_ms = self._pass(now_ms)
        silent = []
        for name, seen_ms in self._seen_ms.items():
            if now_ms - seen_ms <= self.member_timeout_ms:
                break
            silent.append(name)
        if silent:
            for name in silent:
                self._remove(name)
            self._expired += len(silent)
            others = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
            self._rebalance(now_ms, f"{silent[0]}{others} fell silent", left=tuple(silent))
        return silent

    def grow(self, partitions: int) -> None:
        """The topic has more partitions now."""
        assert partitions >= self._partitions, "partitions are only ever added"
        if partitions > self._partitions:
            why = f"partitions grew from {self._partitions} to {partitions}"
            self._partitions = partitions
            self._rebalance(self._latest_ms, why)

    # --- partitions move

    def released(self, partition: int, now_ms: int) -> bool:
        """The old owner has nothing in flight there any more: the move is done. False if it was not moving."""
        now_ms = self._pass(now_ms)
        if partition not in self.moving:
            return False
        self._finish(partition, now_ms)
        return True

    def tick(self, now_ms: int, in_flight: Callable[[str, int], int]) -> list[Revoked]:
        """Finish the moves whose old owner has nothing in flight, and those whose wait is over.

        The latter are returned: what the member still holds there has to be voided before anything is taken
        from that partition again.
        """
        now_ms = self._pass(now_ms)
        revoked = []
        for partition, move in sorted(self.moving.items()):
            if in_flight(move.old, partition) == 0:
                self._finish(partition, now_ms)
            elif now_ms >= move.deadline_ms:
                self._finish(partition, now_ms)
                self._moves_revoked += 1
                revoked.append(Revoked(partition, move.old))
        return revoked

    def next_deadline(self) -> int | None:
        """When `expire` or `tick` has something to do by itself, or None."""
        deadlines = [move.deadline_ms for move in self.moving.values()]
        for seen_ms in self._seen_ms.values():
            deadlines.append(seen_ms + self.member_timeout_ms + 1)  # silent for *longer* than the timeout
            break
        return min(deadlines, default=None)

    def statistics(self) -> MembersStatistics:
        return MembersStatistics(
            members=len(self._names),
            partitions=self._partitions,
            idle=sum(1 for partitions in self._target.values() if not partitions),
            moving=len(self.moving),
            generation=self.generation,
            rebalances=self._rebalances,
            expired=self._expired,
            moves_finished=self._moves_finished,
            moves_revoked=self._moves_revoked,
            move_ms_max=self._move_ms_max,
        )

    # --- inside

    def _pass(self, now_ms: int) -> int:
        self._latest_ms = max(self._latest_ms, now_ms)
        return self._latest_ms

    def _remove(self, name: str) -> None:
        del self._names[name]
        del self._seen_ms[name]

    def _finish(self, partition: int, now_ms: int) -> None:
        move = self.moving.pop(partition)
        self._assigned[move.new] = self._takeable(move.new)
        self.generation += 1
        self._moves_finished += 1
        self._move_ms_max = max(self._move_ms_max, now_ms - (move.deadline_ms - self.move_wait_ms))
        if not self.moving and self.history and self.history[-1].pause_ms is None:
            last = self.history[-1]
            self.history[-1] = msgspec.structs.replace(last, pause_ms=now_ms - last.at_ms)

    def _takeable(self, name: str) -> tuple[int, ...]:
        return tuple(partition for partition in self._target[name] if partition not in self.moving)

    def _rebalance(
        self, now_ms: int, why: str, joined: tuple[str, ...] = (), left: tuple[str, ...] = ()
    ) -> None:
        """Spread the partitions over the members as they are now."""
        before = self._target
        if not self._names or not self._partitions:
            self._target = dict.fromkeys(self._names, ())
            self.moving.clear()
        elif self.order != "partition" and len(self._names) > self._partitions:
            self._target = self._share(before)
        else:
            self._target = self._divide(before, now_ms)
        self._assigned = {name: self._takeable(name) for name in self._names}
        self.generation += 1
        self._rebalances += 1
        moved = _changed(before, self._target)
        pause_ms = None if self.moving else 0
        self.history.append(
            Rebalance(now_ms, why, moved, len(self._names), self.generation, joined, left, pause_ms)
        )

    def _share(self, before: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """More members than partitions, and they may share: each member gets one partition."""
        names = list(self._names)
        current = {name: before[name][0] for name in names if before.get(name)}
        placed = assign(names, range(self._partitions), current, {}, ())
        return {name: (placed[name],) for name in names}

    def _divide(self, before: dict[str, tuple[int, ...]], now_ms: int) -> dict[str, tuple[int, ...]]:
        """Each partition gets one member."""
        current: dict[int, str] = {}
        for name in self._names:
            for partition in before.get(name, ()):
                current.setdefault(partition, name)  # of several who shared it, the first keeps it
        # A partition that has not yet arrived is the first to be sent elsewhere, best back to where it still is.
        wishes = {partition: move.old for partition, move in self.moving.items()}
        placed = assign(range(self._partitions), list(self._names), current, wishes, self.moving)
        if self.order == "partition":
            self._start_moves(current, placed, now_ms)
        target: dict[str, list[int]] = {name: [] for name in self._names}
        for partition in range(self._partitions):
            target[placed[partition]].append(partition)
        return {name: tuple(partitions) for name, partitions in target.items()}

    def _start_moves(self, current: dict[int, str], placed: dict[int, str], now_ms: int) -> None:
        for partition, new in placed.items():
            move = self.moving.pop(partition, None)
            old = current.get(partition) if move is None else move.old
            if old is not None and old != new and old in self._names:
                deadline_ms = now_ms + self.move_wait_ms if move is None else move.deadline_ms
                self.moving[partition] = Move(old, new, deadline_ms)


def _changed(before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The partitions whose owners are not the same ones."""
    pairs_before = {(name, partition) for name, partitions in before.items() for partition in partitions}
    pairs_after = {(name, partition) for name, partitions in after.items() for partition in partitions}
    return tuple(sorted({partition for _, partition in pairs_before ^ pairs_after}))
