"""A thread that is alone on a connection asks by itself; nobody else may notice, whatever happens meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trine
from tests.integration.hosting import Host, configuration
from trine.client import shortcut
from trine.client.link import Lost
from trine.client.shortcut import Shortcut
from trine.client.sync import Broker, Topic
from trine.model import errors

PATIENCE = 20.0


@pytest.fixture
def host() -> Iterator[Host]:
    with Host(configuration()) as host:
        yield host


@pytest.fixture(autouse=True)
def for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine may need long for a few calls: what was lent stays so until somebody wants it back."""
    monkeypatch.setattr(shortcut, "ALONE_SECONDS", 3600.0)


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def lend(broker: Broker, topic: Topic) -> int:
    """Publishes until the connection is lent; how many it took."""
    count = 0
    while not broker._caller._shortcut.lent:
        topic.publish(b"%d" % count)
        count += 1
        assert count < 1000, "it is never lent"
    return count


class Waiting:
    """A receive in a thread of its own, which waits for long."""

    def __init__(self, consumer: Any) -> None:
        self.got: Any = None
        self.error: BaseException | None = None
        self._consumer = consumer
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        try:
            self.got = self._consumer.receive(max=100, wait="1h")
        except BaseException as error:
            self.error = error

    def over(self) -> Any:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "it waits still"
        return self.got


def asks_by_itself(broker: Broker) -> None:
    """Until the thread waits for its answer."""
    until(lambda: broker._caller._shortcut._turn.locked())


def test_all_calls_are_answered_as_ever(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t", partitions=1)
        count = lend(broker, topic)
        receipt = topic.publish(b"last")
        assert receipt.offset == count
        assert topic.publish_many([b"a", b"b"])[1].offset == count + 2
        with topic.group("g").consumer("m") as consumer:
            lend(broker, topic)
            first, *others = got = consumer.receive(max=count + 3)
            assert [message.value for message in got][count:] == [b"last", b"a", b"b"]
            assert consumer.ack(others) == count + 2
            first.ack()
            with pytest.raises(errors.StaleReceipt):
                first.ack()
            with pytest.raises(errors.StaleReceipt):
                consumer.ack([first.receipt])
            assert broker._caller._shortcut.lent
        with trine.connect(host.url) as other:
            lend(broker, topic)
            other.delete_topic("t")
        with pytest.raises(errors.UnknownTopic):
            topic.publish(b"too late")


def test_who_waits_does_not_keep_the_connection_from_others(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic, empty = broker.create_topic("t"), broker.create_topic("empty")
        with empty.group("g").consumer("m") as consumer:
            lend(broker, topic)
            waiting = Waiting(consumer)
            asks_by_itself(broker)
            assert topic.publish(b"1").topic == "t"
            empty.publish(b"2")
            (message,) = waiting.over()
            assert message.value == b"2"


def test_frames_larger_than_the_socket_takes(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t", partitions=1)
        count = lend(broker, topic)
        values = [bytes((n,)) * 500_000 for n in range(25)]
        assert len(topic.publish_many(values)) == 25
        with topic.group("g").consumer("m") as consumer:
            got: list[bytes | None] = []
            while len(got) < count + 25:
                messages = consumer.receive(max=100, wait="10s")
                got += [message.value for message in messages]
                consumer.ack(messages)
            assert got[count:] == values


def test_a_connection_that_breaks(host: Host) -> None:
    with trine.connect(host.url) as broker, trine.connect(host.url) as other:
        topic = broker.create_topic("t", partitions=1)
        group = topic.group("g", lease="1h")
        with group.consumer("m") as consumer:
            count = lend(broker, topic)
            held = consumer.receive(max=1)
            host.cut()
            with pytest.raises(Lost, match="may or may not have happened"):
                topic.publish(b"lost")
            lend(broker, topic)
            host.cut()
            with pytest.raises(Lost):  # nobody has read since, so it is noticed by this call
                consumer.ack(held)
            assert consumer.ack(held) == 1
            assert len(consumer.receive(max=count - 1)) == count - 1
            consumer.receive(max=1000)  # what was published since
            lend(broker, broker.create_topic("elsewhere"))
            waiting = Waiting(consumer)
            host.cut()
            until(lambda: len(group.members()) == 1)
            other.topic("t").publish(b"after")
            (message,) = waiting.over()
            assert message.value == b"after"


def test_an_interrupt_in_the_middle(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t", partitions=1)
        count = lend(broker, topic)
        read = Shortcut._read

        def interrupted(self: Shortcut, *arguments: Any) -> Any:
            monkeypatch.setattr(Shortcut, "_read", read)
            raise KeyboardInterrupt

        monkeypatch.setattr(Shortcut, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            topic.publish(b"published all the same")
        assert topic.publish(b"next").offset == count + 1
        assert lend(broker, topic)
        assert broker._link.generation == 1


def test_it_goes_back_when_nobody_calls(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t")
        lend(broker, topic)
        monkeypatch.setattr(shortcut, "ALONE_SECONDS", 0.01)
        broker.topics()
        assert not broker._caller._shortcut.lent
        monkeypatch.setattr(shortcut, "CALLS_ALONE", 1)
        until(lambda: topic.publish(b"1") and broker._caller._shortcut.lent)
        until(lambda: not broker._caller._shortcut.lent)
        host.cut()
        until(lambda: broker._link.generation == 2)


def test_closing_while_somebody_waits(host: Host) -> None:
    broker = trine.connect(host.url)
    topic, empty = broker.create_topic("t"), broker.create_topic("empty")
    consumer = empty.group("g").consumer("m")
    consumer.receive()
    lend(broker, topic)
    waiting = Waiting(consumer)
    asks_by_itself(broker)
    broker.close()
    waiting.over()
    assert isinstance(waiting.error, errors.Closed)
    with pytest.raises(errors.Closed):
        topic.publish(b"too late")


def test_who_is_pushed_to_needs_the_loop(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t", partitions=1)
        count = lend(broker, topic)
        with topic.group("g").consumer("m", prefetch=1000) as consumer:
            got = []
            for n in range(200):
                topic.publish(b"%d" % n)
                got += consumer.receive(max=1000)
                assert not broker._caller._shortcut.lent
            while len(got) < count + 200:
                got += consumer.receive(max=1000, wait="10s")
        lend(broker, topic)


def test_many_threads_take_turns(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t", partitions=1)
        failures: list[BaseException] = []
        offsets: list[int | None] = []

        def publish() -> None:
            try:
                for n in range(150):
                    offsets.append(topic.publish(b"%d" % n).offset)
                    if n % 50 == 0:
                        broker.topics()
            except BaseException as error:
                failures.append(error)

        for crowd in (1, 3, 1, 2):
            threads = [threading.Thread(target=publish) for _ in range(crowd)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert failures == []
        assert sorted(offset or 0 for offset in offsets) == list(range(150 * 7))
        assert broker._link.generation == 1
