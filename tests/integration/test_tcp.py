"""The binary listener over real sockets: what it does, what it refuses, and what it survives."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.integration.tcp_peer import PATIENCE, Peer, Served, serving, values
from trine import SimulatedClock
from trine.log import batch
from trine.model import errors
from trine.server import connection as connection_module
from trine.server.keys import create_key, delete_key
from trine.wire import bodies, calls
from trine.wire.frames import HEADER, Command, WireError, write_frame
from trine.wire.hello import Hello, write_hello

NACK, REJECT, EXTEND = 1, 2, 3


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as one:
        yield one


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop run until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


async def with_topic(served: Served, **options: Any) -> Peer:
    peer = await served.peer()
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 1, **options}))
    return peer


# --- hello


async def test_the_handshake(served: Served) -> None:
    peer = await served.peer(hello=False)
    welcome = await peer.hello()
    assert welcome.version == 1
    assert welcome.role == "admin"
    assert welcome.silence_ms == 30_000
    assert welcome.server.startswith("trine/")
    assert abs(welcome.now_ms - served.engine.clock.now_ms()) < 5_000


async def test_versions_that_do_not_meet_are_refused_with_a_reason(served: Served) -> None:
    peer = await served.peer(hello=False)
    with pytest.raises(WireError, match="version"):
        await peer.hello(least=2, most=7)
    with pytest.raises(EOFError):
        await peer.pushed()


async def test_the_first_frame_is_a_hello(served: Served) -> None:
    peer = await served.peer(hello=False)
    peer.send(Command.PING)
    assert "HELLO" in str(await peer.farewell())


async def test_a_hello_that_does_not_come(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HELLO_SECONDS", 0.05)
    peer = await served.peer(hello=False)
    assert "no HELLO" in str(await peer.farewell())


async def test_too_many_connections_are_told_so() -> None:
    async with serving(connections=2) as served:
        first = await served.peer()
        await served.peer()
        third = await served.peer(hello=False)
        assert isinstance(await third.farewell(), errors.TooMany)
        first.drop()
        await until(lambda: len(served.listener.connections) == 1)
        await served.peer()


async def test_ping(served: Served) -> None:
    peer = await served.peer()
    frame = await peer.ask(Command.PING)
    assert frame.command == Command.PING
    assert len(frame.body) == 0


# --- publish


async def test_publish_receive_ack(served: Served) -> None:
    peer = await with_topic(served)
    _, placed = await peer.publish("t", b"one", b"two")
    assert placed == [(0, 2, 0)]
    session = (await peer.join("t", "g")).session
    runs = await peer.receive(session)
    assert values(runs) == [b"one", b"two"]
    assert [(run.first, run.count, run.attempt) for run in runs] == [(0, 2, 1)]
    assert (await peer.ack(session, runs))[0] == 2
    assert await peer.receive(session) == []
    with pytest.raises(errors.StaleReceipt):
        await peer.ack(session, runs)


async def test_what_was_synced_is_there_after_a_restart(tmp_path: Path) -> None:
    async with serving(str(tmp_path)) as served:
        peer = await with_topic(served)
        assert (await peer.publish("t", b"one", b"two", b"three"))[0] == 2
        session = (await peer.join("t", "g")).session
        runs = await peer.receive(session, most=1)
        assert await peer.ack(session, runs) == (1, 2)
    async with serving(str(tmp_path)) as served:
        peer = await served.peer()
        session = (await peer.join("t", "g")).session
        assert values(await peer.receive(session)) == [b"two", b"three"]


@pytest.mark.parametrize(("asked", "reached"), [(0, 0), (1, 1), (2, 2), (255, 2)])
async def test_the_reply_says_how_durable_it_is(tmp_path: Path, asked: int, reached: int) -> None:
    async with serving(str(tmp_path)) as served:
        peer = await with_topic(served)
        assert (await peer.publish("t", b"x", durability=asked))[0] == reached


async def test_pipelined_publishes_keep_their_order_and_share_syncs(tmp_path: Path) -> None:
    async with serving(str(tmp_path)) as served:
        peer = await with_topic(served)
        before = served.context.commits.statistics().syncs
        sent = [peer.send_publish("t", b"%d" % number) for number in range(200)]
        places = [bodies.read_published((await peer.reply(one)).body)[1][0] for one in sent]
        assert [place[2] for place in places] == list(range(200))
        assert peer.order[-200:] == sent
        assert served.context.commits.statistics().syncs - before < 50


async def test_batches_of_an_altered_topic_are_refused_as_stale(served: Served) -> None:
    peer = await with_topic(served)
    known = (await peer.call(calls.GetTopic(name="t"))).version
    await peer.publish("t", b"x", version=known)
    await peer.call(calls.AlterTopic(topic="t", options={"partitions": 2}))
    with pytest.raises(errors.StaleMetadata):
        await peer.publish("t", b"x", version=known)
    now = (await peer.call(calls.GetTopic(name="t"))).version
    assert now != known
    await peer.publish("t", b"x", version=now, partition=1)
    with pytest.raises(errors.UnknownPartition):
        await peer.publish("t", b"x", partition=2)


async def test_a_full_topic_refuses_or_lets_wait(served: Served) -> None:
    peer = await with_topic(served, depth_max=2)
    session = (await peer.join("t", "g")).session
    await peer.publish("t", b"1", b"2")
    with pytest.raises(errors.TopicFull):
        await peer.publish("t", b"3")
    with pytest.raises(errors.TopicFull):
        await peer.publish("t", b"3", wait_ms=20)
    waiting = [peer.send_publish("t", b"%d" % number, wait_ms=60_000) for number in (3, 4)]
    await peer.ack(session, await peer.receive(session))
    for one in waiting:
        await peer.reply(one)
    assert values(await peer.receive(session)) == [b"3", b"4"]


# --- receive


async def test_a_long_poll_ends_with_a_publish(served: Served) -> None:
    peer, other = await with_topic(served), await served.peer()
    session = (await peer.join("t", "g")).session
    waiting = peer.send(Command.RECEIVE, bodies.write_receive(session, 10, 60_000))
    await peer.ask(Command.PING)
    await other.publish("t", b"here")
    _, runs = bodies.read_delivery((await peer.reply(waiting)).body)
    assert values(runs) == [b"here"]


async def test_a_long_poll_ends_with_time(served: Served) -> None:
    peer = await with_topic(served)
    session = (await peer.join("t", "g")).session
    assert await peer.receive(session, wait_ms=20) == []


async def test_a_long_poll_sees_a_retry_become_due(served: Served) -> None:
    peer = await with_topic(served)
    session = (await peer.join("t", "g")).session
    await peer.publish("t", b"x")
    await peer.settle(session, NACK, await peer.receive(session), delay_ms=50)
    runs = await peer.receive(session, wait_ms=60_000)
    assert [run.attempt for run in runs] == [2]


async def test_a_long_poll_sees_a_lease_end(served: Served) -> None:
    one, two = await with_topic(served), await served.peer()
    first = (await one.join("t", "g", "one", lease="60ms")).session
    second = await two.join("t", "g", "two")
    await one.call(calls.AlterGroup(topic="t", group="g", options={"backoff": {"first": 0, "jitter": 0.0}}))
    await one.publish("t", b"x")
    assert await one.receive(first)
    runs = await two.receive(second.session, wait_ms=60_000)
    assert [run.attempt for run in runs] == [2]


async def test_settling(served: Served) -> None:
    peer = await with_topic(served)
    session = (await peer.join("t", "g")).session
    await peer.publish("t", b"1", b"2", b"3")
    runs = await peer.receive(session)
    (run,) = runs
    single = [run._replace(first=run.first + index, count=1) for index in range(3)]
    assert (await peer.settle(session, EXTEND, [single[0]], delay_ms=60_000))[0] == 1
    assert (await peer.settle(session, NACK, [single[1]], delay_ms=0, reason="later"))[0] == 1
    assert (await peer.settle(session, REJECT, [single[2]], reason="bad"))[0] == 1
    (letter,) = await peer.call(calls.ListDeadLetters(topic="t"))
    assert (letter.topic, letter.value) == ("t.dlq", b"3")
    assert dict(letter.headers)["trine-reason"] == b"bad"
    assert values(await peer.receive(session)) == [b"2"]


@pytest.mark.parametrize(("most", "fits"), [(0, False), (10_000, True), (10_001, False)])
async def test_how_much_one_receive_may_ask_for(served: Served, most: int, fits: bool) -> None:
    peer = await with_topic(served)
    session = (await peer.join("t", "g")).session
    if fits:
        assert await peer.receive(session, most=most) == []
    else:
        with pytest.raises(errors.InvalidOption, match="max"):
            await peer.receive(session, most=most)


async def test_what_does_not_fit_one_delivery_comes_with_the_next(served: Served) -> None:
    peer = await with_topic(served)
    session = (await peer.join("t", "g")).session
    await peer.publish("t", b"small")
    await peer.ack(session, await peer.receive(session))
    for number in range(4):
        await peer.publish("t", bytes([number]) * (3 * 1024 * 1024), durability=1)
    seen = []
    while runs := await peer.receive(session, most=100):
        assert all(run.attempt == 1 for run in runs)
        seen += [(value or b"?")[0] for value in values(runs)]
        await peer.ack(session, runs)
    assert seen == [0, 1, 2, 3]


async def test_an_unknown_session_is_an_error_of_the_command(served: Served) -> None:
    peer = await served.peer()
    with pytest.raises(errors.Closed, match="session 7"):
        await peer.receive(7)
    await peer.ask(Command.PING)


async def test_a_deleted_group_ends_what_waits_for_it(served: Served) -> None:
    peer, other = await with_topic(served), await served.peer()
    session = (await peer.join("t", "g")).session
    waiting = peer.send(Command.RECEIVE, bodies.write_receive(session, 10, 60_000))
    await peer.ask(Command.PING)
    await other.call(calls.DeleteGroup(topic="t", group="g"))
    with pytest.raises(errors.UnknownGroup):
        await peer.reply(waiting)


# --- push


async def test_push_obeys_credits(served: Served) -> None:
    peer, other = await with_topic(served), await served.peer()
    session = (await peer.join("t", "g")).session
    await peer.ask(Command.START, bodies.write_start(session, 5, 2))
    await other.publish("t", *(b"%d" % number for number in range(10)))
    got: list[bytes | None] = []
    while len(got) < 5:
        number, runs = await peer.delivery()
        assert number == session
        assert sum(run.count for run in runs) <= 2
        got += values(runs)
    await peer.ask(Command.PING)
    assert peer.pushes == []
    peer.send(Command.CREDIT, bodies.write_credit(session, 100))
    while len(got) < 10:
        got += values((await peer.delivery())[1])
    assert got == [b"%d" % number for number in range(10)]
    await peer.ask(Command.STOP, bodies.write_stop(session))
    await other.publish("t", b"after")
    await peer.ask(Command.PING)
    assert peer.pushes == []


async def test_push_sees_retries_become_due(served: Served) -> None:
    peer = await with_topic(served)
    session = (await peer.join("t", "g")).session
    await peer.ask(Command.START, bodies.write_start(session, 100, 10))
    await peer.publish("t", b"x")
    _, runs = await peer.delivery()
    await peer.settle(session, NACK, runs, delay_ms=30)
    _, again = await peer.delivery()
    assert [run.attempt for run in again] == [2]


async def test_push_goes_on_when_acks_make_room_in_flight(served: Served) -> None:
    peer = await with_topic(served)
    session = (await peer.join("t", "g", in_flight_max=2)).session
    await peer.ask(Command.START, bodies.write_start(session, 100, 10))
    await peer.publish("t", *(b"%d" % number for number in range(6)))
    got: list[bytes | None] = []
    while len(got) < 6:
        _, runs = await peer.delivery()
        got += values(runs)
        await peer.ack(session, runs)
    assert got == [b"%d" % number for number in range(6)]


async def test_a_push_to_a_deleted_group_says_so(served: Served) -> None:
    peer = await with_topic(served)
    session = (await peer.join("t", "g")).session
    await peer.ask(Command.START, bodies.write_start(session, 100, 10))
    await peer.call(calls.DeleteGroup(topic="t", group="g"))
    with pytest.raises(errors.UnknownGroup):
        await peer.delivery()


async def test_pushes_go_round(served: Served) -> None:
    """A message at a time: nobody gets a second one before everybody who waits had a first."""
    admin = await with_topic(served)
    peers = [await served.peer() for _ in range(5)]
    for number, peer in enumerate(peers):
        session = (await peer.join("t", "g", f"m{number}")).session
        await peer.ask(Command.START, bodies.write_start(session, 100, 1))
    await admin.publish("t", *(b"%d" % number for number in range(20)))
    for peer in peers:
        for _ in range(4):
            assert len(values((await peer.delivery())[1])) == 1
    for peer in peers:
        await peer.ask(Command.PING)
        assert peer.pushes == []


async def test_a_wake_does_not_ask_for_every_waiting_consumer(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await with_topic(served)
    sessions = [(await peer.join("t", "g", f"m{number}")).session for number in range(200)]
    for session in sessions:
        await peer.ask(Command.START, bodies.write_start(session, 10, 10))
    group = served.engine.topic("t").groups["g"]
    asked = 0
    lease = group.lease

    def counted(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return lease(*arguments)

    monkeypatch.setattr(group, "lease", counted)
    await peer.publish("t", b"x")
    await peer.delivery()
    await peer.ask(Command.PING)
    assert asked <= 4


async def test_in_partition_order_each_owner_gets_its_own(served: Served) -> None:
    admin = await with_topic(served, partitions=2)
    one, two = await served.peer(), await served.peer()
    for peer, name in ((one, "a"), (two, "b")):
        session = (await peer.join("t", "g", name, order="partition")).session
        await peer.ask(Command.START, bodies.write_start(session, 100, 10))
    await admin.publish("t", b"zero", partition=0)
    await admin.publish("t", b"one", partition=1)
    got = [values((await peer.delivery())[1]) for peer in (one, two)]
    assert sorted(got) == [[b"one"], [b"zero"]]


# --- the log


async def test_read_gives_batches_as_they_are_stored(served: Served) -> None:
    peer = await with_topic(served)
    await peer.publish("t", b"a", b"b")
    await peer.publish("t", b"c")
    frame = await peer.ask(Command.READ, bodies.write_read("t", 0, 1, 1_000_000, 0))
    first, following, data = bodies.read_range(frame.body)
    assert (first, following) == (0, 3)
    size = batch.read_header(data).size
    assert [one.value for one in batch.decode(bytes(data[:size]))] == [b"a", b"b"]
    assert [one.offset for one in batch.decode(bytes(data[size:]))] == [2]


async def test_read_waits_for_its_partition(served: Served) -> None:
    peer, other = await with_topic(served, partitions=2), await served.peer()
    body = bodies.write_read("t", 1, 0, 1_000_000, 60_000)
    waiting = peer.send(Command.READ, body)
    await peer.ask(Command.PING)
    await other.publish("t", b"elsewhere", partition=0)
    await peer.ask(Command.PING)
    assert waiting not in peer.replies
    await other.publish("t", b"here", partition=1)
    _, following, data = bodies.read_range((await peer.reply(waiting)).body)
    assert following == 1
    assert batch.decode(bytes(data))[0].value == b"here"
    _, following, data = bodies.read_range(
        (await peer.ask(Command.READ, bodies.write_read("t", 1, 1, 1_000_000, 20))).body
    )
    assert (following, len(data)) == (1, 0)
    assert not served.engine.reader_listeners


# --- members


async def test_a_lost_connection_keeps_its_leases_for_the_grace() -> None:
    async with serving(member_grace_ms=60_000) as served:
        peer = await with_topic(served)
        session = (await peer.join("t", "g", "worker")).session
        await peer.publish("t", b"x")
        runs = await peer.receive(session)
        peer.drop()
        await until(lambda: len(served.listener.connections) == 0)
        back = await served.peer()
        session = (await back.join("t", "g", "worker")).session
        assert await back.receive(session) == []
        assert (await back.ack(session, runs))[0] == 1


async def test_after_the_grace_the_leases_are_returned() -> None:
    async with serving(member_grace_ms=50) as served:
        peer, other = await with_topic(served), await served.peer()
        session = (await peer.join("t", "g", "gone")).session
        await peer.publish("t", b"x")
        assert await peer.receive(session)
        waits = (await other.join("t", "g", "stays")).session
        peer.drop()
        runs = await other.receive(waits, wait_ms=60_000)
        assert values(runs) == [b"x"]
        assert served.engine.topic("t").groups["g"].members.names() == ["stays"]


async def test_leaving_gives_back_at_once_and_does_not_count(served: Served) -> None:
    peer, other = await with_topic(served), await served.peer()
    leaving = (await peer.join("t", "g", "a")).session
    staying = (await other.join("t", "g", "b")).session
    await peer.publish("t", b"x")
    assert await peer.receive(leaving)
    await peer.call(calls.Leave(session=leaving))
    runs = await other.receive(staying)
    assert [run.attempt for run in runs] == [1]
    with pytest.raises(errors.Closed):
        await peer.receive(leaving)


async def test_two_sessions_of_one_name_are_one_member(served: Served) -> None:
    one, two = await with_topic(served), await served.peer()
    first = (await one.join("t", "g", "same")).session
    await two.join("t", "g", "same")
    group = served.engine.topic("t").groups["g"]
    assert group.members.names() == ["same"]
    await one.publish("t", b"x")
    assert await one.receive(first)
    two.drop()
    await until(lambda: len(served.listener.connections) == 1)
    assert group.members.names() == ["same"]
    assert group.in_flight() == 1


async def test_a_closing_server_says_goodbye_and_counts_no_attempt(tmp_path: Path) -> None:
    async with serving(str(tmp_path)) as served:
        peer = await with_topic(served)
        session = (await peer.join("t", "g")).session
        await peer.publish("t", b"x")
        assert await peer.receive(session)
        waiting = peer.send(Command.RECEIVE, bodies.write_receive(session, 10, 60_000))
        await peer.ask(Command.PING)
        served.context.closing.set()
        assert isinstance(await peer.farewell(), errors.Closed)
        assert bodies.read_delivery(peer.replies[waiting].body)[1] == []
    async with serving(str(tmp_path)) as served:
        peer = await served.peer()
        session = (await peer.join("t", "g")).session
        assert [run.attempt for run in await peer.receive(session)] == [1]


# --- what is not the protocol


def damaged(frame: bytes) -> bytes:
    return frame[:-1] + bytes([frame[-1] ^ 1])


BAD: dict[str, tuple[bytes, str]] = {
    "a bad checksum": (damaged(write_frame(Command.PUBLISH, 0, 1, b"body")), "checksum"),
    "a length that lies": (HEADER.pack(2**31, 1, Command.PING, 0, 0, 1, 0), "bytes"),
    "another version": (HEADER.pack(0, 9, Command.PING, 0, 0, 1, 0), "version"),
    "an unknown command": (write_frame(99, 0, 1), "command 99"),
    "a command only the server says": (write_frame(Command.DELIVERY, 0, 1), "command 10"),
    "a second hello": (write_frame(Command.HELLO, 0, 1, b"\x80"), "command 1"),
    "a reply nobody asked for": (write_frame(Command.PING, 1, 1), "flags"),
    "a body that is cut": (write_frame(Command.PUBLISH, 0, 1, b"\0" * 7), "PUBLISH"),
    "a body that lies": (
        write_frame(Command.ACK, 0, 1, struct.pack("<II", 1, 2**32 - 1)),
        "",
    ),
    "something else altogether": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", ""),
}


@pytest.mark.parametrize("name", BAD)
async def test_bytes_that_are_no_frames_end_that_connection_alone(served: Served, name: str) -> None:
    data, why = BAD[name]
    peer, other = await served.peer(), await served.peer()
    peer.send(Command.PING)
    peer.writer.write(data + b"and more that is never looked at" * 1000)
    error = await peer.farewell()
    assert isinstance(error, WireError)
    assert why in str(error)
    assert peer.order[-1:] == [2], "what came before the damage is answered"
    await other.ask(Command.PING)
    assert (
        served.context.metrics.registry.get_sample_value(
            "trine_protocol_errors_total", {"listener": "binary"}
        )
        == 1
    )
    await until(lambda: len(served.listener.connections) == 1)


async def test_a_connection_that_ends_in_a_frame_is_told_so(served: Served) -> None:
    peer = await served.peer()
    peer.writer.write(write_frame(Command.PING, 0, 5)[:-3])
    peer.writer.write_eof()
    assert "middle of a frame" in str(await peer.farewell())


async def test_a_call_that_is_none_is_refused_and_the_connection_stays(served: Served) -> None:
    peer = await served.peer()
    with pytest.raises(WireError, match="no_such"):
        await peer.ask(Command.CALL, b"\x81\xa4call\xa7no_such")
    with pytest.raises(WireError):
        await peer.ask(Command.CALL, b"\xc1")
    await peer.ask(Command.PING)


async def test_frames_may_come_in_pieces(served: Served) -> None:
    peer = await served.peer()
    for byte in write_frame(Command.PING, 0, 77):
        peer.writer.write(bytes([byte]))
        await peer.writer.drain()
    assert (await peer.reply(77)).command == Command.PING


async def test_an_end_after_whole_frames_is_answered_first(tmp_path: Path) -> None:
    async with serving(str(tmp_path)) as served:
        peer = await with_topic(served)
        last = peer.send_publish("t", b"x")
        peer.writer.write_eof()
        await peer.reply(last)
        with pytest.raises(EOFError):
            await peer.pushed()


async def test_a_silent_client_is_let_go() -> None:
    async with serving(silence_ms=1_000) as served:
        peer = await served.peer()
        assert "nothing was heard" in str(await peer.farewell())


async def test_a_fault_of_ours_is_an_error_of_the_command(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await with_topic(served)
    monkeypatch.setattr(served.engine.topic("t"), "publish_batches", lambda *_: 1 // 0)
    with pytest.raises(errors.TrineError, match="inside the server"):
        await peer.publish("t", b"x")
    await peer.ask(Command.PING)


# --- somebody who does not read


async def test_a_client_that_does_not_read_costs_a_bounded_amount(served: Served) -> None:
    admin = await with_topic(served)
    for number in range(60):
        await admin.publish("t", bytes([number]) * 1_000_000, durability=1)
    slow, host_port = socket.socket(), served.listener.address
    slow.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(slow, host_port)
    peer = Peer(*await asyncio.open_connection(sock=slow, limit=64 * 1024))
    with contextlib.closing(slow):
        await peer.hello()
        session = (await peer.join("t", "g", lease="1h")).session
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        asked = [peer.send(Command.READ, bodies.write_read("t", 0, at, 900_000, 0)) for at in range(60)]
        peer.send(Command.START, bodies.write_start(session, 1_000, 1))
        (connection,) = [one for one in served.listener.connections if one.sessions]
        await until(lambda: connection.blocked)
        await admin.ask(Command.PING)
        transport = connection._transport
        assert transport is not None
        assert transport.get_write_buffer_size() + connection.outbox_bytes < 12_000_000
        assert served.engine.topic("t").groups["g"].in_flight() <= 10
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for one in asked:
            await peer.reply(one)
        got = 0
        while got < 60:
            got += len(values((await peer.delivery())[1]))
        peer.drop()


async def test_a_client_that_never_reads_is_let_go() -> None:
    async with serving(silence_ms=1_000) as served:
        admin = await with_topic(served)
        await admin.publish("t", *(b"x" * 1_000_000 for _ in range(8)), durability=1)
        peer = await served.peer()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(4):
            peer.send(Command.READ, bodies.write_read("t", 0, 0, 8_000_000, 0))

        async def keep() -> None:
            while True:
                await asyncio.sleep(0.2)
                await admin.ask(Command.PING)

        keeping = asyncio.ensure_future(keep())
        try:
            await until(lambda: len(served.listener.connections) == 1)
        finally:
            keeping.cancel()


# --- keys


async def test_keys_and_roles(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.yaml")
    keys = {
        role: create_key(file, role=role, topics=["orders*"], id=role)
        for role in ("producer", "consumer", "read-only")
    }
    keys["admin"] = create_key(file, role="admin", id="admin")
    async with serving(keys_file=file) as served:
        nobody = await served.peer(hello=False)
        with pytest.raises(errors.Unauthenticated):
            await nobody.hello()
        with pytest.raises(EOFError):
            await nobody.pushed()
        stranger = await served.peer(hello=False)
        with pytest.raises(errors.Unauthenticated):
            await stranger.hello(keys["producer"][:-2] + "zz")
        admin = await served.peer(key=keys["admin"])
        for name in ("orders", "secrets"):
            await admin.call(calls.CreateTopic(name=name))
        producer = await served.peer(key=keys["producer"])
        await producer.publish("orders", b"x")
        for refused in (
            producer.publish("secrets", b"x"),
            producer.join("orders", "g"),
            producer.call(calls.CreateTopic(name="orders2")),
            producer.call(calls.DescribeTopic(topic="secrets")),
            producer.call(calls.Transact(acks=[], messages={"secrets": [calls.WireOutgoing(value=b"x")]})),
            producer.call(calls.ListSchedules(topic="secrets")),
            producer.call(calls.Checkpoint()),
        ):
            with pytest.raises(errors.Forbidden):
                await refused
        assert [topic.name for topic in await producer.call(calls.ListTopics())] == ["orders"]
        assert list((await producer.call(calls.Statistics()))["topics"]) == ["orders"]
        consumer = await served.peer(key=keys["consumer"])
        session = (await consumer.join("orders", "g")).session
        assert values(await consumer.receive(session)) == [b"x"]
        with pytest.raises(errors.Forbidden):
            await consumer.publish("orders", b"x")
        reader = await served.peer(key=keys["read-only"])
        frame = await reader.ask(Command.READ, bodies.write_read("orders", 0, 0, 1_000, 0))
        assert bodies.read_range(frame.body)[0] == 0
        with pytest.raises(errors.Forbidden):
            await reader.ask(Command.READ, bodies.write_read("secrets", 0, 0, 1_000, 0))
        with pytest.raises(errors.Forbidden):
            await reader.join("orders", "g")


async def test_who_tries_many_keys_in_one_burst_is_heard_once(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.yaml")
    create_key(file, role="admin", id="admin")
    async with serving(keys_file=file) as served:
        for _ in range(8):  # until answers are held back
            peer = await served.peer(hello=False)
            with pytest.raises(errors.Unauthenticated):
                await peer.hello("trine_admin_wrong")
        assert served.context.keys.penalty_s("127.0.0.1") > 0
        peer = await served.peer(hello=False)
        hello = write_hello(Hello(least=1, most=1, client="test", key="trine_admin_guess"))
        asked = [peer.send(Command.HELLO, hello) for _ in range(50)]
        with contextlib.suppress(EOFError):
            await peer.reply(asked[-1])
        assert set(peer.replies) == {asked[0]}


async def test_a_deleted_key_ends_a_push(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.yaml")
    key = create_key(file, role="admin", id="gone")
    async with serving(keys_file=file) as served:
        peer = await served.peer(key=key)
        await peer.call(calls.CreateTopic(name="t"))
        session = (await peer.join("t", "g")).session
        await peer.ask(Command.START, bodies.write_start(session, 1, 1))
        delete_key(file, "gone")
        assert served.context.keys.refresh()
        peer.send(Command.CREDIT, bodies.write_credit(session, 10))
        with pytest.raises(errors.Unauthenticated):
            await peer.delivery()
        with pytest.raises(errors.Unauthenticated):
            await peer.call(calls.ListTopics())


async def test_tls(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    trusting = ssl.create_default_context(cafile=str(cert))
    async with serving(tls=context) as served:
        peer = await Peer.connect(*served.listener.address, ssl=trusting, server_hostname="localhost")
        await peer.hello()
        await peer.call(calls.CreateTopic(name="t", options={"partitions": 1}))
        session = (await peer.join("t", "g")).session
        for number in range(8):
            await peer.publish("t", bytes([number]) * 1_000_000, durability=1)
        await peer.ask(Command.START, bodies.write_start(session, 100, 1))
        got = [values((await peer.delivery())[1])[0] for _ in range(8)]
        assert [(value or b"?")[0] for value in got] == list(range(8))
        peer.writer.write(b"nonsense that is no frame")
        assert isinstance(await peer.farewell(), WireError)
        plain = await served.peer(hello=False)
        plain.send(Command.PING)
        with pytest.raises((EOFError, ConnectionError)):
            await plain.pushed()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_file, key_file


# --- simulated time


async def test_on_simulated_time_a_wait_passes_at_once() -> None:
    clock = SimulatedClock()
    async with serving(clock=clock) as served:
        peer = await with_topic(served, depth_max=3)
        session = (await peer.join("t", "g")).session
        await peer.call(
            calls.Send(topic="t", messages=[calls.WireOutgoing(value=b"later", delay_ms=3_600_000)])
        )
        begin = clock.now_ms()
        assert values(await peer.receive(session, wait_ms=7_200_000)) == [b"later"]
        assert clock.now_ms() - begin == 3_600_000
        assert await peer.receive(session, wait_ms=1_000) == []
        await peer.publish("t", b"1", b"2")
        with pytest.raises(errors.TopicFull):
            await peer.publish("t", b"3", wait_ms=1_000)
        frame = await peer.ask(Command.READ, bodies.write_read("t", 0, 99, 1_000, 1_000))
        assert bodies.read_range(frame.body)[1] == 3


# --- the loop the server runs on


ON_UVLOOP = (
    test_the_handshake,
    test_versions_that_do_not_meet_are_refused_with_a_reason,
    test_publish_receive_ack,
    test_a_full_topic_refuses_or_lets_wait,
    test_a_long_poll_ends_with_a_publish,
    test_a_long_poll_sees_a_retry_become_due,
    test_push_obeys_credits,
    test_pushes_go_round,
    test_read_waits_for_its_partition,
    test_a_connection_that_ends_in_a_frame_is_told_so,
    test_frames_may_come_in_pieces,
    test_a_client_that_does_not_read_costs_a_bounded_amount,
)


@pytest.mark.parametrize("scenario", ON_UVLOOP, ids=lambda one: one.__name__)
def test_on_uvloop(scenario: Callable[[Served], Coroutine[Any, Any, None]]) -> None:
    """The tests above run on asyncio's own loop; these run again on the one that serves."""

    async def run() -> None:
        async with serving() as served:
            await scenario(served)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("name", BAD)
def test_bad_bytes_on_uvloop(name: str) -> None:
    async def run() -> None:
        async with serving() as served:
            await test_bytes_that_are_no_frames_end_that_connection_alone(served, name)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
