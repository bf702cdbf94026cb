"""REST over a real socket: every route, with what it should do and what it should refuse."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.http_server import Http, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Http]:
    async with serving() as http:
        yield http


@pytest_asyncio.fixture(loop_scope="module")
async def http(server: Http) -> AsyncIterator[Http]:
    """The one server of this module, with one topic; whatever a test made is deleted after it."""
    await server.post("/v1/topics", {"name": "orders", "partitions": 2}, 201)
    yield server
    for topic in (await server.get("/v1/topics"))["topics"]:
        await server.ask("DELETE", f"/v1/topics/{topic['name']}", 204)


# --- topics


async def test_topics_are_created_described_altered_purged_and_deleted(http: Http) -> None:
    made = await http.post(
        "/v1/topics", {"name": "bills", "partitions": 1, "retention": None, "ttl": "1h"}, 201
    )
    assert made["kind"] == "topic"
    assert made["config"]["retention_ms"] is None
    assert made["config"]["ttl_ms"] == 3_600_000
    assert [one["name"] for one in (await http.get("/v1/topics"))["topics"]] == ["orders", "bills"]
    altered = await http.ask("PATCH", "/v1/topics/bills", json={"partitions": 2, "backoff": {"first": "2s"}})
    assert len(altered["partitions"]) == 2
    assert altered["config"]["backoff"]["first_ms"] == 2000
    assert altered["config"]["ttl_ms"] == 3_600_000
    await http.post("/v1/topics/bills/publish", {"text": "a"})
    assert (await http.get("/v1/topics/bills"))["messages"] == 1
    assert len((await http.get("/v1/topics/bills/partitions"))["partitions"]) == 2
    assert await http.post("/v1/topics/bills/purge") == {"purged": 1}
    await http.ask("DELETE", "/v1/topics/bills", 204)
    assert (await http.get("/v1/topics/bills", 404))["code"] == "unknown_topic"


async def test_a_topic_that_exists_is_a_conflict_or_is_shown(http: Http) -> None:
    assert (await http.post("/v1/topics", {"name": "orders"}, 409))["code"] == "topic_exists"
    shown = await http.post("/v1/topics", {"name": "orders", "partitions": 9, "exist_ok": True}, 200)
    assert len(shown["partitions"]) == 2


async def test_a_queue_has_its_group(http: Http) -> None:
    given = {"name": "jobs", "kind": "queue", "partitions": 1, "group": {"lease": "5s"}}
    made = await http.post("/v1/topics", given, 201)
    assert made["kind"] == "queue"
    group = await http.get("/v1/topics/jobs/groups/jobs")
    assert group["config"]["lease_ms"] == 5000
    refused = await http.post("/v1/topics", {"name": "x", "group": {"lease": "5s"}}, 400)
    assert refused["code"] == "invalid_option"


# --- publish and read


async def test_content_comes_back_as_it_was_given(http: Http) -> None:
    binary = base64.b64encode(b"\xff\x00").decode()
    given = [
        {"value": {"a": [1, 2.50, "ü"]}, "key": "k", "headers": {"kind": "x"}},
        {"text": "plain words"},
        {"base64": binary, "key_base64": binary, "headers_base64": {"b": binary}},
        {"value": None},
        {"text": "null"},
    ]
    for one in given:
        await http.post("/v1/topics/orders/publish", {**one, "partition": 0})
    read = (await http.get("/v1/topics/orders/messages?partition=0"))["messages"]
    assert read[0]["value"] == {"a": [1, 2.5, "ü"]}
    assert (read[0]["key"], read[0]["headers"]) == ("k", {"kind": "x"})
    assert read[1]["text"] == "plain words"
    assert (read[2]["base64"], read[2]["key_base64"], read[2]["headers_base64"]) == (
        binary,
        binary,
        {"b": binary},
    )
    assert read[3]["value"] is None
    assert read[4]["text"] == "null"
    stored = await http.context.broker.topic("orders").read(partition=0)
    assert stored[0].value == b'{"a":[1,2.5,"\xc3\xbc"]}'
    shown = (await http.get("/v1/topics/orders/messages?partition=0&as=base64&limit=2"))["messages"]
    assert base64.b64decode(shown[1]["base64"]) == b"plain words"


async def test_json_is_stored_as_it_came(http: Http) -> None:
    raw = b'{"value": {"big": 12345678901234567890123, "x": 1.50} , "partition": 1}'
    await http.ask(
        "POST", "/v1/topics/orders/publish", content=raw, headers={"content-type": "application/json"}
    )
    stored = await http.context.broker.topic("orders").read()
    assert stored[0].value == b'{"big": 12345678901234567890123, "x": 1.50}'
    answer = await http.client.get("/v1/topics/orders/messages")
    assert b'{"big": 12345678901234567890123, "x": 1.50}' in answer.content


async def test_many_are_published_together_with_shared_options(http: Http) -> None:
    given = {
        "messages": [{"text": "a"}, {"text": "b", "key": "own"}],
        "key": "shared",
        "priority": "high",
        "durability": "written",
    }
    told = await http.post("/v1/topics/orders/publish", given)
    assert told["count"] == 2
    read = (await http.get("/v1/topics/orders/messages"))["messages"]
    assert sorted((one["text"], one["key"], one["priority"]) for one in read) == [
        ("a", "shared", "high"),
        ("b", "own", "high"),
    ]
    bad = {"messages": [{"text": "a"}, {"text": "b", "delay": "-1s"}]}
    assert (await http.post("/v1/topics/orders/publish", bad, 400))["code"] == "negative_delay"
    assert len((await http.get("/v1/topics/orders/messages"))["messages"]) == 2


async def test_raw_bytes_with_options_in_the_query(http: Http) -> None:
    told = await http.ask(
        "POST",
        "/v1/topics/orders/publish?key=k&priority=low&dedup_id=d1&header.kind=x&durability=written&partition=1",
        content=b"\x00raw",
        headers={"content-type": "application/octet-stream"},
    )
    assert told["partition"] == 1
    (read,) = (await http.get("/v1/topics/orders/messages"))["messages"]
    assert (read["key"], read["priority"], read["dedup_id"], read["headers"]) == (
        "k",
        "low",
        "d1",
        {"kind": "x"},
    )
    for query, code in (
        ("keys=k", "invalid_option"),
        ("partition=x", "invalid_option"),
        ("delay=x", "invalid_duration"),
    ):
        problem = await http.ask(
            "POST",
            f"/v1/topics/orders/publish?{query}",
            400,
            content=b"",
            headers={"content-type": "application/octet-stream"},
        )
        assert problem["code"] == code


async def test_a_duplicate_is_told(http: Http) -> None:
    first = await http.post("/v1/topics/orders/publish", {"text": "a", "dedup_id": "1"})
    second = await http.post("/v1/topics/orders/publish", {"text": "a", "dedup_id": "1"})
    assert second == {**first, "duplicate": True}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_input"),
        ({"value": 1, "text": "a"}, "invalid_input"),
        ({"base64": "%%%"}, "invalid_input"),
        ({"text": "a", "messages": [{"text": "b"}]}, "invalid_input"),
        ({"messages": []}, "bad_request"),
        ({"text": "a", "partition": -1}, "bad_request"),
        ({"text": "a", "priority": "none"}, "unknown_lane"),
        ({"text": "a", "delay": "soon"}, "invalid_duration"),
        ({"text": "a", "delay": "5s", "deliver_at": 0}, "invalid_option"),
        ({"text": "a", "headers": {"trine-x": "1"}}, "invalid_option"),
        ({"text": "a", "unknown": 1}, "bad_request"),
        ({"text": "a", "delay": "400d"}, "delay_too_long"),
        ({"text": "a", "producer": "a/b"}, "invalid_name"),
    ],
)
async def test_a_bad_message_is_refused(http: Http, body: dict[str, object], code: str) -> None:
    assert (await http.post("/v1/topics/orders/publish", body, 400))["code"] == code
    assert (await http.get("/v1/topics/orders"))["messages"] == 0


async def test_the_log_is_read_by_offset_and_time_with_a_long_poll(http: Http) -> None:
    for number in range(5):
        await http.post("/v1/topics/orders/publish", {"value": number, "partition": 0})
    page = await http.get("/v1/topics/orders/messages?partition=0&from_offset=1&limit=2")
    assert [one["value"] for one in page["messages"]] == [1, 2]
    assert (page["next_offset"], page["more"]) == (3, True)
    page = await http.get("/v1/topics/orders/messages?partition=0&from_offset=3&to_offset=4")
    assert [one["value"] for one in page["messages"]] == [3]
    start = (await http.get("/v1/topics/orders/messages"))["messages"][0]["timestamp"]
    assert len((await http.get("/v1/topics/orders/messages", params={"from_time": start}))["messages"]) == 5
    assert (await http.get("/v1/topics/orders/messages?to_time=2000-01-01T00:00:00Z"))["messages"] == []
    assert (await http.get("/v1/topics/orders/messages?from_offset=1", 400))["code"] == "invalid_option"
    assert (await http.get("/v1/topics/orders/messages?partition=7", 404))["code"] == "unknown_partition"
    waiting = asyncio.create_task(http.get("/v1/topics/orders/messages?partition=0&from_offset=5&wait=20s"))
    await listener(http.context.engine.reader_listeners)
    await http.post("/v1/topics/orders/publish", {"value": "late", "partition": 0})
    assert [one["value"] for one in (await waiting)["messages"]] == ["late"]


async def listener(listeners: set[object]) -> None:
    """Until somebody waits."""
    async with asyncio.timeout(10):
        while not listeners:
            await asyncio.sleep(0.005)


# --- groups


async def test_receive_ack_nack_reject_and_extend(http: Http) -> None:
    await http.post(
        "/v1/topics/orders/publish", {"messages": [{"value": n, "partition": 0} for n in range(4)]}
    )
    group = "/v1/topics/orders/groups/billing"
    got = (await http.post(f"{group}/receive", {"max": 10, "member": "w1"}))["messages"]
    assert [one["attempt"] for one in got] == [1] * 4
    first, second, third, fourth = (one["receipt"] for one in got)
    assert (await http.post(f"{group}/ack", {"receipts": [first]}))["count"] == 1
    assert (await http.post(f"{group}/nack", {"receipts": [second], "delay": 0, "reason": "later"}))[
        "count"
    ] == 1
    assert (await http.post(f"{group}/reject", {"receipts": [third], "reason": "bad"}))["count"] == 1
    assert (await http.post(f"{group}/extend", {"receipts": [fourth], "duration": "5m"}))["count"] == 1
    described = await http.get(group)
    assert described["members"][0]["name"] == "w1"
    assert (await http.get(f"{group}/members"))["members"][0]["in_flight"] == 1
    again = (await http.post(f"{group}/receive", {}))["messages"]
    assert [(one["value"], one["attempt"]) for one in again] == [(1, 2)]
    assert (await http.get(f"{group}/lag"))["count"] == 2
    letters = (await http.get("/v1/topics/orders/dead-letters"))["dead_letters"]
    assert [one["reason"] for one in letters] == ["bad"]


async def test_a_stale_receipt_does_not_keep_the_others(http: Http) -> None:
    await http.post(
        "/v1/topics/orders/publish", {"messages": [{"value": n, "partition": 0} for n in range(2)]}
    )
    group = "/v1/topics/orders/groups/billing"
    one, two = (await http.post(f"{group}/receive", {"max": 2}))["messages"]
    await http.post(f"{group}/ack", {"receipts": [one["receipt"]]})
    told = await http.post(f"{group}/ack", {"receipts": [one["receipt"], two["receipt"]]})
    assert told["count"] == 1
    assert [(bad["receipt"], bad["code"]) for bad in told["failed"]] == [(one["receipt"], "stale_receipt")]
    both = {"receipts": [one["receipt"], two["receipt"]]}
    assert (await http.post(f"{group}/ack", both, 409))["code"] == "stale_receipt"
    assert (await http.post(f"{group}/ack", {"receipts": ["nonsense"]}, 400))["code"] == "invalid_receipt"
    assert (await http.post(f"{group}/ack", {"receipts": []}, 400))["faults"][0]["field"] == "receipts"
    other = "/v1/topics/orders/groups/other"
    await http.post(f"{other}/receive", {})
    assert (await http.post(f"{other}/ack", both, 400))["code"] == "invalid_receipt"


async def test_a_receive_waits_for_a_message(http: Http) -> None:
    waiting = asyncio.create_task(http.post("/v1/topics/orders/groups/g/receive", {"wait": "20s"}))
    async with asyncio.timeout(10):
        while not (found := http.context.engine.topics["orders"].groups.get("g")) or not found.listeners:
            await asyncio.sleep(0.005)
    await http.post("/v1/topics/orders/publish", {"value": "at last"})
    assert [one["value"] for one in (await waiting)["messages"]] == ["at last"]
    refused = await http.post("/v1/topics/orders/groups/g/receive", {"wait": "2m"}, 400)
    assert refused["code"] == "invalid_option"


async def test_a_client_that_went_away_is_given_nothing(http: Http) -> None:
    reader, writer = await asyncio.open_connection(*http.address)
    body = b'{"wait": "30s", "member": "gone"}'
    writer.write(
        b"POST /v1/topics/orders/groups/g/receive HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (len(body), body)
    )
    async with asyncio.timeout(10):
        while not (group := http.context.engine.topics["orders"].groups.get("g")) or not group.listeners:
            await asyncio.sleep(0.005)
        writer.close()
        await writer.wait_closed()
        while group.listeners:
            await asyncio.sleep(0.005)
    await http.post("/v1/topics/orders/publish", {"value": 1})
    got = await http.post("/v1/topics/orders/groups/g/receive", {"member": "here", "wait": "5s"})
    assert [one["attempt"] for one in got["messages"]] == [1]
    del reader


async def test_groups_are_created_altered_steered_and_deleted(http: Http) -> None:
    groups = "/v1/topics/orders/groups"
    made = await http.post(groups, {"name": "g", "order": "key", "breaker": None, "lease": "10s"}, 201)
    assert (made["config"]["order"], made["config"]["lease_ms"], made["config"]["breaker"]) == (
        "key",
        10_000,
        None,
    )
    assert (await http.post(groups, {"name": "g"}, 409))["code"] == "group_exists"
    assert [one["name"] for one in (await http.get(groups))["groups"]] == ["g"]
    altered = await http.ask("PATCH", f"{groups}/g", json={"lease": "20s"})
    assert (altered["config"]["lease_ms"], altered["config"]["order"]) == (20_000, "key")
    await http.post(
        "/v1/topics/orders/publish", {"messages": [{"value": n, "partition": 0} for n in range(3)]}
    )
    assert (await http.post(f"{groups}/g/pause", {"reason": "lunch"}))["paused"] == "lunch"
    assert (await http.post(f"{groups}/g/receive", {}))["messages"] == []
    assert (await http.post(f"{groups}/g/resume"))["paused"] is None
    assert (await http.post(f"{groups}/g/seek", {"offset": 2, "partition": 0})) == {"offsets": {"0": 2}}
    got = (await http.post(f"{groups}/g/receive", {"max": 5}))["messages"]
    assert [one["offset"] for one in got] == [2]
    await http.post(f"{groups}/g/ack", {"receipts": [got[0]["receipt"]]})
    assert await http.post(f"{groups}/g/replay", {"from_time": "2020-01-01T00:00:00Z"}) == {"count": 3}
    for body in ({}, {"to": "earliest", "offset": 1}):
        assert (await http.post(f"{groups}/g/seek", body, 400))["code"] == "invalid_option"
    assert (await http.post(f"{groups}/none/seek", {"to": "earliest"}, 404))["code"] == "unknown_group"
    await http.ask("DELETE", f"{groups}/g", 204)
    assert (await http.get(f"{groups}/g", 404))["code"] == "unknown_group"


async def test_a_lease_outlives_the_silence_of_its_member(http: Http) -> None:
    """Nobody knows whether a silent HTTP consumer is at work: only the deadline ends its lease."""
    groups = "/v1/topics/orders/groups"
    await http.post(groups, {"name": "g", "lease": "10m", "member_timeout": "50ms"}, 201)
    await http.post("/v1/topics/orders/publish", {"value": 1})
    (got,) = (await http.post(f"{groups}/g/receive", {"member": "quiet"}))["messages"]
    group = http.context.engine.topics["orders"].groups["g"]
    engine = http.context.engine
    for _ in range(3):
        await asyncio.sleep(0.06)  # longer than the member may be silent: real time is what is tested
        with engine.lock:
            group.keep_members(engine.clock.now_ms())
            group.expire(engine.clock.now_ms())
    assert (await http.post(f"{groups}/g/receive", {"member": "other"}))["messages"] == []
    assert (await http.post(f"{groups}/g/ack", {"receipts": [got["receipt"]]}))["count"] == 1


# --- schedule


async def test_scheduled_messages_are_listed_moved_and_cancelled(http: Http) -> None:
    told = await http.post("/v1/topics/orders/publish", {"value": 1, "delay": "1h", "key": "k"})
    assert "partition" not in told
    schedule = told["schedule_id"]
    for path in ("/v1/schedules", "/v1/topics/orders/schedules"):
        (waiting,) = (await http.get(path))["schedules"]
        assert (waiting["id"], waiting["key"], waiting["value"]) == (schedule, "k", 1)
    await http.post(f"/v1/schedules/{schedule}/move", {"delay": "2h"})
    (moved,) = (await http.get("/v1/schedules"))["schedules"]
    assert moved["due_ms"] > waiting["due_ms"]
    assert (await http.post(f"/v1/schedules/{schedule}/move", {}, 400))["code"] == "invalid_option"
    await http.ask("DELETE", f"/v1/schedules/{schedule}", 204)
    assert (await http.ask("DELETE", f"/v1/schedules/{schedule}", 404))["code"] == "unknown_schedule"
    assert (await http.ask("DELETE", "/v1/schedules/nonsense", 404))["code"] == "unknown_schedule"


async def test_recurring_messages(http: Http) -> None:
    given = {"name": "nightly", "topic": "orders", "expression": "0 3 * * *", "message": {"value": {"n": 1}}}
    made = await http.post("/v1/crons", given, 201)
    assert made["fired"] == 0
    assert (await http.post("/v1/crons", given, 409))["code"] == "schedule_exists"
    assert (await http.post("/v1/crons", {**given, "name": "x", "expression": "?"}, 400))[
        "code"
    ] == "invalid_cron"
    assert [one["name"] for one in (await http.get("/v1/crons"))["crons"]] == ["nightly"]
    await http.ask("DELETE", "/v1/crons/nightly", 204)
    assert (await http.ask("DELETE", "/v1/crons/nightly", 404))["code"] == "unknown_schedule"


# --- dead letters


async def buried(http: Http, count: int) -> None:
    messages = [{"value": n, "key": f"k{n}", "partition": 0} for n in range(count)]
    await http.post("/v1/topics/orders/publish", {"messages": messages})
    group = "/v1/topics/orders/groups/g"
    got = (await http.post(f"{group}/receive", {"max": count}))["messages"]
    for number, one in enumerate(got):
        reason = "even" if number % 2 == 0 else "odd"
        await http.post(f"{group}/reject", {"receipts": [one["receipt"]], "reason": reason})


async def test_dead_letters_are_listed_shown_and_purged(http: Http) -> None:
    letters = "/v1/topics/orders/dead-letters"
    assert (await http.get(letters))["dead_letters"] == []
    await buried(http, 4)
    found = (await http.get(f"{letters}?reason=odd"))["dead_letters"]
    assert [(one["value"], one["group"], one["origin"]) for one in found] == [
        (1, "g", "orders/0/1"),
        (3, "g", "orders/0/3"),
    ]
    limited = await http.get(f"{letters}?limit=1")
    assert (len(limited["dead_letters"]), limited["more"]) == (1, True)
    assert [one["value"] for one in (await http.get(f"{letters}?key=k2"))["dead_letters"]] == [2]
    place = found[0]["id"].split("/")
    shown = await http.get(f"{letters}/{place[1]}/{place[2]}")
    assert shown["reason"] == "odd"
    assert (await http.get(f"{letters}/0/99", 404))["code"] == "unknown_message"
    assert (await http.get("/v1/topics/none/dead-letters", 404))["code"] == "unknown_topic"
    assert await http.post(f"{letters}/purge", {"reason": "odd"}) == {"purged": 2}
    assert (await http.get(f"{letters}/{place[1]}/{place[2]}", 404))["code"] == "unknown_message"
    assert await http.post(f"{letters}/purge") == {"purged": 2}


async def test_a_redrive_is_a_job(http: Http) -> None:
    letters = "/v1/topics/orders/dead-letters"
    assert (await http.post(f"{letters}/redrive", {}, 404))["code"] == "unknown_topic"
    await buried(http, 4)
    dry = await http.post(f"{letters}/redrive", {"reason": "even", "dry_run": True})
    assert sorted(one["value"] for one in dry["would_move"]) == [0, 2]
    assert len((await http.get(letters))["dead_letters"]) == 4
    begun = (await http.post(f"{letters}/redrive", {"reason": "even"}, 202))["job"]
    done = await ended(http, begun["id"])
    assert (done["state"], done["moved"], done["active"]) == ("done", 2, False)
    assert len((await http.get(letters))["dead_letters"]) == 2
    slow = (await http.post(f"{letters}/redrive", {"rate": 0.001}, 202))["job"]
    assert slow["active"]
    cancelled = await http.post(f"/v1/redrives/{slow['id']}/cancel")
    assert cancelled["state"] == "cancelled"
    assert (await http.post(f"/v1/redrives/{slow['id']}/cancel", status=409))["code"] == "conflict"
    assert (await http.post(f"/v1/redrives/{slow['id']}/resume"))["state"] == "cancelled"
    assert {begun["id"], slow["id"]} <= {one["id"] for one in (await http.get("/v1/redrives"))["redrives"]}
    assert (await http.get("/v1/redrives/redrive-99", 404))["code"] == "unknown_job"


async def ended(http: Http, job: str) -> dict[str, object]:
    async with asyncio.timeout(10):
        while True:
            told: dict[str, object] = await http.get(f"/v1/redrives/{job}")
            if told["state"] != "running" and not told["active"]:
                return told
            await asyncio.sleep(0.01)


# --- traces and numbers


async def test_traces_and_search(http: Http) -> None:
    told = await http.post("/v1/topics/orders/publish", {"value": 1, "key": "k"})
    await http.post("/v1/topics/orders/groups/g/receive", {"member": "w"})
    for path in (told["id"], told["id"].replace("/", "%2F")):
        trace = await http.get(f"/v1/traces/{path}")
        assert [event["what"] for event in trace["events"]][:2] == ["PUBLISHED", "DELIVERED"]
        assert trace["groups"]["g"]["state"] == "in flight"
    later = await http.post("/v1/topics/orders/publish", {"value": 1, "delay": "1h"})
    assert (await http.get(f"/v1/traces/{later['id']}"))["schedule_id"] == later["id"]
    found = (await http.get("/v1/traces?topic=orders&group=g&state=unacked"))["found"]
    assert [(one["message_id"], one["member"]) for one in found] == [(told["id"], "w")]
    assert len((await http.get("/v1/traces?topic=orders&key=k"))["found"]) == 1
    assert (await http.get("/v1/traces/nonsense", 404))["code"] == "unknown_message"
    assert (await http.get("/v1/traces", 400))["faults"][0]["field"] == "topic"


async def test_the_simple_calls(http: Http) -> None:
    await http.post("/topics", {"name": "simple", "partitions": 1}, 201)
    for number in range(3):
        await http.post("/produce", {"topic": "simple", "value": number})
    await http.post("/produce", {"topic": "simple", "messages": [{"value": 3, "delay": "1h"}]})
    got = (await http.get("/consume?topic=simple&group=g&max=2"))["messages"]
    assert [one["value"] for one in got] == [0, 1]
    assert (await http.post("/ack", {"receipt": got[0]["receipt"]}))["count"] == 1
    await http.post("/v1/topics/simple/groups/g/nack", {"receipts": [got[1]["receipt"]], "delay": "1h"})
    told = await http.get("/dashboard")
    assert told["topics"]["simple"] == {
        "pending": 2, "in_flight": 0, "acked": 1, "failed": 1, "dead_lettered": 0, "scheduled": 1,
    }  # fmt: skip
    assert told["totals"]["acked"] == 1
    assert (await http.post("/ack", {}, 400))["code"] == "invalid_input"
    assert (await http.post("/ack", {"receipt": "x"}, 400))["code"] == "invalid_receipt"
    assert (await http.get("/consume?topic=simple", 400))["faults"][0]["field"] == "group"
    assert (await http.get("/consume?topic=none&group=g", 404))["code"] == "unknown_topic"


async def test_operators_questions(http: Http) -> None:
    assert await http.get("/health") == {"status": "alive"}
    assert (await http.get("/ready"))["state"] == "ready"
    assert (await http.get("/version"))["name"] == "trine"
    await http.post("/v1/topics/orders/publish", {"value": 1})
    answer = await http.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'trine_topic_published_messages_total{topic="orders"} 1.0' in answer.text
    told = await http.get("/v1/statistics")
    assert told["counters"]["topics"]["orders"]["published"] == 1
    assert "journal" in told["store"]
    for path in ("/health", "/ready"):
        assert (await http.client.head(path)).status_code == 200
        assert (await http.post(path, status=405))["code"] == "method_not_allowed"
