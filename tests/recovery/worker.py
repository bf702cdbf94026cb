"""The process that gets killed: publishes, receives, settles and checkpoints, and says what it was answered.

Started as a script it waits for lines (folder, round and seed as JSON), forks a process for each, which works
until it dies, and tells of its death: importing everything once saves a second each time. A line of output is a
JSON list, written before an operation (`"may"`) or after it was answered (`"did"`):

    pid     [number]                        first, and `dead` [status] last
    may|did publish [topic, ids]            did adds the places: [partition, offset], or a schedule id
    did     receive [group, [[place, attempt], ...]]
    may|did ack     [group, places]
    may|did reject  [group, places]
    may|did move    [place, id]             a transaction: acked in "orders", published to "invoices"
    may|did cancel  [id]

A place is `partition/offset`. Lines are shorter than what a pipe takes as a whole, so none is torn.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import zlib
from typing import Any

import trine
from trine.broker.opening import open_store
from trine.log.journal import JournalSettings
from trine.log.store import StoreSettings
from trine.model.errors import UnknownSchedule
from trine.model.limits import KIB
from trine.model.options import BackoffConfig

SETTINGS = StoreSettings(
    journal=JournalSettings(
        file_bytes=128 * KIB, chunk_bytes=16 * KIB, reserve_bytes=8 * KIB, queue_bytes_max=4 * KIB
    ),
    tail_bytes_max=8 * KIB,
    tails_bytes_max=64 * KIB,
    look_bytes=16 * KIB,
    journal_bytes_max=200 * KIB,
)
"""Small, so that files roll, are cut and are used again many times within a second."""

MAX_DELIVERIES = 4
THREADS = 3
GROUPS = ("synced", "written")


def value_of(id: str) -> bytes:
    """The content of a message follows from its id, so that any change of it shows."""
    crc = zlib.crc32(id.encode())
    return f"{id}|".encode() + crc.to_bytes(4, "big") * (crc % 80)


def id_of(value: bytes) -> str:
    id = value.partition(b"|")[0].decode()
    assert value == value_of(id), f"the content of {id} was changed"
    return id


def place_of(message: trine.StoredMessage) -> str:
    return f"{message.partition}/{message.offset}"


def open_broker(folder: str, seed: int) -> trine.Broker:
    return trine.Broker(*open_store(folder, seed=seed, settings=SETTINGS))


def prepare(broker: trine.Broker) -> None:
    """The topics and groups, as far as they are not there yet: a worker may have died in the middle of it."""
    known = {topic.name for topic in broker.topics()}
    options = {"lease": "60s", "max_deliveries": MAX_DELIVERIES, "breaker": None}
    backoff = BackoffConfig(first_ms=0, cap_ms=0, jitter=0.0)
    for name in {"orders", "invoices", "keyed"} - known:
        broker.create_topic(name, partitions=2, segment_bytes=16 * KIB)
    have = {group.name for group in broker.topic("orders").groups()}
    for group in GROUPS:
        if group not in have:
            broker.topic("orders").create_group(group, durability=group, backoff=backoff, **options)
    if not broker.topic("keyed").groups():
        broker.topic("keyed").create_group("keyed", order="key", **options)


class Worker:
    """One thread's work, decided by its own dice."""

    def __init__(self, broker: trine.Broker, round: int, number: int, seed: int) -> None:
        self._broker = broker
        self._prefix = f"{round}.{number}"
        self._count = 0
        self._rng = random.Random(f"{seed}/{number}")
        self._orders = broker.topic("orders")
        self._consumers = {name: self._orders.group(name).consumer(f"w{number}") for name in GROUPS}
        self._waiting: list[tuple[str, str]] = []
        self._held: list[tuple[str, list[trine.Message]]] = []

    def run(self, pause_s: float) -> None:
        verbs = [self.one, self.many, self.keyed, self.delayed, self.twice, self.cancel]
        verbs += [self.receive, self.receive, self.ack, self.ack_singly, self.nack, self.reject, self.move]
        weights = [4, 3, 3, 3, 1, 1, 4, 4, 4, 3, 2, 1, 3]
        while True:
            self._rng.choices(verbs, weights)[0]()
            if pause_s:
                time.sleep(pause_s)

    def _ids(self, count: int) -> list[str]:
        self._count += count
        return [f"{self._prefix}.{self._count - step}" for step in range(count)]

    def _level(self) -> str:
        return self._rng.choice(("synced", "written"))

    # --- in

    def one(self) -> None:
        (id,) = self._ids(1)
        say("may", "publish", "orders", [id])
        receipt = self._orders.publish(value_of(id), durability=self._level(), headers={"id": id})
        say("did", "publish", "orders", [id], [[receipt.partition, receipt.offset]])

    def many(self) -> None:
        ids = self._ids(self._rng.randint(2, 25))
        say("may", "publish", "orders", ids)
        items: list[Any] = [value_of(id) for id in ids]
        if self._rng.random() < 0.5:  # spread over partitions and lanes: one entry all the same
            lanes = ("high", "normal", "low")
            items = [
                {"value": item, "key": id, "priority": self._rng.choice(lanes)}
                for item, id in zip(items, ids, strict=True)
            ]
        published = self._orders.publish_many(items, durability=self._level())
        say("did", "publish", "orders", ids, [[one.partition, one.offset] for one in published])

    def keyed(self) -> None:
        (id,) = self._ids(1)
        say("may", "publish", "keyed", [id])
        key = f"k{self._rng.randrange(4)}"
        receipt = self._broker.topic("keyed").publish(value_of(id), key=key, durability=self._level())
        say("did", "publish", "keyed", [id], [[receipt.partition, receipt.offset]])

    def delayed(self) -> None:
        (id,) = self._ids(1)
        say("may", "publish", "orders", [id])
        delay = self._rng.choice((1, 5, 20, 100, 400)) / 1000
        receipt = self._orders.publish(value_of(id), delay=delay, durability=self._level())
        say("did", "publish", "orders", [id], [receipt.schedule_id])
        self._waiting.append((id, str(receipt.schedule_id)))

    def twice(self) -> None:
        """The same dedup id a second time: answered with the first one's place, and not stored."""
        first, second = self._ids(2)
        say("may", "publish", "orders", [first])
        receipt = self._orders.publish(value_of(first), dedup_id=first)
        say("did", "publish", "orders", [first], [[receipt.partition, receipt.offset]])
        again = self._orders.publish(value_of(second), dedup_id=first)
        assert again.duplicate
        assert again.message_id == receipt.message_id

    def cancel(self) -> None:
        if not self._waiting:
            return
        id, schedule_id = self._waiting.pop()
        say("may", "cancel", id)
        try:
            self._broker.cancel(schedule_id)
        except UnknownSchedule:
            return
        say("did", "cancel", id)

    # --- out

    def receive(self) -> None:
        group = self._rng.choice(GROUPS)
        messages = self._consumers[group].receive(max=self._rng.choice((1, 5, 20, 50)))
        if messages:
            say("did", "receive", group, [[place_of(one), one.attempt] for one in messages])
            self._held.append((group, list(messages)))

    def _take(self) -> tuple[str, list[trine.Message]]:
        if not self._held:
            return GROUPS[0], []
        at = self._rng.randrange(len(self._held))
        group, messages = self._held[at]
        count = self._rng.randint(1, len(messages))
        taken, rest = messages[:count], messages[count:]
        if rest:
            self._held[at] = (group, rest)
        else:
            del self._held[at]
        return group, taken

    def ack(self) -> None:
        group, messages = self._take()
        if messages:
            places = [place_of(one) for one in messages]
            say("may", "ack", group, places)
            self._consumers[group].ack(messages)
            say("did", "ack", group, places)

    def ack_singly(self) -> None:
        group, messages = self._take()
        for message in messages[::-1]:
            say("may", "ack", group, [place_of(message)])
            message.ack()
            say("did", "ack", group, [place_of(message)])

    def nack(self) -> None:
        group, messages = self._take()
        if messages:
            self._consumers[group].nack(messages, delay=self._rng.choice((None, 0, 0.01)))

    def reject(self) -> None:
        group, messages = self._take()
        if messages:
            places = [place_of(one) for one in messages[:3]]
            say("may", "reject", group, places)
            self._consumers[group].reject(messages[:3], "told to")
            say("did", "reject", group, places)
            self._held += [(group, messages[3:])] if messages[3:] else []

    def move(self) -> None:
        group, messages = self._take()
        if group != GROUPS[0] or not messages:
            return
        ids = [f"moved-{place_of(one)}" for one in messages]
        for message, id in zip(messages, ids, strict=True):
            say("may", "move", place_of(message), id)
        with self._broker.transaction() as transaction:
            transaction.ack(messages)
            for id in ids:
                transaction.publish("invoices", value_of(id))
        for message, id in zip(messages, ids, strict=True):
            say("did", "move", place_of(message), id)


def say(*words: Any) -> None:
    os.write(1, json.dumps(words, separators=(",", ":")).encode() + b"\n")


def main() -> None:
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            say("pid", os.getpid())
            guarded(lambda: work(*json.loads(line)))  # noqa: B023 (it never returns)
        _, status = os.waitpid(pid, 0)
        say("dead", os.waitstatus_to_exitcode(status))


def work(folder: str, round: int, seed: int) -> None:
    broker = open_broker(folder, seed)
    prepare(broker)
    say("did", "open")
    rng = random.Random(seed)
    calm = rng.random() < 0.3
    """Alone and with pauses: then an answer is the last thing that happened before the kill."""
    for number in range(1 if calm else THREADS):
        worker = Worker(broker, round, number, seed)
        threading.Thread(target=guarded, args=(lambda w=worker: w.run(0.003 if calm else 0.0),)).start()
    while True:
        time.sleep(0.2 if calm else rng.choice((0.002, 0.01, 0.05)))
        broker.checkpoint()


def guarded(part: Any) -> None:
    """A fault of the worker's own ends the process, so that it cannot pass for a kill."""
    try:
        part()
    except BaseException as error:
        say("fault", repr(error))
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(3)


if __name__ == "__main__":
    main()
