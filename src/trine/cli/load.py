"""The load of `trine bench`: connections that publish or consume in threads of their own, on a topic made for it.

The main thread looks on: it shows how far they are, hears Ctrl-C, and tells them to stop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from trine.cli.histogram import Histogram
from trine.cli.session import Session
from trine.cli.target import find_place, open_place
from trine.model.errors import TrineError

if TYPE_CHECKING:
    from trine import Broker, Message, Topic

STAMP: Final = struct.Struct("<q")
"""When a message was due to be published, ns, at the head of its value."""

GROUP: Final = "bench"
TIMED: Final = "latency"
LOOK_S: Final = 0.1
WAIT: Final = "250ms"
"""How long one receive waits: how late a worker hears that it is over."""

QUIET_S: Final = 10.0
"""A consumer that is given nothing for so long, while messages are owed to it, gives up."""

FILLED_MESSAGES: Final = 10_000
"""Of one publish while a backlog is made."""

FILLED_BYTES: Final = 8 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is sent, how, and for how long."""

    messages: int | None
    """None: as many as there is time for."""
    duration_s: float | None
    """None: until all messages are through."""
    size: int
    batch: int
    durability: str
    partitions: int
    connections: int
    rate: int | None
    """Messages a second, over all connections; None: as fast as it goes."""

    def share(self, number: int) -> int | None:
        """How many of the messages are one connection's."""
        if self.messages is None:
            return None
        return self.messages // self.connections + (number < self.messages % self.connections)


class Worker:
    """One thread's work, and what it came to."""

    def __init__(self) -> None:
        self.done = 0
        self.times = Histogram()
        self.error: BaseException | None = None


Work = Callable[[Worker, threading.Event], None]
"""A worker, and what is set when all of it is to stop at once."""


@contextlib.contextmanager
def own_topic(session: Session, shape: Shape) -> Iterator[Topic]:
    """A topic that is deleted at the end, also when the end is Ctrl-C."""
    name = f"trine-bench-{uuid.uuid4().hex[:12]}"
    topic = session.broker.create_topic(name, partitions=shape.partitions, durability=shape.durability)
    try:
        yield topic
    finally:
        topic.delete()


@contextlib.contextmanager
def connected(session: Session) -> Iterator[Broker]:
    """A connection of one's own; on a data directory all share the one store."""
    place = find_place(session.given, os.environ)
    if place.data is not None:
        yield session.broker
        return
    broker = open_place(place)
    try:
        yield broker
    finally:
        with contextlib.suppress(
            TrineError
        ):  # what went wrong before is told, not that the connection is gone
            broker.close()


def run(session: Session, what: str, shape: Shape, works: Sequence[Work]) -> dict[str, Any]:
    """A thread for each work, with a bar that shows the rate; raises what one of them raised."""
    workers = [Worker() for _ in works]
    over = threading.Event()
    threads = [
        threading.Thread(target=_caught, args=(work, worker, over), daemon=True)
        for work, worker in zip(works, workers, strict=True)
    ]
    begun = time.perf_counter()
    try:
        with session.progress(
            what, shape.messages if shape.duration_s is None else shape.duration_s
        ) as reached:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(LOOK_S)
                    spent = time.perf_counter() - begun
                    done = sum(worker.done for worker in workers)
                    told = f"{what}  {done / spent:,.0f}/s"
                    reached(done if shape.duration_s is None else min(spent, shape.duration_s), told)
                    if any(worker.error for worker in workers):
                        over.set()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    seconds = time.perf_counter() - begun
    for worker in workers:
        if worker.error is not None:
            raise worker.error
    return _outcome(what, workers, shape.size, seconds)


def _caught(work: Work, worker: Worker, over: threading.Event) -> None:
    try:
        work(worker, over)
    except BaseException as error:  # it is raised again in the main thread
        worker.error = error


def _outcome(what: str, workers: list[Worker], size: int, seconds: float) -> dict[str, Any]:
    messages = sum(worker.done for worker in workers)
    times = Histogram()
    for worker in workers:
        times.join(worker.times)
    return {
        "what": what,
        "messages": messages,
        "seconds": seconds,
        "per_second": messages / seconds,
        "mb_per_second": messages * size / seconds / 1e6,
        "times": times,
    }


# --- what workers do


class Pace:
    """When the next messages of one connection are due, and when there is no time left."""

    def __init__(self, shape: Shape, over: threading.Event) -> None:
        self._begun = time.perf_counter()
        self._each = 0.0 if shape.rate is None else shape.connections / shape.rate
        self._end = float("inf") if shape.duration_s is None else self._begun + shape.duration_s
        self._over = over

    def due(self, number: int) -> float:
        return self._begun + number * self._each

    def wait(self, number: int) -> bool:
        """Until a message is due; False if the time is up before that."""
        due = self.due(number)
        pause = due - time.perf_counter()
        if pause > 0 and due < self._end:
            return not self._over.wait(pause)
        return not self._over.is_set() and max(due, time.perf_counter()) < self._end


