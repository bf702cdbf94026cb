"""A thousand consumers and two hundred producers on one server: bounded memory, nobody starves, a clean end.

The clients are in processes of their own (`crowd.py`), each client with its own connection. The server is told to stop
while all of them are connected and the producers publish.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import trine
from tests.integration.serving import Serving
from tests.soak.crowd import PREFETCH, TOPICS, topic_of

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024
GIVE_UP_S = 60.0
STOP_S = 15.0
"""The server's own bound (`limits.shutdown`) and what closing a store takes, on a busy machine."""
CONNECTION_BYTES_MAX = 256 * 1024
"""What a connected client may cost the server: buffers, a session, tasks."""
GROWTH = 1.1
GROWTH_BYTES = 16 * MIB
"""How much of its memory in the first part of the run the server may have added at its end."""
SHARE = 4.0
"""Nobody gets less than this part of what the one in the middle gets, or this many times more and a burst."""
MESSAGES_EACH = 8
"""Fewer than this many for each consumer would say nothing about their shares."""


class Clients:
    """One process of `crowd.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the clients' process ended"
        return line

    def end(self) -> None:
        self.say("end")
        assert self._process.wait(GIVE_UP_S) == 0


@contextmanager
def clients(**arguments: Any) -> Iterator[Clients]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.soak.crowd", json.dumps(arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Clients(process)
        finally:
            process.kill()  # if it has ended, nothing happens


def ask(crowd: list[Clients], word: str) -> list[str]:
    for one in crowd:
        one.say(word)
    return [one.hear() for one in crowd]


def totals(crowd: list[Clients], what: str) -> list[Any]:
    """Of all clients of all processes."""
    return [one for report in ask(crowd, "report") for one in json.loads(report)[what]]


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("this system does not say how much memory a process uses")


def allow_files(count: int) -> None:
    """Softly: as far as this user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard < count:
            pytest.skip(f"needs {count} open files, and this user may have {hard}: raise `ulimit -Hn`")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def sample(server: Serving, seconds: float) -> list[int]:
    """The server's memory, over so many seconds."""
    end = time.monotonic() + seconds
    sizes = []
    while time.monotonic() < end:
        sizes.append(resident_bytes(server.pid))
        time.sleep(min(0.5, seconds / 20))
    return sizes


def drained(crowd: list[Clients], count: int) -> list[int]:
    """What each consumer took, when all of them together have taken so many."""
    deadline = time.monotonic() + GIVE_UP_S
    while sum(taken := totals(crowd, "taken")) < count:
        assert time.monotonic() < deadline, f"{count - sum(taken)} messages are left and nobody takes them"
        time.sleep(0.05)
    return taken


def check_shares(what: str, counts: list[int]) -> None:
    middle = statistics.median(counts)
    assert min(counts) >= max(middle / SHARE, 1), f"some {what} starve: {min(counts)} of {middle:g}"
    assert max(counts) <= middle * SHARE + PREFETCH, f"some {what} get too much: {max(counts)} of {middle:g}"


def check_memory(before: int, connected: int, during: list[int], count: int) -> None:
    each = (connected - before) / count
    assert each < CONNECTION_BYTES_MAX, f"a connection costs {each:,.0f} bytes"
    early = max(during[: len(during) // 3])
    late = max(during[len(during) * 2 // 3 :])
    assert late < early * GROWTH + GROWTH_BYTES, (
        f"memory grows: {early / MIB:.0f} MiB, then {late / MIB:.0f} MiB"
    )


def check_log(server: Serving) -> None:
    for line in server.logs.splitlines():
        assert json.loads(line)["level"] in ("debug", "info", "warning"), line


def run(
    folder: Path, *, consumers: int, producers: int, processes: int, seconds: float, pace_s: float
) -> dict[str, Any]:
    """The whole of it; answers the figures, for who wants to see them."""
    allow_files(consumers + producers + 1_000)
    with Serving(folder / "data") as server, ExitStack() as stack:
        with trine.connect(server.url) as broker:
            for number in range(TOPICS):
                topic = broker.create_topic(topic_of(number), partitions=6)
                topic.create_group("g", order="key" if number == 0 else "none")
        before = resident_bytes(server.pid)
        crowd = []
        for number in range(processes):
            each = {"consumers": consumers // processes, "producers": producers // processes}
            first = number * max(each.values())
            crowd.append(stack.enter_context(clients(url=server.url, first=first, pace_s=pace_s, **each)))
        assert [one.hear() for one in crowd] == ["ready"] * processes
        connected = resident_bytes(server.pid)

        ask(crowd, "go")
        during = sample(server, seconds)
        while sum(totals(crowd, "published")) < MESSAGES_EACH * consumers:  # a busy machine takes longer
            during += sample(server, 1)
        ask(crowd, "pause")
        published = totals(crowd, "published")
        taken = drained(crowd, sum(published))
        with trine.connect(server.url) as broker:
            groups = [broker.topic(topic_of(number)).group("g") for number in range(TOPICS)]
            assert [group.lag().count for group in groups] == [0] * TOPICS
        assert totals(crowd, "failures") == []
        after = resident_bytes(server.pid)

        ask(crowd, "go")
        sample(server, min(seconds / 10, 2))
        begun = time.monotonic()
        assert server.terminate(STOP_S) == 0, server.logs
        stopped_s = time.monotonic() - begun
        for one in crowd:
            one.end()

    assert len(taken) == consumers
    assert sum(taken) == sum(published), "more was acked than was published"
    check_shares("consumers", taken)
    check_shares("producers", published)
    check_memory(before, connected, during, consumers + producers)
    check_log(server)
    return {
        "rss_mib": [round(size / MIB) for size in (before, connected, *during[:: len(during) // 10], after)],
        "messages": sum(taken),
        "taken": (min(taken), statistics.median(taken), max(taken)),
        "published": (min(published), statistics.median(published), max(published)),
        "stopped_s": round(stopped_s, 1),
    }


def test_a_hundred_consumers_and_twenty_producers(tmp_path: Path) -> None:
    run(tmp_path, consumers=100, producers=20, processes=1, seconds=5, pace_s=0.05)


@pytest.mark.soak
def test_a_thousand_consumers_and_two_hundred_producers(tmp_path: Path) -> None:
    run(tmp_path, consumers=1_000, producers=200, processes=2, seconds=60, pace_s=0.2)
