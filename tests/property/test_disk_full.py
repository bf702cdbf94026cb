"""A disk that fills up and empties at any moment: what was refused is not there, what was accepted is."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import trine
from tests.property.world import World, runs
from trine.model.errors import DiskFull


class FullMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.world = World()
        self.world.broker.create_topic("t", partitions=2, segment_bytes=8192)
        self.world.broker.topic("t").create_group("g", lease="10s", max_deliveries=3, breaker=None)
        self.serial = 0
        self.accepted: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.given_up: set[bytes] = set()
        self.join()

    def join(self) -> None:
        self.held: list[trine.Message] = []
        self.topic = self.world.broker.topic("t")
        self.group = self.topic.group("g")
        self.consumer = self.group.consumer("m")

    @rule(kib=st.none() | st.integers(0, 60))
    def quota(self, kib: int | None) -> None:
        """So much may still be written; None is a disk without end."""
        disk = self.world.disk
        disk.quota_bytes = None if kib is None else disk.used_bytes() + kib * 1024

    @rule(
        count=st.integers(1, 12), size=st.sampled_from((0, 700, 3000)), key=st.sampled_from((None, "k")),
        delay=st.sampled_from((None, None, "3s", "2h")), dedup=st.booleans(),
    )  # fmt: skip
    def publish(self, count: int, size: int, key: str | None, delay: str | None, dedup: bool) -> None:
        items = []
        for _ in range(count):
            self.serial += 1
            value = b"%d." % self.serial + b"x" * size
            items.append(
                {"value": value, "key": key, "dedup_id": f"d{self.serial}" if dedup else None, "delay": delay}
            )
        try:
            self.topic.publish_many(items)
        except DiskFull:
            if dedup and self.world.disk.quota_bytes is not None:
                self.world.disk.quota_bytes = None
                again = self.topic.publish_many(items)
                assert not any(one.duplicate for one in again), "what was refused is no duplicate"
                self.accepted.update(one["value"] for one in items)
            return
        self.accepted.update(one["value"] for one in items)

    @rule(most=st.integers(1, 20))
    def receive(self, most: int) -> None:
        try:
            found = self.consumer.receive(most)
        except DiskFull:
            return
        for message in found:
            assert message.value in self.accepted, f"{message} was refused, and came"
            assert message.value not in self.acked, f"{message} was acked, and came again"
            self.held.append(message)

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, 30), how=st.sampled_from(("ack", "ack", "nack", "reject")))
    def settle(self, index: int, how: str) -> None:
        message = self.held.pop(index % len(self.held))
        try:
            getattr(message, how)()
        except DiskFull:
            self.held.append(message)
            return
        if how == "ack":
            self.acked.add(message.value or b"")
        elif how == "reject" or message.attempt == 3:
            self.given_up.add(message.value or b"")

    @rule(seconds=st.sampled_from((1, 5, 60, 7200)))
    def advance(self, seconds: int) -> None:
        self.world.clock.advance(seconds)
        self.held = [one for one in self.held if one.deadline_ms > self.world.now]
        with contextlib.suppress(DiskFull):
            self.world.broker.tick()

    @rule()
    def checkpoint(self) -> None:
        try:
            self.world.broker.checkpoint()
        except DiskFull:
            assert self.world.disk.quota_bytes is not None

    @rule(seed=st.none() | st.integers(0, 1000))
    def crash(self, seed: int | None) -> None:
        """The disk has room again when the broker is started: whether it can start on a full one is not said."""
        self.world.disk.quota_bytes = None
        self.world.crash(seed)
        self.join()

    @rule()
    def close_while_full(self) -> None:
        self.world.broker.close()
        self.world.disk.quota_bytes = None
        self.world.broker = self.world._open()
        self.join()

    def teardown(self) -> None:
        if not hasattr(self, "held"):
            return
        self.world.disk.quota_bytes = None
        left: set[bytes] = set()
        for _ in range(14):
            self.world.clock.advance("15m")
            self.world.broker.tick()
            found = self.consumer.receive(1000)
            left.update(one.value or b"" for one in found)
            if found:
                self.consumer.ack(found)
        assert self.group.lag().count == 0
        assert not left & (self.acked | self.given_up), "settled, and came again"
        dead = {one.value for one in self.topic.dead_letters(limit=10_000)}
        assert dead >= self.given_up
        assert self.acked | left | dead == self.accepted
        assert not dead & (self.acked | left)
        assert {one.value for one in self.topic.read(max=100_000)} == self.accepted
        self.world.broker.verify()


def test_a_full_disk_loses_nothing() -> None:
    run_state_machine_as_test(FullMachine, settings=runs(40, 40))


@pytest.mark.slow
def test_a_full_disk_loses_nothing_for_long() -> None:
    run_state_machine_as_test(FullMachine, settings=runs(2000, 80))
