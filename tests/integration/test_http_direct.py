"""Requests that the protocol answers itself: the same answers, in the same order, as the usual way gives."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.http_server import Http, config, serving
from trine.model.errors import StoreFailed
from trine.server.http import listener
from trine.server.http.direct import BODY_BYTES_MAX
from trine.server.http.gate import Gate
from trine.server.keys import create_key, delete_key

pytestmark = pytest.mark.asyncio(loop_scope="module")

PUBLISH = "/v1/topics/orders/publish"
WAIT_S = 10


class Answer:
    def __init__(self, head: bytes, body: bytes) -> None:
        status, *lines = head.decode().split("\r\n")
        self.status = int(status.split(" ")[1])
        self.headers = dict(line.split(": ", 1) for line in lines if line)
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Peer:
    """A client that writes its bytes by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> Answer:
        async with asyncio.timeout(WAIT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            made = Answer(head, b"")
            made.body = await self.reader.readexactly(int(made.headers.get("content-length", 0)))
            return made

    async def ask(self, data: bytes) -> Answer:
        self.writer.write(data)
        return await self.answer()

    async def post(self, path: str, body: Any, **headers: str) -> Answer:
        return await self.ask(post(path, body, **headers))

    async def ended(self) -> bytes:
        """What came before the server closed the connection."""
        async with asyncio.timeout(WAIT_S):
            return await self.reader.read()


def post(path: str, body: Any, **headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {
        "host": "localhost",
        "content-type": "application/json",
        "content-length": str(len(content)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + content


@contextlib.asynccontextmanager
async def connected(http: Http, **headers: str) -> AsyncIterator[Peer]:
    """A connection that the gate knows."""
    reader, writer = await asyncio.open_connection(*http.address)
    peer = Peer(reader, writer)
    shown = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    known = await peer.ask(f"GET /v1/topics/orders HTTP/1.1\r\nhost: localhost\r\n{shown}\r\n".encode())
    assert known.status == 200
    try:
        yield peer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Http]:
    async with serving() as http:
        yield http


@pytest_asyncio.fixture(loop_scope="module")
async def http(server: Http) -> AsyncIterator[Http]:
    await server.post("/v1/topics", {"name": "orders", "partitions": 1}, 201)
    yield server
    for topic in (await server.get("/v1/topics"))["topics"]:
        await server.ask("DELETE", f"/v1/topics/{topic['name']}", 204)


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that came to the gate."""
    seen: list[str] = []
    enter = Gate._enter

    async def noted(self: Gate, scope: Any, receive: Any, send: Any, path: str) -> None:
        seen.append(path)
        await enter(self, scope, receive, send, path)

    monkeypatch.setattr(Gate, "_enter", noted)
    return seen


@pytest.fixture
def held(http: Http, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[Exception | None], None]]:
    """Answers that wait for a sync, which comes when the test calls them."""
    waiting: list[Callable[[Exception | None], None]] = []
    monkeypatch.setattr(http.context.commits, "when_durable", lambda _, answer: waiting.append(answer))
    return waiting


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


async def values(http: Http) -> list[Any]:
    return [one["value"] for one in (await http.get("/v1/topics/orders/messages"))["messages"]]


# --- which way


async def test_a_connection_is_known_after_its_first_request(http: Http, usual: list[str]) -> None:
    reader, writer = await asyncio.open_connection(*http.address)
    peer = Peer(reader, writer)
    answers = [await peer.post(PUBLISH, {"value": number}) for number in range(3)]
    assert usual == [PUBLISH]
    first, *others = answers
    for number, other in enumerate(others, 1):
        assert (first.status, other.status) == (200, 200)
        assert set(other.headers) == set(first.headers) == {"date", "content-type", "content-length"}
        assert other.headers["content-type"] == "application/json"
        assert other.json == {**first.json, "id": f"orders/0/{number}", "offset": number}
    writer.close()
    assert await values(http) == [0, 1, 2]


async def test_produce_and_ack_are_direct_too(http: Http, usual: list[str]) -> None:
    async with connected(http) as peer:
        usual.clear()
        for number in range(4):
            answer = await peer.post("/produce", {"topic": "orders", "value": number})
            assert answer.json["id"] == f"orders/0/{number}"
        assert usual == []
        got = (await http.get("/consume?topic=orders&group=g&max=4"))["messages"]
        receipts = [one["receipt"] for one in got]
        usual.clear()
        told = await peer.post("/ack", {"receipt": receipts[0]})
        assert told.json == {"count": 1, "durability": told.json["durability"], "failed": []}
        told = await peer.post("/ack", {"receipts": receipts})
        assert (told.json["count"], [one["receipt"] for one in told.json["failed"]]) == (3, receipts[:1])
        told = await peer.post("/ack", {"receipts": receipts})
        assert (told.status, told.json["code"]) == (409, "stale_receipt")
        assert usual == []


async def test_acks_in_a_group_are_direct_too(http: Http, usual: list[str]) -> None:
    async with connected(http) as peer:
        for number in range(3):
            await peer.post("/produce", {"topic": "orders", "value": number})
        got = (await http.get("/consume?topic=orders&group=g&max=3"))["messages"]
        receipts = [one["receipt"] for one in got]
        path = "/v1/topics/orders/groups/g/ack"
        usual.clear()
        told = await peer.post(path, {"receipts": receipts[:1]})
        assert told.json == {"count": 1, "durability": told.json["durability"], "failed": []}
        told = await peer.post(path, {"receipts": receipts})
        assert (told.json["count"], [one["receipt"] for one in told.json["failed"]]) == (2, receipts[:1])
        told = await peer.post(path, {"receipts": receipts})
        assert (told.status, told.json["code"]) == (409, "stale_receipt")
        told = await peer.post("/v1/topics/orders/groups/other/ack", {"receipts": receipts})
        assert (told.status, told.json["code"]) == (404, "unknown_group")
        assert usual == []
        told = await peer.post("/v1/topics/orders/groups/_dead_letters/ack", {"receipts": receipts})
        assert (told.status, told.json["code"]) == (403, "forbidden")
        assert len(usual) == 1


async def test_receipts_of_several_groups_go_the_usual_way(http: Http, usual: list[str]) -> None:
    await http.post(PUBLISH, {"value": 1})
    receipts = []
    for group in ("g", "h"):
        got = await http.get(f"/consume?topic=orders&group={group}")
        receipts += [one["receipt"] for one in got["messages"]]
    async with connected(http) as peer:
        usual.clear()
        assert (await peer.post("/ack", {"receipts": receipts})).json["count"] == 2
        assert usual == ["/ack"]


LARGE = "x" * BODY_BYTES_MAX


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post(PUBLISH + "?a=b", {"value": 1}), 200),
        (post("/v1/topics/%6frders/publish", {"value": 1}), 200),
        (post("/v1/topics/a%2fb/publish", {"value": 1}), 400),
        (post(PUBLISH, {"text": LARGE}), 200),
        (post(PUBLISH, {"messages": [{"value": 1}, {"value": 2}]}), 200),
        (post(PUBLISH, {"value": 1, "wait": "1s"}), 200),
        (post(PUBLISH, b"1", content_type="application/octet-stream"), 200),
        (post(PUBLISH, b"1", content_type="text/plain"), 415),
        (post(PUBLISH, {"value": 1}, content_type=""), 415),
        (post(PUBLISH, {"value": 1}, host="elsewhere.example"), 403),
        (post(PUBLISH, {"value": 1}, origin="http://elsewhere.example"), 403),
        (post(PUBLISH, b"7\r\n" + b'{"text"' + b"\r\n5\r\n" + b':"a"}' + b"\r\n0\r\n\r\n",
              content_length="", transfer_encoding="chunked"), 200),
        (post("/produce", {"topic": "orders", "messages": [{"value": 1}]}), 200),
        (post("/v1/topics/orders/groups/g/receive", {}), 200),
    ],
)  # fmt: skip
async def test_what_is_not_plain_goes_the_usual_way(
    http: Http, usual: list[str], request_: bytes, status: int
) -> None:
    async with connected(http) as peer:
        usual.clear()
        answer = await peer.ask(request_)
        assert answer.status == status, answer.body
        assert len(usual) == 1
        # and the connection goes on
        assert (await peer.post(PUBLISH, {"value": 1})).status == 200


async def test_a_body_that_is_waited_for_is_asked_for(http: Http, usual: list[str]) -> None:
    async with connected(http) as peer:
        request = post(PUBLISH, {"value": 1}, expect="100-continue")
        head, _, body = request.partition(b"\r\n\r\n")
        assert (await peer.ask(head + b"\r\n\r\n")).status == 100
        assert (await peer.ask(body)).status == 200
        assert usual[-1] == PUBLISH


async def test_a_connection_that_ends_with_its_request_ends(http: Http) -> None:
    for request in (
        post(PUBLISH, {"value": 1}, connection="close"),
        post(PUBLISH, {"value": 1}).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ):
        async with connected(http) as peer:
            answer = await peer.ask(request)
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await peer.ended() == b""


async def test_a_body_may_come_in_pieces(http: Http, usual: list[str]) -> None:
    async with connected(http) as peer:
        usual.clear()
        request = post(PUBLISH, {"value": "in pieces"}, content_type="application/json; charset=utf-8")
        for at in range(0, len(request), 7):
            peer.writer.write(request[at : at + 7])
            await peer.writer.drain()
            await asyncio.sleep(0)
        assert (await peer.answer()).status == 200
        assert usual == []
    assert await values(http) == ["in pieces"]


# --- refusals


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/topics/nowhere/publish", {"value": 1}, 404, "unknown_topic"),
        (PUBLISH, b"{", 400, "bad_request"),
        (PUBLISH, b"", 400, "invalid_input"),
        (PUBLISH, {"value": 1, "partition": "x"}, 400, "bad_request"),
        (PUBLISH, {"value": 1, "priority": "none"}, 400, "unknown_lane"),
        ("/produce", {"value": 1}, 400, "bad_request"),
        ("/ack", {}, 400, "invalid_input"),
        ("/ack", {"receipt": "a", "receipts": ["b"]}, 400, "invalid_input"),
        ("/ack", {"receipt": "x"}, 400, "invalid_receipt"),
    ],
)
async def test_refusals_are_those_of_the_usual_way(
    http: Http, usual: list[str], path: str, body: Any, status: int, code: str
) -> None:
    request = post(path, body)
    reader, writer = await asyncio.open_connection(*http.address)
    slow = await Peer(reader, writer).ask(request)
    writer.close()
    async with connected(http) as peer:
        usual.clear()
        fast = await peer.ask(request)
        assert usual == []
        assert (fast.status, fast.json["code"]) == (status, code)
        assert (slow.status, slow.body) == (fast.status, fast.body)
        assert set(slow.headers) == set(fast.headers)
        assert fast.headers["content-type"] == "application/problem+json"
        assert (await peer.post(PUBLISH, {"value": 1})).status == 200


async def test_requests_are_counted_by_their_status(http: Http) -> None:
    counter = http.context.metrics.http_requests

    def counted() -> tuple[float, float]:
        return counter.labels("2xx")._value.get(), counter.labels("4xx")._value.get()

    async with connected(http) as peer:
        good, bad = counted()
        await peer.post(PUBLISH, {"value": 1})
        await peer.post(PUBLISH, {"value": 1})
        await peer.post(PUBLISH, {})
        assert counted() == (good + 2, bad + 1)


async def test_keys_are_asked_each_time(tmp_path: Path, usual: list[str]) -> None:
    file = str(tmp_path / "keys.yaml")
    admin = create_key(file, role="admin", id="root")
    producer = create_key(file, role="producer", id="in", topics=["orders"])
    async with serving(config(keys_file=file), headers={"x-api-key": admin}) as http:
        for name in ("orders", "bills"):
            await http.post("/v1/topics", {"name": name}, 201)
        async with connected(http, authorization=f"Bearer {producer}") as peer:
            shown = {"authorization": f"Bearer {producer}"}
            usual.clear()
            assert (await peer.post(PUBLISH, {"value": 1}, **shown)).status == 200
            assert usual == []
            for path in ("/v1/topics/bills/publish", "/produce"):
                answer = await peer.post(path, {"topic": "bills", "value": 1}, **shown)
                assert (answer.status, answer.json["code"]) == (403, "forbidden")
            assert (await peer.post(PUBLISH, {"value": 1})).status == 401  # no key
            other = {"authorization": f"Bearer {producer}x"}
            assert (await peer.post(PUBLISH, {"value": 1}, **other)).status == 401
            assert (await peer.post(PUBLISH, {"value": 1}, **shown)).status == 200
            delete_key(file, "in")
            assert http.context.keys.refresh()
            assert (await peer.post(PUBLISH, {"value": 1}, **shown)).status == 401
            assert (await peer.post(PUBLISH, {"value": 1}, x_api_key=admin)).status == 200
        assert (await http.get("/v1/topics/orders"))["messages"] == 3
        assert (await http.get("/v1/topics/bills"))["messages"] == 0


# --- order


async def test_requests_that_come_together_are_answered_in_order(http: Http) -> None:
    async with connected(http) as peer:
        requests = [post(PUBLISH, {"value": number}) for number in range(40)]
        requests[3] = post(PUBLISH, {"messages": [{"value": 3}]})
        requests[5] = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
        requests[7] = post(PUBLISH, {})
        peer.writer.write(b"".join(requests))
        answers = [await peer.answer() for _ in requests]
        assert [one.status for one in answers] == [200] * 7 + [400] + [200] * 32
        assert answers[5].json == {"status": "alive"}
        offsets = [one.json["offset"] for one in answers if "offset" in one.json]
        assert offsets == sorted(offsets)
    assert await values(http) == [number for number in range(40) if number not in (5, 7)]


async def test_what_comes_behind_waits_for_the_sync(
    http: Http, held: list[Callable[[Exception | None], None]], usual: list[str]
) -> None:
    async with connected(http) as peer:
        usual.clear()
        peer.writer.write(post(PUBLISH, {"value": 1, "durability": "synced"}))
        await until(lambda: len(held) == 1)
        peer.writer.write(b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        health = await http.get("/health")  # another connection does not wait
        assert health == {"status": "alive"}
        assert usual == []
        held.pop()(None)
        assert (await peer.answer()).json["offset"] == 0
        assert "topics" in (await peer.answer()).json


async def test_a_sync_that_fails_is_told(http: Http, held: list[Callable[[Exception | None], None]]) -> None:
    async with connected(http) as peer:
        peer.writer.write(post(PUBLISH, {"value": 1, "durability": "synced"}))
        await until(lambda: len(held) == 1)
        held.pop()(StoreFailed("the disk is gone"))
        answer = await peer.answer()
        assert (answer.status, answer.json["code"]) == (503, "store_failed")
        assert answer.headers["retry-after"] == "1"


async def test_a_client_that_left_before_its_answer_harms_nobody(
    http: Http, held: list[Callable[[Exception | None], None]]
) -> None:
    before = http.server._http.connections  # type: ignore[union-attr]
    async with connected(http) as peer:
        peer.writer.write(post(PUBLISH, {"value": 1, "durability": "synced"}))
        await until(lambda: len(held) == 1)
    await until(lambda: http.server._http.connections == before)  # type: ignore[union-attr]
    held.pop()(None)
    assert await values(http) == [1]


async def test_a_server_that_closes_answers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as http:
        await http.post("/v1/topics", {"name": "orders"}, 201)
        held: list[Callable[[Exception | None], None]] = []
        monkeypatch.setattr(http.context.commits, "when_durable", lambda _, answer: held.append(answer))
        async with connected(http) as peer, connected(http) as half, connected(http) as idle:
            peer.writer.write(post(PUBLISH, {"value": 1, "durability": "synced"}))
            request = post(PUBLISH, {"value": 2, "durability": "written"})
            half.writer.write(request[:-3])
            await until(lambda: len(held) == 1)
            stopping = asyncio.ensure_future(http.server.stop())
            assert await idle.ended() == b""  # it has nothing to wait for
            half.writer.write(request[-3:])
            held.pop()(None)
            for one in (peer, half):
                answer = await one.answer()
                assert (answer.status, answer.headers["connection"]) == (200, "close")
                assert await one.ended() == b""
            await stopping


# --- silence


async def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "KEEP_ALIVE_S", 0.2)
    async with serving() as http:
        await http.post("/v1/topics", {"name": "orders"}, 201)
        loop = asyncio.get_running_loop()
        async with connected(http) as peer:
            assert (await peer.post(PUBLISH, {"value": 1})).status == 200
            last = loop.time()
            assert await peer.ended() == b""
            assert loop.time() - last > 0.1


async def test_only_silence_is_held_against_a_connection(
    http: Http, held: list[Callable[[Exception | None], None]]
) -> None:
    state = http.server._http._uvicorn.server_state  # type: ignore[union-attr]
    before = set(state.connections)
    async with connected(http) as peer:
        (protocol,) = state.connections - before
        protocol.timeout_keep_alive_handler()  # the timer is due, but a request came meanwhile
        assert protocol.timeout_keep_alive_task is not None
        peer.writer.write(post(PUBLISH, {"value": 1, "durability": "synced"}))
        await until(lambda: len(held) == 1)
        protocol.timeout_keep_alive_handler()
        assert protocol.timeout_keep_alive_task is None
        held.pop()(None)
        assert (await peer.answer()).status == 200
        assert protocol.timeout_keep_alive_task is not None
        protocol._silent_since -= listener.KEEP_ALIVE_S
        protocol.timeout_keep_alive_handler()
        assert await peer.ended() == b""
    await until(lambda: protocol not in state.connections)
    assert protocol.timeout_keep_alive_task is None
