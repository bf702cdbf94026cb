"""A topic and one group under any interleaving of calls, time and crashes, against a table of messages."""

from __future__ import annotations

from collections import Counter
from typing import Any

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

import trine
from tests.property.group_model import (
    FREE,
    LANES,
    LEASE_MS,
    LEASED,
    MAX_DELIVERIES,
    MEMBER_TIMEOUT_MS,
    RETRY,
    SCHEDULED,
    SETTLED,
    WINDOW_MS,
    Entry,
    Model,
)
from tests.property.world import World, runs
from trine.model.errors import Conflict, LeaseExpired, UnknownSchedule

PARTITIONS = 2
KEYS = (b"a", b"b", b"c")

outgoing = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(KEYS),
        "priority": st.sampled_from(LANES),
        "delay": st.sampled_from(("1ms", "2s", "12s", "70m", "3h")),
        "ttl": st.sampled_from(("1s", "5s", "15s")),
        "dedup_id": st.sampled_from(("x", "y")),
        "partition": st.integers(0, PARTITIONS - 1),
    },
)
plain = st.fixed_dictionaries({}, optional={"key": st.sampled_from(KEYS), "priority": st.sampled_from(LANES)})
durability = st.sampled_from(("synced", "synced", "synced", "written", "memory"))
some = st.integers(0, 30)
MS = {
    "1ms": 1,
    "2s": 2000,
    "12s": 12_000,
    "70m": 4_200_000,
    "3h": 10_800_000,
    "1s": 1000,
    "5s": 5000,
    "15s": 15_000,
}


