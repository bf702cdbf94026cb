"""One frame of every kind, always the same bytes: for the golden files, the fuzzer and the documentation."""

from __future__ import annotations

from trine.log import batch
from trine.model.errors import Corrupt, UnknownTopic
from trine.wire import bodies, calls, hello
from trine.wire.frames import Command, Flag, WireError, write_frame

NOW_MS = 1_768_402_800_000


def stored(*values: bytes, offset: int = 0) -> bytes:
    """A batch as it is stored."""
    data = batch.encode_values(list(values), NOW_MS, lane=1)
    batch.place(data, offset)
    return bytes(data)


def call(correlation: int, one: calls.Call) -> bytes:
    return write_frame(Command.CALL, 0, correlation, calls.write_call(one))


def reply(command: Command, correlation: int, *body: bytes | bytearray | memoryview) -> bytes:
    return write_frame(command, Flag.REPLY, correlation, *body)


def frames() -> dict[str, bytes]:
    """By name: a whole conversation, in the order in which it could be held."""
    greeting = hello.Hello(least=1, most=1, client="example/1", key="trine_ab_secret")
    welcome = hello.Welcome(
        version=1,
        server="trine/0.1.0",
        now_ms=NOW_MS,
        frame_bytes_max=32 * 1024 * 1024,
        silence_ms=30_000,
        role="admin",
    )
    joined = calls.JoinReply(
        session=1,
        receipt_key=bytes(range(32)),
        partitions=[0, 1],
        lanes=("high", "normal", "low"),
        level="synced",
    )
    one, three = stored(b"hi"), stored(b"hi", b"there", b"!", offset=7)
    run = (0, 1, 1, 42, 7, 3, NOW_MS + 30_000, [three])
    goodbye = hello.write_failure(WireError("a frame's checksum is wrong"))
    return {
        "hello": write_frame(Command.HELLO, 0, 1, hello.write_hello(greeting)),
        "welcome": reply(Command.HELLO, 1, hello.write_welcome(welcome)),
        "ping": write_frame(Command.PING, 0, 2),
        "ping_reply": reply(Command.PING, 2),
        "call": call(3, calls.CreateTopic(name="orders", options={"partitions": 2})),
        "call_reply": reply(Command.CALL, 3, calls.write_reply(calls.PartitionsReply([0, 1]))),
        "call_error": write_frame(
            Command.CALL,
            Flag.REPLY | Flag.ERROR,
            4,
            hello.write_failure(UnknownTopic("there is no topic 'ordres'")),
        ),
        "corrupt": write_frame(
            Command.READ,
            Flag.REPLY | Flag.ERROR,
            5,
            hello.write_failure(Corrupt("a/b", 17, "a flipped bit", "Salvage it")),
        ),
        "publish": write_frame(
            Command.PUBLISH, 0, 6, *bodies.write_publish("orders", bodies.TOPICS_OWN, 3, 0, [(1, one)])
        ),
        "publish_two": write_frame(
            Command.PUBLISH,
            0,
            7,
            *bodies.write_publish("orders", 2, 3, 500, [(0, one), (bodies.SERVER_CHOOSES, three)]),
        ),
        "publish_reply": reply(Command.PUBLISH, 6, bodies.write_published(2, [(1, 1, 1841)])),
        "join": call(8, calls.Join(topic="orders", group="billing", member="a")),
        "join_reply": reply(Command.CALL, 8, calls.write_reply(joined)),
        "receive": write_frame(Command.RECEIVE, 0, 9, bodies.write_receive(1, 100, 20_000)),
        "receive_reply": reply(Command.RECEIVE, 9, *bodies.write_delivery(1, [run])),
        "receive_nothing": reply(Command.RECEIVE, 10, *bodies.write_delivery(1, [])),
        "ack": write_frame(Command.ACK, 0, 11, bodies.write_ack(1, [(0, 42, 7, 2)])),
        "ack_reply": reply(Command.ACK, 11, bodies.write_settled(2, 2)),
        "nack": write_frame(
            Command.SETTLE, 0, 12, bodies.write_settle(1, bodies.NACK, -1, "", [(0, 42, 9, 1)])
        ),
        "reject": write_frame(
            Command.SETTLE, 0, 13, bodies.write_settle(1, bodies.REJECT, 0, "no such käse", [(0, 42, 9, 1)])
        ),
        "extend": write_frame(
            Command.SETTLE, 0, 14, bodies.write_settle(1, bodies.EXTEND, 60_000, "", [(0, 42, 9, 1)])
        ),
        "settle_reply": reply(Command.SETTLE, 12, bodies.write_settled(1, 2)),
        "start": write_frame(Command.START, 0, 15, bodies.write_start(1, 1000, 500)),
        "start_reply": reply(Command.START, 15),
        "delivery": write_frame(Command.DELIVERY, Flag.PUSH, 1, *bodies.write_delivery(1, [run])),
        "credit": write_frame(Command.CREDIT, 0, 0, bodies.write_credit(1, 250)),
        "stop": write_frame(Command.STOP, 0, 16, bodies.write_stop(1)),
        "stop_reply": reply(Command.STOP, 16),
        "read": write_frame(Command.READ, 0, 17, bodies.write_read("orders", 0, 7, 1_048_576, 0)),
        "read_reply": reply(Command.READ, 17, bodies.write_range(0, 10), three),
        "goodbye": write_frame(Command.GOODBYE, Flag.PUSH, 0, goodbye),
    }
