"""Search in the log over HTTP: what is found, in which order, and that cursors lose and repeat nothing."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.http_server import Http, serving
from trine.broker import walking
from trine.server.http import search

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http() -> AsyncIterator[Http]:
    async with serving() as http:
        await http.post("/v1/topics", {"name": "orders", "partitions": 3}, 201)
        await http.post("/v1/topics", {"name": "zipped", "partitions": 2, "compression": "zstd"}, 201)
        for topic in ("orders", "zipped"):
            for start in range(0, 300, 30):
                messages = [
                    {
                        "value": {"number": n, "name": "Ärger" if n % 7 == 0 else "Joy"},
                        "key": f"k{n % 10}",
                        "headers": {"kind": "odd" if n % 2 else "even", "n": str(n)},
                    }
                    for n in range(start, start + 30)
                ]
                await http.post(f"/v1/topics/{topic}/publish", {"messages": messages})
        yield http


async def found(http: Http, query: str, topic: str = "orders") -> list[int]:
    """The numbers of all that is found, over as many calls as it takes."""
    path, cursor, numbers = f"/v1/topics/{topic}/search?{query}", "", []
    for _ in range(2000):
        told = await http.get(path + cursor)
        assert told["done"] == (told["cursor"] is None)
        numbers += [one["value"]["number"] for one in told["messages"]]
        if told["done"]:
            return numbers
        cursor = f"&cursor={told['cursor']}"
    raise AssertionError("the search does not end")


@pytest.mark.parametrize("topic", ["orders", "zipped"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", set(range(300))),
        ("text=ärger", set()),  # only ASCII has the same small letters everywhere
        ("text=ÄRGER", set(range(0, 300, 7))),
        ("text=Ärger", set(range(0, 300, 7))),
        ("text=JOY", set(range(300)) - set(range(0, 300, 7))),
        ('text="number":17,', {17}),
        ("text=odd", set(range(1, 300, 2))),
        ("key=k3", set(range(3, 300, 10))),
        ("key=none", set()),
        ("header=kind:odd", set(range(1, 300, 2))),
        ("header=n", set(range(300))),
        ("header=n:1", {1}),
        ("header=none:1", set()),
        ("key=k4&text=ärger", set()),
        ("key=k4&text=Ärger", set(range(0, 300, 7)) & set(range(4, 300, 10))),
    ],
)
async def test_what_is_found(http: Http, topic: str, direction: str, query: str, expected: set[int]) -> None:
    for limit in (1000, 13):
        numbers = await found(http, f"{query}&direction={direction}&limit={limit}", topic)
        assert len(numbers) == len(expected)
        assert set(numbers) == expected


async def test_cursors_lose_nothing_and_repeat_nothing(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    for decoded in (1, 7, 64):
        monkeypatch.setattr(search, "DECODED_MAX", decoded)
        for direction in ("forward", "backward"):
            numbers = await found(http, f"header=kind:even&direction={direction}")
            assert len(numbers) == 150
            assert set(numbers) == set(range(0, 300, 2))


async def test_a_call_looks_at_a_bounded_number(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "DECODED_MAX", 10)
    told = await http.get("/v1/topics/orders/search?text=nothing-of-this-kind&header=n")
    assert told["messages"] == []
    assert not told["done"]
    monkeypatch.undo()
    assert (await http.get("/v1/topics/orders/search?text=nothing-of-this-kind"))["scanned"] == 300


async def test_the_order_is_that_of_time(http: Http) -> None:
    for direction, sign in (("forward", 1), ("backward", -1)):
        told = await http.get(f"/v1/topics/orders/search?direction={direction}&limit=1000")
        times = [sign * one["timestamp_ms"] for one in told["messages"]]
        assert times == sorted(times)
    newest = (await http.get("/v1/topics/orders/search?direction=backward&limit=5"))["messages"]
    assert newest[0]["timestamp_ms"] == max(
        one["timestamp_ms"] for one in (await http.get("/v1/topics/orders/messages?limit=1000"))["messages"]
    )


async def test_by_place_and_by_time(http: Http) -> None:
    path = "/v1/topics/orders/search?partition=1"
    ahead = (await http.get(f"{path}&from_offset=10&limit=5"))["messages"]
    assert [one["offset"] for one in ahead] == [10, 11, 12, 13, 14]
    back = (await http.get(f"{path}&from_offset=10&limit=5&direction=backward"))["messages"]
    assert [one["offset"] for one in back] == [10, 9, 8, 7, 6]
    assert (await http.get("/v1/topics/orders/search?from_offset=10", 400))["code"] == "invalid_option"
    every = (await http.get("/v1/topics/orders/messages?limit=1000"))["messages"]
    times = sorted({one["timestamp_ms"] for one in every})
    middle = times[len(times) // 2]
    for direction in ("forward", "backward"):
        for bound, expected in (
            ("from_time", {one["id"] for one in every if one["timestamp_ms"] >= middle}),
            ("to_time", {one["id"] for one in every if one["timestamp_ms"] < middle}),
        ):
            query = f"{bound}={middle / 1000}&direction={direction}&limit=1000"
            told = await http.get(f"/v1/topics/orders/search?{query}")
            assert {one["id"] for one in told["messages"]} == expected, (direction, bound)
            assert told["done"]


async def test_long_values_are_cut_and_shown_whole_by_their_place(http: Http) -> None:
    await http.post("/v1/topics", {"name": "large", "partitions": 1}, 201)
    binary = bytes(range(256)) * 4096
    bodies = [
        {"text": "ü" * 3000},
        {"text": "<script>alert(1)</script>"},
        {"base64": base64.b64encode(binary).decode()},
        {"value": None, "key": "gone"},
        {"value": list(range(5000))},
    ]
    for body in bodies:
        await http.post("/v1/topics/large/publish", body)
    cut, short, blob, gone, array = (await http.get("/v1/topics/large/search?preview=1001"))["messages"]
    assert (cut["text"], cut["size"], cut["cut"]) == ("ü" * 500, 6000, True)
    assert (short["text"], short["size"], short.get("cut")) == ("<script>alert(1)</script>", 25, None)
    assert base64.b64decode(blob["base64"]) == binary[:1001]
    assert (gone["value"], gone["size"]) == (None, None)
    assert array["text"].startswith("[0,1,2")
    whole = await http.get("/v1/topics/large/messages/0/0?as=text")
    assert (whole["text"], whole["size"], whole.get("cut")) == ("ü" * 3000, 6000, None)
    assert (await http.get("/v1/topics/large/messages/0/4"))["value"] == list(range(5000))
    assert "trace" in (await http.get("/v1/topics/large/messages/0/9", 404))["detail"]
    await http.get("/v1/topics/large/messages/7/0", 404)


@pytest.mark.parametrize("cursor", ["x", "ü", "AAAA", "eJwDAAAAAAE", "A" * 9000])
async def test_a_cursor_that_is_none_is_refused(http: Http, cursor: str) -> None:
    problem = await http.get(f"/v1/topics/orders/search?cursor={cursor}", 400)
    assert "begin anew" in problem["detail"]


async def test_a_cursor_is_of_one_topic_and_direction(http: Http) -> None:
    cursor = (await http.get("/v1/topics/orders/search?limit=1"))["cursor"]
    for other in ("zipped/search?", "orders/search?direction=backward&", "orders/search?partition=0&"):
        assert "begin anew" in (await http.get(f"/v1/topics/{other}cursor={cursor}", 400))["detail"]


async def test_a_log_with_gaps_is_walked_both_ways(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction takes messages away: the steps backward must find what lies before a gap."""
    monkeypatch.setattr(walking, "STEP_MAX", 1)
    await http.post(
        "/v1/topics", {"name": "compact", "partitions": 1, "compact": True, "segment_bytes": 4096}, 201
    )
    for n in range(200):
        key = "first" if n < 2 else "same"
        await http.post(
            "/v1/topics/compact/publish", {"value": {"number": n}, "key": f"{key}{n if n < 2 else ''}"}
        )
    keeper = http.context.broker._housekeeper
    keeper.compact(http.context.engine.clock.now_ms())
    ahead: list[Any] = await found(http, "limit=50", "compact")
    assert len(ahead) < 200, "nothing was compacted"
    assert ahead[:2] == [0, 1]
    assert await found(http, "limit=50&direction=backward", "compact") == ahead[::-1]
