"""Members of a group: joining, leaving, silence, and partitions that move without stopping the others."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trine.model.errors import TooMany
from trine.queue import members as module
from trine.queue.members import HISTORY_MAX, Members, Move, Revoked

TIMEOUT = 10_000
WAIT = 900
NAMES = [f"m{number}" for number in range(9)]


def nothing(member: str, partition: int) -> int:
    return 0


def something(member: str, partition: int) -> int:
    return 1


def group(partitions: int, order: str = "partition") -> Members:
    return Members(partitions, order, member_timeout_ms=TIMEOUT, move_wait_ms=WAIT)


def test_the_first_member_gets_everything_at_once() -> None:
    members = group(4)
    assert members.join("a", 0) is True
    assert members.join("a", 1) is False
    assert members.assigned("a") == (0, 1, 2, 3)
    assert members.assigned("stranger") == ()
    assert members.moving == {}


def test_a_moving_partition_is_nobodys_until_released() -> None:
    members = group(4)
    members.join("a", 0)
    members.join("b", 100)
    assert members.assigned("a") == (0, 1)
    assert members.assigned("b") == ()
    assert members.moving == {2: Move("a", "b", 100 + WAIT), 3: Move("a", "b", 100 + WAIT)}
    before = members.generation
    assert members.released(3, 150) is True
    assert members.released(3, 150) is False
    assert members.released(0, 150) is False
    assert members.assigned("b") == (3,)
    assert members.generation > before
    assert members.tick(200, nothing) == []
    assert members.assigned("b") == (2, 3)


def test_a_move_ends_when_its_wait_is_over_and_says_whose_leases_to_void() -> None:
    members = group(2)
    members.join("a", 0)
    members.join("b", 100)
    assert members.next_deadline() == 100 + WAIT
    assert members.tick(99 + WAIT, something) == []
    assert members.tick(100 + WAIT, something) == [Revoked(1, "a")]
    assert members.assigned("b") == (1,)
    statistics = members.statistics()
    assert (statistics.moves_finished, statistics.moves_revoked, statistics.move_ms_max) == (1, 1, WAIT)


def test_a_partition_on_its_way_goes_back_when_the_new_owner_leaves() -> None:
    members = group(2)
    members.join("a", 0)
    members.join("b", 100)
    members.leave("b", 200)
    assert members.assigned("a") == (0, 1)
    assert members.moving == {}


def test_when_the_old_owner_leaves_the_move_is_over() -> None:
    members = group(2)
    members.join("a", 0)
    members.join("b", 100)
    members.leave("a", 200)
    assert members.assigned("b") == (0, 1)
    assert members.moving == {}


def test_a_move_redirected_keeps_its_first_deadline() -> None:
    members = group(6)
    members.join("a", 0)
    members.join("b", 100)
    members.join("c", 200)
    assert all(
        move.old == "a" and move.deadline_ms == 100 + WAIT for p, move in members.moving.items() if p > 2
    )
    assert {move.new for move in members.moving.values()} == {"b", "c"}


def test_silent_members_expire_and_the_rest_takes_over_at_once() -> None:
    members = group(4)
    for name in "abc":
        members.join(name, 0)
    members.tick(1, nothing)
    assert members.heartbeat("b", 5000) is True
    assert members.next_deadline() == TIMEOUT + 1
    assert members.expire(TIMEOUT) == []
    assert members.expire(TIMEOUT + 1) == ["a", "c"]
    assert members.assigned("b") == (0, 1, 2, 3)
    assert members.heartbeat("a", TIMEOUT + 2) is False
    assert members.history[-1].why == "a and 1 more fell silent"
    assert members.statistics().expired == 2


def test_members_beyond_the_partitions_idle_in_partition_order_and_share_otherwise() -> None:
    strict, free = group(2), group(2, "none")
    for name in "abcde":
        strict.join(name, 0)
        free.join(name, 0)
        strict.tick(0, nothing)
    assert [strict.assigned(name) for name in "abcde"] == [(0,), (1,), (), (), ()]
    assert strict.statistics().idle == 3
    assert sorted(free.assigned(name) for name in "abcde") == [(0,), (0,), (0,), (1,), (1,)]
    assert free.moving == {}


def test_without_partition_order_moves_are_done_at_once() -> None:
    members = group(4, "key")
    members.join("a", 0)
    members.join("b", 0)
    assert members.assigned("a") == (0, 1)
    assert members.assigned("b") == (2, 3)
    assert members.tick(0, something) == []


def test_new_partitions_are_given_out_and_take_nothing_away() -> None:
    members = group(2)
    members.join("a", 0)
    members.join("b", 0)
    members.tick(0, nothing)
    members.grow(5)
    assert members.assigned("a") == (0, 2, 3)
    assert members.assigned("b") == (1, 4)
    members.grow(5)
    assert members.history[-1].why == "partitions grew from 2 to 5"


def test_nobody_left_and_strangers_leaving() -> None:
    members = group(3)
    assert members.leave("a", 0) is False
    members.join("a", 0)
    assert members.leave("a", 1) is True
    assert members.names() == []
    assert members.next_deadline() is None
    members.join("b", 2)
    assert members.assigned("b") == (0, 1, 2)


def test_history_is_bounded_and_says_what_moved() -> None:
    members = group(2, "none")
    for step in range(2 * HISTORY_MAX):
        members.join("a", step)
        members.leave("a", step)
    assert len(members.history) == HISTORY_MAX
    last = members.history[-1]
    assert (last.why, last.moved, last.members) == ("a left", (0, 1), 0)


def test_a_clock_that_went_back_expires_nobody_early() -> None:
    members = group(2)
    members.join("a", 50_000)
    members.heartbeat("a", 10)
    assert members.expire(50_000 + TIMEOUT) == []


def test_too_many_members_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMBERS_MAX", 2)
    members = group(2)
    members.join("a", 0)
    members.join("b", 0)
    with pytest.raises(TooMany, match="2 members"):
        members.join("c", 0)
    assert members.join("a", 1) is False


class MembersMachine(RuleBasedStateMachine):
    """Any history of joins, leaves, silence, growth and work; the caller's leases are modelled as a set."""

    @initialize(partitions=st.integers(0, 10), order=st.sampled_from(["none", "key", "partition"]))
    def start(self, partitions: int, order: str) -> None:
        self.members = group(partitions, order)
        self.partitions = partitions
        self.order = order
        self.now = 1000
        self.seen: dict[str, int] = {}
        self.leases: set[tuple[str, int]] = set()
        self.owners = self.targets()
        self.began: dict[int, int] = {}

    def targets(self) -> dict[int, set[str]]:
        """Who has each partition, or will have it when its move is done."""
        found: dict[int, set[str]] = {partition: set() for partition in range(self.partitions)}
        for name in self.members.names():
            for partition in self.members.assigned(name):
                found[partition].add(name)
        for partition, move in self.members.moving.items():
            found[partition].add(move.new)
        return found

    def drop(self, gone: set[str]) -> None:
        for name in gone:
            del self.seen[name]
        self.leases = {lease for lease in self.leases if lease[0] not in gone}

    @rule(name=st.sampled_from(NAMES))
    def join(self, name: str) -> None:
        assert self.members.join(name, self.now) == (name not in self.seen)
        self.seen[name] = self.now

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        assert self.members.leave(name, self.now) == (name in self.seen)
        self.drop({name} & set(self.seen))

    @rule(name=st.sampled_from(NAMES))
    def heartbeat(self, name: str) -> None:
        assert self.members.heartbeat(name, self.now) == (name in self.seen)
        if name in self.seen:
            self.seen[name] = self.now

    @rule(passed_ms=st.one_of(st.integers(0, 500), st.integers(0, 2 * TIMEOUT)))
    def time_passes(self, passed_ms: int) -> None:
        self.now += passed_ms

    @rule()
    def expire(self) -> None:
        silent = {name for name, seen in self.seen.items() if self.now - seen > TIMEOUT}
        assert set(self.members.expire(self.now)) == silent
        self.drop(silent)

    @rule(more=st.integers(0, 5))
    def grow(self, more: int) -> None:
        self.partitions += more
        self.members.grow(self.partitions)

    @precondition(lambda self: bool(self.seen))
    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.seen)))
        for partition in self.members.assigned(name):
            if self.order == "partition":
                others = {lease for lease in self.leases if lease[1] == partition and lease[0] != name}
                assert not others, "two members at work on one partition"
            self.leases.add((name, partition))

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        if self.leases:
            lease = data.draw(st.sampled_from(sorted(self.leases)))
            self.leases.discard(lease)
            move = self.members.moving.get(lease[1])
            if move is not None and move.old == lease[0]:
                self.members.released(lease[1], self.now)

    @rule()
    def tick(self) -> None:
        before = dict(self.members.moving)
        revoked = self.members.tick(
            self.now, lambda member, partition: int((member, partition) in self.leases)
        )
        for partition, member in revoked:
            assert before[partition].old == member
            assert before[partition].deadline_ms <= self.now
            self.leases.discard((member, partition))
        for partition, move in self.members.moving.items():
            assert (move.old, partition) in self.leases
            assert move.deadline_ms > self.now

    @invariant()
    def rules_hold(self) -> None:
        if not hasattr(self, "members"):
            return
        members = self.members
        assert members.names() == sorted(self.seen, key=members.names().index)
        loads = [len(members.assigned(name)) for name in self.seen]
        after = self.targets()
        if self.order == "partition":
            for partition, owners in after.items():
                assert len(owners) == (1 if self.seen else 0), f"partition {partition} has {owners}"
            for partition, move in members.moving.items():
                assert move.old != move.new
                assert {move.old, move.new} <= set(self.seen)
                assert not any(partition in members.assigned(name) for name in self.seen)
        else:
            assert not members.moving
            if self.seen:
                counts = [len(owners) for owners in after.values()]
                shared = len(self.seen) > self.partitions
                assert all(count >= 1 for count in counts)
                assert not counts or max(counts) - min(counts) <= (1 if shared else 0)
                assert not shared or not counts or loads == [1] * len(loads)
        self.check_balance(after)
        self.check_stickiness(after)
        self.check_waits()
        self.owners = after

    def check_balance(self, after: dict[int, set[str]]) -> None:
        totals = [sum(1 for owners in after.values() if name in owners) for name in self.seen]
        assert not totals or max(totals) - min(totals) <= 1

    def check_stickiness(self, after: dict[int, set[str]]) -> None:
        """No more partitions change hands than were ownerless, plus what the balance needs."""
        single = all(len(owners) <= 1 for owners in (*self.owners.values(), *after.values()))
        if not single or not self.seen:
            return
        stayed = [p for p, owners in after.items() if owners == self.owners.get(p)]
        held = {name: sum(1 for owners in self.owners.values() if name in owners) for name in self.seen}
        share, odd = divmod(self.partitions, len(self.seen))
        most = sum(min(count, share) for count in held.values())
        most += min(odd, sum(1 for count in held.values() if count > share))
        assert len(stayed) == most

    def check_waits(self) -> None:
        """A wait is counted from the start of the move, however often it is redirected."""
        moving = self.members.moving
        self.began = {partition: self.began.get(partition, self.now) for partition in moving}
        for partition, move in moving.items():
            assert move.deadline_ms <= self.began[partition] + WAIT
        deadline = self.members.next_deadline()
        assert (deadline is None) == (not self.seen)
        if deadline is not None:
            assert deadline <= min(self.seen.values()) + TIMEOUT + 1


MembersMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestMembersMachine = MembersMachine.TestCase


def test_history_says_who_came_and_went_and_how_long_partitions_had_no_owner() -> None:
    members = Members(2, "partition", member_timeout_ms=1000, move_wait_ms=500)
    members.join("a", 0)
    assert (members.history[-1].joined, members.history[-1].left, members.history[-1].pause_ms) == (
        ("a",),
        (),
        0,
    )
    members.join("b", 100)
    assert members.history[-1].pause_ms is None, "one is on its way"
    (moving,) = members.moving
    members.released(moving, 340)
    assert members.history[-1].pause_ms == 240
    assert members.seen_ms("b") == 100
    members.expire(5000)
    assert set(members.history[-1].left) == {"a", "b"}
    assert members.seen_ms("b") is None
