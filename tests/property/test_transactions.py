"""Consume, transform, produce: what is acked and what is published in one transaction happen together or not at all."""

from __future__ import annotations

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
from trine.model.errors import Conflict


class TransactionMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.world = World()
        for name in ("orders", "invoices"):
            self.world.broker.create_topic(name, partitions=2)
        options = {"lease": "10s", "max_deliveries": 1000, "breaker": None}
        self.world.broker.topic("orders").create_group("work", **options)
        self.serial = 0
        self.orders: set[bytes] = set()
        self.worked: set[bytes] = set()
        """Orders of committed transactions: each must have exactly one invoice, all others none."""
        self.cancelled: set[str] = set()
        self.join()

    def join(self) -> None:
        self.held: list[trine.Message] = []
        self.group = self.world.broker.topic("orders").group("work")
        self.consumer = self.group.consumer("worker")

    @rule(count=st.integers(1, 6), key=st.sampled_from((None, "a", "b")))
    def order(self, count: int, key: str | None) -> None:
        values = [b"%d" % (self.serial + index) for index in range(count)]
        self.serial += count
        self.world.broker.topic("orders").publish_many(values, key=key)
        self.orders.update(values)

    @rule(most=st.integers(1, 8))
    def receive(self, most: int) -> None:
        for message in self.consumer.receive(most):
            assert message.value not in self.worked, f"{message} was worked on already"
            self.held.append(message)

    @precondition(lambda self: self.held)
    @rule(
        indexes=st.lists(st.integers(0, 20), min_size=1, max_size=4),
        delay=st.sampled_from((None, None, "5s", "2h")),
        how=st.sampled_from(("commit", "commit", "commit", "raise", "twice")),
    )
    def work(self, indexes: list[int], delay: str | None, how: str) -> None:
        chosen = {index % len(self.held): self.held[index % len(self.held)] for index in indexes}
        messages = list(chosen.values())
        self.held = [one for index, one in enumerate(self.held) if index not in chosen]
        fresh = all(self.is_fresh(one) for one in messages)
        try:
            with self.world.broker.transaction() as transaction:
                for message in messages:
                    transaction.ack(message)
                    if how == "twice":
                        transaction.ack([message, message])
                    transaction.publish("invoices", message.value, key=message.key, delay=delay)
                if how == "raise":
                    raise KeyError("a worker's own fault")
        except KeyError:
            return
        except Conflict:
            assert not fresh, "the leases were good"
            return
        assert fresh, "a lease was over"
        self.worked.update(one.value or b"" for one in messages)

    def is_fresh(self, message: trine.Message) -> bool:
        return message.deadline_ms > self.world.now and message.value not in self.worked

    @rule(seconds=st.sampled_from((1, 10, 400)))
    def advance(self, seconds: int) -> None:
        self.world.clock.advance(seconds)
        self.world.broker.tick()
        self.held = [one for one in self.held if one.deadline_ms > self.world.now]

    @rule(seed=st.none() | st.integers(0, 1000))
    def crash(self, seed: int | None) -> None:
        self.world.crash(seed)
        self.join()

    @rule()
    def close_and_reopen(self) -> None:
        self.world.close()
        self.join()

    @rule()
    def checkpoint(self) -> None:
        self.world.broker.checkpoint()

    def teardown(self) -> None:
        if not hasattr(self, "held"):
            return
        self.world.clock.advance("3h")
        self.world.broker.tick()
        invoices = [one.value for one in self.world.broker.topic("invoices").read(max=10_000)]
        assert sorted(invoices) == sorted(self.worked)
        left = set()
        for _ in range(3):
            self.world.clock.advance("10m")
            self.world.broker.tick()
            found = self.consumer.receive(1000)
            left.update(one.value for one in found)
            self.consumer.ack(found) if found else None
        assert left == self.orders - self.worked
        assert self.group.lag().count == 0


def test_a_transaction_is_all_or_nothing() -> None:
    run_state_machine_as_test(TransactionMachine, settings=runs(40, 40))


@pytest.mark.slow
def test_a_transaction_is_all_or_nothing_for_long() -> None:
    run_state_machine_as_test(TransactionMachine, settings=runs(2000, 80))
