"""Order `partition` with members that come, go and fall silent: one works on a partition at a time, and in order.

Which member gets what is not modelled. Whatever it is, each message is settled once, and none overtakes another.
"""

from __future__ import annotations

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
from tests.property.world import World, runs
from trine.model.errors import Conflict

PARTITIONS = 3


class MembersMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.world = World()
        self.world.broker.create_topic("t", partitions=PARTITIONS)
        self.world.broker.topic("t").create_group(
            "g",
            order="partition",
            lease="10s",
            max_deliveries=100,
            member_timeout="25s",
            move_wait="1s",
            breaker=None,
        )
        self.ends = [0] * PARTITIONS
        self.acked: set[tuple[int, int]] = set()
        self.join()

    def join(self) -> None:
        self.consumers: dict[str, trine.Consumer] = {}
        self.held: dict[tuple[int, int], tuple[str, trine.Message]] = {}
        self.topic = self.world.broker.topic("t")
        self.group = self.topic.group("g")

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 8))
    def publish(self, partition: int, count: int) -> None:
        self.topic.publish_many([b"x"] * count, partition=partition)
        self.ends[partition] += count

    @rule(number=st.integers(0, 3), most=st.sampled_from((1, 3, 20)), manual=st.booleans())
    def receive(self, number: int, most: int, manual: bool) -> None:
        name = f"m{number}"
        if name not in self.consumers:
            self.consumers[name] = self.group.consumer(name, heartbeat="manual" if manual else "auto")
        for message in self.consumers[name].receive(most):
            place = (message.partition, message.offset)
            assert place not in self.acked, f"{message} was acked, and came again"
            for partition, offset in list(self.held):
                if partition == message.partition and offset >= message.offset:
                    # It comes again: all leases from here on are void.
                    del self.held[partition, offset]
            here = {who for (partition, _), (who, _) in self.held.items() if partition == message.partition}
            for other in here - {name}:
                self.check_void(other, message.partition)
            earlier = [(message.partition, offset) for offset in range(message.offset)]
            late = [one for one in earlier if one not in self.acked and one not in self.held]
            assert not late, f"{message} was delivered before {late}"
            self.held[place] = (name, message)

    def check_void(self, member: str, partition: int) -> None:
        """Another member has the partition now: what this one held of it must be refused."""
        for place in [
            place for place, (who, _) in self.held.items() if who == member and place[0] == partition
        ]:
            _, message = self.held.pop(place)
            with pytest.raises(Conflict):
                message.ack()

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, 30), how=st.sampled_from(("ack", "ack", "ack", "nack", "reject")))
    def settle(self, index: int, how: str) -> None:
        place = list(self.held)[index % len(self.held)]
        _, message = self.held.pop(place)
        try:
            getattr(message, how)()
        except Conflict:
            return
        if how in ("ack", "reject"):
            self.acked.add(place)

    @precondition(lambda self: self.consumers)
    @rule(index=st.integers(0, 3))
    def leave(self, index: int) -> None:
        name = list(self.consumers)[index % len(self.consumers)]
        self.consumers.pop(name).close()
        self.held = {place: one for place, one in self.held.items() if one[0] != name}

    @rule(ms=st.sampled_from((1, 500, 1000, 10_000, 30_000)), tick=st.booleans())
    def advance(self, ms: int, tick: bool) -> None:
        self.world.clock.advance(ms / 1000)
        if tick:
            self.world.broker.tick()

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        if kill:
            self.world.crash(None)
        else:
            self.world.close()
        self.join()

    @invariant()
    def numbers(self) -> None:
        assert self.group.lag().count == sum(self.ends) - len(self.acked)
        owned = [part for one in self.group.members() for part in one.partitions]
        assert len(set(owned)) == len(owned), "a partition has two owners"

    def teardown(self) -> None:
        if not hasattr(self, "held"):
            return
        for name in list(self.consumers):
            self.consumers.pop(name).close()
        self.held.clear()
        for _ in range(300):
            if not self.group.lag().count:
                break
            self.world.clock.advance("1m")
            self.receive(0, 20, False)
            for place, (_, message) in list(self.held.items()):
                message.ack()
                self.acked.add(place)
                del self.held[place]
        assert self.group.lag().count == 0


def test_members_take_turns_and_keep_the_order() -> None:
    run_state_machine_as_test(MembersMachine, settings=runs(40, 40))


@pytest.mark.slow
def test_members_take_turns_and_keep_the_order_for_long() -> None:
    run_state_machine_as_test(MembersMachine, settings=runs(2000, 80))
