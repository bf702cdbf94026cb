"""Dead letters over HTTP as the dashboard uses them: pages, counts, one edited, many named, tried before it is done."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.http_server import Http, serving
from trine.server.http import letter_counts, redrives, search

LETTERS = "/v1/topics/orders/dead-letters"
G = "/v1/topics/orders/groups/g"


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with serving() as http:
        await http.post("/v1/topics", {"name": "orders", "partitions": 2}, 201)
        await bury(http, range(30))
        yield http


async def bury(http: Http, numbers: range) -> None:
    messages = [{"value": {"n": n}, "key": f"k{n}", "headers": {"kind": "x"}} for n in numbers]
    await http.post("/v1/topics/orders/publish", {"messages": messages})
    for one in (await http.post(f"{G}/receive", {"max": len(numbers)}))["messages"]:
        reason = "late" if one["value"]["n"] % 3 == 0 else "odd"
        await http.post(f"{G}/reject", {"receipts": [one["receipt"]], "reason": reason})


async def letters(http: Http, query: str = "") -> list[dict[str, Any]]:
    """All of them, page by page."""
    cursor, found = "", []
    for _ in range(200):
        told = await http.get(f"{LETTERS}?{query}{cursor}")
        assert told["more"] == (told["cursor"] is not None)
        found += told["dead_letters"]
        if not told["more"]:
            return found
        cursor = f"&cursor={told['cursor']}"
    raise AssertionError("the list does not end")


async def numbers(http: Http, query: str = "") -> list[int]:
    return [one["value"]["n"] for one in await letters(http, query)]


async def test_letters_come_in_pages_both_ways(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    every = await letters(http)
    assert len(every) == 30
    assert {"reason", "group", "attempts", "origin", "failed", "size"} <= set(every[0])
    assert sorted(await numbers(http, "limit=7")) == list(range(30))
    assert sorted(await numbers(http, "limit=7&direction=backward")) == list(range(30))
    assert sorted(await numbers(http, "reason=late&limit=4")) == list(range(0, 30, 3))
    assert await numbers(http, "text=%22n%22:17}") == [17]
    assert await numbers(http, "key=k9") == [9]
    monkeypatch.setattr(search, "DECODED_MAX", 3)
    assert sorted(await numbers(http, "reason=late")) == list(range(0, 30, 3))
    cut = await letters(http, "preview=3&limit=1&as=text")
    assert (cut[0]["text"], cut[0]["cut"]) == ('{"n', True)


async def test_letters_are_counted_by_reason_and_by_time(http: Http) -> None:
    told = await http.get("/v1/dead-letters/summary")
    assert (told["total"], told["complete"]) == (30, True)
    rows = [(one["topic"], one["group"], one["reason"], one["count"]) for one in told["by_reason"]]
    assert rows == [("orders", "g", "odd", 20), ("orders", "g", "late", 10)]
    assert told["by_reason"][0]["last_at_ms"] > told["from_ms"]
    assert len(told["counts"]) == 48
    assert sum(count for _, count in told["counts"]) == 30
    assert told["counts"][-1][1] + told["counts"][-2][1] == 30, "they were given up just now"
    await http.post(f"{LETTERS}/purge", {"reason": "late"})
    await bury(http, range(100, 101))
    told = await http.get("/v1/dead-letters/summary?window=1h&buckets=6&topic=orders")
    assert told["total"] == 21
    assert (await http.get("/v1/dead-letters/summary?topic=other"))["total"] == 0
    for wrong in ("window=8d", "window=10s", "buckets=0", "window=1h&buckets=100"):
        await http.get(f"/v1/dead-letters/summary?{wrong}", 400)


async def test_counting_goes_on_where_it_stopped(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_counts, "READ_MAX", 7)
    seen = []
    for _ in range(20):
        told = await http.get("/v1/dead-letters/summary")
        seen.append(told["total"])
        if told["complete"]:
            break
    assert seen[-1] == 30
    assert seen == sorted(seen)
    assert len(seen) > 3


async def test_reasons_without_end_are_counted_together(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_counts, "REASONS_MAX", 1)
    told = await http.get("/v1/dead-letters/summary")
    assert told["total"] == 30
    assert "(others)" in {one["reason"] for one in told["by_reason"]}


async def test_a_dry_run_begins_nothing_and_says_what_would_move(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "DECODED_MAX", 4)
    told = await http.post(f"{LETTERS}/redrive", {"reason": "late", "dry_run": True})
    assert (told["matched"], told["complete"], len(told["would_move"])) == (10, True, 10)
    assert (await http.get("/v1/redrives"))["redrives"] == []
    ids = [one["id"] for one in told["would_move"]][:3]
    named = await http.post(f"{LETTERS}/redrive", {"ids": ids, "dry_run": True})
    assert [one["id"] for one in named["would_move"]] == sorted(ids)
    monkeypatch.setattr(redrives, "DRY_LOOKED_MAX", 8)
    assert (await http.post(f"{LETTERS}/redrive", {"dry_run": True}))["complete"] is False
    begun = (await http.post(f"{LETTERS}/redrive", {"reason": "late"}, 202))["job"]
    done = await ended(http, begun["id"])
    assert done["moved"] == 10, "as the dry run said"


async def test_named_letters_are_redriven_as_a_job(http: Http) -> None:
    chosen = [one for one in await letters(http) if one["value"]["n"] < 5]
    begun = (await http.post(f"{LETTERS}/redrive", {"ids": [one["id"] for one in chosen]}, 202))["job"]
    done = await ended(http, begun["id"])
    assert (done["state"], done["moved"], done["of"]) == ("done", 5, 5)
    assert sorted(await numbers(http)) == list(range(5, 30))
    slow = (
        await http.post(f"{LETTERS}/redrive", {"ids": [(await letters(http))[0]["id"]], "rate": 0.001}, 202)
    )["job"]
    assert (slow["rate"], slow["to"], slow["active"]) == (0.001, None, True)
    assert (await http.post(f"/v1/redrives/{slow['id']}/cancel"))["state"] == "cancelled"
    assert len(await letters(http)) == 25


async def test_one_letter_is_edited_and_sent(http: Http) -> None:
    one = next(one for one in await letters(http) if one["value"]["n"] == 3)
    edit = {"value": {"n": 3, "big": 123456789012345678901234567890}, "headers": {"fixed": "yes"}}
    told = await http.post(f"{LETTERS}/redrive", {"ids": [one["id"]], "edit": edit})
    assert (told["job"]["state"], told["job"]["moved"]) == ("done", 1)
    (got,) = (await http.post(f"{G}/receive", {"max": 10}))["messages"]
    assert got["headers"] == {"fixed": "yes"}
    assert got["key"] == "k3"
    shown = await http.get(f"/v1/topics/{got['topic']}/messages/{got['partition']}/{got['offset']}?as=text")
    assert "123456789012345678901234567890" in shown["text"], "stored as it came"
    again = await http.post(f"{LETTERS}/redrive", {"ids": [one["id"]], "edit": edit}, 404)
    assert again["code"] == "unknown_message"
    other = next(one for one in await letters(http) if one["value"]["n"] == 4)
    await http.post("/v1/topics", {"name": "elsewhere", "partitions": 1}, 201)
    blob = base64.b64encode(b"\xff\x00").decode()
    await http.post(
        f"{LETTERS}/redrive",
        {"ids": [other["id"]], "to": "elsewhere", "edit": {"base64": blob, "key": "new"}},
    )
    (moved,) = (await http.get("/v1/topics/elsewhere/messages"))["messages"]
    assert (moved["base64"], moved["key"], moved["headers"]) == (blob, "new", {"kind": "x"})
    trace = await http.get(f"/v1/traces/{other['id']}")
    assert "REDRIVEN" in [event["what"] for event in trace["events"]]


async def test_an_edit_of_many_is_refused(http: Http) -> None:
    ids = [one["id"] for one in (await letters(http))[:2]]
    for body in (
        {"ids": ids, "edit": {"text": "x"}},
        {"edit": {"text": "x"}},
        {"ids": ids, "reason": "late"},
        {"ids": []},
        {"ids": ids[:1], "edit": {"text": "x", "value": 1}},
        {"ids": ids[:1], "edit": {"colour": 1}},
    ):
        await http.post(f"{LETTERS}/redrive", body, 400)
    await http.post(f"{LETTERS}/redrive", {"ids": ["orders/0/0"]}, 404)
    assert len(await letters(http)) == 30


async def test_letters_are_purged_by_id_and_by_what_they_are(http: Http) -> None:
    ids = [one["id"] for one in await letters(http, "reason=late")]
    assert await http.post(f"{LETTERS}/purge", {"ids": ids[:2]}) == {"purged": 2}
    assert await http.post(f"{LETTERS}/purge", {"ids": ids[:2]}) == {"purged": 0}
    assert await http.post(f"{LETTERS}/purge", {"reason": "late"}) == {"purged": 8}
    assert await http.post(f"{LETTERS}/purge", {"key": "k1", "group": "g"}) == {"purged": 1}
    assert await http.post(f"{LETTERS}/purge", {"group": "nobody"}) == {"purged": 0}
    await http.post(f"{LETTERS}/purge", {"ids": ids, "reason": "x"}, 400)
    assert len(await letters(http)) == 19


async def test_reading_dead_letters_changes_nothing(http: Http) -> None:
    await http.post("/v1/topics", {"name": "other", "partitions": 1}, 201)
    await http.post("/v1/topics/other/publish", {"value": 1})
    (got,) = (await http.post("/v1/topics/other/groups/g/receive", {}))["messages"]
    await http.post("/v1/topics/other/groups/g/reject", {"receipts": [got["receipt"]]})
    end = http.context.engine.store.end_lsn
    (one,) = (await http.get("/v1/topics/other/dead-letters"))["dead_letters"]
    await http.get("/v1/dead-letters/summary")
    await http.get(f"/v1/topics/other/dead-letters/{one['partition']}/{one['offset']}")
    assert http.context.engine.store.end_lsn == end


async def ended(http: Http, job: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (told := await http.get(f"/v1/redrives/{job}"))["active"]:
            await asyncio.sleep(0.01)
    return told