def publishers(session: Session, topic: str, shape: Shape) -> list[Work]:
    """They publish in batches, each answered before the next of its connection; times are those of the answers."""
    values = [bytes(shape.size)] * shape.batch

    def work(worker: Worker, over: threading.Event, share: int | None) -> None:
        with connected(session) as broker:
            to = broker.topic(topic)
            pace = Pace(shape, over)
            while (share is None or worker.done < share) and pace.wait(worker.done):
                some = shape.batch if share is None else min(shape.batch, share - worker.done)
                before = time.perf_counter()
                if some == 1:
                    to.publish(values[0])
                else:
                    to.publish_many(values if some == shape.batch else values[:some])
                worker.times.add((time.perf_counter() - before) * 1e3)
                worker.done += some

    return [partial(work, share=shape.share(number)) for number in range(shape.connections)]


def fill(session: Session, topic: Topic, shape: Shape) -> None:
    """A backlog for those who consume, in large batches."""
    wanted = shape.messages or 0
    values = [bytes(shape.size)] * max(1, min(FILLED_MESSAGES, FILLED_BYTES // shape.size))
    with session.progress("filling", wanted) as reached:
        done = 0
        while done < wanted:
            done += len(topic.publish_many(values[: wanted - done]))
            reached(done)


class Flow:
    """What is through, of all connections."""

    def __init__(self, publishing: int) -> None:
        self._lock = threading.Lock()
        self.publishing = publishing
        """Connections that still publish."""
        self.sent = 0
        self.received = 0

    def add(self, sent: int = 0, received: int = 0, ended: int = 0) -> None:
        with self._lock:
            self.sent += sent
            self.received += received
            self.publishing -= ended

    @property
    def through(self) -> bool:
        return not self.publishing and self.received >= self.sent


def consumers(session: Session, topic: str, shape: Shape) -> list[Work]:
    """They receive and ack in batches until all messages are through; times are of a receive with its ack."""
    flow = Flow(publishing=0)
    flow.sent = shape.messages or 0

    def work(worker: Worker, over: threading.Event, name: str) -> None:
        def took(messages: Sequence[Message], before: float) -> None:
            worker.times.add((time.perf_counter() - before) * 1e3)

        _receive(session, topic, GROUP, shape, flow, worker, over, name, took)

    return [partial(work, name=f"bench-{number}") for number in range(shape.connections)]


def _receive(
    session: Session, topic: str, group: str, shape: Shape, flow: Flow, worker: Worker, over: threading.Event,
    name: str, took: Callable[[Sequence[Message], float], None],
) -> None:  # fmt: skip
    """Until all is through, the time is up, or nothing has come for long."""
    with connected(session) as broker, broker.topic(topic).group(group).consumer(name) as consumer:
        heard = begun = time.perf_counter()
        end = (
            float("inf")
            if shape.duration_s is None
            else begun + shape.duration_s + QUIET_S * bool(flow.publishing)
        )
        while not flow.through and not over.is_set():
            before = time.perf_counter()
            if before > end or before - heard > QUIET_S:
                return
            received = consumer.receive(max=shape.batch, wait=WAIT)
            if not received:
                continue
            heard = time.perf_counter()
            acked = consumer.ack(received)
            took(received, before)
            worker.done += acked
            flow.add(received=acked)


def passing_through(session: Session, topic: str, group: str, shape: Shape) -> list[Work]:
    """Connections that publish one message at a time at a steady pace, and as many that receive them.

    A message carries the time when it was due: one that an earlier publish held up counts as late, so that a broker
    that stalls cannot hide it. Times are from then to its receive, on one clock.
    """
    flow = Flow(publishing=shape.connections)
    pad = bytes(shape.size - STAMP.size)

    def publish(worker: Worker, over: threading.Event, share: int | None) -> None:
        sent = 0
        try:
            with connected(session) as broker:
                to = broker.topic(topic)
                pace = Pace(shape, over)
                free = pace.due(0)
                while (share is None or sent < share) and pace.wait(sent):
                    # Late because the timer is coarse is not late because the broker was.
                    due = pace.due(sent)
                    stamp = due if due < free else time.perf_counter()
                    to.publish(STAMP.pack(int(stamp * 1e9)) + pad)
                    free = time.perf_counter()
                    sent += 1
                    flow.add(sent=1)
        finally:
            flow.add(ended=1)

    def receive(worker: Worker, over: threading.Event, name: str) -> None:
        def took(messages: Sequence[Message], before: float) -> None:
            now = time.perf_counter_ns()
            for message in messages:
                worker.times.add((now - STAMP.unpack_from(message.value or b"")[0]) / 1e6)

        _receive(session, topic, group, shape, flow, worker, over, name, took)

    numbers = range(shape.connections)
    receiving: list[Work] = [partial(receive, name=f"bench-{number}") for number in numbers]
    return receiving + [partial(publish, share=shape.share(number)) for number in numbers]
