"""What HTTP refuses, and how it says so: problems, limits, keys, foreign pages, a server that is not ready."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio

from tests.integration.http_server import Http, config, serving
from trine.model import errors
from trine.server.config import LimitsConfig
from trine.server.context import Readiness
from trine.server.http import listener, problems
from trine.server.http.app import HANDLERS
from trine.server.http.listener import listen
from trine.server.keys import create_key

pytestmark = pytest.mark.asyncio(loop_scope="module")

BODY_BYTES = 4096


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http() -> AsyncIterator[Http]:
    small = msgspec.structs.replace(config(), limits=LimitsConfig(body_bytes=BODY_BYTES))
    async with serving(small) as http:
        await http.post("/v1/topics", {"name": "orders", "partitions": 1}, 201)
        yield http


# --- problems


async def test_every_error_has_a_status() -> None:
    classes = [
        one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.TrineError)
    ]
    assert {one.code for one in classes} == set(problems.STATUS)
    assert all(400 <= status < 600 for status in problems.STATUS.values())


async def test_a_fault_of_our_own_tells_nothing_of_the_inside(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("secret inside")

    monkeypatch.setattr(http.context.broker, "topics", broken)
    problem = await http.get("/v1/topics", 500)
    assert problem["code"] == "internal"
    assert "secret" not in json.dumps(problem)

    def broken_at_once(*_: Any) -> Any:
        raise RuntimeError("secret inside")

    monkeypatch.setattr("trine.server.http.publishing.topic_of", broken_at_once)
    octets = {"content": b"1", "headers": {"content-type": "application/octet-stream"}}
    for given in ({"json": {"value": 1}}, octets):  # with and without a task of its own
        problem = await http.ask("POST", "/v1/topics/orders/publish", 500, **given)
        assert problem["code"] == "internal"
        assert "secret" not in json.dumps(problem)


async def test_a_full_topic_says_when_to_come_again(http: Http) -> None:
    await http.post("/v1/topics", {"name": "small", "depth_max": 1, "partitions": 1}, 201)
    await http.post("/v1/topics/small/groups", {"name": "g"}, 201)
    await http.post("/v1/topics/small/publish", {"value": 1})
    answer = await http.client.post("/v1/topics/small/publish", json={"value": 2})
    assert (answer.status_code, answer.json()["code"]) == (429, "topic_full")
    assert answer.headers["retry-after"] == "1"
    assert (await http.post("/v1/topics/small/publish", {"value": 2, "wait": "20ms"}, 429))[
        "code"
    ] == "topic_full"
    waiting = asyncio.create_task(http.post("/v1/topics/small/publish", {"value": 2, "wait": "20s"}))
    (got,) = (await http.post("/v1/topics/small/groups/g/receive", {}))["messages"]
    await http.post("/v1/topics/small/groups/g/ack", {"receipts": [got["receipt"]]})
    assert (await waiting)["offset"] == 1


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/", 405, "method_not_allowed"),
        ("GET", "/ui/", 404, "no_such_path"),
        ("GET", "/ui/../../keys.py", 404, "no_such_path"),
        ("GET", "/ui/assets/%2e%2e/%2e%2e/__init__.py", 404, "no_such_path"),
        ("GET", "/nothing", 404, "no_such_path"),
        ("GET", "/v1", 404, "no_such_path"),
        ("GET", "/v1/nothing", 404, "no_such_path"),
        ("PUT", "/v1/topics/orders", 405, "method_not_allowed"),
        ("GET", "/v1/topics/orders/purge", 405, "method_not_allowed"),
        ("GET", "/v1/topics/orders/publish", 405, "method_not_allowed"),
        ("GET", "/produce", 405, "method_not_allowed"),
        ("POST", "/consume", 405, "method_not_allowed"),
        ("GET", "/v1/topics/orders/messages?limit=0", 400, "bad_request"),
        ("GET", "/v1/topics/orders/messages?limit=x", 400, "bad_request"),
        ("GET", "/v1/topics/orders/messages?as=xml", 400, "bad_request"),
        ("GET", "/v1/topics/orders/messages?from_time=now", 400, "invalid_time"),
        ("GET", "/v1/topics/orders/messages?wait=2h", 400, "invalid_option"),
        ("GET", "/v1/topics/%2e%2e", 400, "invalid_name"),
        ("GET", "/v1/topics/..%2f..%2fetc%2fpasswd", 400, "bad_request"),
        ("GET", "/v1/topics/a%5cb", 400, "bad_request"),
        ("GET", "/v1/topics/a%00b", 400, "bad_request"),
        ("DELETE", "/v1/topics/a%2Fgroups%2Fb", 400, "bad_request"),
        ("GET", "/v1/topics/a b", 400, "invalid_name"),
        ("GET", "/v1/topics/orders/groups/..", 400, "invalid_name"),
        ("GET", f"/v1/topics/{'x' * 300}", 400, "invalid_name"),
        ("GET", "/v1/traces/../../etc/passwd", 404, None),
        ("GET", "/v1/traces/..%2F..%2F0", 404, "unknown_message"),
    ],
)  # fmt: skip
async def test_paths_and_parameters_that_are_off(
    http: Http, method: str, path: str, status: int, code: str | None
) -> None:
    answer = await raw(
        http, f"{method} {path.replace(' ', '%20')} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    )
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    if code is not None:
        assert json.loads(answer.body)["code"] == code


class Answer:
    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


async def raw(http: Http, data: bytes) -> Answer:
    """Sends bytes that a polite client would not, and reads the answer with its body."""
    reader, writer = await asyncio.open_connection(*http.address)
    try:
        writer.write(data)
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            answer = Answer(head)
            length = int(answer.headers.get("content-length", 0))
            return Answer(head + await reader.readexactly(length))
    finally:
        writer.close()


async def test_bodies_are_limited(http: Http) -> None:
    big = {"text": "x" * BODY_BYTES}
    for path in ("/v1/topics/orders/publish", "/v1/topics/orders/groups/g/ack"):
        answer = await http.client.post(path, json=big)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b" " * 1000

    for path in ("/v1/topics/orders/publish", "/produce"):
        answer = await http.client.post(path, content=pieces(), headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    lying = (
        b"POST /v1/topics/orders/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n"
    )
    assert (await raw(http, lying)).status == 413
    assert (await http.get("/v1/topics/orders"))["messages"] == 0


@pytest.mark.parametrize("path", ["/v1/topics/orders/publish", "/v1/topics", "/produce"])
async def test_bodies_of_another_kind_are_refused(http: Http, path: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/xml"):
        problem = await http.ask("POST", path, 415, content=b"{}", headers={"content-type": kind})
        assert problem["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"{} x", b'{"name": "\xff"}', b"[" * 2000]
)
async def test_bodies_that_are_not_what_they_say(http: Http, body: bytes) -> None:
    for path in ("/v1/topics/orders/publish", "/v1/topics", "/produce", "/ack", "/v1/crons"):
        problem = await http.ask(
            "POST", path, 400, content=body, headers={"content-type": "application/json"}
        )
        assert problem["code"] in ("bad_request", "invalid_input")


async def test_a_fault_names_its_field(http: Http) -> None:
    given = {"messages": [{"text": "a"}, {"text": "b", "partition": "x"}]}
    problem = await http.post("/v1/topics/orders/publish", given, 400)
    assert problem["faults"] == [
        {"field": "messages[1].partition", "message": "Expected `int | null`, got `str`"}
    ]
    problem = await http.post("/v1/topics", {"name": "x", "partitions": "many"}, 400)
    assert problem["faults"][0]["field"] == "partitions"
    problem = await http.post("/v1/topics", {"name": "x", "partition": 1}, 400)
    assert "partition" in problem["detail"]


async def test_endless_headers_end_the_connection(http: Http) -> None:
    reader, writer = await asyncio.open_connection(*http.address)
    writer.write(b"GET /version HTTP/1.1\r\nhost: localhost\r\n")
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        async with asyncio.timeout(10):
            while True:
                writer.write(b"x-more: " + b"y" * 4000 + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)
    writer.close()
    assert (await http.get("/version"))["name"] == "trine"
    del reader


async def test_half_a_request_harms_nobody(http: Http) -> None:
    for data in (
        b"POST /v1/topics/orders/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{",
        b"\x00\x01",
    ):
        _, writer = await asyncio.open_connection(*http.address)
        writer.write(data)
        await writer.drain()
        writer.close()
    assert (await http.get("/v1/topics/orders"))["messages"] == 0


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /version HTTP/1.1\r\nhost: loc",
        b"POST /v1/topics/orders/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{",
    ],
)
async def test_a_request_that_does_not_come_on_ends(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    for name in ("HEAD_S", "BODY_S", "SWEEP_S"):
        monkeypatch.setattr(listener, name, 0.05)
    async with serving() as http:
        reader, writer = await asyncio.open_connection(*http.address)
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(10):
                assert await reader.read() == b""
        writer.close()
        assert (await http.get("/version"))["name"] == "trine"


# --- who may


async def test_pages_of_other_sites_may_not_use_a_server_without_keys(http: Http) -> None:
    foreign = {"origin": "http://evil.example"}
    assert (await http.get("/v1/topics", 403, headers=foreign))["code"] == "forbidden"
    assert (await http.post("/v1/topics/orders/purge", status=403, headers=foreign))["code"] == "forbidden"
    assert (await http.post("/v1/topics/orders/publish", {"value": 1}, 403, headers=foreign))[
        "code"
    ] == "forbidden"
    host = {"host": "rebound.example"}
    assert (await http.get("/v1/topics", 403, headers=host))["code"] == "forbidden"
    own = {"origin": "http://{}:{}".format(*http.address)}
    await http.get("/v1/topics", headers=own)
    answer = await http.client.get("/v1/topics", headers=own)
    assert "access-control-allow-origin" not in answer.headers


async def test_every_handler_says_what_it_does() -> None:
    free = {"/version", "/openapi.json", "/docs", "/v1/session"}
    for handler in HANDLERS:
        if not handler.paths <= free:
            assert handler.opt.get("may") in ("admin", "publish", "consume", "read"), handler


@pytest.fixture
def keys_file(tmp_path: Path) -> str:
    return str(tmp_path / "keys.yaml")


async def test_keys_open_what_they_are_for(keys_file: str) -> None:
    admin = create_key(keys_file, role="admin", id="root")
    shop = create_key(keys_file, role="admin", id="shop", topics=["orders*"])
    producer = create_key(keys_file, role="producer", id="shop-in", topics=["orders"])
    consumer = create_key(keys_file, role="consumer", id="shop-out", topics=["orders"])
    reader = create_key(keys_file, role="read-only", id="eyes", topics=["orders"])

    def bearer(key: str) -> dict[str, Any]:
        return {"headers": {"authorization": f"Bearer {key}"}}

    async with serving(config(keys_file=keys_file)) as http:
        for path in ("/health", "/ready", "/version", "/docs", "/openapi.json"):
            assert (await http.client.get(path)).status_code == 200
        for path in ("/v1/topics", "/metrics", "/dashboard", "/v1/events"):
            answer = await http.client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert (await http.post("/v1/topics/orders/publish", {"value": 1}, 401))["code"] == "unauthenticated"
        await http.get("/v1/topics", 401, **bearer("trine_root_wrong"))
        await http.get("/v1/topics", 401, headers={"authorization": "Basic cm9vdDpyb290"})
        await http.post("/v1/topics", {"name": "bills"}, 201, **bearer(admin))
        await http.post("/v1/topics", {"name": "orders"}, 201, headers={"x-api-key": shop})
        assert (await http.post("/v1/topics", {"name": "other"}, 403, **bearer(shop)))["code"] == "forbidden"

        told = await http.post("/v1/topics/orders/publish", {"value": 1}, **bearer(producer))
        await http.post("/produce", {"topic": "orders", "value": 1}, **bearer(producer))
        await http.post("/produce", {"topic": "bills", "value": 1}, 403, **bearer(producer))
        await http.post("/v1/topics/bills/publish", {"value": 1}, 403, **bearer(producer))
        await http.post("/v1/topics/orders/publish", {"value": 1}, 403, **bearer(consumer))
        await http.post("/v1/topics/orders/publish", {"value": 1}, 403, **bearer(reader))

        await http.post("/v1/topics/orders/groups/g/receive", {}, 403, **bearer(producer))
        await http.get("/consume?topic=orders&group=g", 403, **bearer(producer))
        await http.get("/consume?topic=bills&group=g", 403, **bearer(consumer))
        got = await http.get("/consume?topic=orders&group=g&max=5", **bearer(consumer))
        receipts = {"receipts": [one["receipt"] for one in got["messages"]]}
        await http.post("/ack", receipts, 403, **bearer(reader))
        assert (await http.post("/ack", receipts, **bearer(consumer)))["count"] == 2
        members = await http.get("/v1/topics/orders/groups/g/members", **bearer(reader))
        assert members["members"][0]["name"] == "http-shop-out"

        listed = (await http.get("/v1/topics", **bearer(reader)))["topics"]
        assert [one["name"] for one in listed] == ["orders"]
        assert list((await http.get("/dashboard", **bearer(reader)))["topics"]) == ["orders"]
        await http.get(f"/v1/traces/{told['id']}", **bearer(reader))
        await http.get("/v1/traces/bills/0/0", 403, **bearer(reader))
        await http.get("/v1/topics/bills/messages", 403, **bearer(reader))
        await http.get("/metrics", 403, **bearer(reader))
        assert (await http.client.get("/metrics", **bearer(admin))).status_code == 200

        cron = {"name": "nightly", "topic": "bills", "expression": "0 3 * * *", "message": {"value": 1}}
        await http.post("/v1/crons", cron, 201, **bearer(admin))
        problem = await http.ask("DELETE", "/v1/crons/nightly", 404, **bearer(producer))
        assert problem["code"] == "unknown_schedule"
        assert "bills" not in problem["detail"]
        await http.post("/v1/topics/bills/publish", {"value": 1}, **bearer(admin))
        got = await http.get("/consume?topic=bills&group=g", **bearer(admin))
        bad = {"receipts": [got["messages"][0]["receipt"]], "reason": "no good"}
        await http.post("/v1/topics/bills/groups/g/reject", bad, **bearer(admin))
        for path in ("receive", "seek", "replay", "pause", "ack"):
            own = f"/v1/topics/bills.dlq/groups/_dead_letters/{path}"
            assert "broker's own" in (await http.post(own, {}, 403, **bearer(admin)))["detail"]
        await http.get("/consume?topic=bills.dlq&group=_dead_letters", 403, **bearer(admin))
        await http.ask("DELETE", "/v1/topics/bills.dlq/groups/_dead_letters", 403, **bearer(admin))
        await http.post("/v1/topics/bills/groups", {"name": "_dead_letters"}, 403, **bearer(admin))
        await http.post("/v1/topics/bills/dead-letters/purge", {"reason": "of none"}, **bearer(admin))
        await http.get("/v1/topics/bills.dlq/groups/_dead_letters/lag", **bearer(admin))
        started = await http.post("/v1/topics/bills/dead-letters/redrive", {}, 202, **bearer(admin))
        job = f"/v1/redrives/{started['job']['id']}"
        for problem in (
            await http.get(job, 404, **bearer(shop)),
            await http.post(f"{job}/cancel", {}, 404, **bearer(shop)),
        ):
            assert problem["code"] == "unknown_job"
            assert "bills" not in problem["detail"]
        later = await http.post("/v1/topics/bills/publish", {"value": 1, "delay": "1h"}, **bearer(admin))
        assert (await http.get("/v1/schedules", **bearer(reader)))["schedules"] == []
        await http.ask("DELETE", f"/v1/schedules/{later['id']}", 403, **bearer(producer))
        for action in (
            "purge",
            "groups/g/pause",
            "groups/g/resume",
            "dead-letters/purge",
            "dead-letters/redrive",
        ):
            await http.post(f"/v1/topics/orders/{action}", {}, 403, **bearer(consumer))
        await http.ask("DELETE", "/v1/topics/orders", 403, **bearer(producer))
        await http.ask("DELETE", "/v1/topics/orders", 204, **bearer(shop))


# --- not ready


class Recovering:
    """A server whose store is still recovering."""

    def __init__(self) -> None:
        self.config = config()
        self.readiness = Readiness()
        self.readiness.state = "recovering"
        self.readiness.progress("journal", 30, 120)
        self.context = None
        self.http_tls = None


async def test_before_it_is_ready_only_the_probes_answer() -> None:
    listener = await listen(Recovering())
    base = "http://{}:{}".format(*listener.address)
    async with httpx.AsyncClient(base_url=base) as client:
        assert (await client.get("/health")).status_code == 200
        answer = await client.get("/ready")
        assert (answer.status_code, answer.json()["readiness"]["percent"]) == (503, 25)
        for path in ("/v1/topics", "/metrics", "/docs", "/nothing"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
            assert answer.headers["retry-after"] == "1"
        assert (await client.post("/v1/topics/orders/publish", json={"value": 1})).status_code == 503
    listener.close()
    await listener.wait_closed()
