"""The client against a real server on real sockets: what the embedded library has no words for.

What both promise is tested by the other files here, which run against both.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import trine
import trine.aio
from tests.integration.hosting import Host, configuration
from trine.client.address import parse_address
from trine.client.link import Link, Lost
from trine.client.session import Session
from trine.client.topics import frames_of
from trine.model import errors
from trine.server.config import TlsConfig
from trine.server.keys import create_key

PATIENCE = 20.0


@pytest.fixture
def host() -> Iterator[Host]:
    with Host(configuration()) as host:
        yield host


def until(holds: Callable[[], object]) -> None:
    """Waits for something that happens elsewhere."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


async def until_async(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


# --- where the server is


def test_addresses() -> None:
    assert parse_address("trine://localhost") == ("localhost", 5680, False, None)
    assert parse_address("trines://k%401@broker.example:9/") == ("broker.example", 9, True, "k@1")
    assert parse_address("trine://[::1]:7").host == "::1"
    assert str(parse_address("trines://secret@[::1]:7")) == "trines://[::1]:7"
    for url in ("localhost:5680", "http://x", "trine://", "trine://x:y", "trine://x/y", "trine://u:p@x", 5):
        with pytest.raises(errors.InvalidInput) as caught:
            parse_address(url)  # type: ignore[arg-type]
        assert "trine://" in str(caught.value)
    with pytest.raises(errors.InvalidOption, match="trines://"):
        trine.connect("trine://localhost", ca="x.pem")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_nobody_there_is_told_at_once() -> None:
    url = f"trine://secret@127.0.0.1:{free_port()}"
    before = threading.active_count()
    began = time.monotonic()
    with pytest.raises(errors.Unreachable, match="is the server running") as caught:
        trine.connect(url)
    assert time.monotonic() - began < 5
    assert "secret" not in str(caught.value)
    assert threading.active_count() == before


async def test_a_call_waits_for_a_connection_and_then_gives_up() -> None:
    broker = trine.aio.connect(f"trine://127.0.0.1:{free_port()}", timeout="100ms")
    with pytest.raises(errors.Unreachable, match="cannot be reached"):
        await broker.topics()
    with pytest.raises(errors.Unreachable):
        await broker.topic("t").group("g").consumer("m").receive()
    await broker.close()
    with pytest.raises(errors.Closed, match=r"trine\.connect"):
        await broker.topics()


def test_what_is_no_trine_server_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b" " * 100)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(errors.TrineError, match="protocol|frame|lost|closed"):
            trine.connect(f"trine://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_keys(tmp_path: Path) -> None:
    keys = str(tmp_path / "keys.yaml")
    admin = create_key(keys, role="admin")
    reader = create_key(keys, role="read-only", topics=["orders*"])
    with Host(configuration(keys_file=keys)) as host:
        with pytest.raises(errors.Unauthenticated):
            trine.connect(host.url)
        with trine.connect(host.url.replace("//", f"//{admin}@")) as broker:
            broker.create_topic("orders").publish(b"1")
            broker.create_topic("secrets")
        with trine.connect(host.url, key=reader) as broker:
            assert [topic.name for topic in broker.topics()] == ["orders"]
            assert [message.value for message in broker.topic("orders").read()] == [b"1"]
            with pytest.raises(errors.Forbidden):
                broker.topic("orders").publish(b"2")
            with pytest.raises(errors.Forbidden):
                broker.topic("secrets")


def test_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    config = configuration()
    listeners = config.broker.listeners
    binary = msgspec.structs.replace(listeners.binary, tls=TlsConfig(cert=cert, key=key))
    listeners = msgspec.structs.replace(listeners, binary=binary)
    config = msgspec.structs.replace(
        config, broker=msgspec.structs.replace(config.broker, listeners=listeners)
    )
    with Host(config) as host:
        url = host.url.replace("trine://", "trines://")
        with pytest.raises(errors.Unreachable, match="(?i)certificate .* with ca="):
            trine.connect(url)
        with pytest.raises(errors.Unreachable, match="begins with trines://"):
            trine.connect(host.url)
        with trine.connect(url, ca=cert) as broker:
            receipt = broker.create_topic("t").publish(b"x" * 1_000_000)
            assert broker.trace(receipt.message_id).kept
    with pytest.raises(errors.InvalidOption, match="cannot be read"):
        trine.connect("trines://localhost", ca=str(tmp_path / "nothing.pem"))


def certificate(folder: Path) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    ssl.create_default_context(cafile=str(folder / "cert.pem"))
    return str(folder / "cert.pem"), str(folder / "key.pem")


# --- the same words


async def test_async_is_the_same(host: Host) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("t", partitions=3)
        receipts = await asyncio.gather(*(topic.publish(b"%d" % i) for i in range(64)))
        assert len({receipt.message_id for receipt in receipts}) == 64
        async with topic.group("g").consumer("m") as consumer:
            assert consumer.partitions == (0, 1, 2)
            seen: list[bytes | None] = []
            while len(seen) < 64:
                got = await consumer.receive(max=20, wait="5s")
                await asyncio.gather(*(message.ack() for message in got))
                seen += [message.value for message in got]
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
        assert (await topic.group("g").lag()).count == 0
        reader = topic.reader("r")
        assert len(await reader.read(max=1000)) == 66
        await reader.commit()
        with pytest.raises(errors.UnknownTopic):
            await broker.topic("nowhere").publish(b"")
        with pytest.raises(errors.GroupExists):
            await topic.group("g", lease="9m").consumer("m").receive()
        producer = await broker.producer("p")
        await producer.publish_many("t", [b"a", b"b"], partition=0, sequence=0)
        assert await producer.next_sequence("t", 0) == 2


def test_options_may_be_of_any_form(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic(
            "t",
            retention=datetime.timedelta(days=2),
            lanes=("one", "two"),
            backoff=trine.BackoffConfig(first_ms=5),
        )
        config = topic.describe().config
        assert (config.retention_ms, config.lanes, config.backoff.first_ms) == (
            2 * 86_400_000,
            ("one", "two"),
            5,
        )
        with pytest.raises(errors.InvalidOption, match="colour"):
            topic.alter(colour=object())
        group = topic.create_group("g", headers={"kind": "x"}, breaker=None)
        assert group.describe().config.headers == {"kind": "x"}
        with pytest.raises(errors.InvalidInput):
            broker.search("t", limit="many")  # type: ignore[arg-type]
        assert broker.topics()[0].name == "t"  # the connection has survived that


def test_a_topic_altered_elsewhere_is_looked_up_anew(host: Host) -> None:
    with trine.connect(host.url) as one, trine.connect(host.url) as other:
        topic = one.create_topic("t", partitions=1)
        assert topic.publish(b"1", key="k").partition == 0
        other.topic("t").alter(partitions=100)
        assert topic.publish(b"2", key="foobar").partition == (-790332482 & 0x7FFFFFFF) % 100
        other.delete_topic("t")
        with pytest.raises(errors.UnknownTopic):
            topic.publish(b"3")
        other.create_topic("t", partitions=2, dedup_by_content=True)
        assert not topic.publish(b"4").duplicate
        assert topic.publish(b"4").duplicate


def test_a_call_larger_than_a_frame_is_several(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "frame_bytes_max", 60_000)
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t", partitions=3)
        items = [trine.Outgoing(value=b"%05d" % i + b"." * 495, partition=i % 3) for i in range(300)]
        published = topic.publish_many(items)
        assert len(set(published.message_ids)) == 300
        stored = {message.id: message.value for message in topic.read(max=1000)}
        assert [stored[one] for one in published.message_ids] == [item.value for item in items]


def test_batches_by_frames() -> None:
    batches = [(0, bytearray(n), range(1)) for n in (10, 100, 30, 30, 30)]
    assert [[len(one[1]) for one in frame] for frame in frames_of(batches, 80)] == [
        [10],
        [100],
        [30, 30],
        [30],
    ]


# --- acks that go together


async def test_acks_of_one_moment_are_one_frame(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("t", partitions=1)
        await topic.publish_many([b"%d" % i for i in range(100)])
        async with topic.group("g", lease="30s").consumer("m") as consumer:
            frames = counted(monkeypatch, Session, "_send_acks")
            got = await consumer.receive(max=50)
            await asyncio.gather(*(message.ack() for message in got))
            assert len(frames) == 1
            assert await consumer.ack(got) == 0
            stale, *fresh = await consumer.receive(max=50)
            await consumer.nack(stale, delay="1h")
            answers = await asyncio.gather(
                *(message.ack() for message in (*fresh, stale, fresh[0])), return_exceptions=True
            )
            told = [type(answer) for answer in answers if isinstance(answer, BaseException)]
            assert told == [errors.StaleReceipt, errors.StaleReceipt]
        assert (await topic.group("g").lag()).count == 1


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    made: list[Any] = []
    real = getattr(owner, name)

    def counting(self: Any, *arguments: Any) -> Any:
        made.append(arguments)
        return real(self, *arguments)

    monkeypatch.setattr(owner, name, counting)
    return made


async def test_what_a_cancelled_receive_was_given_is_for_the_next(host: Host) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("t")
        async with topic.group("g").consumer("m") as consumer:
            waiting = asyncio.ensure_future(consumer.receive(wait="30s"))
            await until_async(lambda: broker._link._pending)
            waiting.cancel()
            await topic.publish(b"1")
            await until_async(lambda: not broker._link._pending)
            (message,) = await consumer.receive()
            await message.ack()


# --- push


async def test_push_is_bounded_by_the_prefetch(host: Host) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("t", partitions=2)
        await topic.publish_many([b"%d" % i for i in range(1000)])
        group = topic.group("g")
        async with group.consumer("m", prefetch=100) as consumer:
            first = await consumer.receive(max=10, wait="5s")
            assert len(first) == 10
            assert (await group.lag()).in_flight == 100
            await consumer.ack(first)
            seen = {message.value for message in first}
            while len(seen) < 1000:
                got = await consumer.receive(max=37, wait="5s")
                assert 1 <= len(got) <= 37
                seen |= {message.value for message in got}
                assert await consumer.ack(got) == len(got)
                assert (await group.lag()).in_flight <= 150
            await topic.publish(b"late")
            (late,) = await consumer.receive(max=10, wait="5s")
            assert late.attempt == 1
        (again,) = await group.consumer("n").receive(max=10, wait="5s")
        assert (again.value, again.attempt) == (b"late", 1)


async def test_a_loop_over_a_consumer(host: Host) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("t")
        await topic.publish_many([b"%d" % i for i in range(250)])
        for name, prefetch in (("push", 64), ("poll", 0)):
            seen = []
            async with topic.group(name).consumer("m", prefetch=prefetch) as consumer:
                async for message in consumer:
                    await message.ack()
                    seen.append(message.value)
                    if len(seen) == 250:
                        break
            assert len(set(seen)) == 250
            assert (await topic.group(name).lag()).count == 0


def test_a_loop_ends_when_the_consumer_is_closed(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t")
        topic.publish(b"1")
        for name, prefetch in (("push", 8), ("poll", 0)):
            consumer = topic.group(name).consumer("m", prefetch=prefetch)
            seen = []

            def work(consumer: Any = consumer, seen: list[bytes | None] = seen) -> None:
                for message in consumer:
                    message.ack()
                    seen.append(message.value)

            thread = threading.Thread(target=work)
            thread.start()
            until(lambda seen=seen: seen)
            consumer.close()
            consumer.close()
            thread.join(PATIENCE)
            assert not thread.is_alive()
            with pytest.raises(errors.Closed):
                consumer.receive()


async def test_a_push_that_fails_is_told(host: Host) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("t")
        async with topic.group("g").consumer("m", prefetch=8) as consumer:
            waiting = asyncio.ensure_future(consumer.receive(wait="30s"))
            await topic.group("g").delete()
            with pytest.raises(errors.UnknownGroup):
                await asyncio.wait_for(waiting, PATIENCE)
                await consumer.receive(wait="30s")


def test_what_waited_longer_than_its_lease_is_not_given(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t", partitions=1)
        topic.publish_many([b"%d" % i for i in range(20)])
        options = {"lease": "50ms", "backoff": {"first_ms": 0, "jitter": 0.0}, "max_deliveries": 1000}
        with topic.group("g", **options).consumer("m", prefetch=10) as consumer:
            consumer.receive(wait="5s")[0].ack()
            time.sleep(0.1)  # longer than the lease: that is what is tested
            message = consumer.receive(wait="5s")[0]
            assert message.deadline_ms > time.time() * 1000 - 40
            message.ack()


# --- connections that break


def test_a_consumer_goes_on_after_the_connection_broke(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t", partitions=1)
        topic.publish_many([b"%d" % i for i in range(30)])
        group = topic.group("g", lease="1h")
        poll, push = group.consumer("poll"), topic.group("h", lease="1h").consumer("push", prefetch=5)
        held, pushed = poll.receive(max=10), push.receive(max=5, wait="5s")
        assert len(pushed) == 5
        for _ in range(3):
            host.cut()
            assert broker.topics()[0].messages == 30
            held[0].ack()
            held = held[1:]
        assert poll.ack(held) == len(held)
        assert push.ack(pushed) == 5
        assert [member.name for member in group.members()] == ["poll"]
        assert len(poll.receive(max=100, wait="5s")) == 20
        while topic.group("h").lag().count:
            got = push.receive(max=7, wait="10s")
            assert got
            push.ack(got)


def test_an_idle_consumer_joins_again_by_itself(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t")
        with topic.group("g").consumer("m") as consumer:
            link = broker._link
            assert consumer._session.generation == link.generation == 1
            host.cut()
            until(lambda: consumer._session.generation == link.generation == 2)
            assert [member.name for member in topic.group("g").members()] == ["m"]


def test_a_group_deleted_meanwhile_is_not_made_again(host: Host) -> None:
    with trine.connect(host.url) as broker, trine.connect(host.url) as other:
        topic = broker.create_topic("t")
        consumer = topic.group("g").consumer("m")
        consumer.receive()
        other.topic("t").group("g").delete()
        host.cut()
        with pytest.raises(errors.UnknownGroup):
            consumer.receive(wait="5s")
        assert other.topic("t").groups() == []


async def test_what_is_not_safe_to_repeat_is_told(host: Host) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("t", partitions=1, depth_max=1)
        await topic.create_group("g")
        await topic.publish(b"1")
        stuck = asyncio.ensure_future(topic.publish(b"2", wait="1h"))
        peek = asyncio.ensure_future(topic.read(partition=0, from_offset=1, wait="1h"))
        await until_async(lambda: len(broker._link._pending) == 2)
        host.cut()
        with pytest.raises(Lost, match="may or may not have happened") as caught:
            await stuck
        assert caught.value.code == "unreachable"
        await topic.alter(depth_max=10)
        await topic.publish(b"3")
        assert [message.value for message in await peek] == [b"3"]


def test_the_server_comes_back(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with Host(configuration(data)) as host:
        port = host.port
        broker = trine.connect(host.url)
        topic = broker.create_topic("t", partitions=1)
        consumer = topic.group("g").consumer("m")
        topic.publish_many([b"1", b"2"])
        first, second = consumer.receive(max=2)
        first.ack()
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(topic.publish(b"3")))
    waiting.start()
    until(lambda: broker._link._waiting)
    with Host(configuration(data, binary_port=port)), broker:
        waiting.join(PATIENCE)
        assert answers[0].offset == 2
        with pytest.raises(errors.StaleReceipt):
            second.ack()
        got = consumer.receive(max=10, wait="10s")
        assert [message.value for message in got] == [b"2", b"3"]
        assert consumer.ack(got) == 2


def test_silence_is_filled_with_pings() -> None:
    with Host(configuration(limits={"silence_ms": 300})) as host, trine.connect(host.url) as broker:
        topic = broker.create_topic("t")
        with topic.group("g").consumer("m"):
            began = time.monotonic()
            connection = broker._link._connection
            assert connection is not None
            until(lambda: time.monotonic() - began > 1.0)
            assert broker._link.generation == 1
            assert connection.heard_at > connection._loop.time() - 0.5


async def test_a_server_that_falls_silent_is_given_up() -> None:
    """It accepts, welcomes, and says no more: as a machine that was unplugged."""
    from trine.wire.frames import Command, Flag, Frames, write_frame
    from trine.wire.hello import Welcome, write_welcome

    greeted = 0

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        frames = Frames()
        while data := await reader.read(65536):
            for frame in frames.feed(data):
                if frame.command == Command.HELLO:
                    greeted += 1
                    welcome = Welcome(
                        version=1, server="mute", now_ms=1, frame_bytes_max=1000, silence_ms=60, role="admin"
                    )
                    writer.write(
                        write_frame(Command.HELLO, Flag.REPLY, frame.correlation, write_welcome(welcome))
                    )
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with trine.aio.connect(f"trine://127.0.0.1:{port}", timeout="5s") as broker:
            with pytest.raises(errors.Unreachable, match="nothing was heard"):
                await broker.create_topic("t")
            await until_async(lambda: greeted >= 2)


def test_closing_returns_what_is_held(host: Host) -> None:
    with trine.connect(host.url) as other:
        other.create_topic("t").publish(b"1")
        broker = trine.connect(host.url)
        assert broker.topic("t").group("g").consumer("m").receive()
        broker.close()
        broker.close()
        (again,) = other.topic("t").group("g").consumer("n").receive()
        assert again.attempt == 1


def test_all_brokers_of_a_process_share_a_thread(host: Host) -> None:
    def threads() -> int:
        return sum(thread.name == "trine-client" for thread in threading.enumerate())

    assert threads() == 0
    with trine.connect(host.url) as one:
        with trine.connect(host.url) as two:
            assert (one.topics(), two.topics()) == ([], [])
            assert threads() == 1
        assert one.topics() == []
    assert threads() == 0
    with trine.connect(host.url) as again:
        assert again.topics() == []


def test_many_threads_share_a_connection(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t", partitions=4)
        failures: list[BaseException] = []
        seen: list[bytes | None] = []

        def publish(worker: int) -> None:
            try:
                for i in range(50):
                    topic.publish(b"%d-%d" % (worker, i))
            except BaseException as error:
                failures.append(error)

        def consume(worker: int) -> None:
            try:
                with topic.group("g").consumer(f"w{worker}") as consumer:
                    while len(seen) < 200:
                        for message in consumer.receive(max=10, wait="100ms"):
                            message.ack()
                            seen.append(message.value)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4) for work in (publish, consume)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(seen) == len(set(seen)) == 200


# --- senders


async def test_a_sender_gathers_and_keeps_the_order(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("t", partitions=3)
        requests = counted(monkeypatch, Link, "_write")
        async with topic.sender(linger="20ms", batch_messages=100) as sender:
            answers = [await sender.send(b"%d" % i, key=b"%d" % (i % 7)) for i in range(1000)]
            receipts = await asyncio.gather(*answers)
        assert len({receipt.message_id for receipt in receipts}) == 1000
        assert len(requests) < 30
        assert {receipt.durability for receipt in receipts} == {"memory"}
        for key in range(7):
            found = await topic.read(partition=receipts[key].partition, max=1000)
            values = [int(message.value or b"") for message in found if message.key == b"%d" % key]
            assert values == list(range(key, 1000, 7))
        with pytest.raises(errors.Closed):
            await sender.send(b"more")


def test_a_sync_sender(host: Host) -> None:
    with trine.connect(host.url) as broker:
        topic = broker.create_topic("t", partitions=1)
        with topic.sender(linger="1ms") as sender:
            first = sender.send("first", priority="high", headers={"a": "b"}, ttl="1h")
            for i in range(500):
                sender.send(b"%d" % i)
            sender.flush()
            assert first.result(timeout=PATIENCE).offset is not None
            assert sender.statistics() == {"unanswered": 0, "bytes": 0, "in_flight": 0}
            sender.send("last")
        found = topic.read(max=1000)
        assert len(found) == 502
        (message,) = [one for one in found if one.value == b"first"]
        assert (message.priority, message.headers["a"], message.expires_ms is not None) == (
            "high",
            b"b",
            True,
        )


async def test_a_sender_is_bounded_and_follows_a_changed_topic(host: Host) -> None:
    async with trine.aio.connect(host.url) as broker, trine.aio.connect(host.url) as other:
        topic = await broker.create_topic("t", partitions=1)
        sender = topic.sender(linger=0, buffer_bytes=5000, batch_messages=10, in_flight=2)
        for i in range(500):
            if i == 250:
                await other.topic("t").alter(partitions=4)
            await sender.send(b"%d" % i, key=b"%d" % i)
            assert sender.statistics()["bytes"] <= 5000
        await sender.close()
        found = await topic.read(max=1000)
        assert sorted(int(message.value or b"") for message in found) == list(range(500))
        assert {message.partition for message in found} == {0, 1, 2, 3}


async def test_a_sender_tells_what_failed(host: Host) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("t", partitions=1, depth_max=2)
        await topic.create_group("g")
        sender = topic.sender(linger="1ms")
        with pytest.raises(errors.UnknownLane):
            await sender.send(b"", priority="urgent")
        await topic.publish_many([b"1", b"2"])
        answer = await sender.send(b"3")
        with pytest.raises(errors.TopicFull):
            await sender.flush()
        with pytest.raises(errors.TopicFull):
            await answer
        await sender.close()
        plain = await broker.create_topic("dedup", dedup_by_content=True)
        with pytest.raises(errors.InvalidOption, match="publish"):
            await plain.sender().send(b"x")
        with pytest.raises(errors.InvalidOption, match="in_flight"):
            topic.sender(in_flight=0)


# --- the log


async def test_a_tail_has_one_waiting_read_a_partition(host: Host) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("t", partitions=3)
        reader = topic.reader("tail", start="latest")
        for i in range(20):
            waiting = asyncio.ensure_future(reader.read(wait="30s"))
            await until_async(lambda: len(broker._link._pending) >= 3)
            await topic.publish(b"%d" % i, partition=i % 3)
            (message,) = await waiting
            assert message.value == b"%d" % i
            assert len(broker._link._pending) <= 3
        assert await topic.read(wait="1ms", from_time=time.time() + 60) == []
        assert [one.value for one in await topic.last(2)] == [b"18", b"19"]


async def test_publishes_of_one_turn_go_together(host: Host) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("together", partitions=4)
        await topic.publish(b"first")  # the topic is known from here on
        keys = [None, b"a", b"b", b"c"]
        receipts = await asyncio.gather(
            *(topic.publish(b"%d" % number, key=keys[number % 4]) for number in range(40))
        )
        assert len({receipt.message_id for receipt in receipts}) == 40
        for number, receipt in enumerate(receipts):
            assert receipt.partition is not None
            (found,) = await topic.read(partition=receipt.partition, from_offset=receipt.offset, max=1)
            assert (found.value, found.key) == (b"%d" % number, keys[number % 4])
        plain = {receipts[number].partition for number in range(0, 40, 4)}
        assert len(plain) == 1  # one batch, so one partition


async def test_a_burst_that_is_refused_is_tried_one_by_one(host: Host) -> None:
    async with trine.aio.connect(host.url) as broker:
        topic = await broker.create_topic("narrow", partitions=1, depth_max=5)
        await topic.create_group("g")
        await topic.publish(b"first")
        answers = await asyncio.gather(
            *(topic.publish(b"%d" % number) for number in range(10)), return_exceptions=True
        )
        assert [isinstance(one, errors.TopicFull) for one in answers] == [False] * 4 + [True] * 6
