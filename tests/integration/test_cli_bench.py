"""`trine bench` against a server and against a data directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import trine
from tests.integration.hosting import Host, configuration
from trine.cli.app import app

COMMAND = (sys.executable, "-m", "trine.cli")
PATIENCE_S = 60

Bench = Callable[..., dict[str, Any]]


@pytest.fixture(params=["server", "data"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    if request.param == "data":
        yield ["--data", str(tmp_path / "data")]
    else:
        with Host(configuration()) as host:
            yield ["--server", host.url]


@pytest.fixture
def bench(place: list[str]) -> Bench:
    def bench(*words: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, [*place, "bench", *words, "--json"])
        assert result.exit_code == 0, result.output
        assert topics(place) == []
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    return bench


def topics(place: list[str]) -> list[Any]:
    found = json.loads(CliRunner().invoke(app, [*place, "topic", "list", "--all", "--json"]).stdout)
    return [one["name"] for one in found]


def test_publish(bench: Bench) -> None:
    found = bench("publish", "-n", "1050", "-b", "100", "--connections", "3", "--size", "50")
    (rate,) = found["rates"]
    assert (rate["what"], rate["messages"]) == ("publish", 1050)
    assert rate["mb_per_second"] == pytest.approx(rate["per_second"] * 50 / 1e6)
    times = found["times_ms"]["a publish"]
    assert times["count"] == 12  # 350 of each connection, in batches of 100
    assert sum(row["count"] for row in times["histogram"]) == 12
    assert 0 < times["p50"] <= times["p99"] <= times["max"]


def test_publish_for_a_time_at_a_rate(bench: Bench) -> None:
    found = bench("publish", "--duration", "300ms", "--rate", "1000", "-b", "10", "--durability", "memory")
    (rate,) = found["rates"]
    assert 0 < rate["messages"] <= 310
    assert rate["seconds"] >= 0.29


def test_consume(bench: Bench) -> None:
    found = bench("consume", "-n", "1000", "-b", "100", "-c", "2", "--durability", "written")
    (rate,) = found["rates"]
    assert (rate["what"], rate["messages"]) == ("receive and ack", 1000)
    assert found["times_ms"]["a receive and its ack"]["count"] >= 10


def test_latency(bench: Bench) -> None:
    found = bench("latency", "-n", "60", "--rate", "300", "-c", "2", "-p", "3")
    (rate,) = found["rates"]
    assert rate["messages"] == 60
    times = found["times_ms"]["publish to receive"]
    assert times["count"] == 60
    assert found["latency_ms"]["p50"] == times["p50"] > 0


def test_latency_for_a_time(bench: Bench) -> None:
    found = bench("latency", "--duration", "200ms", "--rate", "200")
    assert 1 <= found["rates"][0]["messages"] <= 41


def test_all_of_it_with_a_drawing(place: list[str]) -> None:
    words = ["bench", "-n", "500", "-b", "100", "--timed", "30", "--rate", "500"]
    said = CliRunner().invoke(app, [*place, *words]).stdout
    assert "receive and ack" in said
    assert "publish to receive, 30 times, ms:" in said
    assert "█" in said
    assert topics(place) == []


@pytest.mark.parametrize(
    "words",
    [["--duration", "0s"], ["--duration", "soon"], ["--size", "4"], ["--durability", "some"], ["-c", "0"]],
)
def test_what_is_off_is_told(words: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--data", str(tmp_path / "data"), "bench", "latency", *words])
    assert result.exit_code in (1, 2)
    assert result.stderr.strip()


def test_a_server_that_is_not_there_is_told() -> None:
    assert CliRunner().invoke(app, ["--server", "trine://127.0.0.1:1", "bench", "publish"]).exit_code == 4


@pytest.mark.parametrize("verb", ["publish", "consume", "latency"])
def test_ctrl_c_takes_the_topic_away(verb: str) -> None:
    with Host(configuration()) as host:
        words = ["-n", "1000000000"] if verb == "publish" else ["--duration", "10m"]
        words += ["-n", "200000", "-b", "1"] if verb == "consume" else []
        with trine.connect(host.url) as broker:
            process = subprocess.Popen(
                [*COMMAND, "--server", host.url, "bench", verb, *words],
                env={name: value for name, value in os.environ.items() if not name.startswith("TRINE_")},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            _await_messages(broker, process)
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=PATIENCE_S) == (b"", b"")
            assert process.returncode == 130
            assert broker.topics() == []


def _await_messages(broker: trine.Broker, process: subprocess.Popen[bytes]) -> None:
    """Until the command's topic has messages: it is at work then."""
    over = threading.Event()
    ending = threading.Timer(PATIENCE_S, over.set)
    ending.start()
    try:
        while not over.is_set():
            assert process.poll() is None, process.communicate()
            if any(topic.read(max=1, wait="100ms") for topic in map(broker.topic, _names(broker))):
                return
        raise AssertionError("the command published nothing")
    finally:
        ending.cancel()


def _names(broker: trine.Broker) -> list[str]:
    return [one.name for one in broker.topics()]
