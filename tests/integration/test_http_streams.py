"""Streams over a real socket: counters and messages, as server-sent events and over WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.integration.http_server import Http, config, serving
from trine.server.http import gate, streams
from trine.server.keys import create_key, delete_key

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Http]:
    async with serving() as http:
        yield http


@pytest_asyncio.fixture(loop_scope="module")
async def http(server: Http) -> AsyncIterator[Http]:
    await server.post("/v1/topics", {"name": "orders", "partitions": 2}, 201)
    yield server
    for topic in (await server.get("/v1/topics"))["topics"]:
        await server.ask("DELETE", f"/v1/topics/{topic['name']}", 204)


async def events(http: Http, path: str, **more: Any) -> AsyncIterator[dict[str, Any]]:
    """Server-sent events, comments among them."""
    async with http.client.stream("GET", path, **more) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        found: dict[str, Any] = {}
        async for line in answer.aiter_lines():
            if not line:
                if "data" in found:
                    found["data"] = json.loads(found["data"])
                yield found
                found = {}
            elif line.startswith(":"):
                found["comment"] = line
            else:
                name, _, value = line.partition(": ")
                found[name] = found[name] + "\n" + value if name in found else value


def socket(http: Http, path: str, **more: Any) -> connect:
    return connect("ws://{}:{}{}".format(*http.address, path), **more)


async def told(connection: ClientConnection) -> Any:
    async with asyncio.timeout(10):
        return json.loads(await connection.recv())


# --- counters


async def test_counters_come_as_events(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "EVERY_SECONDS", 0.05)
    await http.post("/v1/topics/orders/publish", {"messages": [{"value": n} for n in range(5)]})
    await http.post("/v1/topics/orders/groups", {"name": "g"}, 201)
    seen = 0
    async for one in events(http, "/v1/events"):
        assert one["event"] == "counters"
        counters = one["data"]["counters"]
        assert counters["topics"]["orders"]["published"] == 5
        assert counters["groups"][0] | {"lag": 5, "in_flight": 0, "settled": 0} == counters["groups"][0]
        seen += 1
        if seen == 3:
            break
    async for one in events(http, "/v1/events?topic=nothing*"):
        assert one["data"]["counters"]["topics"] == {}
        break


async def test_counters_come_over_a_websocket(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "EVERY_SECONDS", 0.05)
    await http.post("/v1/topics/orders/publish", {"value": 1})
    async with socket(http, "/v1/stream") as connection:
        first = await told(connection)
        while first["counters"]["totals"]["messages"] != 1:  # a sample is good for half a second
            first = await told(connection)
        assert first["skipped"] == 0
        assert (await told(connection))["counters"]["at"] > first["counters"]["at"]
        metrics = (await http.client.get("/metrics")).text
        assert 'trine_connections{listener="http"} 2.0' in metrics


async def test_streams_are_counted_and_limited(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMS_MAX", 1)
    async for _ in events(http, "/v1/events"):
        assert (await http.get("/v1/events", 429))["code"] == "too_many"
        async with socket(http, "/v1/stream") as connection:
            with pytest.raises(ConnectionClosed) as closed:
                await connection.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
        break
    async with asyncio.timeout(10):
        while http.server._http.app.shared.streams.open:  # type: ignore[union-attr]
            await asyncio.sleep(0.005)


# --- the log


async def test_a_tail_follows_the_log_and_goes_on_where_it_was(http: Http) -> None:
    await http.post("/v1/topics/orders/publish", {"value": "before"})
    got: list[dict[str, Any]] = []
    async for one in events(http, "/v1/topics/orders/tail"):
        if "comment" in one:  # it listens
            await http.post("/v1/topics/orders/publish", {"value": {"n": 1}, "partition": 0})
            await http.post("/v1/topics/orders/publish", {"text": "two\nlines", "partition": 1})
            continue
        got.append(one)
        if len(got) == 2:
            break
    assert [one["event"] for one in got] == ["message", "message"]
    assert [one["data"].get("value", one["data"].get("text")) for one in got] == [{"n": 1}, "two\nlines"]
    await http.post("/v1/topics/orders/publish", {"value": "missed", "partition": 0})
    async for one in events(http, "/v1/topics/orders/tail", headers={"last-event-id": got[1]["id"]}):
        if "data" in one:
            assert one["data"]["value"] == "missed"
            break


async def test_a_tail_begins_at_an_offset_or_a_time(http: Http) -> None:
    for number in range(3):
        await http.post("/v1/topics/orders/publish", {"value": number, "partition": 0})
    async for one in events(http, "/v1/topics/orders/tail?partition=0&from_offset=1"):
        if "data" in one:
            assert one["data"]["value"] == 1
            break
    async for one in events(http, "/v1/topics/orders/tail?from_time=2020-01-01T00:00:00Z"):
        if "data" in one:
            assert one["data"]["value"] == 0
            break
    assert (await http.get("/v1/topics/orders/tail?from_offset=1", 400))["code"] == "invalid_option"
    assert (await http.get("/v1/topics/none/tail", 404))["code"] == "unknown_topic"


async def test_a_tail_ends_with_its_topic(http: Http) -> None:
    last = None
    async for one in events(http, "/v1/topics/orders/tail"):
        last = one
        if "comment" in one:
            await http.ask("DELETE", "/v1/topics/orders", 204)
            await http.post("/v1/topics", {"name": "other"}, 201)
            await http.post("/v1/topics/other/publish", {"value": 1})
    assert last is not None
    assert (last["event"], last["data"]["code"]) == ("error", "unknown_topic")


async def test_a_reader_that_takes_nothing_is_let_go(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "SEND_SECONDS_MAX", 0.2)
    for _ in range(30):
        await http.post("/v1/topics/orders/publish", {"text": "x" * 1_000_000, "durability": "memory"})
    reader, writer = await asyncio.open_connection(*http.address, limit=1024)
    writer.write(b"GET /v1/topics/orders/tail?from_time=2020-01-01 HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await reader.readuntil(b"\r\n")
    open_streams = http.server._http.app.shared.streams  # type: ignore[union-attr]
    async with asyncio.timeout(10):
        while not open_streams.open:
            await asyncio.sleep(0.005)
        while open_streams.open:
            await asyncio.sleep(0.01)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


# --- the queue


CONSUME = "/v1/topics/orders/groups/g/consume"


async def test_messages_are_pushed_by_credit_and_settled_by_frames(http: Http) -> None:
    await http.post(
        "/v1/topics/orders/publish", {"messages": [{"value": n, "partition": 0} for n in range(6)]}
    )
    async with socket(http, f"{CONSUME}?member=w1") as connection:
        await connection.send('{"credit": 4}')
        got: list[dict[str, Any]] = []
        while len(got) < 4:
            got += (await told(connection))["messages"]
        assert [one["value"] for one in got] == [0, 1, 2, 3]
        assert (await http.get("/v1/topics/orders/groups/g/members"))["members"][0]["name"] == "w1"
        receipts = [one["receipt"] for one in got]
        await connection.send(json.dumps({"ack": receipts[:1], "ref": "a"}))
        assert await told(connection) == {
            "settled": {"count": 1, "durability": "memory", "failed": []},
            "ref": "a",
        }
        await connection.send(json.dumps({"nack": {"receipts": receipts[1:2], "delay": "1h"}, "ref": 2}))
        await connection.send(json.dumps({"reject": {"receipts": receipts[2:3], "reason": "bad"}, "ref": 3}))
        await connection.send(json.dumps({"extend": {"receipts": receipts[3:4], "duration": "5m"}, "ref": 4}))
        assert [(await told(connection))["ref"] for _ in range(3)] == [2, 3, 4]
        await connection.send(json.dumps({"ack": receipts[:1], "ref": 5}))
        refused = await told(connection)
        assert (refused["error"]["code"], refused["ref"]) == ("stale_receipt", 5)
        for bad in ("{", '{"credit": -1}', '{"what": 1}', '{"ack": 1}'):
            await connection.send(bad)
            assert (await told(connection))["error"]["code"] == "bad_request"
    lag = await http.get("/v1/topics/orders/groups/g/lag")
    assert lag["count"] == 4  # one acked, one dead


async def test_what_a_closed_socket_held_goes_back_at_once(http: Http) -> None:
    await http.post("/v1/topics/orders/publish", {"value": 1})
    async with socket(http, CONSUME) as connection:
        await connection.send('{"credit": 1}')
        assert (await told(connection))["messages"][0]["attempt"] == 1
    got = await http.post("/v1/topics/orders/groups/g/receive", {"wait": "10s"})
    assert [one["attempt"] for one in got["messages"]] == [1]
    assert [one["name"] for one in (await http.get("/v1/topics/orders/groups/g/members"))["members"]] == [
        "http-anonymous"
    ]


async def test_a_message_that_comes_later_is_pushed(http: Http) -> None:
    async with socket(http, CONSUME) as connection:
        await connection.send('{"credit": 10}')
        await http.post("/v1/topics/orders/publish", {"value": "later"})
        assert (await told(connection))["messages"][0]["value"] == "later"


async def test_a_socket_that_may_not_is_refused(http: Http) -> None:
    async with socket(http, "/v1/topics/none/groups/g/consume") as connection:
        with pytest.raises(ConnectionClosed) as closed:
            await connection.recv()
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, "none" in closed.value.rcvd.reason) == (1008, True)
    with pytest.raises(InvalidStatus) as refused:
        async with socket(http, CONSUME, origin="http://evil.example"):
            pass
    assert refused.value.response.status_code == 403


async def test_a_deleted_key_ends_its_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "EVERY_SECONDS", 0.05)
    keys_file = str(tmp_path / "keys.yaml")
    create_key(keys_file, role="admin", id="other")
    key = create_key(keys_file, role="admin", id="root")
    async with serving(config(keys_file=keys_file)) as http:
        with pytest.raises(InvalidStatus) as refused:
            async with socket(http, "/v1/stream"):
                pass
        assert refused.value.response.status_code == 401
        headers = {"authorization": f"Bearer {key}"}
        async with socket(http, "/v1/stream", additional_headers=headers) as connection:
            await told(connection)
            delete_key(keys_file, "root")
            http.context.keys.refresh()
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    await told(connection)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008


async def test_all_streams_and_long_polls_end_when_the_server_closes() -> None:
    async with serving() as http:
        await http.post("/v1/topics", {"name": "orders"}, 201)

        async def read(path: str) -> list[dict[str, Any]]:
            return [one async for one in events(http, path)]

        reading = [asyncio.create_task(read(path)) for path in ("/v1/events", "/v1/topics/orders/tail")]
        polling = asyncio.create_task(http.post("/v1/topics/orders/groups/g/receive", {"wait": "30s"}))
        looking = asyncio.create_task(http.get("/v1/topics/orders/messages?wait=30s"))
        async with socket(http, "/v1/stream") as counters, socket(http, CONSUME) as consumer:
            await consumer.send('{"credit": 1}')
            await told(counters)
            group = "/v1/topics/orders/groups/g/members"
            async with asyncio.timeout(10):
                while len((await http.get(group))["members"]) < 2:
                    await asyncio.sleep(0.01)
                while http.server._http.app.shared.streams.open < 4:  # type: ignore[union-attr]
                    await asyncio.sleep(0.01)
            began = asyncio.get_running_loop().time()
            await http.server.stop()
            assert asyncio.get_running_loop().time() - began < 3
            assert await told(consumer) == {"closing": "the server is closing"}
            for connection in (counters, consumer):
                with pytest.raises(ConnectionClosed) as closed:
                    await connection.recv()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code in (1001, 1012)
        assert [(await task)[-1]["event"] for task in reading] == ["closing", "closing"]
        assert await polling == {"messages": []}
        assert (await looking)["messages"] == []
