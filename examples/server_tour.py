"""A tour of the server: `make run`, or `python examples/server_tour.py`.

It starts a server, a producer and two consumers, each a process of its own, and shows what each of them sees: a
delay, a priority, a retry, a dead letter, a trace, and a replay from a time. Spark archives a topic, retention deletes
it from the log, and it is replayed from the archive. Then the server stays, to be tried out, until Ctrl-C.

    director (here) ── starts ──▶ trine serve
        │ tells by lines                ▲  ▲  ▲
        ├──▶ producer ── publishes ─────┘  │  │
        ├──▶ worker-1 ── receives, acks ───┘  │
        └──▶ worker-2 ── receives, acks ──────┘
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import table_tour
from rich.console import Console
from rich.markup import escape

import trine
from trine.model.errors import TrineError

PORTS = {"binary": 5680, "http": 8080}
STAY_S = 60.0
"""How long the server stays when nobody is at a terminal to press Ctrl-C."""
PATIENCE_S = 30.0
COLOURS = {
    "server": "magenta",
    "producer": "blue",
    "worker-1": "green",
    "worker-2": "cyan",
    "spark": "yellow",
    "tour": "white",
}

console = Console(highlight=False)


# ---------------------------------------------------------------- the cast, each in a process of its own


def produce(address: str) -> None:
    """Publishes what it is told, one JSON object a line, and says what was answered."""
    with trine.connect(address) as broker:
        orders = broker.topic("orders")
        print("connected", flush=True)
        for line in sys.stdin:
            told = json.loads(line)
            receipt = orders.publish(**told)
            options = ", ".join(f"{name} {option}" for name, option in told.items() if name != "value")
            print(
                f"published {told['value']} ({options}): {receipt.message_id}, {receipt.durability}",
                flush=True,
            )


def work(address: str, name: str) -> None:
    """A consumer of the group `kitchen`: acks what it can do, gives back what it cannot do yet, rejects the rest."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    with trine.connect(address) as broker, contextlib.suppress(KeyboardInterrupt):
        with broker.topic("orders").group("kitchen").consumer(name, prefetch=1) as consumer:
            print("joined the group kitchen", flush=True)
            while not stop.is_set():
                for message in consumer.receive(max=1, wait="200ms"):
                    print(handle(message), flush=True)
        print("left, and gave back what it held", flush=True)


def handle(message: Any) -> str:
    value = (message.value or b"").decode()
    time.sleep(0.02)  # the work
    what = f"{value} ({message.priority}, attempt {message.attempt})"
    if value.startswith("soup") and message.attempt == 1:
        message.nack(delay="400ms", reason="the pot is still cold")
        return f"gave back {what}: the pot is still cold, again in 400 ms"
    if value.startswith("!"):
        message.reject("this is not an order")
        return f"rejected {what}: this is not an order"
    message.ack()
    return f"acked {what}"


# ---------------------------------------------------------------- the director


class Part:
    """One process of the cast; its lines are printed as they come, and can be waited for."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.lines: queue.Queue[str] = queue.Queue()
        # A group of its own: Ctrl-C is for the director, who ends the others in order.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1,
            start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said(self.name, line.rstrip())
            self.lines.put(line)

    def tell(self, **words: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.lines.get(timeout=max(deadline - time.monotonic(), 0.01)):
            pass

    def end(self, by: signal.Signals | None = None) -> int:
        if by is not None:
            self.process.send_signal(by)
        elif self.process.stdin is not None:
            self.process.stdin.close()
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._reader.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        return code


def said(who: str, text: str) -> None:
    console.print(f"[{COLOURS[who]}]{who:>9}[/]  {escape(text)}", soft_wrap=True)


def chapter(number: int, title: str, text: str) -> None:
    time.sleep(0.2)  # the last lines of the chapter before are still on their way here
    console.print()
    console.rule(f"[bold]{number}. {escape(title)}", align="left")
    console.print(escape(text), style="dim")


def free_port(preferred: int) -> int:
    """The usual port if nobody has it, else any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", preferred))
            return preferred
    return 0


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[str, str]]:
    """A server on its usual ports if they are free; gives its two addresses."""
    ports = folder / "ports.json"
    server = Part("server", [
        sys.executable, "-m", "trine.cli", "serve", "--data-dir", str(folder / "data"), "--log-format", "console",
        "--binary-port", str(free_port(PORTS["binary"])), "--http-port", str(free_port(PORTS["http"])),
        "--ports-file", str(ports),
    ])  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not ports.exists():
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the server did not start; its own words are above")
            time.sleep(0.05)
        found = json.loads(ports.read_text())
        yield "trine://{}:{}".format(*found["binary"]), "http://{}:{}".format(*found["http"])
    finally:
        if server.end(signal.SIGTERM) == 0:
            said("tour", "the server has synced everything and left")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"the tour waited in vain for {what}")
        time.sleep(0.05)


def tour(address: str, http: str) -> None:
    with trine.connect(address) as broker:
        orders = broker.create_topic("orders", partitions=3)
        kitchen = orders.create_group("kitchen", lease="10s")
        me = str(Path(__file__).resolve())
        workers = [
            Part(name, [sys.executable, me, "worker", address, name]) for name in ("worker-1", "worker-2")
        ]
        producer = Part("producer", [sys.executable, me, "producer", address])
        try:
            producer.wait_for("connected")
            for worker in workers:
                worker.wait_for("joined")
            chapters(broker, orders, kitchen, producer)
            look_over_http(http)
        finally:
            producer.end()
            for worker in workers:
                worker.end()


