"""The `trine` command and a server, each a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trine.cli.app import app

COMMAND = (sys.executable, "-m", "trine.cli")
PATIENCE_S = 30

Run = Callable[..., Result]


class Running:
    """A server as `trine serve` starts it, on free ports."""

    def __init__(self, folder: Path, *words: str) -> None:
        ports = folder / "ports.json"
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *COMMAND, "serve", "--data-dir", str(folder / "data"), "--binary-port", "0",
                    "--http-port", "0", "--ports-file", str(ports), *words,
                ],
                env=_environ(),
                stdout=log,
                stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while not ports.exists():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        host, port = json.loads(ports.read_text())["binary"]
        self.url = f"trine://{host}:{port}"

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TRINE_")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server = Running(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TRINE_SERVER", "TRINE_KEY", "TRINE_CONTEXT"):
        monkeypatch.delenv(name, raising=False)


def on(url: str) -> Run:
    def run(*words: str, stdin: str | bytes | None = None, code: int = 0) -> Result:
        result = CliRunner().invoke(
            app, ["--server", url, *words], input=stdin, catch_exceptions=False, prog_name="trine"
        )
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def run(server: Running) -> Run:
    return on(server.url)


@pytest.fixture
def topic(run: Run, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    name = re.sub(r"\W+", "-", request.node.name)[:60]
    run("topic", "create", name, "--partitions", "2")
    return name


def documents(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_topics(run: Run, topic: str) -> None:
    assert topic in run("topic", "list").stdout
    run("topic", "alter", topic, "--retention", "3d")
    described = json.loads(run("topic", "describe", topic, "--json").stdout)
    assert described["config"]["retention_ms"] == 3 * 86_400_000
    assert len(described["partitions"]) == 2
    run("topic", "delete", topic, "--yes")
    assert "(unknown_topic)" in run("topic", "describe", topic, code=3).stderr


def test_produce_and_consume(run: Run, topic: str) -> None:
    (receipt,) = documents(run("produce", topic, "v", "-k", "k", "-H", "a=b", "--dedup-id", "d", "--json"))
    assert (receipt["durability"], receipt["duplicate"]) == ("synced", False)
    (again,) = documents(run("produce", topic, "v", "-k", "k", "--dedup-id", "d", "--json"))
    assert (again["id"], again["duplicate"]) == (receipt["id"], True)
    run("produce", topic, "-K", ":", "--priority", "high", stdin="a:1\nb:2\n")
    read = documents(run("consume", topic, "--json"))
    assert sorted((one["key"], one["value"]) for one in read) == [("a", "1"), ("b", "2"), ("k", "v")]
    leased = documents(run("consume", topic, "-g", "audit", "--json"))
    assert sorted(str(one["id"]) for one in leased) == sorted(str(one["id"]) for one in read)
    assert run("consume", topic, "-g", "audit").stdout == ""
    (lag,) = json.loads(run("group", "lag", topic, "audit", "--json").stdout)
    assert (lag["count"], lag["in_flight"]) == (0, 0)


def test_groups(run: Run, topic: str) -> None:
    run("produce", topic, stdin="1\n2\n3\n")
    run("group", "create", topic, "billing", "--lease", "1m")
    run("group", "pause", topic, "billing", "--reason", "closed")
    assert run("consume", topic, "-g", "billing", "--wait", "0").stdout == ""
    run("group", "resume", topic, "billing")
    assert sorted(run("consume", topic, "-g", "billing").stdout.split()) == ["1", "2", "3"]
    run("group", "seek", topic, "billing", "--to", "earliest")
    assert sorted(run("consume", topic, "-g", "billing", "--max", "3").stdout.split()) == ["1", "2", "3"]
    run("group", "alter", topic, "billing", "--max-deliveries", "9")
    assert (
        json.loads(run("group", "describe", topic, "billing", "--json").stdout)["config"]["max_deliveries"]
        == 9
    )
    run("group", "delete", topic, "billing", "--yes")


def test_a_span_of_time(run: Run, topic: str) -> None:
    for value in "123":
        run("produce", topic, value, "-p", "0")
    times = [str(one["time"]) for one in documents(run("consume", topic, "--json"))]
    words = ("consume", topic, "--from-time", times[1], "--to-time", times[2])
    assert run(*words).stdout == "2\n"
    assert run(*words, "--group", "audit").stdout == "2\n"
    assert run("consume", topic, "--group", "audit").stdout == "3\n"


def test_schedules(run: Run, topic: str) -> None:
    produced = run("produce", topic, "--key", "order-123", "--delay", "5m", stdin='{"order_id": 123}\n')
    schedule_id = produced.stdout.split()[0]
    assert schedule_id.startswith(f"{topic}@")
    assert "SCHEDULED" in run("trace", schedule_id).stdout
    run("schedule", "move", schedule_id, "--delay", "1h")
    (waiting,) = json.loads(run("schedule", "list", topic, "--json").stdout)
    assert waiting["value"] == '{"order_id": 123}'
    run("schedule", "cancel", schedule_id)
    run("schedule", "add", "nightly", topic, "0 3 * * *", "sweep")
    assert "nightly" in run("schedule", "crons").stdout
    run("schedule", "remove", "nightly")


def test_dead_letters(run: Run, topic: str, server: Running) -> None:
    import trine

    run("produce", topic, stdin="bad 1\nbad 2\n")
    with trine.connect(server.url) as broker:
        group = broker.topic(topic).group("billing")
        with group.consumer("worker-1") as consumer:
            for message in consumer.receive(max=10, wait="5s"):
                message.reject(f"cannot parse {(message.value or b'').decode()}")
    letters = json.loads(run("dlq", "list", topic, "--json").stdout)
    assert sorted(one["reason"] for one in letters) == ["cannot parse bad 1", "cannot parse bad 2"]
    assert json.loads(run("dlq", "show", letters[0]["origin"], "--json").stdout) == letters[0]
    assert "DEAD_LETTERED" in run("trace", letters[0]["origin"]).stdout
    assert "bad 2" in run("dlq", "redrive", topic, "--reason", "bad 2", "--dry-run").stdout
    done = json.loads(run("dlq", "redrive", topic, "--reason", "bad 2", "--json").stdout)
    assert (done["moved"], done["state"]) == (1, "done")
    assert "done" in run("dlq", "jobs").stdout
    assert "1 dead letters" in run("dlq", "purge", topic, "--yes").stdout


def test_bench(run: Run) -> None:
    found = json.loads(run("bench", "-n", "2000", "--timed", "20", "--rate", "500", "--json").stdout)
    assert [one["messages"] for one in found["rates"]] == [2000, 2000]
    assert found["latency_ms"]["p50"] > 0
    assert "trine-bench" not in run("topic", "list", "--all").stdout


def test_a_closed_pipe_gives_back_what_was_leased(run: Run, topic: str, server: Running) -> None:
    run("produce", topic, stdin=b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 20_000)
    words = ["--server", server.url, "consume", topic, "-g", "audit"]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(150):  # more than one batch: the first is acked
            process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 141
    (lag,) = json.loads(run("group", "lag", topic, "audit", "--json").stdout)
    assert 0 < lag["count"] < 20_001
    assert lag["in_flight"] == 0


def test_following_from_another_process(run: Run, topic: str, server: Running) -> None:
    words = ["--server", server.url, "consume", topic, "--follow"]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for value in ("one", "two"):
            run("produce", topic, value)
            assert process.stdout.readline() == value.encode() + b"\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 130


def test_no_server_is_unreachable() -> None:
    told = on("trine://127.0.0.1:1")("topic", "list", code=4).stderr
    assert told.endswith("(unreachable)\n")


def test_a_wrong_address_is_wrong_usage() -> None:
    on("http://127.0.0.1:1")("topic", "list", code=2)


def test_keys(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    made = CliRunner().invoke(
        app,
        ["key", "create", "--role", "consumer", "--topics", "orders*", "--keys-file", str(keys), "--json"],
        catch_exceptions=False,
    )
    assert made.exit_code == 0, made.output
    key = json.loads(made.stdout)["key"]
    server = Running(tmp_path, "--keys-file", str(keys))
    try:
        run = on(server.url)
        assert "(unauthenticated)" in run("topic", "list", code=5).stderr
        assert "(forbidden)" in run("topic", "create", "orders", "--api-key", key, code=5).stderr
        run("--key", key, "topic", "list")
        assert run("topic", "list", "--api-key", "trine_x_wrong", code=5).stdout == ""
    finally:
        server.stop()