class GroupMachine(RuleBasedStateMachine):
    order = "none"
    members = ("m0", "m1", "m2")

    @initialize(deliveries=st.just(MAX_DELIVERIES))
    def start(self, deliveries: int) -> None:
        self.world = World()
        topic = self.world.broker.create_topic(
            "t", partitions=PARTITIONS, segment_bytes=4096, retention="1m", dedup_window=WINDOW_MS / 1000,
            segment_ms=20_000,
        )  # fmt: skip
        topic.create_group(
            "g", order=self.order, lease=LEASE_MS / 1000, max_deliveries=deliveries, breaker=None,
            backoff={"first_ms": 1000, "factor": 2.0, "cap_ms": 8000, "jitter": 0.0},
            member_timeout=MEMBER_TIMEOUT_MS / 1000,
        )  # fmt: skip
        self.model = Model(self.order, ends=[0] * PARTITIONS, starts=[0] * PARTITIONS)
        self.serial = 0
        self.history: list[tuple[int, Model]] = []
        self.forgetful = False
        self.consumers: dict[str, trine.Consumer] = {}
        self.manual: set[str] = set()
        self.held: dict[int, trine.Message] = {}
        self.old: list[trine.Message] = []
        self.old_receipts: list[str] = []
        self.note()

    # --- bookkeeping

    @property
    def broker(self) -> trine.Broker:
        return self.world.broker

    @property
    def topic(self) -> trine.Topic:
        return self.broker.topic("t")

    @property
    def group(self) -> trine.Group:
        return self.topic.group("g")

    @property
    def now(self) -> int:
        return self.world.now

    def note(self) -> None:
        """Remembers the model as it is at this lsn, for a power cut that goes back to it."""
        store = self.world.store
        if store.synced_lsn >= store.end_lsn:
            self.history.clear()
        self.history.append((store.end_lsn, self.model.copy()))

    def absorb(self) -> None:
        """Takes in what the log has got."""
        model = self.model
        for partition, (_, end) in self.topic.offsets().items():
            while model.ends[partition] < end:
                found = self.topic.read(partition=partition, from_offset=model.ends[partition], max=100)
                assert found, f"the log ends at {end} and has nothing at {model.ends[partition]}"
                for one in found:
                    assert one.offset == model.ends[partition]
                    serial = int((one.value or b"").partition(b".")[0])
                    entry = model.entries[serial]
                    model.placed(serial, partition, one.offset, one.value or b"", self.now)
                    assert (one.key, one.priority) == (entry.key, LANES[entry.lane])
                    model.ends[partition] += 1

    def absorb_starts(self) -> None:
        """Takes in what retention took."""
        for partition, (first, _) in self.topic.offsets().items():
            if first != self.model.starts[partition]:
                self.model.moved_start(partition, first)

    def tick(self) -> None:
        self.broker.tick()
        self.absorb()
        self.model.tick(self.now)
        self.absorb_starts()
        self.drop_void()
        self.note()

    def drop_void(self) -> None:
        """Handles of leases that are over stay around, to be refused."""
        for serial in [serial for serial in self.held if self.model.entries[serial].phase != LEASED]:
            self.old.append(self.held.pop(serial))
        del self.old[:-5]

    def consumer(self, index: int, manual: bool = False) -> trine.Consumer:
        name = self.members[index % len(self.members)]
        if name not in self.consumers:
            heartbeat = "manual" if manual else "auto"
            self.consumers[name] = self.group.consumer(name, heartbeat=heartbeat)
            if manual:
                self.manual.add(name)
        return self.consumers[name]

    def pick(self, indexes: list[int]) -> list[trine.Message]:
        held = list(self.held.values())
        return [held[index % len(held)] for index in indexes]

    def entry(self, message: trine.Message) -> Entry:
        return self.model.entries[self.model.at[message.partition, message.offset]]

    # --- in

    def draft(self, options: dict[str, Any], big: bool) -> tuple[dict[str, Any], Entry]:
        self.serial += 1
        now = self.now
        due = now + MS[options["delay"]] if "delay" in options else 0
        expires = (due or now) + MS[options["ttl"]] if "ttl" in options else None
        lane = LANES.index(options.get("priority", "normal"))
        value = b"%d." % self.serial + b"x" * (1500 if big else 0)
        entry = Entry(self.serial, options.get("key"), lane, SCHEDULED, due=due, expires=expires)
        return {"value": value, **options}, entry

    def published(
        self, drafts: list[tuple[dict[str, Any], Entry]], receipts: list[trine.PublishReceipt]
    ) -> None:
        model, now = self.model, self.now
        assert len(receipts) == len(drafts)
        for (options, entry), receipt in zip(drafts, receipts, strict=True):
            dedup_id = options.get("dedup_id")
            known = model.known_duplicate(dedup_id, now)
            if known is not None:
                if receipt.duplicate:
                    assert receipt.message_id == known
                    continue
                forgotten = self.forgetful and model.forgot_dedup(dedup_id)
                assert forgotten, f"{dedup_id} is at {known}, and was taken again"
            assert not receipt.duplicate, f"{options} is new"
            model.entries[entry.serial] = entry
            if dedup_id is not None:
                model.dedup[dedup_id] = (now, receipt.message_id, entry.serial)
            assert (receipt.schedule_id is not None) == (entry.due > now)
            if receipt.schedule_id is not None:
                entry.how = receipt.schedule_id
        self.absorb()
        for (_, entry), receipt in zip(drafts, receipts, strict=True):
            if receipt.partition is not None and not receipt.duplicate:
                assert (entry.partition, entry.offset) == (receipt.partition, receipt.offset)
        self.note()

    @rule(options=outgoing, big=st.booleans(), level=durability)
    def publish(self, options: dict[str, Any], big: bool, level: str) -> None:
        one = self.draft(options, big)
        receipt = self.topic.publish(**one[0], durability=level)
        assert receipt.durability == level
        self.published([one], [receipt])

    @rule(
        given=st.lists(st.tuples(outgoing | plain, st.booleans()), min_size=1, max_size=6), level=durability
    )
    def publish_many(self, given: list[tuple[dict[str, Any], bool]], level: str) -> None:
        drafts = [self.draft(options, big) for options, big in given]
        self.published(drafts, list(self.topic.publish_many([one for one, _ in drafts], durability=level)))

    @rule(count=st.integers(1, 8), priority=st.sampled_from((None, *LANES)))
    def publish_values(self, count: int, priority: str | None) -> None:
        options = {} if priority is None else {"priority": priority}
        drafts = [self.draft(options, False) for _ in range(count)]
        values = [one["value"] for one, _ in drafts]
        self.published(drafts, list(self.topic.publish_many(values, priority=priority)))

    # --- the schedule

    def waiting(self) -> list[Entry]:
        return [one for one in self.model.entries.values() if one.phase == SCHEDULED]

    @precondition(lambda self: self.waiting())
    @rule(index=some, move=st.sampled_from((None, "1ms", "2s", "70m")))
    def change_schedule(self, index: int, move: str | None) -> None:
        waiting = self.waiting()
        entry = waiting[index % len(waiting)]
        if move is None:
            self.broker.cancel(entry.how)
            entry.phase, entry.how = SETTLED, "cancelled"
            with pytest.raises(UnknownSchedule):
                self.broker.cancel(f"{self.topic.name}@1-0")
        else:
            self.broker.reschedule(entry.how, delay=move)
            entry.due = self.now + MS[move]
        self.note()

    # --- out

    @rule(index=some, most=st.sampled_from((1, 2, 3, 50)), manual=st.booleans())
    def receive(self, index: int, most: int, manual: bool) -> None:
        self.tick()
        consumer, now = self.consumer(index, manual), self.now
        found = consumer.receive(most)
        if consumer.name in self.manual:
            self.model.seen[consumer.name] = now
        assert len(found) <= most
        if self.model.paused:
            assert not found
        serials = []
        for message in found:
            serial = self.model.at[message.partition, message.offset]
            entry = self.model.entries[serial]
            assert int((message.value or b"").partition(b".")[0]) == serial
            self.model.delivered(serial, message.attempt, message.deadline_ms, consumer.name, now)
            assert (message.key, message.priority) == (entry.key, LANES[entry.lane])
            self.held[serial] = message
            serials.append(serial)
        self.model.check_lanes(serials if len(found) < most else [], now)
        if not found and not self.model.paused:
            left = self.model.deliverable(now)
            assert not left, f"nothing was delivered, though these are free: {left}"
        self.note()

    # --- settle

    def settle(self, messages: list[trine.Message], how: str, call: Any) -> bool:
        """Does it; if a lease is over, it must be refused and change nothing."""
        over = [one for one in messages if self.entry(one).deadline <= self.now]
        if over:
            with pytest.raises(LeaseExpired):
                call()
            return False
        call()
        if how != "extend":
            self.old += messages[:1]
        return True

    @precondition(lambda self: self.held)
    @rule(indexes=st.lists(some, min_size=1, max_size=5), way=st.sampled_from(("one", "list", "receipts")))
    def ack(self, indexes: list[int], way: str) -> None:
        messages = self.pick(indexes[:1] if way == "one" else indexes)
        consumer = self.consumers[self.entry(messages[0]).member]
        calls = {
            "one": lambda: messages[0].ack(),
            "list": lambda: consumer.ack(messages),
            "receipts": lambda: self.group.ack([one.receipt for one in messages]),
        }
        if self.settle(messages, "ack", calls[way]):
            for message in messages:
                self.model.acked(self.entry(message).serial)
                self.held.pop(self.entry(message).serial, None)
        self.note()

    @precondition(lambda self: self.held)
    @rule(
        indexes=st.lists(some, min_size=1, max_size=4), by_receipt=st.booleans(),
        delay=st.sampled_from((None, 0, 3)),
    )  # fmt: skip
    def nack(self, indexes: list[int], by_receipt: bool, delay: int | None) -> None:
        messages = self.pick(indexes)
        consumer = self.consumers[self.entry(messages[0]).member]
        if by_receipt:
            done = self.settle(
                messages, "nack", lambda: self.group.nack([one.receipt for one in messages], delay=delay)
            )
        else:
            done = self.settle(messages, "nack", lambda: consumer.nack(messages, delay=delay))
        if done:
            failing = {self.entry(one).serial: self.entry(one) for one in messages}
            self.model.fail(list(failing.values()), self.now, None if delay is None else delay * 1000)
            self.drop_void()
        self.note()

    @precondition(lambda self: self.held)
    @rule(indexes=st.lists(some, min_size=1, max_size=3))
    def reject(self, indexes: list[int]) -> None:
        messages = self.pick(indexes)
        if self.settle(
            messages, "reject", lambda: self.group.reject([one.receipt for one in messages], "bad")
        ):
            for serial in {self.entry(one).serial for one in messages}:
                self.model.rejected(serial)
                self.held.pop(serial)
        self.note()

    @precondition(lambda self: self.held)
    @rule(indexes=st.lists(some, min_size=1, max_size=4), seconds=st.sampled_from((1, 10, 40)))
    def extend(self, indexes: list[int], seconds: int) -> None:
        messages = self.pick(indexes)
        consumer = self.consumers[self.entry(messages[0]).member]
        if self.settle(messages, "extend", lambda: consumer.extend(messages, seconds)):
            for message in messages:
                self.entry(message).deadline = self.now + seconds * 1000
                assert message.deadline_ms == self.now + seconds * 1000
        self.note()

    @precondition(lambda self: self.old)
    @rule(index=some, what=st.sampled_from(("ack", "nack", "reject")), beside=st.booleans())
    def settle_again(self, index: int, what: str, beside: bool) -> None:
        """A lease that is over is refused, and so is all that is settled in the same call."""
        message = self.old[index % len(self.old)]
        receipts = [message.receipt]
        if beside and self.held:
            receipts.insert(0, next(iter(self.held.values())).receipt)
        with pytest.raises(Conflict):
            getattr(self.group, what)(receipts)

    @precondition(lambda self: self.old_receipts)
    @rule(index=some)
    def settle_of_earlier_life(self, index: int) -> None:
        with pytest.raises(Conflict):
            self.group.ack([self.old_receipts[index % len(self.old_receipts)]])

    # --- members

    @precondition(lambda self: self.consumers)
    @rule(index=some)
    def close_consumer(self, index: int) -> None:
        self.tick()
        names = list(self.consumers)
        name = names[index % len(names)]
        self.consumers.pop(name).close()
        self.manual.discard(name)
        self.model.seen.pop(name, None)
        self.model.give_back([one for one in self.model.leased() if one.member == name], self.now)
        self.drop_void()
        self.note()

    @precondition(lambda self: self.manual)
    @rule(index=some)
    def heartbeat(self, index: int) -> None:
        names = sorted(self.manual)
        name = names[index % len(names)]
        self.tick()
        if name in self.model.seen:
            self.consumers[name].heartbeat()
            self.model.seen[name] = self.now

    # --- time and upkeep

    @rule(
        ms=st.sampled_from((1, 999, 1000, 5000, 9999, 10_000, 26_000, 61_000, 3_600_000)), tick=st.booleans()
    )
    def advance(self, ms: int, tick: bool) -> None:
        self.world.clock.advance(ms / 1000)
        if tick:
            self.tick()

    @rule()
    def checkpoint(self) -> None:
        self.broker.checkpoint()
        self.note()

    @rule()
    def retention(self) -> None:
        self.broker.apply_retention()
        self.absorb_starts()
        self.note()

    @rule(chance=st.integers(0, 4))
    def purge(self, chance: int) -> None:
        if chance:
            return
        self.tick()
        self.topic.purge()
        for partition, (first, _) in self.topic.offsets().items():
            self.model.moved_start(partition, first, by_force=True)
        self.drop_void()
        self.note()

    # --- steering

    @rule(
        how=st.sampled_from(("offset", "time", "earliest", "latest")), number=st.integers(0, 12),
        partition=st.sampled_from((None, 0, 1)), chance=st.integers(0, 2),
    )  # fmt: skip
    def seek(self, how: str, number: int, partition: int | None, chance: int) -> None:
        if chance:
            return
        self.tick()
        if how == "offset":
            targets = self.group.seek(offset=number, partition=partition)
        elif how == "time":
            time = self.now - number * 1000
            targets = self.group.seek(time=time / 1000, partition=partition)
            for one in self.topic.read(max=1000):
                if one.partition in targets:
                    assert (one.offset >= targets[one.partition]) == (one.timestamp_ms >= time)
        else:
            targets = self.group.seek(to=how, partition=partition)
        for at, target in targets.items():
            self.model.seek(at, target)
        if partition is None:
            self.model.disordered = False
        self.drop_void()
        self.note()

    @rule(key=st.sampled_from((None, *KEYS)))
    def replay(self, key: bytes | None) -> None:
        self.tick()
        found = self.group.replay(failed=True) if key is None else self.group.replay(key=key)
        wanted = [
            one for one in self.model.in_log()
            if (one.failed if key is None else one.key == key)
            and (one.phase == SETTLED or (one.phase != LEASED and one.expired(self.now)))
        ]  # fmt: skip
        sure = [one for one in wanted if not one.expired(self.now)]
        assert len(sure) <= found <= len(wanted)
        self.model.reopen(wanted)
        self.note()

    @rule(chance=st.integers(0, 2))
    def pause_or_resume(self, chance: int) -> None:
        if chance and not self.model.paused:
            return
        if self.model.paused:
            self.group.resume()
        else:
            self.group.pause("for a test")
        self.model.paused = not self.model.paused
        self.note()

    # --- the end of a process

    @rule(seed=st.none() | st.integers(0, 1000))
    def crash(self, seed: int | None) -> None:
        receipts = [one.receipt for one in self.held.values()] if seed is None else []
        survived = self.world.crash(seed)
        lsn, kept = max((one for one in self.history if one[0] <= survived), key=lambda one: one[0])
        between = [one for one in self.history if one[0] > lsn]
        self.model = kept.copy()
        self.history = [one for one in self.history if one[0] <= survived]
        self.reopened()
        if survived > lsn and between:
            self.blur(between[0][1])
        self.absorb_after_crash(receipts)

    def blur(self, later: Model) -> None:
        """Part of a step of several entries survived: what it would have made of leases is possible too."""
        for serial, other in later.entries.items():
            mine = self.model.entries.get(serial)
            if mine is not None and mine.phase == RETRY and other.phase == RETRY:
                mine.counts |= other.counts
                mine.due = min(mine.due, other.due)

    @rule()
    def close_and_reopen(self) -> None:
        receipts = [one.receipt for one in self.held.values()]
        self.world.close()
        self.history = [(0, self.model.copy())]
        self.reopened()
        self.absorb_after_crash(receipts)

    def reopened(self) -> None:
        self.model.recovered(self.now)
        self.forgetful = True

    def absorb_after_crash(self, receipts: list[str]) -> None:
        self.consumers.clear()
        self.manual.clear()
        self.held.clear()
        self.old.clear()
        self.old_receipts = receipts
        model, offsets = self.model, self.topic.offsets()
        for partition, (first, _) in offsets.items():
            model.starts[partition] = min(model.starts[partition], first)
        self.tick()

    # --- always

    @invariant()
    def numbers(self) -> None:
        model, now = self.model, self.now
        lag = self.group.lag()
        least, most = model.lag(now)
        assert least <= lag.count <= most, f"a lag of {lag.count}, not {least} to {most}"
        assert lag.in_flight == len(model.leased())
        retrying = [one for one in model.entries.values() if one.phase == RETRY]
        assert sum(not one.expired(now) for one in retrying) <= lag.retrying <= len(retrying)
        assert len(self.topic.schedules()) == len(self.waiting())

    def teardown(self) -> None:
        if not hasattr(self, "history"):
            return
        if self.model.paused:
            self.pause_or_resume(0)
        for _ in range(40):
            self.tick()
            waiting = [one for one in self.model.entries.values() if one.phase != SETTLED]
            if not waiting:
                break
            while True:
                before = dict(self.held)
                self.receive(0, 50, False)
                new = [one for serial, one in self.held.items() if serial not in before]
                if not new:
                    break
                self.consumers[self.members[0]].ack(new)
                for message in new:
                    self.model.acked(self.entry(message).serial)
                    del self.held[self.entry(message).serial]
            for entry in self.model.entries.values():
                if entry.phase in (FREE, RETRY) and entry.expired(self.now):
                    entry.phase, entry.how = SETTLED, "expired"
            due = [one.due for one in self.waiting()]
            self.world.clock.advance(max(60.0, (min(due) - self.now) / 1000 if due else 0))
        open_ = [one for one in self.model.entries.values() if one.phase != SETTLED]
        assert not open_, f"not settled in the end: {open_}"
        self.receive(0, 50, False)  # what expired behind a message that is over now is noticed here
        assert self.group.lag().count == 0, self.group.lag()
        letters = Counter(letter.origin for letter in self.topic.dead_letters(limit=10_000))
        assert letters == self.model.dead, (
            f"{letters - self.model.dead} too many, {self.model.dead - letters} missing"
        )
        self.broker.verify()


class KeyMachine(GroupMachine):
    order = "key"


class PartitionMachine(GroupMachine):
    order = "partition"
    members = ("m0",)


MACHINES = [GroupMachine, KeyMachine, PartitionMachine]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_group_keeps_its_promises(machine: type[GroupMachine]) -> None:
    run_state_machine_as_test(machine, settings=runs(70, 40))


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_a_group_keeps_its_promises_for_long(machine: type[GroupMachine]) -> None:
    run_state_machine_as_test(machine, settings=runs(1500, 80))