def chapters(broker: trine.Broker, orders: trine.Topic, kitchen: trine.Group, producer: Part) -> None:
    def send(value: str, **options: Any) -> None:
        producer.tell(value=value, **options)
        producer.wait_for(f"published {value}")

    def done() -> bool:
        return kitchen.lag().count == 0

    chapter(
        1,
        "Two consumers share the work",
        "Each order goes to one member of the group, and is acked by itself.",
    )
    for number, (dish, guest) in enumerate(
        [("pasta", "ann"), ("salad", "ben"), ("pizza", "cem"), ("bread", "dee")]
    ):
        send(f"{dish} {number}", key=guest)
    until(done, "the first orders")
    began = datetime.now(UTC)

    chapter(
        2, "Delay", "A message can wait for its time: outside the log, never early, and across a restart."
    )
    send("cake", key="ann", delay="1s")
    until(lambda: not orders.schedules() and done(), "the cake")

    chapter(3, "Priority", "The group is paused, six orders come in, and the high lane is served first.")
    kitchen.pause("to let some orders gather")
    for priority, dishes in (
        ("low", ("rice", "beans")),
        ("normal", ("water", "juice")),
        ("high", ("ice", "cream")),
    ):
        for dish in dishes:
            send(dish, key="eve", priority=priority)
    kitchen.resume()
    until(done, "the orders of eve")

    chapter(
        4,
        "Retry",
        "What cannot be done now is given back, and tried again with a count. Others do not wait for it.",
    )
    send("soup", key="ben")
    send("toast", key="ben")
    until(done, "the soup")

    chapter(
        5,
        "Dead letter",
        "What is no good goes to the dead letters, with its reason, and can be sent back later.",
    )
    send("!§$%", key="cem")
    until(lambda: bool(orders.dead_letters()), "the dead letter")
    (letter,) = orders.dead_letters()
    said("tour", f'dead letter {letter.id} of {letter.origin}: "{letter.reason}"')

    chapter(6, "Trace", "The whole life of the soup, read out of the log and the ledgers.")
    (soup,) = [found for found in broker.search("orders", key="ben") if is_soup(orders, found.message_id)]
    console.print(escape(str(broker.trace(soup.message_id))), soft_wrap=True)

    chapter(
        7, "Replay from a time", "Acked messages stay in the log. Another group reads again from any moment."
    )
    audit = orders.group("audit")
    audit.seek(time=began)
    with audit.consumer("auditor") as auditor:
        again = auditor.receive(max=100, wait="2s")
        for message in again:
            said("tour", f"again since {began:%H:%M:%S}: {message.id} {(message.value or b'').decode()}")
        auditor.ack(again)


def is_soup(orders: trine.Topic, message_id: str) -> bool:
    _, partition, offset = message_id.rsplit("/", 2)
    (message,) = orders.read(partition=int(partition), from_offset=int(offset), max=1)
    return message.value == b"soup"


def look_over_http(http: str) -> None:
    chapter(8, "The same over HTTP", f"curl {http}/dashboard")
    with urllib.request.urlopen(f"{http}/dashboard", timeout=PATIENCE_S) as answer:
        console.print_json(answer.read().decode())


def invite(address: str, http: str) -> None:
    console.print()
    console.rule("[bold]The server stays", align="left")
    trine_command = str(Path(sys.executable).with_name("trine"))
    with contextlib.suppress(ValueError):
        trine_command = os.path.relpath(trine_command)
    for what, how in (
        ("binary", address),
        ("dashboard", f"{http}/"),
        ("HTTP", f"{http}/v1"),
        ("API docs", f"{http}/docs"),
        ("metrics", f"{http}/metrics"),
        ("try", f"{trine_command} --server {address} topic list"),
        ("try", f"{trine_command} --server {address} consume orders --max 5"),
        ("try", f"{trine_command} --server {address} sql 'select count(*) from readings$archive'"),
        (
            "try",
            f'curl -d \'{{"topic": "orders", "value": "tea"}}\' -H \'Content-Type: application/json\' {http}/produce',
        ),
    ):
        console.print(f"[bold]{what:>9}[/]  {escape(how)}", soft_wrap=True)


def stay(seconds: float | None) -> None:
    if seconds is None and not sys.stdin.isatty():
        seconds = STAY_S
    console.print(
        "press Ctrl-C to stop" if seconds is None else f"it stays for {seconds:g} s, or until Ctrl-C"
    )
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait(seconds)
        return
    console.print()


def main() -> int:
    asked = argparse.ArgumentParser(description="A tour of Trine's server.")
    asked.add_argument(
        "--stay", type=float, metavar="SECONDS", help="how long the server stays after the tour"
    )
    roles = asked.add_subparsers(dest="role")
    one = roles.add_parser("producer")
    one.add_argument("address")
    one = roles.add_parser("worker")
    one.add_argument("address")
    one.add_argument("name")
    given = asked.parse_args()
    if given.role == "producer":
        produce(given.address)
        return 0
    if given.role == "worker":
        work(given.address, given.name)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    folder = Path(tempfile.mkdtemp(prefix="trine-tour-"))
    try:
        with serving(folder) as (address, http):
            console.print(f"[bold]a server[/] at {address} and {http}, its data in a temporary folder")
            tour(address, http)
            table_tour.show(9, address, folder, chapter, said)
            invite(address, http)
            stay(given.stay)
    except KeyboardInterrupt:
        console.print("stopped")
    except TrineError as error:
        console.print(f"[red]{error.code}[/] {escape(error.message)}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
