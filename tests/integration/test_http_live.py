"""The first look, the lists in a line each, and what is looked at for them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http_server import Http, config, serving
from trine.server.http import sampler, vitals
from trine.server.http.sampler import RING_FIELDS, Sampler
from trine.server.keys import create_key


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with serving() as http:
        yield http


async def live(http: Http, query: str = "", **more: Any) -> AsyncIterator[dict[str, Any]]:
    async with http.client.stream("GET", f"/v1/live{query}", **more) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        kind = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                assert kind == "live", line
                yield json.loads(line.removeprefix("data: "))


async def first(http: Http, query: str = "", **more: Any) -> dict[str, Any]:
    async for one in live(http, query, **more):
        return one
    raise AssertionError("the stream ended")


async def fill(http: Http, topic: str, messages: int = 10, group: str = "g") -> None:
    await http.post("/v1/topics", {"name": topic, "partitions": 2}, 201)
    await http.post(f"/v1/topics/{topic}/groups", {"name": group}, 201)
    await http.post(f"/v1/topics/{topic}/publish", {"messages": [{"value": n} for n in range(messages)]})


async def test_the_first_look_counts_what_there_is(http: Http) -> None:
    await fill(http, "orders")
    got = (await http.post("/v1/topics/orders/groups/g/receive", {"max": 6}))["messages"]
    receipts = [one["receipt"] for one in got]
    await http.post("/v1/topics/orders/groups/g/ack", {"receipts": receipts[:2]})
    await http.post("/v1/topics/orders/groups/g/reject", {"receipts": receipts[2:3], "reason": "bad"})
    await http.post("/v1/topics/orders/groups/g/nack", {"receipts": receipts[3:4], "delay": "1h"})
    await http.post("/v1/topics/orders/publish", {"value": 1, "delay": "1h"})
    await http.post("/v1/topics", {"name": "quiet"}, 201)
    look = await first(http, "?topics=orders,none,quiet&groups=1")
    expected = {
        "acked": 2, "failed": 1, "dead_lettered": 1, "in_flight": 2, "lag": 7, "pending": 5, "scheduled": 1,
        "messages": 10,
    }  # fmt: skip
    assert look["totals"] | expected == look["totals"]
    assert set(look["topics"]) == {"orders", "quiet"}
    assert look["topics"]["orders"] | {"lag": 7, "dead_letters": 1, "groups": 1} == look["topics"]["orders"]
    assert [one["name"] for one in look["top"]] == ["orders", "quiet"]
    (group,) = look["groups"]
    assert group | {"topic": "orders", "group": "g", "lag": 7, "members": 1, "retrying": 1} == group
    broker = look["broker"]
    assert broker["ready"]
    assert broker["memory_bytes"] > 10_000_000
    assert broker["connections"] >= 1
    assert broker["disk_free_bytes"] is None, "a store in memory has no disk"
    assert broker["data_bytes"] > 0
    assert (await first(http))["groups"] == []


async def test_rates_are_of_the_last_second(http: Http) -> None:
    await fill(http, "orders", 0 + 1)
    events = live(http)
    await anext(events)
    await http.post("/v1/topics/orders/publish", {"messages": [{"value": n} for n in range(500)]})
    async with asyncio.timeout(20):
        async for one in events:
            if one["totals"]["published_rate"]:
                break
        async for one in events:
            if not one["totals"]["published_rate"]:
                break
    told = await http.get("/v1/history")
    assert told["fields"] == RING_FIELDS
    rates = [dict(zip(told["fields"], one, strict=True))["published_rate"] for one in told["samples"]]
    assert max(rates) > 0
    assert rates[-1] == 0
    times = [one[0] for one in told["samples"]]
    assert times == sorted(times)


async def test_the_ring_is_bounded(http: Http) -> None:
    looks: Sampler = http.server._http.app.shared.sampler  # type: ignore[union-attr]
    for _ in range(sampler.RING_MAX + 5):
        looks.tick()
    assert len((await http.get("/v1/history"))["samples"]) == sampler.RING_MAX


async def test_what_did_not_change_is_not_looked_at_again(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await fill(http, f"t{number}")
    looks: Sampler = http.server._http.app.shared.sampler  # type: ignore[union-attr]
    await looks.refresh()
    made: list[str] = []
    real = sampler._row
    monkeypatch.setattr(sampler, "_row", lambda topic, *more: made.append(topic.name) or real(topic, *more))
    monkeypatch.setattr(sampler, "ALL_EVERY_S", 1e9)
    before = len(made)
    await looks.refresh()
    assert len(made) == before
    await http.post("/v1/topics/t1/publish", {"value": 1})
    looks._good_s = 0
    await looks.refresh()
    assert set(made) == {"t1"}
    assert looks.rows["t1"].messages == 11


async def test_what_is_not_well_is_told(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await first(http))["broker"]["health"] == [{"level": "ok", "what": "All is well.", "where": None}]
    await fill(http, "orders")
    await http.post("/v1/topics/orders/groups/g/pause", {"reason": "by night"})
    await http.post("/v1/topics", {"name": "small", "depth_max": 2, "partitions": 1}, 201)
    await http.post("/v1/topics/small/groups", {"name": "g"}, 201)
    await http.post("/v1/topics/small/publish", {"messages": [{"value": 1}, {"value": 2}]})
    told = (await first(http))["broker"]["health"]
    assert (told[0]["level"], told[0]["where"]) == ("bad", "small")
    assert ("warn", "orders/g") in [(one["level"], one["where"]) for one in told]
    monkeypatch.setattr(vitals, "HEALTH_MAX", 1)
    assert len((await first(http, "?groups=1"))["broker"]["health"]) == 1


def test_a_full_disk_is_told() -> None:
    gib = 2**30
    assert [one.level for one in vitals._disk_findings(100 * gib, 0, 50 * gib)] == []
    assert [one.level for one in vitals._disk_findings(100 * gib, 0, 5 * gib)] == ["warn"]
    assert [one.level for one in vitals._disk_findings(100 * gib, 0, gib // 8)] == ["bad"]


async def test_a_key_sees_its_topics_only(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.yaml")
    root, guest = create_key(file, role="admin"), create_key(file, role="read-only", topics=["orders*"])
    async with serving(config(keys_file=file)) as http:
        http.client.headers["x-api-key"] = root
        await fill(http, "orders", 3)
        await fill(http, "secret", 7)
        await http.post("/v1/topics/secret/groups/g/pause", {})
        seen = {"headers": {"x-api-key": guest}}
        look = await first(http, "?topics=orders,secret&groups=1", **seen)
        assert look["totals"]["messages"] == 3
        assert "secret" not in json.dumps(look)
        assert look["broker"]["health"][0]["level"] == "ok"
        assert (await http.get("/v1/history", **seen))["samples"] == []
        assert [one["name"] for one in (await http.get("/v1/topic-summaries", **seen))["topics"]] == [
            "orders"
        ]
        assert [one["topic"] for one in (await http.get("/v1/groups", **seen))["groups"]] == ["orders"]
        assert (await first(http))["totals"]["messages"] == 10


async def test_too_many_names_are_refused(http: Http) -> None:
    names = ",".join(f"t{number}" for number in range(51))
    assert "50" in (await http.get(f"/v1/live?topics={names}", 400))["detail"]


# --- lists


async def test_topics_are_filtered_sorted_and_cut_into_pages(http: Http) -> None:
    for number, name in enumerate(("alpha", "beta", "gamma", "alphabet")):
        await fill(http, name, number + 1)

    async def names(query: str = "") -> list[str]:
        return [one["name"] for one in (await http.get(f"/v1/topic-summaries{query}"))["topics"]]

    assert await names() == ["alpha", "alphabet", "beta", "gamma"]
    assert await names("?order=desc") == ["gamma", "beta", "alphabet", "alpha"]
    assert await names("?sort=lag") == ["alphabet", "gamma", "beta", "alpha"]
    assert await names("?sort=messages&order=asc") == ["alpha", "beta", "gamma", "alphabet"]
    assert await names("?filter=ALPHA") == ["alpha", "alphabet"]
    assert await names("?filter=*a") == ["alpha", "beta", "gamma"]
    assert await names("?offset=1&limit=2") == ["alphabet", "beta"]
    told = await http.get("/v1/topic-summaries?limit=1&filter=alpha")
    assert told["total"] == 2
    (one,) = told["topics"]
    assert one["lanes"] == {"high": 0, "normal": 1, "low": 0}
    assert one["size_bytes"] > 0
    for sort in ("name", "rate", "depth", "size", "lag", "messages", "partitions", "dead_letters"):
        assert len(await names(f"?sort={sort}")) == 4
    assert (await http.get("/v1/topic-summaries?sort=colour", 400))["faults"][0]["field"] == "sort"
    assert (await http.get("/v1/topic-summaries?limit=1001", 400))["faults"][0]["field"] == "limit"


async def test_groups_of_all_topics_are_listed(http: Http) -> None:
    await fill(http, "orders", 3, "billing")
    await fill(http, "mail", 5, "sender")
    await http.post("/v1/topics/orders/groups/billing/receive", {"max": 2})
    told = await http.get("/v1/groups?sort=lag")
    assert [(one["topic"], one["group"], one["lag"]) for one in told["groups"]] == [
        ("mail", "sender", 5),
        ("orders", "billing", 3),
    ]
    assert told["groups"][1]["in_flight"] == 2
    assert told["groups"][0]["lag_age_ms"] >= 0
    assert (await http.get("/v1/groups?filter=bill"))["total"] == 1
    assert (await http.get("/v1/groups?filter=mail"))["total"] == 1
    assert (await http.get("/v1/groups?topic=mail"))["groups"][0]["group"] == "sender"
    for sort in ("name", "lag", "in_flight", "rate", "members"):
        assert (await http.get(f"/v1/groups?sort={sort}&limit=1"))["total"] == 2


async def test_a_partition_says_what_waits_in_it(http: Http) -> None:
    await http.post("/v1/topics", {"name": "orders", "partitions": 2}, 201)
    await http.post("/v1/topics/orders/groups", {"name": "g"}, 201)
    before = time.time() * 1000 - 1
    for lane in ("high", "low", "low"):
        await http.post("/v1/topics/orders/publish", {"value": 1, "priority": lane, "partition": 1})
    empty, full = (await http.get("/v1/topics/orders/partitions"))["partitions"]
    assert (empty["first_time_ms"], empty["last_time_ms"], empty["next_offset"]) == (None, None, 0)
    assert before <= full["first_time_ms"] <= full["last_time_ms"] <= time.time() * 1000 + 1
    assert full["lanes"] == {"high": 1, "normal": 0, "low": 2}
    assert full["groups"] == {"g": {"lag": 3, "in_flight": 0, "retrying": 0, "lanes": full["lanes"]}}
    await http.get("/v1/topics/none/partitions", 404)


async def test_a_large_store_is_looked_at_less_often_while_nobody_looks(http: Http) -> None:
    looks: Sampler = http.server._http.app.shared.sampler  # type: ignore[union-attr]
    looks._spent_s = 1.0  # as if there were a million partitions
    looks._asked = time.monotonic()
    await asyncio.wait_for(looks._rest(), 10)  # somebody looks: at once
    looks._asked = -1e9
    resting = asyncio.create_task(looks._rest())
    async with asyncio.timeout(20):
        await asyncio.sleep(0)
        assert not resting.done()
        looks.watched()
        await resting
