"""A tour of the embedded library: `make run-embedded`, or `python examples/embedded_tour.py`.

It opens a store in a temporary folder, prints what happens message by message, and kills a process of its own with
SIGKILL on the way, to show what is there afterwards. Each chapter is a function; read it beside its output.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

import trine
from trine import errors

console = Console(highlight=False)
chapters = itertools.count(1)


# ---------------------------------------------------------------- printing


def chapter(title: str, text: str) -> None:
    console.print()
    console.rule(f"[bold]{next(chapters)}. {escape(title)}", align="left")
    console.print(escape(text), style="dim")


def say(text: str) -> None:
    console.print(Padding(text, (0, 0, 0, 2), expand=False))


def text_of(value: bytes | None) -> str:
    return "-" if value is None else escape(value.decode())


def delivered(message: trine.Message) -> str:
    again = f", attempt [bold]{message.attempt}[/]" if message.attempt > 1 else ""
    return f"[cyan]{message.id}[/] {text_of(message.value)} (key {text_of(message.key)}, {message.priority}{again})"


def clock_of(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%H:%M:%S.%f}"[:-3] + "Z"


# ---------------------------------------------------------------- the chapters


def publish(broker: trine.Broker) -> trine.Topic:
    chapter(
        "Publish",
        "A topic of three partitions. The key chooses the partition; each answer says where the message is and "
        "how durable it was when it was answered.",
    )
    orders = broker.create_topic("orders", partitions=3)
    table = Table("value", "options", "answered id", "durability", box=None, padding=(0, 2, 0, 2))

    def send(value: str, **options: Any) -> trine.PublishReceipt:
        receipt = orders.publish(value, **options)
        shown = ", ".join(f"{name}={option}" for name, option in options.items())
        what = "[yellow]duplicate of[/] " if receipt.duplicate else ""
        table.add_row(escape(value), escape(shown), what + receipt.message_id, receipt.durability)
        return receipt

    send("coffee", key="ann", priority="low")
    send("tea", key="ben")
    send("cake", key="cem", priority="high")
    first = send("invoice 7", key="ann", dedup_id="invoice-7")
    again = send("invoice 7", key="ann", dedup_id="invoice-7")
    send("today's offer", ttl="1ms")
    send("reminder", key="ben", delay="1h")
    console.print(table)
    assert again.duplicate
    assert again.message_id == first.message_id
    (waiting,) = orders.schedules()
    say(f"The delayed one is not in the log yet: [cyan]{waiting.id}[/] is due at {clock_of(waiting.due_ms)}.")
    return orders


def settle(orders: trine.Topic) -> tuple[str, str]:
    """Answers the ids of the message that was tried twice and of the one that was rejected."""
    chapter(
        "Receive, ack, nack, reject",
        "A group leases messages to its members: the high lane first. Each message is settled by itself, and a slow "
        "or failing one does not hold up the others.",
    )
    with orders.group("kitchen", lease="30s").consumer("cook") as cook:
        retried = rejected = ""
        for message in cook.receive(max=10):
            if message.value == b"coffee":
                message.nack(delay="300ms", reason="no water")
                retried = message.id
                say(f"{delivered(message)}: [yellow]nacked[/], again in 300 ms")
            elif message.value == b"tea":
                message.reject("tea is not on the menu")
                rejected = message.id
                say(f"{delivered(message)}: [red]rejected[/]")
            else:
                message.ack()
                say(f"{delivered(message)}: [green]acked[/]")
        say("today's offer was never delivered: its ttl had passed.")
        (message,) = cook.receive(wait="2s")
        message.ack()
        say(f"{delivered(message)}: [green]acked[/]")
    (letter,) = orders.dead_letters()
    say(
        f'Dead letter [cyan]{letter.id}[/]: "{letter.reason}", from {letter.origin}, attempts: {letter.attempts}.'
    )
    return retried, rejected


def scheduled(broker: trine.Broker, orders: trine.Topic) -> None:
    chapter(
        "A delayed message fires",
        "It can be listed, moved and cancelled while it waits. It enters the log when it is due: never early, and "
        "after a restart still on time.",
    )
    (waiting,) = orders.schedules()
    broker.reschedule(waiting.id, delay="500ms")
    (moved,) = orders.schedules()
    say(
        f"[cyan]{moved.id}[/] was due at {clock_of(waiting.due_ms)}; we cannot wait: {clock_of(moved.due_ms)} now."
    )
    with orders.group("kitchen").consumer("cook") as cook:
        (message,) = cook.receive(wait="5s")
        message.ack()
    say(
        f"{delivered(message)}: it waited as [cyan]{message.schedule_id}[/] until {clock_of(message.timestamp_ms)}."
    )


def key_order(broker: trine.Broker) -> None:
    chapter(
        "Order by key, two members",
        'With order="key" one message of a key is out at a time. Other keys go on: to any member, at once.',
    )
    moves = broker.create_topic("moves", partitions=3)
    for step in (1, 2):
        for key in ("red", "blue"):
            moves.publish(f"{key} {step}", key=key)
    group = moves.group("players", order="key")
    with group.consumer("one") as one, group.consumer("two") as two:
        (held,) = one.receive()
        say(f"one has {delivered(held)}")
        (other,) = two.receive()
        say(f"two has {delivered(other)}")
        assert held.key != other.key
        say(
            f"Nothing else is free: the second moves wait for the first ones ({len(two.receive())} received)."
        )
        held.ack()
        (following,) = two.receive(wait="2s")
        say(f"one acked, so two gets {delivered(following)}")
        assert following.key == held.key
        two.ack([other, following])
        (last,) = one.receive(wait="2s")
        say(f"two acked both, so one gets {delivered(last)}")
        last.ack()
    say(f"Lag of the group: {group.lag().count}.")


def leases(broker: trine.Broker) -> None:
    chapter(
        "A lease ends",
        "A member that neither settles nor extends in time loses the message; a late ack is refused.",
    )
    jobs = broker.create_topic("jobs", partitions=1)
    jobs.publish("resize photo", key="p1")
    group = jobs.group("workers", lease="300ms", backoff={"first_ms": 0, "jitter": 0.0})
    with group.consumer("stuck") as stuck, group.consumer("lively") as lively:
        (late,) = stuck.receive()
        say(f"stuck has {delivered(late)} and does nothing.")
        group.alter(lease="30s")  # of deliveries from now on
        (message,) = lively.receive(wait="2s")
        say(f"lively has {delivered(message)}")
        try:
            late.ack()
        except errors.StaleReceipt as error:
            say(f"stuck acks too late: [red]{error.code}[/]: {escape(str(error))}")
        message.ack()


def crash(path: str) -> None:
    chapter(
        "kill -9",
        "Another process opens the store, acks some messages, holds others, and publishes until it is killed with "
        "SIGKILL. It reports what the broker answered, line by line; then we open what it left behind.",
    )
    command = [sys.executable, __file__, "--crash-worker", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        answered: dict[str, list[str]] = {"published": [], "acked": [], "held": []}
        for line in worker.stdout:
            what, message_id = line.split()
            answered[what].append(message_id)
            if answered["held"] and len(answered["published"]) == 60:
                worker.send_signal(signal.SIGKILL)
        # The pipe has what it said up to its end, so nothing that was answered is missing here.
    say(f"The process {worker.pid} ended with {worker.returncode} (killed by signal {-worker.returncode}).")
    say("It had been answered: " + ", ".join(f"{len(ids)} {what}" for what, ids in answered.items()) + ".")
    assert worker.returncode == -signal.SIGKILL

    began = time.perf_counter()
    with trine.open(path) as broker:
        took_ms = (time.perf_counter() - began) * 1000
        parcels = broker.topic("parcels")
        stored = {message.id for message in parcels.read(max=10_000)}
        lost = set(answered["published"]) - stored
        say(f"Opened again in {took_ms:.0f} ms, with {len(stored)} messages in the log.")
        unheard = len(stored) - len(answered["published"])
        if unheard:
            say(f"{unheard} of them it never told us of: stored, and killed before the answer was out.")
        say(f"Answered publishes that are missing: [bold]{len(lost)}[/].")
        with parcels.group("couriers").consumer("anna") as anna:
            back = {message.id: message for message in anna.receive(max=10_000)}
            anna.ack(list(back.values()))
        returned = back.keys() & set(answered["acked"])
        say(f"Acked messages that came back: [bold]{len(returned)}[/].")
        for message_id in answered["held"]:
            say(f"Held and not acked, so it comes again: {delivered(back[message_id])}")
        assert not lost
        assert not returned
        assert stored - set(answered["acked"]) == back.keys()
        assert all(back[message_id].attempt == 2 for message_id in answered["held"])


def crash_worker(path: str) -> None:
    """The process that is killed. Each line is printed after the broker has answered."""
    broker = trine.open(path)
    parcels = broker.create_topic("parcels", partitions=3)
    for number in range(20):
        print("published", parcels.publish(f"parcel {number}", key=f"street {number}").message_id, flush=True)
    courier = parcels.group("couriers").consumer("carl")
    for message in courier.receive(max=10):
        message.ack()
        print("acked", message.id, flush=True)
    for message in courier.receive(max=3):
        print("held", message.id, flush=True)
    for number in itertools.count(20):
        print("published", parcels.publish(f"parcel {number}", key=f"street {number}").message_id, flush=True)


def replay(orders: trine.Topic, since_ms: int) -> None:
    chapter(
        "Read again, and replay",
        "Acked is not deleted: the log keeps it for its retention. Read it by offset or time, or send the group back.",
    )
    since = since_ms / 1000
    for message in orders.read(from_time=since):
        say(f"{clock_of(message.timestamp_ms)} [cyan]{message.id}[/] {text_of(message.value)}")
    group = orders.group("kitchen")
    group.seek(time=since)
    say(f"The group was sent back to {clock_of(since_ms)}; its lag is {group.lag().count} now.")
    with group.consumer("cook") as cook:
        messages = cook.receive(max=10)
        say(f"It gets {len(messages)} of them again (not the expired one), and acks them in one call.")
        cook.ack(messages)


def trace(broker: trine.Broker, *message_ids: str) -> None:
    chapter("The life of a message", "Read out of the log and the group's ledger, which exist anyway.")
    for message_id in message_ids:
        console.print()
        console.print(escape(str(broker.trace(message_id))), soft_wrap=True)


def redrive(broker: trine.Broker, orders: trine.Topic) -> None:
    chapter(
        "Redrive",
        "Dead letters go back as a job: filtered, looked at first, edited on the way, and resumable.",
    )

    def mend(letter: trine.DeadLetter) -> dict[str, object]:
        assert letter.value is not None
        return {"value": letter.value.replace(b"tea", b"iced tea")}

    job = broker.redrive("orders", reason="not on the menu", edit=mend)
    for letter in job.preview():
        say(
            f'Dry run: [cyan]{letter.id}[/] {text_of(letter.value)}, "{letter.reason}". Nothing has moved yet.'
        )
    progress = job.run()
    say(f"{job.id}: {progress['state']}, moved {progress['moved']} of {progress['matched']} that matched.")
    with orders.group("kitchen").consumer("cook") as cook:
        (message,) = cook.receive(wait="2s")
        message.ack()
    say(f"Back in its topic, as a new message: {delivered(message)}: [green]acked[/]")
    say(f"Dead letters left: {len(orders.dead_letters())}.")


def statistics(broker: trine.Broker) -> None:
    chapter("Numbers", "What the broker knows at any time, without asking the disk.")
    numbers = broker.statistics()
    table = Table("topic", "messages", "bytes", "scheduled", box=None, padding=(0, 2, 0, 2))
    for name, counts in sorted(numbers["topics"].items()):
        table.add_row(name, *(str(counts[word]) for word in ("messages", "bytes", "scheduled")))
    console.print(table)
    table = Table("group", "lag", "in flight", "retrying", box=None, padding=(0, 2, 0, 2))
    for name, counts in sorted(numbers["groups"].items()):
        table.add_row(name, *(str(counts[word]) for word in ("lag", "in_flight", "retrying")))
    console.print(table)
    say(f"Every stored byte was read and checked: {broker.verify()} bytes are sound.")


def tour(path: str) -> None:
    console.print(f"[bold]Trine {trine.__version__}[/], embedded, in {escape(path)}")
    began_ms = time.time_ns() // 1_000_000
    with trine.open(path) as broker:
        orders = publish(broker)
        told = settle(orders)
        key_order(broker)
        leases(broker)
        scheduled(broker, orders)
    crash(path)
    with trine.open(path) as broker:
        orders = broker.topic("orders")
        replay(orders, began_ms)
        redrive(broker, orders)
        trace(broker, *told)
        statistics(broker)
    docs = Path(__file__).resolve().parents[1] / "docs" / "README.md"
    console.print()
    console.rule("[bold]Where to go on", align="left")
    say(
        f"The documentation begins at {escape(str(docs))}; this tour is {escape(str(Path(__file__).resolve()))}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--crash-worker", metavar="DIR", help="for the tour's own use: work in DIR until killed"
    )
    given = parser.parse_args()
    if given.crash_worker:
        with contextlib.suppress(BrokenPipeError):
            crash_worker(given.crash_worker)
        return
    with tempfile.TemporaryDirectory(prefix="trine-tour-") as path:
        tour(path)


if __name__ == "__main__":
    main()
