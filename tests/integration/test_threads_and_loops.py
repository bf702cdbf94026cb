"""Real time, real disk, several threads or tasks: the sync and the async form of the same thing."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import trine
import trine.aio
from tests.integration.conftest import OpenBroker

COUNT = 3000


def test_many_threads_publish_and_consume_each_message_once(tmp_path: Path, open_broker: OpenBroker) -> None:
    with open_broker(str(tmp_path / "data")) as broker:
        topic = broker.create_topic("t", partitions=4)
        seen: list[bytes] = []
        lock = threading.Lock()
        failures: list[BaseException] = []

        def publish(worker: int) -> None:
            try:
                for i in range(0, COUNT, 100):
                    topic.publish_many([b"%d-%d" % (worker, i + j) for j in range(100)])
            except BaseException as error:
                failures.append(error)

        def consume(worker: int) -> None:
            try:
                with topic.group("g").consumer(f"w{worker}") as consumer:
                    while len(seen) < 3 * COUNT:
                        got = consumer.receive(max=50, wait="200ms")
                        for message in got[:5]:
                            message.ack()
                        if got[5:]:
                            consumer.ack(got[5:])
                        with lock:
                            seen.extend(message.value or b"" for message in got)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=publish, args=(n,)) for n in range(3)]
        threads += [threading.Thread(target=consume, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(seen) == len(set(seen)) == 3 * COUNT
        assert topic.group("g").lag().count == 0


def test_a_waiting_consumer_wakes_when_a_message_comes(tmp_path: Path, open_broker: OpenBroker) -> None:
    with open_broker(str(tmp_path / "data")) as broker:
        topic = broker.create_topic("t")
        got: list[trine.Messages] = []
        with topic.group("g").consumer("m") as consumer:
            waiter = threading.Thread(target=lambda: got.append(consumer.receive(wait="30s")))
            began = time.monotonic()
            waiter.start()
            topic.publish(b"now")
            topic.publish(b"soon", delay="150ms")
            waiter.join()
            (soon,) = consumer.receive(wait="30s")
            assert soon.value == b"soon"
            assert 0.15 <= time.monotonic() - began < 20
        assert [message.value for message in got[0]] == [b"now"]


async def test_async_is_the_same(tmp_path: Path) -> None:
    async with trine.aio.open(str(tmp_path / "data")) as broker:
        topic = await broker.create_topic("t", partitions=3)
        receipts = await asyncio.gather(*(topic.publish(b"%d" % i) for i in range(64)))
        assert {receipt.durability for receipt in receipts} == {"synced"}
        async with topic.group("g").consumer("m") as consumer:
            seen = []
            while len(seen) < 64:
                for message in await consumer.receive(max=20, wait="5s"):
                    await message.ack()
                    seen.append(message.value)
            assert sorted(map(int, filter(None, seen))) == list(range(64))
            waiting = asyncio.ensure_future(consumer.receive(wait="30s"))
            await asyncio.sleep(0)
            await topic.publish(b"late")
            (late,) = await waiting
            async with broker.transaction() as transaction:
                transaction.ack(late)
                transaction.publish("t", b"next")
            (following,) = await consumer.receive(wait="5s")
            await following.reject("no")
        assert [letter.reason for letter in await topic.dead_letters()] == ["no"]
    with trine.open(str(tmp_path / "data")) as again:
        assert again.topic("t").group("g").lag().count == 0
