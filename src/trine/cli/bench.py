"""`trine bench`: how fast this broker is from here: publish, consume, and from publish to delivery."""

from __future__ import annotations

import struct
import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trine.cli.session import Session
from trine.model.limits import RECEIVE_MAX

if TYPE_CHECKING:
    from trine import Consumer, Topic

STAMP: Final = struct.Struct("<q")
"""When a message was published, ns, at the head of its value."""

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
QUIET: Final = "10s"
"""A consumer that is given nothing for so long, while messages are owed to it, gives up."""


def bench(
    session: Session,
    messages: Annotated[
        int, typer.Option("--messages", "-n", min=1, help="To publish and consume.")
    ] = 100_000,
    size: Annotated[int, typer.Option("--size", "-s", min=STAMP.size, help="Bytes of a value.")] = 100,
    batch: Annotated[
        int, typer.Option("--batch", "-b", min=1, max=RECEIVE_MAX, help="Messages a publish, and a receive.")
    ] = 1000,
    durability: Annotated[str, typer.Option("--durability", help="memory, written or synced.")] = "synced",
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="Of the topic.")] = 6,
    rate: Annotated[
        int, typer.Option("--rate", min=1, help="Messages a second while latency is measured.")
    ] = 1000,
    timed: Annotated[
        int, typer.Option("--timed", min=0, help="Messages to measure latency with; 0 leaves it out.")
    ] = 2000,
) -> None:
    """Measure publishing, consuming, and the time from publish to delivery.

    The topic is made for it and deleted afterwards, also when it is interrupted.
    """
    topic = session.broker.create_topic(
        f"trine-bench-{uuid.uuid4().hex[:12]}", partitions=partitions, durability=durability
    )
    results: list[dict[str, Any]] = []
    try:
        results.append(_publish(session, topic, messages, size, batch))
        results.append(_consume(session, topic, messages, size, batch, durability))
        spans = _latency(session, topic, timed, size, rate, durability) if timed else []
    finally:
        topic.delete()
    latency = _percentiles(spans)
    if session.json:
        session.document(
            {
                "messages": messages, "size": size, "batch": batch, "durability": durability,
                "partitions": partitions, "rates": results, "latency_ms": latency, "rate": rate,
            }
        )  # fmt: skip
        return
    session.table(
        ["", "messages", "seconds", "messages/s", "MB/s"],
        [
            [
                one["what"],
                f"{one['messages']:,}",
                f"{one['seconds']:.2f}",
                f"{one['per_second']:,.0f}",
                f"{one['mb_per_second']:.1f}",
            ]
            for one in results
        ],
    )
    if latency:
        session.line("")
        session.line(f"publish to delivery, {len(spans):,} messages at {rate:,}/s, ms:")
        session.line("  ".join(f"{name} {span:.2f}" for name, span in latency.items()))


def _publish(session: Session, topic: Topic, messages: int, size: int, batch: int) -> dict[str, Any]:
    value = bytes(size)
    began = time.perf_counter()
    with session.progress("publish", messages) as reached:
        sent = 0
        while sent < messages:
            sent += len(topic.publish_many([value] * min(batch, messages - sent)))
            reached(sent)
    return _rate("publish", messages, size, time.perf_counter() - began)


def _consume(
    session: Session, topic: Topic, messages: int, size: int, batch: int, durability: str
) -> dict[str, Any]:
    with (
        topic.group("bench", durability=durability).consumer("bench") as consumer,
        session.progress("receive and ack", messages) as reached,
    ):
        began = time.perf_counter()
        got = 0
        while got < messages:
            received = consumer.receive(max=batch, wait=QUIET)
            if not received:
                break
            got += consumer.ack(received)
            reached(got)
        return _rate("receive and ack", got, size, time.perf_counter() - began)


def _rate(what: str, messages: int, size: int, seconds: float) -> dict[str, Any]:
    return {
        "what": what,
        "messages": messages,
        "seconds": seconds,
        "per_second": messages / seconds,
        "mb_per_second": messages * size / seconds / 1e6,
    }


def _latency(
    session: Session, topic: Topic, timed: int, size: int, rate: int, durability: str
) -> list[float]:
    """Milliseconds from before a publish to after its receive, at a steady rate, on one clock."""
    group = topic.create_group("latency", start="latest", durability=durability)
    spans: list[float] = []
    rest = bytes(size - STAMP.size)
    failed: list[BaseException] = []
    with group.consumer("bench") as consumer, session.progress("latency", timed) as reached:
        receiving = threading.Thread(
            target=_caught, args=(failed, lambda: _receive(consumer, spans, timed)), daemon=True
        )
        receiving.start()
        began = time.perf_counter()
        for number in range(timed):
            pause = began + number / rate - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            topic.publish(STAMP.pack(time.perf_counter_ns()) + rest)
            reached(number + 1)
        receiving.join()
    if failed:
        raise failed[0]
    return spans


def _receive(consumer: Consumer, spans: list[float], timed: int) -> None:
    while len(spans) < timed:
        received = consumer.receive(max=100, wait=QUIET)
        now = time.perf_counter_ns()
        if not received:
            return
        spans += [(now - STAMP.unpack_from(message.value or b"")[0]) / 1e6 for message in received]
        consumer.ack(received)


def _caught(failed: list[BaseException], work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException as error:
        failed.append(error)


def _percentiles(spans: list[float]) -> dict[str, float]:
    if not spans:
        return {}
    ordered = sorted(spans)
    found = {
        name: ordered[min(int(len(ordered) * share), len(ordered) - 1)] for name, share in PERCENTILES.items()
    }
    return {**found, "max": ordered[-1]}
