"""kill -9 of a server under load: clients come back by themselves, nothing confirmed is lost, no ack is forgotten.

A checker over unique ids. Each producer notes an id once its publish is answered; each consumer notes an id when its
ack is answered, and notes every delivery when it comes. Afterwards:

    every confirmed publish was delivered, and is stored once
    nothing was delivered after its ack was confirmed
    when the consumers have left, what is still to be had are no messages whose ack was confirmed
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import trine
from tests.integration.serving import Serving
from trine.model.errors import Conflict, Unreachable

GIVE_UP_S = 120.0
LEASE = "5s"
"""Long enough to ack in; short, as what was sent to a client that never read it comes back only when this is over."""
PRODUCERS = 2
WORKERS = ({}, {"prefetch": 50})
"""How each consumer gets its messages: one asks, one is pushed to."""


class Load:
    """Producers and consumers of one topic, in threads, each with a connection of its own that is never made anew."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.stop_producing = threading.Event()
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.confirmed: set[str] = set()
        self.deliveries: Counter[str] = Counter()
        self.acked: set[str] = set()
        self.after_ack: list[str] = []
        self.failures: list[BaseException] = []
        self.interrupted = 0
        """Calls that a kill left without an answer: a run without any has shown nothing."""
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        work = [(self.produce, n) for n in range(PRODUCERS)] + [
            (self.consume, n) for n in range(len(WORKERS))
        ]
        for target, number in work:
            thread = threading.Thread(target=self._guarded, args=(target, number), daemon=True)
            thread.start()
            self.threads.append(thread)

    def _guarded(self, target: Callable[[int], None], number: int) -> None:
        try:
            target(number)
        except BaseException as error:
            self.failures.append(error)

    def produce(self, number: int) -> None:
        with trine.connect(self.address) as broker:
            topic = broker.topic("orders")
            for turn in itertools.count():
                if self.stop_producing.is_set():
                    return
                ids = [f"{number}-{turn}-{index}" for index in range(1 + turn % 5)]
                try:
                    published = topic.publish_many([{"value": one, "key": one} for one in ids])
                except Unreachable:
                    self.interrupted += 1
                    continue  # it may or may not have happened
                assert published.durability == "synced"
                with self.lock:
                    self.confirmed.update(ids)

    def consume(self, number: int) -> None:
        with (
            trine.connect(self.address) as broker,
            broker.topic("orders")
            .group("billing")
            .consumer(f"worker-{number}", **WORKERS[number]) as consumer,
        ):
            while not self.stop.is_set():
                try:
                    messages = consumer.receive(max=20, wait="200ms")
                except Unreachable:
                    self.interrupted += 1
                    continue
                self.came(messages)
                if len(messages) % 2:
                    for message in messages:
                        self.settle(message.ack, [message])
                elif messages:
                    self.settle(lambda: consumer.ack(messages), messages)  # noqa: B023

    def came(self, messages: Sequence[trine.Message]) -> None:
        """When they come, and not when their turn is: meanwhile another consumer may have had them."""
        with self.lock:
            for message in messages:
                name = id_of(message)
                self.deliveries[name] += 1
                if name in self.acked:
                    self.after_ack.append(name)

    def settle(self, ack: Callable[[], object], messages: Sequence[trine.Message]) -> None:
        try:
            ack()
        except (Unreachable, Conflict):
            self.interrupted += 1
            return  # not confirmed: they may come again
        with self.lock:
            self.acked.update(map(id_of, messages))

    def missing(self) -> set[str]:
        with self.lock:
            return self.confirmed - set(self.deliveries)

    def close(self) -> None:
        self.stop_producing.set()
        self.stop.set()
        for thread in self.threads:
            thread.join(GIVE_UP_S)
            assert not thread.is_alive(), "a client did not come to its end"


def id_of(message: trine.Message | trine.StoredMessage) -> str:
    return (message.value or b"").decode()


def until(condition: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def until_acks(load: Load, more: int = 50) -> None:
    goal = len(load.acked) + more
    until(lambda: load.failures or len(load.acked) >= goal, lambda: "no acks come any more")


def kill(server: Serving, rng: random.Random, while_recovering: bool) -> None:
    time.sleep(rng.random() * 0.2)  # anywhere between two answers
    server.kill()
    if while_recovering:
        server.launch()
        time.sleep(rng.random() * 2)  # anywhere between the first line of Python and the first answers
        server.kill()
    server.start()


def check(folder: Path, kills: int, seed: int, **options: object) -> Load:
    rng = random.Random(seed)
    with Serving(folder / "data") as server:
        with trine.connect(server.url) as broker:
            topic = broker.create_topic("orders", partitions=3)
            topic.create_group(
                "billing", lease=LEASE, max_deliveries=1000, backoff={"first": "10ms"}, **options
            )
        load = Load(server.url)
        load.start()
        try:
            for number in range(kills):
                until_acks(load)
                kill(server, rng, while_recovering=number % 4 == 3)
            until_acks(load)
            load.stop_producing.set()
            until(
                lambda: load.failures or not load.missing(),
                lambda: f"never delivered: {sorted(load.missing())[:10]}",
            )
        finally:
            load.close()
        if load.failures:
            raise load.failures[0]
        assert load.interrupted, "no kill came between a call and its answer"
        assert not load.after_ack, f"delivered after their acks were confirmed: {load.after_ack[:10]}"
        server.kill()  # once more: what was confirmed since the last kill is held to it too
        server.start()
        check_rest(server, load)
        assert server.terminate() == 0
    return load


def whole_log(topic: trine.Topic) -> Iterator[trine.StoredMessage]:
    for partition, (first, following) in topic.offsets().items():
        while first < following:
            page = topic.read(partition=partition, from_offset=first, max=10_000)
            yield from page
            first = page[-1].offset + 1


def check_rest(server: Serving, load: Load) -> None:
    """The log and the group, as they are found by one who comes afterwards."""
    with trine.connect(server.url) as broker:
        topic = broker.topic("orders")
        stored = Counter(id_of(message) for message in whole_log(topic))
        assert not load.confirmed - set(stored), "confirmed, and not in the log"
        assert set(stored.values()) == {1}, "stored twice"
        group = topic.group("billing")
        with group.consumer("auditor") as consumer:
            deadline = time.monotonic() + GIVE_UP_S
            while group.lag().count:
                assert time.monotonic() < deadline, f"what is left does not come: {group.lag()}"
                messages = consumer.receive(max=1000, wait="1s")
                again = sorted({id_of(message) for message in messages} & load.acked)
                assert not again, f"their acks were confirmed, and they came again: {again[:10]}"
                consumer.ack(messages)


def test_confirmed_publishes_and_acks_survive_kills_of_the_server(tmp_path: Path) -> None:
    check(tmp_path, kills=2, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_confirmed_publishes_and_acks_survive_many_kills(tmp_path: Path, seed: int) -> None:
    check(tmp_path, kills=20, seed=seed)


@pytest.mark.slow
def test_the_checker_sees_acks_that_a_kill_took_away(tmp_path: Path) -> None:
    """An ack that is answered from memory is not durable: a checker that passed this would pass anything."""
    with pytest.raises(AssertionError, match="acks were confirmed"):
        check(tmp_path, kills=5, seed=1, durability="memory")
