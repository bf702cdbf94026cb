"""kill -9 at any moment, again and again on the same data directory.

After each kill the store is opened and held against what the dead process had been answered: published messages
are there with their content, settled ones never come back, transactions are whole, delayed messages arrive once,
and delivery counts go on. Sometimes the next process is started and killed at once: recovery upon recovery.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import trine
from tests.recovery.worker import GROUPS, MAX_DELIVERIES, id_of, open_broker, place_of, prepare, value_of

WORKER = Path(__file__).with_name("worker.py")


class Victims:
    """Where the processes that are killed come from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def killed_at_work(self, folder: Path, round: int, rng: random.Random) -> list[list]:
        """Lets one work for a random time or number of lines, kills it, and gives all it had said."""
        told, said = self._process.stdin, self._process.stdout
        assert told is not None
        assert said is not None
        told.write(json.dumps([str(folder), round, rng.getrandbits(32)]).encode() + b"\n")
        _, pid = json.loads(said.readline())
        most = 0
        if rng.random() < 0.4:
            time.sleep(rng.uniform(0.0, 0.3))  # a real process takes real time
        else:
            most = rng.choice((1, 2, 5, 30, 150, 300))
        lines: list[list] = []
        while not lines or lines[-1][0] != "dead":
            if len(lines) == most:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            lines.append(json.loads(said.readline()))
        assert lines.pop() == ["dead", -signal.SIGKILL], f"the worker ended by itself: {lines[-1:]}"
        return lines

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Model:
    """What must, may and must not be in the store, from all that was said."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[str]]] = []  # topic, ids: stored together or not at all
        self.places: dict[str, tuple[str, str]] = {}  # id: topic, place, where it was answered to be
        self.answered: set[str] = set()
        self.dedup: set[str] = set()
        self.may_cancel: set[str] = set()
        self.cancelled: set[str] = set()
        self.acked: dict[str, set[str]] = {group: set() for group in GROUPS}
        self.may_ack: dict[str, set[str]] = {group: set() for group in GROUPS}
        self.rejected: dict[str, set[str]] = {group: set() for group in GROUPS}
        self.may_reject: dict[str, set[str]] = {group: set() for group in GROUPS}
        self.attempts: dict[str, dict[str, int]] = {group: {} for group in GROUPS}
        self.unsure: dict[str, Counter[str]] = {group: Counter() for group in GROUPS}
        self.may_move: dict[str, str] = {}
        self.moved: set[str] = set()

    def hear(self, said: list[list]) -> None:
        for line in said:
            match line:
                case ["may", "publish", topic, ids]:
                    self.batches.append((topic, ids))
                case ["did", "publish", topic, ids, places]:
                    self.answered.update(ids)
                    for id, place in zip(ids, places, strict=True):
                        if isinstance(place, list):
                            self.places[id] = (topic, f"{place[0]}/{place[1]}")
                case ["may", "cancel", id]:
                    self.may_cancel.add(id)
                case ["did", "cancel", id]:
                    self.cancelled.add(id)
                case ["did", "receive", group, received]:
                    for place, attempt in received:
                        self.delivered(group, place, attempt)
                case ["may", "ack", group, places]:
                    self.may_ack[group].update(places)
                case ["did", "ack", group, places]:
                    self.acked[group].update(places)
                case ["may", "reject", group, places]:
                    self.may_reject[group].update(places)
                case ["did", "reject", group, places]:
                    self.rejected[group].update(places)
                case ["may", "move", place, id]:
                    self.may_move[place] = id
                case ["did", "move", place, _]:
                    self.moved.add(place)
                    self.acked[GROUPS[0]].add(place)
                case ["did", "open"]:
                    pass
                case _:
                    raise AssertionError(f"the worker said {line}")
        for group in GROUPS:  # one receive of each thread may have happened without a word
            self.unsure[group].update(self.attempts[group].keys())

    def delivered(self, group: str, place: str, attempt: int) -> None:
        """A delivery of something that was settled must not be; its number follows the last one known."""
        assert place not in self.acked[group], f"{place} was acked in {group} and came back"
        assert place not in self.rejected[group], f"{place} was rejected in {group} and came back"
        self.may_ack[group].discard(place)
        self.may_reject[group].discard(place)
        known = self.attempts[group].get(place, 0)
        most = known + 1 + self.unsure[group].pop(place, 0) if known else MAX_DELIVERIES
        assert known < attempt <= most, f"{place} in {group}: delivery {attempt} after {known}"
        self.attempts[group][place] = attempt

    # --- against the store

    def check(self, broker: trine.Broker) -> None:
        assert broker.verify() >= 0
        waiting = {id_of(one.value) for one in broker.topic("orders").schedules(limit=100_000)}
        logs = {name: _log(broker, name) for name in ("orders", "invoices", "keyed")}
        self._check_published(logs, waiting)
        for group in GROUPS:
            self._check_group(broker, group, logs)
        self._check_moved(logs)
        self._check_keyed(broker, logs["keyed"])
        self._check_dedup(broker)

    def _check_published(self, logs: dict[str, dict[str, str]], waiting: set[str]) -> None:
        stored = {
            topic: Counter(id for id in log.values() if not id.startswith("moved-"))
            for topic, log in logs.items()
        }
        for topic, counts in stored.items():
            twice = [id for id, count in counts.items() if count > 1]
            assert not twice, f"stored more than once in {topic}: {twice}"
        known = {id for _, ids in self.batches for id in ids}
        assert {id for counts in stored.values() for id in counts} | waiting <= known
        for topic, ids in self.batches:
            found = [id for id in ids if id in stored[topic] or id in waiting]
            if set(ids) & self.may_cancel:
                assert not (set(ids) & self.cancelled and found), f"{ids} was cancelled and is there"
                continue
            assert found in ([], ids), f"a publish of {len(ids)} is there in part: {found}"
            assert found or not set(ids) & self.answered, f"answered and lost: {ids}"
        for id, (topic, place) in self.places.items():
            assert logs[topic].get(place) == id, f"{id} was answered to be at {topic}/{place}"

    def _check_group(self, broker: trine.Broker, group: str, logs: dict[str, dict[str, str]]) -> None:
        buried = Counter(
            one.origin.removeprefix("orders/")
            for one in broker.topic("orders").dead_letters(group=group, limit=100_000)
        )
        assert not [place for place, count in buried.items() if count > 1]
        came = {}
        with broker.topic("orders").group(group).consumer("checker") as consumer:
            while messages := consumer.receive(max=1000):
                for one in messages:
                    assert place_of(one) not in came, f"{place_of(one)} was leased twice at once"
                    came[place_of(one)] = one.attempt
        for place in logs["orders"]:
            last = self.attempts[group].get(place, 0) + self.unsure[group][place]
            if place in came:
                assert place not in buried
                self.delivered(group, place, came[place])
                self.attempts[group][place] = came[place] - 1  # the checker gave it back: that does not count
            elif place in buried:
                allowed = place in self.may_reject[group] or last >= MAX_DELIVERIES - 1
                assert allowed, f"{place} of {group} is a dead letter without a reason"
                assert place not in self.acked[group]
                self.rejected[group].add(place)
            else:
                moved = group == GROUPS[0] and place in self.may_move
                assert place in self.may_ack[group] or moved, f"{place} is lost for {group}"
                self.acked[group].add(place)
        assert not self.rejected[group] - set(buried), "rejected, and not among the dead letters"

    def _check_moved(self, logs: dict[str, dict[str, str]]) -> None:
        """In the invoices if and only if acked by the same transaction."""
        group = GROUPS[0]
        found = Counter(logs["invoices"].values())
        for place, id in self.may_move.items():
            assert found[id] <= 1
            assert found[id] or place not in self.moved, f"{id} was answered and is lost"
            if found[id]:
                assert place in self.acked[group], f"{id} is there, but {place} was not acked with it"
                self.moved.add(place)
            else:
                alone = place in self.may_ack[group]
                assert place not in self.acked[group] or alone, f"{place} was acked without {id}"

    def _check_keyed(self, broker: trine.Broker, log: dict[str, str]) -> None:
        seen = self.acked.setdefault("keyed", set())
        last: dict[bytes | None, int] = defaultdict(lambda: -1)
        with broker.topic("keyed").group("keyed").consumer("checker") as consumer:
            while messages := consumer.receive(max=100):
                for one in messages:
                    assert place_of(one) not in seen
                    assert one.offset > last[one.key], "a key's messages came out of order"
                    last[one.key] = one.offset
                    seen.add(place_of(one))
                consumer.ack(messages)
        assert seen == set(log), "a keyed message is lost"

    def _check_dedup(self, broker: trine.Broker) -> None:
        """Ids of the last minutes are known after the restart: nothing is stored for them again."""
        for id in sorted(self.dedup)[-5:]:
            assert broker.topic("orders").publish(value_of(id), dedup_id=id).duplicate


def _log(broker: trine.Broker, name: str) -> dict[str, str]:
    """All messages of a topic: id by place, with their contents checked."""
    topic = broker.topic(name)
    found = {}
    for partition, (first, end) in topic.offsets().items():
        while first < end:
            messages = topic.read(partition=partition, from_offset=first, max=10_000)
            assert [one.offset for one in messages] == list(range(first, first + len(messages)))
            assert messages
            found.update({place_of(one): id_of(one.value) for one in messages})
            first = messages[-1].offset + 1
    return found


def kill_again_and_again(folder: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    model = Model()
    victims = Victims()
    try:
        for round in range(kills):
            model.hear(victims.killed_at_work(folder, round, rng))
            if rng.random() < 0.3 and round < kills - 1:
                continue
            broker = open_broker(str(folder), rng.getrandbits(32))
            try:
                prepare(broker)
                model.check(broker)
                _relieve(broker, model, rng)
            finally:
                broker.close()
    except BaseException as error:
        error.add_note(f"seed {seed}, round {round}, data directory {folder}")
        raise
    finally:
        victims.close()


def _relieve(broker: trine.Broker, model: Model, rng: random.Random) -> None:
    """Acks most of what waits, so that the backlog stays small; and publishes with a dedup id for the next time."""
    for group in GROUPS:
        with broker.topic("orders").group(group).consumer("checker") as consumer:
            while messages := consumer.receive(max=100):
                some = [one for one in messages if rng.random() < 0.8]
                if some:
                    consumer.ack(some)
                    model.may_ack[group].update(map(place_of, some))
                    model.acked[group].update(map(place_of, some))
    id = f"dedup-{rng.getrandbits(64)}"
    model.batches.append(("orders", [id]))
    receipt = broker.topic("orders").publish(value_of(id), dedup_id=id)
    model.answered.add(id)
    model.places[id] = ("orders", f"{receipt.partition}/{receipt.offset}")
    model.dedup = {id}


def test_nothing_answered_is_lost_by_twenty_kills(tmp_path):
    kill_again_and_again(tmp_path / "data", 20, random.SystemRandom().getrandbits(32))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_nothing_answered_is_lost_by_hundreds_of_kills(tmp_path, number):
    kill_again_and_again(tmp_path / "data", 60, random.SystemRandom().getrandbits(32))
