"""Every bad input of the public interface has a typed error with a code and a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import trine
from tests.integration.conftest import OpenBroker
from trine.model import errors

CASES: list[tuple[str, Callable[[trine.Broker, trine.Topic], Any], type[errors.TrineError], str]] = [
    ("unknown topic", lambda b, t: b.topic("nope"), errors.UnknownTopic, "create_topic"),
    ("empty name", lambda b, t: b.create_topic(""), errors.InvalidName, "empty"),
    ("long name", lambda b, t: b.create_topic("x" * 201), errors.InvalidName, "200"),
    ("path in a name", lambda b, t: b.create_topic("../etc"), errors.InvalidName, "letters"),
    ("dots", lambda b, t: b.create_topic(".."), errors.InvalidName, "letters"),
    ("name not a string", lambda b, t: b.create_topic(5), errors.InvalidName, "string"),  # type: ignore[arg-type]
    ("topic twice", lambda b, t: b.create_topic("t"), errors.TopicExists, "alter"),
    ("no partitions", lambda b, t: b.create_topic("u", partitions=0), errors.InvalidOption, "partitions"),
    ("unknown option", lambda b, t: b.create_topic("u", colour="red"), errors.InvalidOption, "options are"),
    (
        "option of wrong type",
        lambda b, t: b.create_topic("u", partitions="x"),
        errors.InvalidOption,
        "partitions",
    ),
    ("too large", lambda b, t: t.publish(b"x" * 9_000_000), errors.MessageTooLarge, "reference"),
    (
        "too large among many",
        lambda b, t: t.publish_many([b"x" * 9_000_000]),
        errors.MessageTooLarge,
        "takes",
    ),
    ("value not bytes", lambda b, t: t.publish({"a": 1}), errors.InvalidInput, "json"),
    ("values not bytes", lambda b, t: t.publish_many([1, 2]), errors.InvalidInput, "json"),
    ("nothing to publish", lambda b, t: t.publish_many([]), errors.EmptyBatch, "at least one"),
    ("negative delay", lambda b, t: t.publish(b"", delay=-1), errors.NegativeDelay, "delay"),
    ("negative delay text", lambda b, t: t.publish(b"", delay="-5m"), errors.NegativeDelay, "delay"),
    ("delay above the maximum", lambda b, t: t.publish(b"", delay="8d"), errors.DelayTooLong, "delay_max"),
    (
        "deliver_at too far",
        lambda b, t: t.publish(b"", deliver_at="2200-01-01"),
        errors.DelayTooLong,
        "delay_max",
    ),
    (
        "both times",
        lambda b, t: t.publish(b"", delay=1, deliver_at="2200-01-01"),
        errors.InvalidOption,
        "not both",
    ),
    ("malformed duration", lambda b, t: t.publish(b"", delay="soon"), errors.InvalidDuration, "soon"),
    ("malformed time", lambda b, t: t.publish(b"", deliver_at="tomorrow"), errors.InvalidTime, "tomorrow"),
    ("unknown lane", lambda b, t: t.publish(b"", priority="urgent"), errors.UnknownLane, "high, normal, low"),
    ("unknown partition", lambda b, t: t.publish(b"", partition=99), errors.UnknownPartition, "99"),
    (
        "reserved header",
        lambda b, t: t.publish(b"", headers={"trine-x": b""}),
        errors.InvalidOption,
        "broker's own",
    ),
    ("header value", lambda b, t: t.publish(b"", headers={"a": 1}), errors.InvalidInput, "header 'a'"),
    ("headers shape", lambda b, t: t.publish(b"", headers=["a"]), errors.InvalidInput, "mapping"),
    ("dedup id", lambda b, t: t.publish(b"", dedup_id=""), errors.InvalidOption, "dedup_id"),
    ("durability", lambda b, t: t.publish(b"", durability="forever"), errors.InvalidOption, "synced"),
    ("unknown field", lambda b, t: t.publish_many([{"valu": b""}]), errors.InvalidInput, "fields"),
    ("group name", lambda b, t: t.group("a/b"), errors.InvalidName, "group"),
    ("group option", lambda b, t: t.group("g", lease="-1s"), errors.InvalidDuration, "lease"),
    ("group order", lambda b, t: t.group("g", order="random"), errors.InvalidOption, "order"),
    ("unknown group", lambda b, t: t.group("nope").delete(), errors.UnknownGroup, "creates"),
    ("receive none", lambda b, t: t.group("g").consumer("m").receive(max=0), errors.InvalidOption, "max"),
    ("forged receipt", lambda b, t: t.group("g").ack(["AQAAAA"]), errors.InvalidReceipt, "unchanged"),
    ("receipt not text", lambda b, t: t.group("g").ack([b"x"]), errors.InvalidReceipt, "string"),
    ("lag of no group", lambda b, t: t.group("nope").lag(), errors.UnknownGroup, "creates"),
    ("group with other options", lambda b, t: t.group("g", lease="9m"), errors.GroupExists, "alter"),
    ("group twice", lambda b, t: t.create_group("g"), errors.GroupExists, "exists already"),
    (
        "backoff cap",
        lambda b, t: t.group("x", backoff={"first": "1s", "cap": 0}),
        errors.InvalidOption,
        "cap_ms",
    ),
    ("breaker window", lambda b, t: t.group("x", breaker={"window": 0}), errors.InvalidOption, "window_ms"),
    ("one string as many", lambda b, t: t.publish_many("abc"), errors.InvalidInput, "use publish"),
    ("a mapping without value", lambda b, t: t.publish_many([{"key": "k"}]), errors.InvalidInput, "value"),
    ("kind", lambda b, t: b.create_topic("u", kind="dead_letters"), errors.InvalidOption, "create_queue"),
    ("retention", lambda b, t: b.create_topic("u", retention_ms=-1), errors.InvalidOption, "retention"),
    ("seek nowhere", lambda b, t: t.group("g").seek(), errors.InvalidOption, "exactly one"),
    ("seek to nonsense", lambda b, t: t.group("g").seek(to="end"), errors.InvalidOption, "earliest"),
    ("replay nothing", lambda b, t: t.group("g").replay(), errors.InvalidOption, "failed=True"),
    ("message id", lambda b, t: b.trace("nonsense"), errors.UnknownMessage, "orders/2/1841"),
    ("unknown message", lambda b, t: b.trace("t/0/12345"), errors.UnknownMessage, "12345"),
    ("schedule id", lambda b, t: b.cancel("nonsense"), errors.UnknownSchedule, "looks like"),
    ("unknown schedule", lambda b, t: b.cancel("t@5-5"), errors.UnknownSchedule, "t@5-5"),
    ("unknown cron", lambda b, t: b.delete_cron("x"), errors.UnknownSchedule, "crons()"),
    (
        "cron expression",
        lambda b, t: b.create_cron("x", topic="t", expression="?", value=b""),
        errors.InvalidCron,
        "",
    ),
    ("no dead letters", lambda b, t: b.redrive("t"), errors.UnknownTopic, "no dead letters"),
    ("unknown job", lambda b, t: b.resume_redrive("redrive-9"), errors.UnknownJob, "redrives()"),
    ("empty transaction", lambda b, t: b.transaction().commit(), errors.EmptyBatch, "empty"),
    ("reader start", lambda b, t: t.reader("r", start="middle"), errors.InvalidOption, "earliest"),
]


@pytest.mark.parametrize(
    ("call", "error", "says"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_bad_input(
    call: Callable[[trine.Broker, trine.Topic], Any],
    error: type[errors.TrineError],
    says: str,
    broker: trine.Broker,
) -> None:
    topic = broker.create_topic("t")
    topic.publish(b"before")
    topic.create_group("g")
    with pytest.raises(error) as caught:
        call(broker, topic)
    assert caught.value.code == error.code
    assert says in str(caught.value)
    assert [message.value for message in topic.read()] == [b"before"]


def test_a_receipt_that_was_changed_is_told_from_a_stale_one(broker: trine.Broker) -> None:
    topic = broker.create_topic("t")
    topic.publish(b"x")
    group = topic.group("g")
    (message,) = group.consumer("m").receive()
    receipt = message.receipt
    forged = receipt[:-3] + ("AAA" if receipt[-3:] != "AAA" else "BBB")
    with pytest.raises(errors.InvalidReceipt, match="changed"):
        group.ack([forged])
    with pytest.raises(errors.InvalidReceipt, match="not of 'other'"):
        topic.create_group("other").ack([receipt])
    assert group.ack([receipt]) == 1
    with pytest.raises(errors.StaleReceipt):
        group.ack([receipt])


def test_everything_is_refused_after_close(open_broker: OpenBroker) -> None:
    with open_broker(":memory:") as broker:
        refused_after_close(broker)


def refused_after_close(broker: trine.Broker) -> None:
    topic = broker.create_topic("t")
    consumer = topic.group("g").consumer("m")
    consumer.receive()
    broker.close()
    broker.close()
    for call in (
        lambda: topic.publish(b""),
        lambda: consumer.receive(),
        lambda: broker.topics(),
        lambda: topic.read(),
    ):
        with pytest.raises(errors.Closed, match=r"trine\.(open|connect)"):
            call()
