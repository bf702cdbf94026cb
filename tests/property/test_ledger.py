"""The ledger and the selection alone: pure, and so tried often. A second ledger is fed what the journal would hold."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.property.world import runs
from trine.model.errors import Conflict
from trine.queue.lanes import Lanes
from trine.queue.ledger import Ledger, SavedLedger
from trine.queue.rows import Kind, Row, unpack_block
from trine.queue.selection import Selection

LANES = 3
SAVED = msgspec.msgpack.Decoder(SavedLedger, strict=False)


@dataclass
class One:
    lane: int
    key: bytes | None
    state: str = "free"
    attempts: int = 0
    due: int = 0
    lease: int = -1
    deadline: int = 0
    reopened: bool = False


def state_of(ledger: Ledger) -> object:
    saved = ledger.save()
    return (
        saved.floor, saved.next_row, sorted(ledger.settled), sorted(ledger.reopened), sorted(saved.retries),
        ledger.in_flight, ledger.next_deadline(),
        [(*lease[:7], ledger.leases[lease[0]].open_runs(), lease[8] or {}) for lease in sorted(saved.leases)],
    )  # fmt: skip


class LedgerMachine(RuleBasedStateMachine):
    order = "none"

    @initialize(order=st.sampled_from(("none", "key", "partition")))
    def start(self, order: str) -> None:
        self.order = order
        self.now = 1000
        self.log: list[One] = []
        self.first = 0
        self.lanes = Lanes(LANES)
        self.ledger = Ledger()
        self.twin = Ledger()
        self.selection = self.select()
        self.rows = 0
        self.blocks = 0
        self.disordered = False

    def select(self) -> Selection:
        return Selection(self.ledger, self.lanes, self.order, self.keys)

    def keys(self, first: int, count: int) -> list[bytes | None]:
        return [one.key for one in self.log[first : first + count]]

    def write(self, rows: list[Row]) -> None:
        change = self.ledger.change(rows)
        self.ledger.commit(rows, change)
        self.twin.replay(change)
        self.rows += len(rows)

    def row(
        self, kind: Kind, first: int, count: int = 1, *, attempt: int = 0, until: int = 0, lease: int = -1
    ) -> Row:
        lane = self.log[first].lane if first < len(self.log) else 0
        member, reason = self.ledger.name(f"m{first % 3}"), self.ledger.name("why")
        return Row(kind, lane, attempt, member, reason, self.now, first, count, until, lease)

    def leased(self) -> list[int]:
        return [offset for offset, one in enumerate(self.log) if one.state == "leased"]

    # --- rules

    @rule(
        lane=st.integers(0, LANES - 1),
        keys=st.lists(st.sampled_from((None, b"a", b"b")), min_size=1, max_size=9),
    )
    def publish(self, lane: int, keys: list[bytes | None]) -> None:
        self.lanes.add(lane, len(self.log), len(keys))
        self.log += [One(lane, key) for key in keys]

    @rule(
        lane=st.integers(0, LANES - 1),
        most=st.sampled_from((1, 2, 5, 100)),
        lease_ms=st.sampled_from((50, 500)),
    )
    def deliver(self, lane: int, most: int, lease_ms: int) -> None:
        picks = self.selection.pick(lane, most, self.now)
        assert sum(pick.count for pick in picks) <= most
        rows = []
        taken = []
        number = self.ledger.next_row
        for first, count, attempt in picks:
            rows.append(self.row(Kind.DELIVERED, first, count, attempt=attempt, until=self.now + lease_ms))
            for offset in range(first, first + count):
                one = self.log[offset]
                assert one.lane == lane
                assert one.state == "free" or (one.state == "retrying" and one.due <= self.now), (
                    f"{offset}: {one}"
                )
                assert one.attempts == attempt - 1
                assert offset >= self.first
                one.state, one.lease, one.deadline = "leased", number, self.now + lease_ms
                taken.append(offset)
            number += 1
        assert len(set(taken)) == len(taken)
        self.check_order(taken)
        if not taken and (self.order == "none" or not self.disordered):
            assert not self.deliverable(lane), f"nothing picked of {self.deliverable(lane)}"
        if rows:
            self.write(rows)

    def check_order(self, taken: list[int]) -> None:
        if self.disordered:
            return
        for offset in taken:
            one = self.log[offset]
            for other in range(self.first, len(self.log)):
                beside = self.log[other]
                if other == offset:
                    continue
                if self.order == "key" and one.key is not None and beside.key == one.key:
                    assert beside.state not in ("leased", "retrying"), f"{offset} and {other} of one key"
                same_key = self.order == "key" and one.key is not None and beside.key == one.key
                if beside.lane == one.lane and other < offset and (self.order == "partition" or same_key):
                    assert beside.state in ("leased", "settled"), f"{offset} came before {other}"

    def deliverable(self, lane: int) -> list[int]:
        found = []
        blocked = False
        # Of a replay only the beginning is looked at; its first message is in somebody's lane. A key with free
        # messages in two lanes may be kept for the one of the other lane, which was set aside before this one.
        replayed = [offset for offset, one in enumerate(self.log) if one.reopened and one.state == "free"]
        for offset in range(self.first, len(self.log)):
            one = self.log[offset]
            if one.lane != lane or (one.reopened and one.state == "free" and offset != replayed[0]):
                continue
            if self.order == "partition" and one.state == "retrying":
                blocked = blocked or one.due > self.now
            busy = self.order == "key" and one.key is not None and any(
                beside.key == one.key and (
                    beside.state in ("leased", "retrying") or (beside.state == "free" and beside.lane != lane)
                )
                for beside in self.log[self.first :] if beside is not one
            )  # fmt: skip
            if (
                (one.state == "free" or (one.state == "retrying" and one.due <= self.now))
                and not busy
                and not blocked
            ):
                found.append(offset)
        return found

    @precondition(lambda self: self.leased())
    @rule(
        indexes=st.lists(st.integers(0, 40), min_size=1, max_size=5, unique=True),
        kind=st.sampled_from(
            (Kind.ACKED, Kind.ACKED, Kind.DEAD_LETTERED, Kind.NACKED, Kind.RETURNED, Kind.EXTENDED)
        ),
        delay=st.sampled_from((0, 40, 400)),
    )
    def settle(self, indexes: list[int], kind: Kind, delay: int) -> None:
        leased = self.leased()
        rows = []
        for offset in sorted({leased[index % len(leased)] for index in indexes}):
            one = self.log[offset]
            if one.deadline <= self.now:
                with pytest.raises(Conflict):
                    self.ledger.held(one.lease, offset, 1, self.now)
                continue
            held = self.ledger.held(one.lease, offset, 1, self.now)
            assert held.attempt == one.attempts + 1
            until = 0
            if kind is Kind.EXTENDED:
                one.deadline = until = self.now + delay + 1
            elif kind in (Kind.NACKED, Kind.RETURNED):
                one.state, one.attempts = "retrying", one.attempts + (kind is Kind.NACKED)
                one.due = until = self.now + delay
            else:
                one.state, one.reopened = "settled", False
            rows.append(self.row(kind, offset, attempt=one.attempts, until=until, lease=one.lease))
        if rows:
            self.write(rows)
        if self.order == "partition" and kind in (Kind.NACKED, Kind.RETURNED):
            self.disordered = True  # the broker calls the followers back; the ledger alone does not

    @rule(ms=st.sampled_from((1, 50, 60, 500)))
    def advance(self, ms: int) -> None:
        self.now += ms

    @rule()
    def expire(self) -> None:
        over = {offset for offset in self.leased() if self.log[offset].deadline <= self.now}
        found = [
            (lease, offset)
            for lease, some in self.ledger.overdue(self.now)
            for first, count in some
            for offset in range(first, first + count)
        ]
        assert sorted(offset for _, offset in found) == sorted(over)
        rows = []
        for lease, offset in found:
            one = self.log[offset]
            assert one.lease == lease.number
            one.state, one.attempts, one.due = "retrying", one.attempts + 1, self.now + 30
            rows.append(self.row(Kind.RETURNED, offset, attempt=one.attempts, until=one.due, lease=one.lease))
        if rows:
            self.write(rows)
            self.disordered = self.disordered or self.order == "partition"

    @rule(number=st.integers(0, 60))
    def seek(self, number: int) -> None:
        target = min(max(number, self.first), len(self.log))
        self.write([self.row(Kind.SEEK, target, 0)])
        for offset, one in enumerate(self.log):
            one.state, one.attempts, one.reopened = "settled" if offset < target else "free", 0, False
        self.disordered = False

    @precondition(lambda self: self.log)
    @rule(number=st.integers(0, 60), count=st.integers(1, 20))
    def replay(self, number: int, count: int) -> None:
        first = max(number % len(self.log), self.first)
        end = min(first + count, len(self.log))
        if first >= end:
            return
        self.write([self.row(Kind.REOPENED, first, end - first)])
        for one in self.log[first:end]:
            if one.state == "settled":
                one.state, one.attempts, one.reopened = "free", 0, True
                self.disordered = True

    @rule(number=st.integers(0, 60))
    def raise_floor(self, number: int) -> None:
        start = min(max(number, self.first), len(self.log))
        self.lanes.trim(start)
        for ledger in (self.ledger, self.twin):
            ledger.raise_floor(start)
        self.first = start
        for one in self.log[:start]:
            one.state, one.reopened = "settled", False

    @rule()
    def rewind(self) -> None:
        self.selection.rewind()

    @rule()
    def save_and_restore(self) -> None:
        """A checkpoint and a restart from it: blocks are closed, names begin anew."""
        for ledger in (self.ledger, self.twin):
            ledger.close_block()
        self.count_blocks()
        saved = msgspec.msgpack.encode(self.ledger.save())
        before = state_of(self.ledger)
        self.ledger = Ledger.restore(SAVED.decode(saved))
        self.twin = Ledger.restore(SAVED.decode(saved))
        assert state_of(self.ledger) == before
        self.lanes = Lanes.restore(self.lanes.save(), LANES)
        self.selection = self.select()

    def count_blocks(self) -> None:
        for block in self.ledger.closed_blocks:
            assert block.first_row == self.blocks
            assert len(unpack_block(block.payload).rows) == block.count
            self.blocks += block.count
        assert self.blocks == self.rows

    @invariant()
    def same(self) -> None:
        ledger = self.ledger
        assert state_of(ledger) == state_of(self.twin)
        assert ledger.in_flight == len(self.leased())
        states = [one.state for one in self.log]
        assert ledger.unsettled(len(self.log)) == sum(state != "settled" for state in states)
        assert [ledger.is_settled(offset) for offset in range(len(states))] == [
            s == "settled" for s in states
        ]
        retrying = {offset: one for offset, one in enumerate(self.log) if one.state == "retrying"}
        assert {o: (r.attempt, r.due, r.lane) for o, r in ledger.retries.items()} == {
            offset: (one.attempts, one.due, one.lane) for offset, one in retrying.items()
        }
        deadlines = [one.deadline for one in self.log if one.state == "leased"]
        assert ledger.next_deadline() == min(deadlines, default=None)
        due = self.selection.next_due()
        later = [one.due for one in retrying.values() if one.due > self.now]
        if self.order != "partition" and later:
            assert due is not None
            assert due <= min(later)
        unsettled = [offset for offset, state in enumerate(states) if state != "settled"]
        assert ledger.first_unsettled() <= min(unsettled, default=len(states))

    def teardown(self) -> None:
        """Whatever happened before, a group that is asked in every lane comes to the end."""
        if not hasattr(self, "log"):
            return
        while left := [offset for offset in range(self.first, len(self.log)) if self.unsettled(offset)]:
            self.now += 1000
            self.expire()
            self.now += 1000
            for lane in range(LANES):
                self.deliver(lane, 100, 500)
            leased = self.leased()
            assert leased, f"{left} are never delivered"
            self.settle(list(range(len(leased))), Kind.ACKED, 0)

    def unsettled(self, offset: int) -> bool:
        return self.log[offset].state != "settled"


def test_a_ledger_and_its_twin_agree() -> None:
    run_state_machine_as_test(LedgerMachine, settings=runs(250, 40))


@pytest.mark.slow
def test_a_ledger_and_its_twin_agree_for_long() -> None:
    run_state_machine_as_test(LedgerMachine, settings=runs(10_000, 100))
