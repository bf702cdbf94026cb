"""The `trine` command as a process of its own: pipes, signals, a terminal, the shell's completion."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import trine

COMMAND = (sys.executable, "-m", "trine.cli")
PATIENCE_S = 30
"""For one step of a process on a busy machine; nothing waits this long if all is well."""


@pytest.fixture
def data(tmp_path: Path) -> str:
    data = str(tmp_path / "data")
    with trine.open(data) as broker:
        broker.create_topic("orders", partitions=2)
    return data


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("TRINE_")}
    return {**known, "XDG_CONFIG_HOME": str(tmp_path / "config"), "TERM": "xterm", "COLUMNS": "120"}


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(data: str, environ: dict[str, str]) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **options: object) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([*COMMAND, "--data", data, *words], env=environ, **pipes)  # type: ignore[call-overload]
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def publish(data: str, count: int, value: bytes = b"x" * 100) -> None:
    with trine.open(data) as broker:
        broker.topic("orders").publish_many([value] * count)


def lag(data: str) -> tuple[int, int]:
    with trine.open(data) as broker:
        found = broker.topic("orders").group("audit").lag()
    return found.count, found.in_flight


def test_a_closed_pipe_ends_it_quietly_and_gives_back_what_was_leased(data: str, start: Start) -> None:
    publish(data, 20_000)
    process = start("consume", "orders", "--group", "audit")
    assert process.stdout is not None
    for _ in range(150):  # more than one batch: the first is acked
        process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(PATIENCE_S) == 141
    count, in_flight = lag(data)
    assert 0 < count < 20_000
    assert in_flight == 0


def test_a_closed_pipe_while_the_log_is_read(data: str, environ: dict[str, str]) -> None:
    publish(data, 20_000)
    command = f"{sys.executable} -m trine.cli --data {data} consume orders | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], env=environ, capture_output=True, timeout=PATIENCE_S)
    assert done.stdout == b"x" * 100 + b"\n141\n"
    assert done.stderr == b""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_gives_back_what_was_leased(
    data: str, start: Start, number: int, code: int
) -> None:
    publish(data, 3, b"hello")
    process = start("consume", "orders", "--group", "audit", "--follow")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == [b"hello\n"] * 3
    process.send_signal(number)
    assert ended(process) == (code, b"", b"")
    assert lag(data)[1] == 0


def test_following_the_log_ends_after_so_many(data: str, start: Start) -> None:
    publish(data, 3, b"hello")
    assert ended(start("consume", "orders", "--follow", "--max", "3")) == (0, b"hello\n" * 3, b"")


def test_lines_are_published_when_they_are_written(start: Start) -> None:
    process = start("produce", "orders", "--json", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for line in (b"one\n", b"two\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["durability"] == "synced"
    process.stdin.close()
    assert process.wait(PATIENCE_S) == 0


def test_one_pipe_into_another(data: str, start: Start) -> None:
    publish(data, 1000, b"again")
    read = start("consume", "orders", "-o", "value")
    code, values, _ = ended(read)
    assert (code, len(values.splitlines())) == (0, 1000)
    code, out, _ = ended(start("produce", "copy", "--create", "--file", "-", stdin=_full_pipe(values)))
    assert (code, out) == (0, b"1000 messages published, synced\n")


def _full_pipe(raw: bytes) -> int:
    """A pipe that holds all of it already; small enough for its buffer."""
    assert len(raw) < 60_000
    reading, writing = os.pipe()
    os.write(writing, raw)
    os.close(writing)
    return reading


def test_colours_are_for_terminals_only(start: Start) -> None:
    assert b"\x1b" not in ended(start("topic", "list"))[1]
    assert b"\x1b[1m" in Terminal(start, "topic", "list").all()


def test_long_work_shows_how_far_it_is_on_a_terminal(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes((b"x" * 99 + b"\n") * 20_000)
    ours, theirs = pty.openpty()
    process = start("produce", "orders", "--durability", "memory", "--file", str(file), stderr=theirs)
    os.close(theirs)
    shown = b""
    while chunk := read_terminal(ours):
        shown += chunk
    os.close(ours)
    assert b"produce" in shown
    assert b"100%" in shown
    assert ended(process)[:2] == (0, b"20000 messages published, memory\n")


def test_no_color_is_obeyed(start: Start, environ: dict[str, str]) -> None:
    environ["NO_COLOR"] = "1"
    shown = Terminal(start, "topic", "list").all()
    assert b"orders" in shown
    assert b"\x1b[3" not in shown


class Terminal:
    """A process with a terminal for its input and output, and somebody who types."""

    def __init__(self, start: Start, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = start(*words, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self._seen = b""

    def until(self, text: bytes) -> bytes:
        """What is shown up to and with `text`."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self._seen:
            ready, _, _ = select.select([self._ours], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"{text!r} did not come; there is {self._seen!r}"
            self._seen += self._read()
        before, _, self._seen = self._seen.partition(text)
        return before + text

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode() + b"\n")

    def all(self) -> bytes:
        while chunk := self._read():
            self._seen += chunk
        os.close(self._ours)
        self.process.wait(PATIENCE_S)
        return self._seen

    def _read(self) -> bytes:
        return read_terminal(self._ours)


