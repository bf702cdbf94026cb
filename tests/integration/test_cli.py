"""The `trine` command on a data directory, in this process: what each verb does, shows and answers to the shell."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

import trine
from trine.cli import exits
from trine.cli.app import app
from trine.cli.contexts import Place
from trine.cli.options import delimiter_bytes
from trine.cli.produce import lines_of
from trine.cli.session import cell
from trine.cli.target import Given, find_place
from trine.model import errors

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No contexts and no variables of whoever runs the tests; wide help, so that it does not fold."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("TRINE_SERVER", "TRINE_KEY", "TRINE_CONTEXT"):
        monkeypatch.delenv(name, raising=False)


def trine_command(*words: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=stdin, catch_exceptions=False, prog_name="trine")


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.fixture
def run(data: str) -> Run:
    """Runs a verb on the data directory, where there is a topic `orders`; it must end with `code`."""
    with trine.open(data) as broker:
        broker.create_topic("orders", partitions=2)
    return on(data)


@pytest.fixture(scope="module")
def run_in_vain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same for verbs that change nothing: one directory for all of them."""
    data = str(tmp_path_factory.mktemp("in-vain"))
    with trine.open(data) as broker:
        broker.create_topic("orders", partitions=2)
    return on(data)


def on(data: str) -> Run:
    def run(*words: str, stdin: str | bytes | None = None, code: int = 0) -> Result:
        result = trine_command("--data", data, *words, stdin=stdin)
        assert result.exit_code == code, result.output
        return result

    return run


