"""Metrics: what they say is what happened, they survive a restart, labels are bounded, and the page lists them all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import trine
from trine import SimulatedClock
from trine.broker.engine import Engine
from trine.broker.opening import open_store
from trine.broker.sync import Broker
from trine.server import metrics as metrics_module
from trine.server.context import Readiness
from trine.server.metrics import OTHERS, Metrics

DOCS = Path(__file__).resolve().parents[3] / "docs"


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """By name and the values of labels, the topic before the group."""
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels = sorted(sample.labels.items(), reverse=True)
            found[sample.name, *(value for _, value in labels)] = sample.value
    return found


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def opened(clock: SimulatedClock) -> Iterator[tuple[Broker, Engine]]:
    engine, housekeeper = open_store(":memory:", clock=clock, seed=1)
    with Broker(engine, housekeeper) as broker:
        yield broker, engine


def work(broker: Broker, clock: SimulatedClock) -> None:
    """Ten messages: 4 acked, 1 rejected, 1 nacked and redelivered (in flight), 1 expired, 3 waiting; one scheduled."""
    orders = broker.create_topic("orders", partitions=1)
    group = orders.group("billing")
    orders.publish("short", ttl="1s")
    clock.advance("2s")
    orders.publish_many([str(number) for number in range(9)])
    orders.publish("later", delay="1h")
    consumer = group.consumer("worker")
    received = consumer.receive(max=7)  # the expired one is among them, and is not given
    for message in received[:4]:
        message.ack()
    received[4].reject("bad")
    received[5].nack(delay=0)
    assert len(consumer.receive(max=1)) == 1
    clock.advance("3s")


def test_numbers_are_those_of_the_engine(opened: tuple[Broker, Engine], clock: SimulatedClock) -> None:
    broker, engine = opened
    metrics = Metrics(node_id="n", version="1.2.3")
    metrics.watch(engine)
    work(broker, clock)
    found = samples(metrics)
    of_group = {key[0]: value for key, value in found.items() if key[1:] == ("orders", "billing")}
    assert of_group == {
        "trine_group_lag_messages": 4, "trine_group_lag_seconds": 3.0, "trine_group_in_flight_messages": 1,
        "trine_group_retrying_messages": 0, "trine_group_members": 1, "trine_group_paused": 0,
        "trine_group_delivered_messages_total": 7, "trine_group_redelivered_messages_total": 1,
        "trine_group_acked_messages_total": 4, "trine_group_nacked_messages_total": 1,
        "trine_group_returned_messages_total": 0, "trine_group_rejected_messages_total": 0,
        "trine_group_dead_lettered_messages_total": 1, "trine_group_expired_messages_total": 1,
        "trine_group_filtered_messages_total": 0, "trine_group_gone_messages_total": 0,
        "trine_group_redriven_messages_total": 0,
    }  # fmt: skip
    assert found["trine_topic_published_messages_total", "orders"] == 10
    assert found["trine_topic_published_messages_total", "orders.dlq"] == 1
    assert found["trine_topic_messages", "orders"] == 10
    assert found["trine_topic_scheduled", "orders"] == found["trine_scheduled_messages",] == 1
    assert found["trine_topics",] == 2
    assert found["trine_log_bytes",] == sum(
        found["trine_topic_bytes", name] for name in ("orders", "orders.dlq")
    )
    assert found["trine_store_failed",] == 0


def test_totals_survive_a_kill_and_a_checkpoint(tmp_path: Path, clock: SimulatedClock) -> None:
    path = str(tmp_path / "data")

    def totals() -> dict[str, int]:
        engine, housekeeper = open_store(path, clock=clock, seed=1)
        with engine.lock:
            found = engine.topics["orders"].groups["billing"].totals()
        housekeeper.stop()
        engine._let_go()  # as a crash does: no checkpoint
        return found

    engine, housekeeper = open_store(path, clock=clock, seed=1)
    broker = Broker(engine, housekeeper)
    work(broker, clock)
    before = engine.topics["orders"].groups["billing"].totals()
    engine._let_go()
    once = totals()
    assert {**once, "returned": 0} == before, "replayed from the journal, and counted once"
    with trine.open(path, clock=clock):
        pass  # writes a checkpoint
    assert totals() == once | {"returned": totals()["returned"]}
    assert once["acked"] == 4


def test_what_listeners_tell() -> None:
    metrics = Metrics()
    metrics.connection_opened("binary")
    metrics.connection_opened("binary")
    metrics.connection_closed("binary")
    metrics.connection_refused("binary")
    metrics.count_connections("http", lambda: 7)
    metrics.protocol_error()
    metrics.refuse("wrong")
    metrics.answered(404)
    metrics.observe_sync(0.0007)
    readiness = Readiness()
    readiness.recovered()
    metrics.recovered(readiness)
    found = samples(metrics)
    assert found["trine_connections", "binary"] == 1
    assert found["trine_connections_opened_total", "binary"] == 2
    assert found["trine_connections_refused_total", "binary"] == 1
    assert found["trine_connections", "http"] == 7
    assert found["trine_protocol_errors_total", "binary"] == 1
    assert found["trine_refused_total", "wrong"] == 1
    assert found["trine_http_requests_total", "4xx"] == 1
    assert found["trine_fsync_seconds_bucket", "0.001"] == 1
    assert found["trine_fsync_seconds_bucket", "0.0005"] == 0
    assert found["trine_ready",] == 1
    assert found["process_resident_memory_bytes",] > 10**6


async def test_the_delay_of_the_loop_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "LOOP_SAMPLE_S", 0.001)
    metrics = Metrics()
    sampling = asyncio.create_task(metrics.sample_loop())
    async with asyncio.timeout(10):
        while not samples(metrics)["trine_event_loop_delay_seconds_count",]:
            await asyncio.sleep(0.001)
    sampling.cancel()


def test_labels_are_bounded(opened: tuple[Broker, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    broker, engine = opened
    monkeypatch.setattr(metrics_module, "TOPICS_MAX", 3)
    monkeypatch.setattr(metrics_module, "GROUPS_MAX", 2)
    for number in range(5):
        topic = broker.create_topic(f"t{number}", partitions=1)
        topic.create_group("g")
        topic.publish("x")
    metrics = Metrics()
    metrics.watch(engine)
    found = samples(metrics)
    published = {
        key[1]: value for key, value in found.items() if key[0] == "trine_topic_published_messages_total"
    }
    assert published == {"t0": 1, "t1": 1, "t2": 1, OTHERS: 2}
    lags = {key[1:]: value for key, value in found.items() if key[0] == "trine_group_lag_messages"}
    assert lags == {("t0", "g"): 1, ("t1", "g"): 1, (OTHERS, OTHERS): 3}


def test_a_closed_engine_is_passed_over() -> None:
    engine, housekeeper = open_store(":memory:", clock=SimulatedClock())
    metrics = Metrics()
    metrics.watch(engine)
    Broker(engine, housekeeper).close()
    assert "trine_topics" not in metrics.text().decode()


def test_the_page_lists_every_metric(opened: tuple[Broker, Engine], clock: SimulatedClock) -> None:
    broker, engine = opened
    metrics = Metrics()
    metrics.watch(engine)
    work(broker, clock)
    metrics.refuse("wrong")
    metrics.answered(200)
    shown: dict[str, str] = {}
    for family in metrics.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if name.startswith("trine_"):
            labels = [key for sample in family.samples[:1] for key in sample.labels if key != "le"]
            shown[name] = f"{family.type}|{', '.join(sorted(labels))}"
    rows = re.findall(
        r"^\| `(trine_\w+)` \| (\w+) \| ([^|]*)\|",
        (DOCS / "metrics.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    words = re.compile(r"`(\w+)`")
    documented = {name: f"{kind}|{', '.join(sorted(words.findall(labels)))}" for name, kind, labels in rows}
    assert documented == shown