def read_terminal(ours: int) -> bytes:
    try:
        return os.read(ours, 65536)
    except OSError:  # how Linux says that the other side is closed
        return b""


def test_manual_acks_ask_for_each_message(data: str, start: Start) -> None:
    with trine.open(data) as broker:
        for value in ("good", "again", "bad", "later"):
            broker.topic("orders").publish(value, partition=0)
    terminal = Terminal(start, "consume", "orders", "--group", "audit", "--ack", "manual")
    for shown, answer in (
        (b"good", "a"),
        (b"again", "n 1h not today"),
        (b"bad", "e 1m"),
        (b"TIME", "what"),
        (b"TIME", "r cannot be parsed"),
        (b"later", "q"),
    ):
        terminal.until(shown)
        terminal.until(b"[q]uit? ")
        terminal.type(answer)
    terminal.all()
    assert terminal.process.returncode == 0
    with trine.open(data) as broker:
        orders = broker.topic("orders")
        assert [letter.reason for letter in orders.dead_letters()] == ["cannot be parsed"]
        found = broker.search("orders", group="audit", state="unacked")
    # The nacked one waits for its hour; the one that was shown last went back when its asker quit.
    assert [one.message_id for one in found] == ["orders/0/1", "orders/0/3"]


def test_deleting_asks_for_the_name(start: Start) -> None:
    terminal = Terminal(start, "topic", "delete", "orders")
    terminal.until(b"Type its name")
    terminal.type("something else")
    terminal.all()
    assert terminal.process.returncode == 2
    terminal = Terminal(start, "topic", "delete", "orders")
    terminal.until(b"Type its name")
    terminal.type("orders")
    assert b"orders: deleted" in terminal.all()
    assert terminal.process.returncode == 0


def test_the_shell_completes_names(data: str, environ: dict[str, str]) -> None:
    def completed(*words: str) -> list[str]:
        asked = {
            **environ,
            "_TRINE_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("trine", *words)),
            "COMP_CWORD": str(len(words)),
            "TRINE_COMPLETION_WAIT": f"{PATIENCE_S}s",
        }
        done = subprocess.run(COMMAND, env=asked, capture_output=True, text=True, timeout=PATIENCE_S)
        return done.stdout.split()

    with trine.open(data) as broker:
        broker.topic("orders").create_group("billing")
    assert completed("--data", data, "topic", "describe", "or") == ["orders"]
    assert completed("group", "describe", "--data", data, "orders", "b") == ["billing"]
    assert completed("--server", "trine://127.0.0.1:1", "topic", "describe", "or") == []


def test_a_verb_imports_what_it_needs_and_no_more(data: str, environ: dict[str, str]) -> None:
    code = (
        "import sys; sys.argv = ['trine', '--data', sys.argv[1], 'produce', 'orders', 'x']\n"
        "from trine.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, data], env=environ, capture_output=True, text=True, timeout=PATIENCE_S
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "trine" in loaded
    assert not loaded & {"litestar", "prometheus_client", "rich", "structlog", "uvicorn", "uvloop", "yaml"}


def test_without_its_packages_it_says_what_to_install(environ: dict[str, str]) -> None:
    code = "import sys; sys.modules['typer'] = None\nfrom trine.cli.main import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "trine: typer is missing: pip install 'trine[cli]'\n"
