"""The schedule over HTTP: found by what it is, in pages, and how much is due when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.http_server import Http, serving
from trine import SimulatedClock
from trine.server.http import waiting_list

HOUR = 3_600_000


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with serving(clock=SimulatedClock()) as http:
        for topic in ("mail", "orders"):
            await http.post("/v1/topics", {"name": topic, "partitions": 2}, 201)
        for n in range(40):
            body = {
                "value": {"n": n},
                "key": f"k{n % 4}",
                "delay": f"{n * 30 + 1}m",
                "headers": {"kind": "late"},
            }
            await http.post(f"/v1/topics/{'mail' if n % 3 else 'orders'}/publish", body)
        yield http


async def listed(http: Http, query: str = "") -> list[dict[str, Any]]:
    cursor, found = "", []
    for _ in range(200):
        told = await http.get(f"/v1/schedules?{query}{cursor}")
        found += told["schedules"]
        if told["cursor"] is None:
            return found
        cursor = f"&cursor={told['cursor']}"
    raise AssertionError("the list does not end")


async def numbers(http: Http, query: str = "") -> list[int]:
    return [one["value"]["n"] for one in await listed(http, query)]


async def test_what_waits_is_listed_soonest_first_over_all_topics(http: Http) -> None:
    for limit in (1, 7, 1000):
        assert await numbers(http, f"limit={limit}") == list(range(40))
    assert await numbers(http, "topic=orders&limit=3") == list(range(0, 40, 3))
    assert await numbers(http, "topic=none") == []
    own = await http.get("/v1/topics/orders/schedules?limit=2")
    assert [one["value"]["n"] for one in own["schedules"]] == [0, 3]
    one = (await listed(http, "limit=1"))[0]
    assert one | {"headers": {"kind": "late"}, "key": "k0", "priority": "normal", "size": 7} == one


async def test_what_waits_is_found_by_what_it_is(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    every = await listed(http)
    for looked in (3, 5000):
        monkeypatch.setattr(waiting_list, "LOOKED_MAX", looked)
        assert await numbers(http, "key=k2") == list(range(2, 40, 4))
        assert await numbers(http, "text=%22n%22:17}") == [17]
        assert await numbers(http, "text=LATE&limit=6") == list(range(40))
    start, end = every[10]["due"], every[20]["due"]
    assert await numbers(http, f"from_time={start}&to_time={end}") == list(range(10, 20))
    assert await numbers(http, f"from_time={every[10]['due_ms'] / 1000}&limit=4&key=k1") == list(
        range(13, 40, 4)
    )
    (one,) = await listed(http, f"id={every[5]['id']}&preview=2")
    assert (one["id"], one["text"], one["cut"], one["size"]) == (every[5]["id"], '{"', True, 7)
    assert await listed(http, "id=orders@1-1") == []
    await http.get("/v1/schedules?id=nonsense", 404)
    for cursor in ("x", "AAAA", "kwEBAQ"):
        assert "begin anew" in (await http.get(f"/v1/schedules?cursor={cursor}", 400))["detail"]


async def test_a_moved_message_keeps_its_id_and_a_cancelled_one_is_gone(http: Http) -> None:
    every = await listed(http)
    await http.ask("DELETE", f"/v1/schedules/{every[3]['id']}", 204)
    await http.post(f"/v1/schedules/{every[0]['id']}/move", {"delay": "10h5m"})
    assert await numbers(http) == [1, 2, *range(4, 21), 0, *range(21, 40)]
    (moved,) = await listed(http, f"id={every[0]['id']}")
    assert moved["due_ms"] > every[20]["due_ms"]
    assert await listed(http, f"id={every[3]['id']}") == []
    told = await http.get("/v1/schedules/upcoming")
    assert told["total"] == 39


async def test_the_coming_hours_are_counted(http: Http) -> None:
    told = await http.get("/v1/schedules/upcoming?hours=10&buckets=20")
    assert told["every_ms"] == HOUR // 2
    assert [count for _, count in told["buckets"]] == [1] * 20
    assert (told["overdue"], told["later"], told["total"]) == (0, 20, 40)
    assert told["exact_until_ms"] is None, "small hours are looked at closely"
    assert (await http.get("/v1/schedules/upcoming?topic=orders"))["total"] == 14
    await http.get("/v1/schedules/upcoming?hours=0", 400)


async def test_far_hours_are_counted_without_being_loaded(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_list, "LOADED_MAX", 0)
    told = await http.get("/v1/schedules/upcoming?hours=24&buckets=48")
    assert told["total"] == 40
    assert sum(count for _, count in told["buckets"]) + told["later"] == 40
    assert told["exact_until_ms"] > told["from_ms"]
    hours = [
        sum(count for at, count in told["buckets"] if start <= at < start + 2 * HOUR)
        for start in range(told["from_ms"], told["from_ms"] + 18 * HOUR, 2 * HOUR)
    ]
    assert all(2 <= count <= 6 for count in hours), hours


async def test_what_is_due_leaves_the_list(http: Http) -> None:
    clock = http.context.engine.clock
    clock.advance("2h")  # type: ignore[attr-defined]
    await http.context.broker.tick()
    assert await numbers(http) == list(range(4, 40))
