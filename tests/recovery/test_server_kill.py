"""kill -9 of a server under load: clients come back by themselves, nothing confirmed is lost, no ack is forgotten.

A checker over unique ids. Each producer notes an id once its publish is answered; each consumer notes an id when its
ack is answered, and notes every delivery with the time it came. Afterwards:

    every confirmed publish was delivered
    nothing was delivered after its ack was confirmed
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import trine
from tests.integration.serving import Serving
from trine.model.errors import Conflict, Unreachable

GIVE_UP_S = 120.0


class Load:
    """Producers and consumers of one topic, in threads, each with a connection of its own."""

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
        self.threads: list[threading.Thread] = []

    def start(self, producers: int, consumers: int) -> None:
        work = [(self.produce, n) for n in range(producers)] + [(self.consume, n) for n in range(consumers)]
        for target, number in work:
            thread = threading.Thread(target=self._guarded, args=(target, number), daemon=True)
            thread.start()
            self.threads.append(thread)

    def _guarded(self, target, number: int) -> None:
        try:
            target(number)
        except BaseException as error:
            self.failures.append(error)
            raise

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
                    continue  # it may or may not have happened
                assert published.durability == "synced"
                with self.lock:
                    self.confirmed.update(ids)

    def consume(self, number: int) -> None:
        with trine.connect(self.address) as broker:
            consumer = broker.topic("orders").group("billing").consumer(f"worker-{number}")
            while not self.stop.is_set():
                try:
                    messages = consumer.receive(max=20, wait="200ms")
                except Unreachable:
                    continue
                for message in messages:
                    self.work(message)
            consumer.close()

    def work(self, message: trine.Message) -> None:
        name = (message.value or b"").decode()
        with self.lock:
            self.deliveries[name] += 1
            if name in self.acked:
                self.after_ack.append(name)
        try:
            message.ack()
        except (Unreachable, Conflict):
            return  # not confirmed: it may come again
        with self.lock:
            self.acked.add(name)

    def missing(self) -> set[str]:
        with self.lock:
            return self.confirmed - set(self.deliveries)

    def unsettled(self) -> set[str]:
        with self.lock:
            return self.confirmed - self.acked

    def close(self) -> None:
        self.stop_producing.set()
        self.stop.set()
        for thread in self.threads:
            thread.join(GIVE_UP_S)
            assert not thread.is_alive(), "a client did not come to its end"


def until(condition, what: str) -> None:
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def check(folder: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    with Serving(folder / "data") as server:
        with trine.connect(server.url) as broker:
            topic = broker.create_topic("orders", partitions=3)
            topic.create_group("billing", lease="20s", max_deliveries=1000, backoff={"first": "10ms"})
        load = Load(server.url)
        load.start(producers=2, consumers=2)
        try:
            for _ in range(kills):
                before = len(load.acked)
                until(lambda: load.failures or len(load.acked) > before + 50, "no acks between two kills")  # noqa: B023
                time.sleep(rng.random() * 0.2)  # anywhere between two answers
                server.kill()
                server.restart()
            before = len(load.acked)
            until(lambda: load.failures or len(load.acked) > before + 50, "no acks after the last kill")
            load.stop_producing.set()
            until(
                lambda: load.failures or not load.missing(), f"never delivered: {sorted(load.missing())[:10]}"
            )
        finally:
            load.close()
        if load.failures:
            raise load.failures[0]
        assert not load.after_ack, f"delivered after their acks were confirmed: {load.after_ack[:10]}"
        with trine.connect(server.url) as broker:
            lag = broker.topic("orders").group("billing").lag()
            assert lag.count <= len(load.deliveries)
            assert server.terminate() == 0


def test_confirmed_publishes_and_acks_survive_kills_of_the_server(tmp_path: Path) -> None:
    check(tmp_path, kills=3, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_confirmed_publishes_and_acks_survive_many_kills(tmp_path: Path, seed: int) -> None:
    check(tmp_path, kills=20, seed=seed)
