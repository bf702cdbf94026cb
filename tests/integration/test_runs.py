"""Runs of Spark's commands, as they are told to a broker: embedded, over the wire, and looked at over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import trine
from tests.integration.conftest import OpenBroker
from tests.integration.http_server import config, serving
from trine import SimulatedClock, errors
from trine.broker import runs
from trine.server.keys import create_key


def test_a_run_is_told_and_remembered(broker: Any, clock: SimulatedClock) -> None:
    first = broker.begin_run("archive", "/lake/orders", ["orders"])
    clock.advance("10s")
    broker.tell_run(first, 500)
    (seen,) = broker.runs()
    assert (seen.id, seen.state, seen.rows, seen.topics) == (first, "running", 500, ["orders"])
    assert seen.heard_ms == seen.began_ms + 10_000
    clock.advance("5s")
    broker.end_run(first, rows=900, summary={"commits": 3, "path": Path("/lake")})
    ended = broker.run(first)
    assert (ended.state, ended.rows, ended.ended_ms) == ("ended", 900, ended.began_ms + 15_000)
    assert json.loads(ended.summary) == {"commits": 3, "path": "/lake"}
    second = broker.begin_run("report", "weekly")
    broker.end_run(second, error="no such column", report={"lag": [[1, 2]]})
    assert [(one.id, one.state, one.error) for one in broker.runs()] == [
        (second, "failed", "no such column"),
        (first, "ended", None),
    ]
    assert [one.report for one in broker.runs()] == [None, None]
    assert broker.run(second).report == '{"lag":[[1,2]]}'
    assert [one.id for one in broker.runs(kind="archive")] == [first]
    assert len(broker.runs(limit=1)) == 1


def test_a_run_that_falls_silent_is_lost_until_it_speaks(broker: Any, clock: SimulatedClock) -> None:
    run = broker.begin_run("archive", "x", ["orders"])
    clock.advance(f"{runs.SILENT_MS}ms")
    assert broker.run(run).state == "running"
    clock.advance("1ms")
    assert broker.run(run).state == "lost"
    broker.tell_run(run, 7)
    assert broker.run(run).state == "running"
    broker.end_run(run, rows=8)
    clock.advance("1d")
    assert broker.run(run).state == "ended"


def test_runs_survive_a_restart(open_broker: OpenBroker, tmp_path: Path, clock: SimulatedClock) -> None:
    path = str(tmp_path / "data")
    with open_broker(path, clock=clock) as broker:
        done = broker.begin_run("report", "a")
        broker.end_run(done, rows=3, summary={"n": 1}, report={"r": 2})
        left = broker.begin_run("archive", "b")
        broker.tell_run(left, 5)
        broker.checkpoint()
        late = broker.begin_run("traces", "c")  # only in the journal
    clock.advance("1h")
    with open_broker(path, clock=clock) as broker:
        assert [(one.id, one.state) for one in broker.runs()] == [
            (late, "running"),
            (left, "running"),
            (done, "ended"),
        ], "who was under way has its time to speak again"
        assert broker.run(done).report == '{"r":2}'
        clock.advance("2m")
        assert [one.state for one in broker.runs()] == ["lost", "lost", "ended"]
        assert broker.begin_run("archive", "d") not in (done, left, late)


def test_what_cannot_be_told_is_refused(broker: Any) -> None:
    with pytest.raises(errors.InvalidOption, match="no kind of run"):
        broker.begin_run("lunch", "x")
    run = broker.begin_run("archive", "x")
    with pytest.raises(errors.InvalidOption, match="tell less"):
        broker.end_run(run, summary={"x": "y" * runs.SUMMARY_BYTES_MAX})
    with pytest.raises(errors.InvalidOption, match="tell less"):
        broker.end_run(run, report={"x": "y" * runs.REPORT_BYTES_MAX})
    assert broker.run(run).state == "running", "it may be told again, with less"
    broker.end_run(run)
    for again in (lambda: broker.end_run(run), lambda: broker.tell_run(run, 1)):
        with pytest.raises(errors.Conflict, match="over already"):
            again()
    with pytest.raises(errors.UnknownJob):
        broker.tell_run("run-99", 1)
    with pytest.raises(errors.UnknownJob):
        broker.run("nothing")


def test_only_the_last_are_remembered(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RUNS_MAX", 3)
    monkeypatch.setattr(runs, "REPORTS_MAX", 1)
    made = []
    for number in range(4):
        made.append(broker.begin_run("report", f"{number}"))
        if number != 1:
            broker.end_run(made[-1], report={"number": number})
    kept = broker.runs()
    assert [one.name for one in kept] == ["3", "2", "1"], (
        "one under way is not forgotten before one that is over"
    )
    assert [one.has_report for one in kept] == [True, False, False]


# --- over HTTP


async def test_runs_and_archives_over_http(tmp_path: Path) -> None:
    clock = SimulatedClock()
    async with serving(clock=clock) as http:
        url = "trine://{}:{}".format(*http.server.binary_address)
        async with trine.aio.connect(url) as broker:
            await http.post("/v1/topics", {"name": "orders", "partitions": 2, "archive": "/lake/orders"}, 201)
            await http.post("/v1/topics", {"name": "plain", "partitions": 1}, 201)
            for n in range(10):
                await http.post("/v1/topics/orders/publish", {"value": n, "partition": n % 2})
            assert (await http.get("/v1/runs")) == {"runs": []}
            (archive,) = (await http.get("/v1/archive"))["archives"]
            assert (archive["topic"], archive["behind"], archive["last_at"], archive["run"]) == (
                "orders", 10, None, None,
            )  # fmt: skip
            run = await broker.begin_run("archive", "/lake/orders", ["orders"])
            clock.advance("2s")
            topic = broker.topic("orders")
            await topic.set_archived({0: 5, 1: 3})
            await broker.end_run(run, rows=8, summary={"messages": 8})
            (archive,) = (await http.get("/v1/archive"))["archives"]
            assert archive["behind"] == 2
            assert archive["last_at_ms"] == clock.now_ms()
            assert archive["partitions"][1] == {
                "partition": 1, "archived": 3, "first": 0, "next": 5, "behind": 2,
            }  # fmt: skip
            assert (archive["run"]["id"], archive["run"]["state"], archive["run"]["seconds"]) == (
                run,
                "ended",
                2.0,
            )
            report = await broker.begin_run("report", "report")
            await broker.end_run(report, rows=1, report={"lag": [[1, 2]]})
            told = (await http.get("/v1/runs"))["runs"]
            assert [(one["id"], one["rows"], one["summary"]) for one in told] == [
                (report, 1, {}),
                (run, 8, {"messages": 8}),
            ]
            assert "report" not in told[0]
            assert told[0]["has_report"]
            assert (await http.get(f"/v1/runs/{report}"))["report"] == {"lag": [[1, 2]]}
            assert [one["id"] for one in (await http.get("/v1/runs?kind=archive"))["runs"]] == [run]
            assert [one["id"] for one in (await http.get("/v1/runs?topic=orders"))["runs"]] == [run]
            assert (await http.get("/v1/runs/run-77", 404))["code"] == "unknown_job"
            await http.get("/v1/runs?kind=lunch", 400)
            lost = await broker.begin_run("traces", "x")
            clock.advance("2m")
            assert (await http.get(f"/v1/runs/{lost}"))["state"] == "lost"


async def test_who_may_tell_and_who_may_see(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.yaml")
    keys = {
        role: create_key(file, role=role, topics=["orders*"])
        for role in ("consumer", "producer", "read-only")
    }
    other = create_key(file, role="admin", topics=["mail"])
    async with serving(config(keys_file=file)) as http:
        url = "trine://{}:{}".format(*http.server.binary_address)
        async with trine.aio.connect(url, key=keys["consumer"]) as broker:
            run = await broker.begin_run("archive", "x", ["orders"])
            with pytest.raises(errors.Forbidden):
                await broker.begin_run("archive", "x", ["orders", "mail"])
        async with trine.aio.connect(url, key=keys["producer"]) as broker:
            await broker.end_run(run)
            assert len(await broker.runs()) == 1
        async with trine.aio.connect(url, key=keys["read-only"]) as broker:
            with pytest.raises(errors.Forbidden):
                await broker.begin_run("archive", "x", ["orders"])
            assert len(await broker.runs()) == 1
        async with trine.aio.connect(url, key=other) as broker:
            assert await broker.runs() == []
            with pytest.raises(errors.UnknownJob):
                await broker.run(run)
        assert (await http.get("/v1/runs", headers={"x-api-key": other})) == {"runs": []}
        await http.get(f"/v1/runs/{run}", 404, headers={"x-api-key": other})
        assert len((await http.get("/v1/runs", headers={"x-api-key": keys["read-only"]}))["runs"]) == 1