def documents(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


# --- help


def verbs(group: Any = None, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    group = group or get_command(app)
    found = []
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        found += verbs(command, (*words, name)) if hasattr(command, "list_commands") else [(*words, name)]
    return found


@pytest.mark.parametrize("words", verbs(), ids=" ".join)
def test_every_verb_has_help_and_takes_json(words: tuple[str, ...]) -> None:
    result = trine_command(*words, "--help")
    assert result.exit_code == 0
    assert words == ("serve",) or "--json" in result.stdout


def test_every_verb_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    for first, *rest in verbs():
        assert re.search(rf"trine {first} .*\b{rest[0]}\b" if rest else rf"trine {first}\b", page), (
            first,
            rest,
        )


def test_the_documentation_has_every_exit_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == codes | {0}


def test_help_tells_the_exit_codes() -> None:
    result = trine_command("--help")
    assert "4 unreachable" in result.stdout


def test_every_error_has_an_exit_code() -> None:
    assert exits.exit_code(errors.UnknownTopic("")) == exits.NOT_FOUND
    assert exits.exit_code(errors.InvalidDuration("")) == exits.USAGE
    assert exits.exit_code(errors.Unreachable("")) == exits.UNREACHABLE
    assert exits.exit_code(errors.Forbidden("")) == exits.DENIED
    assert exits.exit_code(errors.TopicFull("")) == exits.REFUSED
    assert exits.exit_code(errors.Locked("")) == exits.REFUSED


# --- topics


def test_topics_are_created_listed_described_altered_and_deleted(run: Run) -> None:
    run("topic", "create", "audit", "--retention", "3d", "--lanes", "fast,slow", "--set", "depth_max=5")
    listed = json.loads(run("topic", "list", "--json").stdout)
    assert [one["name"] for one in listed] == ["audit", "orders"]
    described = json.loads(run("topic", "describe", "audit", "--json").stdout)
    assert described["config"]["lanes"] == ["fast", "slow"]
    assert described["config"]["depth_max"] == 5
    assert described["config"]["retention_ms"] == 3 * 86_400_000
    run("topic", "alter", "audit", "--ttl", "1h", "--set", "retention=null")
    shown = run("topic", "describe", "audit").stdout
    assert re.search(r"^ttl +1h$", shown, re.MULTILINE)
    assert re.search(r"^retention$", shown, re.MULTILINE)
    assert run("topic", "delete", "audit", "--yes").stdout == "audit: deleted\n"
    assert run("topic", "describe", "audit", code=3).stderr.endswith("(unknown_topic)\n")


def test_a_queue_is_a_topic_with_its_group(run: Run) -> None:
    run("topic", "create", "jobs", "--queue", "--set", "lease=1m")
    described = json.loads(run("group", "describe", "jobs", "jobs", "--json").stdout)
    assert described["config"]["lease_ms"] == 60_000


def test_create_of_one_that_exists(run: Run) -> None:
    assert "(topic_exists)" in run("topic", "create", "orders", code=1).stderr
    run("topic", "create", "orders", "--exist-ok")


@pytest.mark.parametrize(
    "words", [("topic", "delete", "orders"), ("topic", "purge", "orders"), ("dlq", "purge", "orders")]
)
def test_what_cannot_be_undone_asks_first(run_in_vain: Run, words: tuple[str, ...]) -> None:
    assert "--yes" in run_in_vain(*words, stdin="orders\n", code=2).stderr
    run_in_vain("topic", "describe", "orders")


def test_purge(run: Run) -> None:
    run("produce", "orders", stdin="a\nb\n")
    assert json.loads(run("topic", "purge", "orders", "--yes", "--json").stdout)["purged"] == 2
    assert run("consume", "orders").stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", "x", "--set", "colour=red"),
        ("topic", "create", "../x"),
        ("topic", "alter", "orders"),
        ("topic", "create", "x", "--set", "retention"),
        ("topic", "create", "x", "--retention", "soon"),
        ("produce", "orders", "x", "--delay", "-5m"),
        ("produce", "orders", "x", "--header", "nothing"),
        ("produce", "orders", "x", "--file", "y"),
        ("produce", "orders", "x", "--durability", "granite"),
        ("produce", "orders", "x", "--priority", "urgent"),
        ("produce", "orders", "--file", "/nowhere/at/all"),
        ("consume", "orders", "--from-time", "yesterday"),
        ("consume", "orders", "--from-offset", "middle"),
        ("consume", "orders", "--ack", "manual"),
        ("consume", "orders", "--ack", "manual", "--group", "g"),
        ("consume", "orders", "--follow", "--to-time", "2026-01-01"),
        ("group", "seek", "orders", "g"),
        ("schedule", "move", "orders@1-1"),
        ("dlq", "redrive"),
        ("--server", "trine://127.0.0.1:1", "topic", "list", "--data", "x", "--context", "y"),
        ("nonsense",),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(run_in_vain: Run, words: tuple[str, ...]) -> None:
    run_in_vain(*words, code=2)


@pytest.mark.parametrize(
    "words",
    [
        ("produce", "missing", "x"),
        ("consume", "missing"),
        ("group", "describe", "orders", "missing"),
        ("trace", "orders/0/99"),
        ("trace", "gibberish"),
        ("schedule", "cancel", "orders@1-1"),
        ("schedule", "remove", "missing"),
        ("dlq", "show", "orders.dlq/0/0"),
        ("dlq", "redrive", "orders"),
        ("dlq", "redrive", "--resume", "redrive-99"),
        ("dlq", "cancel", "redrive-99"),
        ("context", "use", "missing"),
        ("consume", "orders", "--partition", "9"),
    ],
    ids=" ".join,
)
def test_what_is_not_there_exits_with_3(run_in_vain: Run, words: tuple[str, ...]) -> None:
    run_in_vain(*words, code=3)


def test_a_data_directory_is_not_made_by_looking_for_it(tmp_path: Path) -> None:
    missing = tmp_path / "typo"
    assert trine_command("--data", str(missing), "topic", "list").exit_code == 3
    assert trine_command("--data", str(missing), "produce", "orders", "x").exit_code == 3
    assert not missing.exists()
    assert trine_command("--data", str(missing), "produce", "orders", "x", "--create").exit_code == 0


def test_a_directory_that_is_open_elsewhere_is_refused(run: Run, data: str) -> None:
    with trine.open(data):
        assert "(locked)" in run("topic", "list", code=1).stderr


def test_errors_are_json_for_programs(run: Run) -> None:
    told = json.loads(run("topic", "describe", "missing", "--json", code=3).stderr)
    assert told["error"] == "unknown_topic"


# --- produce


def test_one_message_is_answered_with_its_id(run: Run) -> None:
    assert re.fullmatch(r"orders/[01]/0  synced\n", run("produce", "orders", "hello").stdout)
    (receipt,) = documents(run("produce", "orders", "hello", "--durability", "written", "--json"))
    assert receipt["durability"] == "written"
    assert receipt["id"].startswith("orders/")


def test_the_line_of_the_reference(run: Run) -> None:
    produced = run("produce", "orders", "--key", "order-123", "--delay", "5m", stdin='{"order_id": 123}\n')
    assert re.fullmatch(r"orders@\d+-\d+  synced\n", produced.stdout)
    (waiting,) = json.loads(run("schedule", "list", "orders", "--json").stdout)
    assert (waiting["key"], waiting["value"]) == ("order-123", '{"order_id": 123}')


def test_lines_of_stdin_and_of_a_file(run: Run, tmp_path: Path) -> None:
    assert (
        run("produce", "orders", "-k", "k", stdin="a\nb\n\nlast").stdout == "4 messages published, synced\n"
    )
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\n")
    assert len(documents(run("produce", "orders", "-k", "k", "--file", str(file), "--json"))) == 2
    assert run("consume", "orders").stdout == "a\nb\n\nlast\none\ntwo\n"


def test_an_empty_input_is_said_to_be_empty(run: Run) -> None:
    assert "empty" in run("produce", "orders", stdin="").stderr


def test_options_of_a_message_come_back(run: Run) -> None:
    run(
        "produce", "orders", "v", "--key", "k", "-H", "a=1", "-H", "b=x=y", "--priority", "high", "--ttl", "1h",
        "--dedup-id", "once", "--partition", "1", "--producer", "shop",
    )  # fmt: skip
    (message,) = documents(run("consume", "orders", "--json"))
    assert message["headers"] == {"a": "1", "b": "x=y"}
    assert (message["key"], message["value"], message["priority"]) == ("k", "v", "high")
    assert (message["partition"], message["dedup_id"], message["producer"]) == (1, "once", "shop")
    assert "expires" in message


def test_a_dedup_id_of_lines_is_one_for_each(run: Run) -> None:
    lines = "a\nb\nc\n"
    first = documents(run("produce", "orders", "--dedup-id", "file-1", "--json", stdin=lines))
    again = documents(run("produce", "orders", "--dedup-id", "file-1", "--json", stdin=lines))
    assert [one["duplicate"] for one in first] == [False] * 3
    assert [one["duplicate"] for one in again] == [True] * 3
    assert [one["id"] for one in again] == [one["id"] for one in first]


def test_keys_from_the_line_and_tombstones(run: Run) -> None:
    run("produce", "orders", "-K", ":", "--null", "-p", "0", stdin="a:1\nb:x:y\nno key\nc:\n")
    read = documents(run("consume", "orders", "--json"))
    assert [(one["key"], one["value"]) for one in read] == [
        ("a", "1"),
        ("b", "x:y"),
        (None, "no key"),
        ("c", None),
    ]


def test_binary_values_pass_through_unchanged(run: Run, tmp_path: Path) -> None:
    raw = bytes(range(256)) * 3
    file = tmp_path / "blob"
    file.write_bytes(raw)
    run("produce", "orders", "--whole", "--file", str(file))
    assert run("consume", "orders", "-o", "value", "--delimiter", "").stdout_bytes == raw
    (message,) = documents(run("consume", "orders", "-o", "json"))
    assert message["value"] is None
    assert base64.b64decode(message["value_base64"]) == raw
    assert "\x1b" not in run("consume", "orders", "-o", "table").stdout


def test_other_delimiters(run: Run) -> None:
    run("produce", "orders", "-D", r"\0", "-p", "0", stdin=b"one\nline\0two\0")
    assert run("consume", "orders", "-D", r"\0").stdout_bytes == b"one\nline\0two\0"


@pytest.mark.parametrize(
    ("given", "meant"),
    [(r"\n", b"\n"), (r"\0", b"\0"), (r"\t|\\n", b"\t|\\n"), ("", b""), ("ü", "ü".encode()), ("\\", b"\\")],
)
def test_delimiters_are_read(given: str, meant: bytes) -> None:
    assert delimiter_bytes(given) == meant


class Slow:
    """An input that gives what it has, not what was asked for."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = iter((*chunks, b""))

    def read1(self, size: int) -> bytes:
        return next(self._chunks)


def test_lines_are_published_as_they_come() -> None:
    batches = [lines for lines, _ in lines_of(Slow(b"a\nb", b"c\n", b"d", b"e"), b"\n")]  # type: ignore[arg-type]
    assert batches == [[b"a"], [b"bc"], [b"de"]]


def test_a_delimiter_across_two_reads() -> None:
    batches = [lines for lines, _ in lines_of(Slow(b"a\r", b"\nb"), b"\r\n")]  # type: ignore[arg-type]
    assert batches == [[b"a"], [b"b"]]


def test_a_line_without_end_is_refused_before_memory_is_full() -> None:
    chunks = [b"x" * (1 << 20)] * 12
    with pytest.raises(errors.MessageTooLarge, match="--delimiter"):
        list(lines_of(Slow(*chunks), b"\n"))  # type: ignore[arg-type]


# --- consume


@pytest.fixture
def numbers(run: Run, data: str) -> Run:
    """Ten messages, 0 to 9, a second apart; two partitions."""
    clock = trine.SimulatedClock(start_ms=int(time.time()) * 1000 - 60_000)
    with trine.open(data, clock=clock) as broker:
        for number in range(10):
            broker.topic("orders").publish(str(number), partition=number % 2)
            clock.advance("1s")
    return run


def values(result: Result) -> str:
    return "".join(result.stdout.split())


def test_the_log_is_read_in_the_order_of_time(numbers: Run) -> None:
    assert values(numbers("consume", "orders")) == "0123456789"
    assert values(numbers("consume", "orders", "--max", "3")) == "012"
    assert values(numbers("consume", "orders", "-p", "1")) == "13579"


def test_the_log_is_read_from_a_place(numbers: Run) -> None:
    assert values(numbers("consume", "orders", "--from-offset", "3")) == "6789"
    assert values(numbers("consume", "orders", "--from-offset", "-2", "-p", "0")) == "68"
    assert values(numbers("consume", "orders", "--from-offset", "latest")) == ""
    assert values(numbers("consume", "orders", "--from-offset", "earliest", "-n", "1")) == "0"


def times(run: Run) -> list[str]:
    """When each of the ten was published: as text that `--from-time` takes."""
    return [one["time"] for one in documents(run("consume", "orders", "--json"))]


def test_the_log_is_read_by_time(numbers: Run) -> None:
    at = times(numbers)
    assert values(numbers("consume", "orders", "--from-time", at[3], "--to-time", at[7])) == "3456"


def test_a_group_sees_every_message_once(numbers: Run) -> None:
    first = documents(numbers("consume", "orders", "--wait", "0", "-g", "audit", "--max", "4", "--json"))
    rest = documents(numbers("consume", "orders", "--wait", "0", "-g", "audit", "--json"))
    assert sorted(one["value"] for one in first + rest) == list("0123456789")
    assert all(one["attempt"] == 1 and one["receipt"] for one in first + rest)
    assert values(numbers("consume", "orders", "--wait", "0", "-g", "audit")) == ""
    (lag,) = json.loads(numbers("group", "lag", "orders", "audit", "--json").stdout)
    assert (lag["count"], lag["in_flight"]) == (0, 0)


def test_a_group_consumes_a_span_of_time(numbers: Run) -> None:
    """The second line of the reference: only what lies in the span is acked."""
    at = times(numbers)
    words = ("consume", "orders", "--wait", "0", "--group", "audit", "--from-time", at[3], "--to-time", at[7])
    assert sorted(values(numbers(*words))) == list("3456")
    assert sorted(values(numbers(*words))) == list("3456")  # the group was moved back, as was asked for
    assert sorted(values(numbers("consume", "orders", "--wait", "0", "--group", "audit"))) == list("789")
    assert all(
        one["attempt"] == 1
        for one in documents(numbers("consume", "orders", "--wait", "0", "-g", "b", "--json"))
    )


def test_a_span_is_consumed_whole_although_later_messages_are_more_urgent(numbers: Run) -> None:
    at = times(numbers)
    for _ in range(3):
        numbers("produce", "orders", "late", "--priority", "high")
    words = ("consume", "orders", "--wait", "0", "-g", "audit", "--from-time", at[2], "--to-time", at[9])
    assert sorted(values(numbers(*words))) == list("2345678")
    assert values(numbers("consume", "orders", "--wait", "0", "-g", "audit")) == "latelatelate9"


def test_a_group_is_moved_before_it_consumes(numbers: Run) -> None:
    numbers("consume", "orders", "--wait", "0", "-g", "audit")
    words = ("consume", "orders", "--wait", "0", "-g", "audit", "--from-offset")
    assert sorted(values(numbers(*words, "-1"))) == list("89")
    assert sorted(values(numbers(*words, "4"))) == list("89")
    assert sorted(values(numbers(*words, "2", "-p", "1"))) == list("579")
    assert values(numbers(*words, "latest")) == ""
    assert len(values(numbers(*words, "earliest"))) == 10


def test_a_table_of_messages(numbers: Run) -> None:
    head, first, *_ = numbers("consume", "orders", "-o", "table").stdout.splitlines()
    assert head.split() == ["time", "id", "key", "value"]
    assert first.endswith("0")


# --- groups


def test_groups_are_created_listed_steered_and_deleted(numbers: Run) -> None:
    numbers(
        "group", "create", "orders", "billing", "--lease", "1m", "--order", "key", "--max-deliveries", "2"
    )
    assert "(group_exists)" in numbers("group", "create", "orders", "billing", code=1).stderr
    (listed,) = json.loads(numbers("group", "list", "--json").stdout)
    assert (listed["topic"], listed["name"], listed["lag"]["count"]) == ("orders", "billing", 10)
    shown = numbers("group", "describe", "orders", "billing").stdout
    assert re.search(r"^lease +1m$", shown, re.MULTILINE)

    numbers("group", "pause", "orders", "billing", "--reason", "bank holiday")
    assert values(numbers("consume", "orders", "--wait", "0", "-g", "billing")) == ""
    assert "paused: bank holiday" in numbers("group", "list", "orders").stdout
    numbers("group", "resume", "orders", "billing")
    numbers("group", "alter", "orders", "billing", "--set", "max_deliveries=7")
    assert (
        json.loads(numbers("group", "describe", "orders", "billing", "--json").stdout)["config"][
            "max_deliveries"
        ]
        == 7
    )

    moved = json.loads(numbers("group", "seek", "orders", "billing", "--to", "latest", "--json").stdout)
    assert moved["offsets"] == {"0": 5, "1": 5}
    numbers("group", "delete", "orders", "billing", "--yes")
    assert numbers("group", "lag", "orders").stdout == ""


def test_replay(numbers: Run) -> None:
    numbers("produce", "orders", "again", "--key", "k")
    numbers("consume", "orders", "--wait", "0", "-g", "audit")
    assert "1 messages" in numbers("group", "replay", "orders", "audit", "--key", "k").stdout
    assert values(numbers("consume", "orders", "--wait", "0", "-g", "audit")) == "again"


# --- trace, dead letters, schedules


@pytest.fixture
def dead(run: Run, data: str) -> Run:
    """Three dead letters, of two reasons."""
    with trine.open(data) as broker:
        orders = broker.topic("orders")
        for number, reason in enumerate(("cannot parse", "cannot parse", "too old")):
            orders.publish(f"bad {number}", key=f"k{number}", headers={"source": "shop"})
            with orders.group("billing").consumer("worker-1") as consumer:
                consumer.receive()[0].reject(reason)
    return run


def test_trace_shows_a_message_s_life(dead: Run) -> None:
    (letter, *_) = json.loads(dead("dlq", "list", "orders", "--json").stdout)
    shown = dead("trace", letter["origin"]).stdout
    assert "PUBLISHED" in shown
    assert "DEAD_LETTERED" in shown
    events = json.loads(dead("trace", letter["origin"], "--json").stdout)["events"]
    assert events[0]["what"] == "PUBLISHED"
    assert dead("trace", "show", letter["origin"]).stdout == shown


def test_trace_by_schedule_id(run: Run) -> None:
    schedule_id = run("produce", "orders", "later", "--delay", "1h").stdout.split()[0]
    assert "SCHEDULED" in run("trace", schedule_id).stdout


def test_trace_search(dead: Run) -> None:
    found = json.loads(dead("trace", "search", "orders", "--key", "k1", "--json").stdout)
    assert [one["key"] for one in found] == ["k1"]
    assert "k2" in dead("trace", "search", "orders", "-g", "billing", "--state", "dead-lettered").stdout
    assert "no message was found" in dead("trace", "search", "orders", "--key", "none").stderr


def test_dead_letters_are_listed_and_shown(dead: Run) -> None:
    assert len(json.loads(dead("dlq", "list", "orders", "--json").stdout)) == 3
    (letter,) = json.loads(dead("dlq", "list", "orders", "--reason", "old", "--json").stdout)
    assert (letter["value"], letter["group"], letter["attempts"]) == ("bad 2", "billing", 1)
    assert letter["headers"] == {"source": "shop"}
    by_id = json.loads(dead("dlq", "show", letter["id"], "--json").stdout)
    by_origin = json.loads(dead("dlq", "show", letter["origin"], "--json").stdout)
    assert by_id == by_origin == letter
    shown = dead("dlq", "show", letter["id"]).stdout
    assert "too old" in shown
    assert shown.endswith("bad 2\n")


def test_redrive(dead: Run) -> None:
    preview = json.loads(dead("dlq", "redrive", "orders", "--reason", "parse", "--dry-run", "--json").stdout)
    assert len(preview) == 2
    assert len(json.loads(dead("dlq", "list", "orders", "--json").stdout)) == 3
    done = json.loads(dead("dlq", "redrive", "orders", "--reason", "parse", "--rate", "500", "--json").stdout)
    assert (done["moved"], done["state"]) == (2, "done")
    assert sorted(dead("consume", "orders", "--wait", "0", "-g", "billing").stdout.split("\n")[:2]) == [
        "bad 0",
        "bad 1",
    ]
    assert len(json.loads(dead("dlq", "list", "orders", "--json").stdout)) == 1


def test_redrive_elsewhere(dead: Run) -> None:
    dead("topic", "create", "mended")
    assert "3 of 3" in dead("dlq", "redrive", "orders", "--to", "mended").stdout
    assert len(dead("consume", "mended").stdout.splitlines()) == 3


def test_a_redrive_goes_on_where_it_stopped(dead: Run, data: str) -> None:
    with trine.open(data) as broker:
        job = broker.redrive("orders")
        job.step(max=1)
    (listed,) = json.loads(dead("dlq", "jobs", "--json").stdout)
    assert (listed["state"], listed["moved"]) == ("running", 1)
    done = json.loads(dead("dlq", "redrive", "--resume", job.id, "--json").stdout)
    assert (done["state"], done["moved"]) == ("done", 3)
    assert "(conflict)" in dead("dlq", "cancel", job.id, code=1).stderr


def test_dead_letters_are_purged(dead: Run) -> None:
    assert "1 dead letters" in dead("dlq", "purge", "orders", "--reason", "old", "--yes").stdout
    assert len(json.loads(dead("dlq", "list", "orders", "--json").stdout)) == 2


def test_schedules_are_listed_moved_and_cancelled(run: Run) -> None:
    first = run("produce", "orders", "one", "--delay", "1h").stdout.split()[0]
    second = run("produce", "orders", "two", "--at", "2026-11-17T00:00:00Z").stdout.split()[0]
    assert second.startswith("orders/")  # its time has passed: it is in the log
    (waiting,) = json.loads(run("schedule", "list", "--json").stdout)
    assert waiting["id"] == first
    run("schedule", "move", first, "--delay", "2h")
    (moved,) = json.loads(run("schedule", "list", "orders", "--json").stdout)
    assert moved["due"] > waiting["due"]
    run("schedule", "cancel", first)
    assert "nothing is scheduled" in run("schedule", "list").stderr


def test_recurring_messages(run: Run) -> None:
    run(
        "schedule",
        "add",
        "nightly",
        "orders",
        "0 3 * * *",
        "sweep",
        "--timezone",
        "Europe/Berlin",
        "-H",
        "a=b",
    )
    (cron,) = json.loads(run("schedule", "crons", "--json").stdout)
    assert (cron["name"], cron["expression"], cron["timezone"]) == ("nightly", "0 3 * * *", "Europe/Berlin")
    assert "(invalid_cron)" in run("schedule", "add", "bad", "orders", "61 * * * *", "x", code=2).stderr
    run("schedule", "remove", "nightly")
    assert json.loads(run("schedule", "crons", "--json").stdout) == []


# --- bench, version, contexts


def test_bench_measures_and_leaves_nothing_behind(run: Run) -> None:
    words = ("bench", "-n", "500", "-b", "100", "--durability", "memory", "--timed", "20", "--rate", "2000")
    found = json.loads(run(*words, "--json").stdout)
    assert [one["messages"] for one in found["rates"]] == [500, 500]
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["max"]
    assert "messages/s" in run(*words).stdout
    assert [one["name"] for one in json.loads(run("topic", "list", "--json").stdout)] == ["orders"]


def test_version() -> None:
    assert trine_command("version").stdout.startswith(f"trine {trine.__version__}")
    assert json.loads(trine_command("version", "--json").stdout)["version"] == trine.__version__


def test_contexts(run: Run, data: str, tmp_path: Path) -> None:
    assert trine_command("context", "add", "here", "--data", data).exit_code == 0
    assert trine_command("context", "add", "far", "--server", "trine://secret@h:1").exit_code == 0
    file = tmp_path / "config" / "trine" / "contexts.yaml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "orders" in trine_command("topic", "list").stdout  # the first one added is the current one
    listed = trine_command("context", "list", "--json").stdout
    assert "secret" not in listed
    words = ("name", "current", "server", "has_key")
    assert [[one[word] for word in words] for one in json.loads(listed)] == [
        ["here", True, None, False],
        ["far", False, "trine://h:1", True],
    ]
    assert trine_command("context", "use", "far").exit_code == 0
    assert "orders" in trine_command("topic", "list", "--context", "here").stdout
    assert trine_command("context", "remove", "far").exit_code == 0
    assert [one["name"] for one in json.loads(trine_command("context", "list", "--json").stdout)] == ["here"]
    file.write_text("contexts: [a, b]\n")
    assert trine_command("context", "list").exit_code == 2


def test_where_a_command_talks_to() -> None:
    trine_command("context", "add", "shop", "--server", "trine://shop:1", "--key", "k1")
    environ = {"XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"]}
    assert find_place(Given(), {}) != find_place(Given(), environ)
    assert find_place(Given(), environ) == Place(server="trine://shop:1", key="k1")
    elsewhere = find_place(Given(server="trine://other:1"), environ)
    assert elsewhere == Place(server="trine://other:1")  # the key of a context stays with it
    environ["TRINE_SERVER"] = "trine://env:1"
    assert find_place(Given(), environ) == Place(server="trine://env:1")
    environ["TRINE_KEY"] = "k2"
    assert find_place(Given(server="trine://flag:1"), environ) == Place(server="trine://flag:1", key="k2")
    assert find_place(Given(context="shop"), environ) == Place(server="trine://shop:1", key="k2")
    assert find_place(Given(data="d"), environ) == Place(data="d")


# --- what is shown


def test_a_value_has_no_power_over_the_terminal(run: Run) -> None:
    run("produce", "orders", "\x1b[31mred\x07", "--key", "[bold]k[/bold]")
    shown = run("consume", "orders", "-o", "table").stdout
    assert "\x1b" not in shown
    assert r"\x1b[31mred\x07" in shown
    assert "[bold]k[/bold]" in shown


def test_nor_has_json_or_an_error(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[31m\x9b31m \u202e\u2028 Käse 🧀"
    run("produce", "orders", hostile)
    shown = run("consume", "orders", "-o", "json").stdout
    assert shown.removesuffix("\n").isprintable()
    assert "Käse 🧀" in shown
    assert json.loads(shown)["value"] == hostile
    exits.tell(errors.UnknownTopic(f"two lines:\n{hostile}"), as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


def test_cells() -> None:
    assert [cell(None), cell(True), cell(12), cell("a\nb")] == ["", "yes", "12", r"a\nb"]
    assert len(cell("x" * 500)) == 120
