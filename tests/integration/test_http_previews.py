"""What a preview says is what then happens; and how members came and went."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.http_server import Http, serving

G = "/v1/topics/orders/groups/g"


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    """A group with messages of every kind: acked in and out of order, leased, retrying, replayed, new."""
    async with serving() as http:
        await http.post("/v1/topics", {"name": "orders", "partitions": 2}, 201)
        await http.post("/v1/topics/orders/groups", {"name": "g", "max_deliveries": 1}, 201)
        for key in ("a", "b"):
            for start in (0, 20):
                messages = [{"value": n, "key": f"{key}{n % 3}"} for n in range(start, start + 20)]
                await http.post("/v1/topics/orders/publish", {"messages": messages})
        got = (await http.post(f"{G}/receive", {"max": 50}))["messages"]
        receipts = [one["receipt"] for one in got]
        await http.post(f"{G}/ack", {"receipts": receipts[:20] + receipts[25:35]})
        await http.post(f"{G}/reject", {"receipts": receipts[20:22], "reason": "bad"})
        await http.post(f"{G}/replay", {"key": "a1"})
        yield http


async def lag(http: Http) -> Any:
    return await http.get(f"{G}/lag")


SEEKS: list[dict[str, Any]] = [
    {"to": "earliest"},
    {"to": "latest"},
    {"offset": 7, "partition": 1},
    {"offset": 3, "partition": 0},
    {"offset": 10_000, "partition": 0},
    {"time": "2020-01-01T00:00:00Z"},
    {"time": "2099-01-01T00:00:00Z"},
]


@pytest.mark.parametrize("where", SEEKS)
async def test_a_seek_does_what_its_preview_said(http: Http, where: dict[str, Any]) -> None:
    before = await lag(http)
    told = await http.post(f"{G}/seek?dry_run=true", where)
    assert await lag(http) | {"age_ms": 0, "ages_ms": 0} == before | {"age_ms": 0, "ages_ms": 0}, (
        "it changed nothing"
    )
    assert told["says"].endswith(".")
    offsets = (await http.post(f"{G}/seek", where))["offsets"]
    after = await lag(http)
    assert after["count"] == before["count"] + told["messages_again"] - told["messages_skipped"]
    assert after["in_flight"] == before["in_flight"] - told["in_flight_returned"]
    assert {str(one["partition"]): one["to"] for one in told["partitions"]} == offsets
    for one in told["partitions"]:
        number = str(one["partition"])
        change = after["partitions"][number] - before["partitions"][number]
        assert change == one["again"] - one["skipped"]
    assert told["messages_again"] == sum(one["again"] for one in told["partitions"])
    again = await http.post(f"{G}/seek?dry_run=true", where)
    assert (again["messages_again"], again["messages_skipped"], again["in_flight_returned"]) == (0, 0, 0)


@pytest.mark.parametrize(
    "what",
    [
        {"failed": True},
        {"key": "b0"},
        {"from_time": "2020-01-01T00:00:00Z"},
        {"to_time": "2020-01-01T00:00:00Z"},
    ],
)
async def test_a_replay_does_what_its_preview_said(http: Http, what: dict[str, Any]) -> None:
    before = await lag(http)
    told = await http.post(f"{G}/replay?dry_run=true", what)
    assert (await lag(http))["count"] == before["count"]
    assert (await http.post(f"{G}/replay", what))["count"] == told["messages_again"]
    assert (await lag(http))["count"] == before["count"] + told["messages_again"]
    if "failed" in what:
        assert told["messages_again"] == 2


async def test_pause_and_resume_say_what_they_would_do(http: Http) -> None:
    count = await lag(http)
    told = await http.post(f"{G}/pause?dry_run=true", {"reason": "night"})
    assert f"{count['in_flight']} in flight can still be settled by 1 member." in told["says"]
    assert (await http.get(G))["paused"] is None
    assert "nothing would change" in (await http.post(f"{G}/resume?dry_run=true"))["says"]
    await http.post(f"{G}/pause", {"reason": "night"})
    assert "paused already: night" in (await http.post(f"{G}/pause?dry_run=true"))["says"]
    told = await http.post(f"{G}/resume?dry_run=true")
    assert told["says"].startswith(f"{count['count'] - count['in_flight']} messages could be delivered")
    assert (await http.get(G))["paused"] == "night"
    for verb in ("seek", "replay", "pause", "resume"):
        body = {"seek": {"to": "latest"}, "replay": {"failed": True}}.get(verb)
        path = f"/v1/topics/orders/groups/none/{verb}?dry_run=true"
        assert (await http.post(path, body, 404))["code"] == "unknown_group"
    assert (await http.get("/v1/topics/orders/groups"))["groups"][0]["name"] == "g", "no group was made"


async def test_a_group_says_who_is_in_it_and_how_old_its_lag_is(http: Http) -> None:
    told = await http.get(G)
    (member,) = told["members"]
    assert member["seen_ms"] > 1_600_000_000_000
    assert set(told["lag"]["ages_ms"]) == {"0", "1"}
    assert told["lag"]["age_ms"] == max(told["lag"]["ages_ms"].values())


async def test_rebalances_are_told_newest_first(http: Http) -> None:
    await http.ask("PATCH", G, json={"member_timeout": "1s"})
    await http.post(f"{G}/seek", {"to": "latest"})  # what nobody holds keeps nobody
    await http.post(f"{G}/receive", {"member": "ann"})
    async with asyncio.timeout(30):
        while (told := (await http.get(f"{G}/rebalances"))["rebalances"])[0]["left"] == []:
            await asyncio.sleep(0.05)
    joined = next(one for one in told if one["joined"] == ["ann"])
    assert joined["why"] == "ann joined"
    assert joined["pause_ms"] == 0
    assert [one["generation"] for one in told] == sorted((one["generation"] for one in told), reverse=True)
    await http.get("/v1/topics/orders/groups/none/rebalances", 404)
