"""What the server tells of itself to Prometheus.

Most of it is read out of the engine when somebody asks, topic by topic, each under the lock for a moment; nothing is
counted twice. Only what the engine cannot know is kept here: connections, refused attempts, how long syncs take, and
how late the event loop is. docs/metrics.md lists all of it.

Labels are bounded: beyond TOPICS_MAX topics and GROUPS_MAX groups the rest is shown as one sum, named `OTHERS`.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from trine.broker.engine import Engine
    from trine.broker.group import GroupState
    from trine.broker.topic import TopicState
    from trine.server.context import Readiness
    from trine.server.keys import Why

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
TOPICS_MAX: Final = 1_000
GROUPS_MAX: Final = 2_000
"""With a label each; a Prometheus that scrapes more than this many series of a kind is not helped by them."""
OTHERS: Final = "(others)"
LOOP_SAMPLE_S: Final = 0.1
"""How often the loop's delay is measured."""

SYNC_BUCKETS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
LOOP_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

Listener = Literal["binary", "http"]

TOPIC_GAUGES: Final = {
    "messages": "Messages in the log.",
    "bytes": "Bytes of the log.",
    "scheduled": "Messages that wait for their time.",
    "depth": "Messages that wait for the slowest group, and those that wait for their time.",
}
GROUP_GAUGES: Final = {
    "lag_messages": "Messages the group has yet to settle, those in flight included.",
    "lag_seconds": "How old the oldest of them is (the batch it came in).",
    "in_flight_messages": "Messages leased to members.",
    "retrying_messages": "Messages that wait to be delivered again.",
    "members": "Members of the group.",
    "paused": "1 while the group is paused, by hand or by its breaker.",
}
GROUP_TOTALS: Final = {
    "delivered": "Deliveries of a message to a member, the first and all later ones.",
    "redelivered": "Deliveries after the first.",
    "acked": "Messages acked.",
    "nacked": "Messages nacked, to be tried again.",
    "returned": "Messages whose lease ended without a word: it expired, or the member or the server went away.",
    "rejected": "Messages given up in a group that keeps no dead letters.",
    "dead_lettered": "Messages given up: they are in the dead letters.",
    "expired": "Messages whose time to live ended before they were delivered.",
    "filtered": "Messages the group's header filter passed over.",
    "gone": "Messages that compaction or retention took before they were delivered.",
    "redriven": "Dead letters sent back.",
}


class Metrics:
    """One registry for each server, so that two of them in one process do not share numbers."""

    def __init__(self, *, node_id: str = "", version: str = "") -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series a counter, which nobody asked for
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        build = Gauge("trine_build_info", "Always 1.", ("version", "python", "node_id"), registry=registry)
        build.labels(version, platform.python_version(), node_id).set(1)
        self.fsync_seconds = Histogram(
            "trine_fsync_seconds",
            "How long a sync of the journal took, as the group commit waits for it.",
            buckets=SYNC_BUCKETS,
            registry=registry,
        )
        self.loop_delay_seconds = Histogram(
            "trine_event_loop_delay_seconds",
            "How late the event loop was, sampled ten times a second.",
            buckets=LOOP_BUCKETS,
            registry=registry,
        )
        self.ready = Gauge("trine_ready", "1 when the server has recovered and serves.", registry=registry)
        self.recovery_seconds = Gauge(
            "trine_recovery_seconds", "How long the last start took until it was ready.", registry=registry
        )
        self.connections = Gauge("trine_connections", "Open connections.", ("listener",), registry=registry)
        self.connections_opened = Counter(
            "trine_connections_opened", "Connections accepted.", ("listener",), registry=registry
        )
        self.connections_refused = Counter(
            "trine_connections_refused",
            "Connections beyond limits.connections.",
            ("listener",),
            registry=registry,
        )
        self.protocol_errors = Counter(
            "trine_protocol_errors",
            "Connections closed because of what they sent: a bad frame, a lying length, silence.",
            ("listener",),
            registry=registry,
        )
        self.http_requests = Counter(
            "trine_http_requests",
            "HTTP requests by the class of their status.",
            ("status",),
            registry=registry,
        )
        self.refused = Counter(
            "trine_refused",
            "Attempts refused: no key, an unknown key, or one that may not do this.",
            ("why",),
            registry=registry,
        )
        self.connections.labels("http")
        for metric in (
            self.connections,
            self.connections_opened,
            self.connections_refused,
            self.protocol_errors,
        ):
            metric.labels("binary")  # so that they are there before the first one comes
        self._collector: EngineCollector | None = None

    def watch(self, engine: Engine) -> None:
        """From now on the engine's numbers are shown too."""
        self._collector = EngineCollector(engine)
        self.registry.register(self._collector)

    def recovered(self, readiness: Readiness) -> None:
        self.ready.set(1)
        self.recovery_seconds.set(readiness.seconds)

    def observe_sync(self, seconds: float) -> None:
        self.fsync_seconds.observe(seconds)

    def connection_opened(self, listener: Listener) -> None:
        self.connections.labels(listener).inc()
        self.connections_opened.labels(listener).inc()

    def connection_closed(self, listener: Listener) -> None:
        self.connections.labels(listener).dec()

    def count_connections(self, listener: Listener, count: Callable[[], int]) -> None:
        """Of a listener that counts them itself."""
        self.connections.labels(listener).set_function(count)

    def connection_refused(self, listener: Listener) -> None:
        """One too many."""
        self.connections_refused.labels(listener).inc()

    def protocol_error(self, listener: Listener = "binary") -> None:
        self.protocol_errors.labels(listener).inc()

    def refuse(self, why: Why) -> None:
        self.refused.labels(why).inc()

    def answered(self, status: int) -> None:
        """An HTTP request, by its status: 2xx, 4xx."""
        self.http_requests.labels(f"{status // 100}xx").inc()

    def text(self) -> bytes:
        """All metrics as Prometheus reads them. From any thread; large installations take some milliseconds."""
        return generate_latest(self.registry)

    async def sample_loop(self) -> None:
        """Measures how late the event loop is, until it is cancelled."""
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(LOOP_SAMPLE_S)
            self.loop_delay_seconds.observe(max(time.perf_counter() - begin - LOOP_SAMPLE_S, 0.0))


class EngineCollector(Collector):
    """Reads the engine when somebody scrapes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> list[Metric]:
        return []  # else it would be read once, at registration

    def collect(self) -> Iterator[Metric]:
        engine = self._engine
        with engine.lock:
            if engine.closed:
                return
            topics = list(engine.topics.values())
        by_topic: dict[tuple[str, ...], dict[str, float]] = {}
        by_group: dict[tuple[str, ...], dict[str, float]] = {}
        for topic in topics:
            with engine.lock:  # one topic at a time: nobody waits long
                if engine.closed or engine.topics.get(topic.name) is not topic:
                    continue
                _add(by_topic, (topic.name,), topic_numbers(topic), TOPICS_MAX)
                for group in topic.groups.values():
                    _add(by_group, (topic.name, group.name), group_numbers(group), GROUPS_MAX)
        yield from _families(
            "topic", ("topic",), by_topic, TOPIC_GAUGES, {"published": "Messages ever put into the log."}
        )
        yield from _families("group", ("topic", "group"), by_group, GROUP_GAUGES, GROUP_TOTALS)
        yield from self._store(by_topic)

    def _store(self, by_topic: dict[tuple[str, ...], dict[str, float]]) -> Iterator[Metric]:
        engine = self._engine
        with engine.lock:
            if engine.closed:
                return
            store = engine.store.statistics()
            failed = engine.failure is not None
        yield GaugeMetricFamily("trine_topics", "Topics.", len(by_topic))
        yield GaugeMetricFamily(
            "trine_log_bytes", "Bytes of all topics' logs.", sum(row["bytes"] for row in by_topic.values())
        )
        yield GaugeMetricFamily(
            "trine_scheduled_messages",
            "Messages of all topics that wait for their time.",
            sum(row["scheduled"] for row in by_topic.values()),
        )
        yield GaugeMetricFamily(
            "trine_journal_bytes", "Bytes a restart would replay.", store.bytes_since_checkpoint
        )
        yield GaugeMetricFamily(
            "trine_store_failed", "1 when the disk failed: restart the server.", float(failed)
        )
        yield CounterMetricFamily("trine_journal_entries", "Entries written.", store.journal.appends)
        yield CounterMetricFamily("trine_journal_syncs", "Syncs of the journal.", store.journal.syncs)
        yield CounterMetricFamily(
            "trine_checkpoints", "Checkpoints of the store.", store.checkpoint_generation
        )


def topic_numbers(topic: TopicState) -> dict[str, float]:
    """Under the lock."""
    published = sum(one.log.next_offset for one in topic.partitions)
    return {**topic.counts(), "published": published}


def group_numbers(group: GroupState) -> dict[str, float]:
    """Under the lock."""
    oldest = min(group.oldest_ms().values(), default=None)
    now = group.engine.clock.now_ms()
    return {
        "lag_messages": group.lag(),
        "lag_seconds": max(now - oldest, 0) / 1000 if oldest is not None else 0.0,
        "in_flight_messages": group.in_flight(),
        "retrying_messages": group.retrying(),
        "members": len(group.members.names()),
        "paused": float(group.paused is not None),
        **group.totals(),
    }


def _add(
    rows: dict[tuple[str, ...], dict[str, float]], labels: tuple[str, ...], row: dict[str, float], most: int
) -> None:
    if len(rows) < most:
        rows[labels] = row
        return
    others = rows.setdefault((OTHERS,) * len(labels), dict.fromkeys(row, 0.0))
    for name, value in row.items():
        others[name] = max(others[name], value) if name == "lag_seconds" else others[name] + value


def _families(
    kind: str,
    labels: tuple[str, ...],
    rows: dict[tuple[str, ...], dict[str, float]],
    gauges: dict[str, str],
    totals: dict[str, str],
) -> Iterator[Metric]:
    for name, words in gauges.items():
        gauge = GaugeMetricFamily(f"trine_{kind}_{name}", words, labels=labels)
        for values, row in rows.items():
            gauge.add_metric(values, row[name])
        yield gauge
    for name, words in totals.items():
        counter = CounterMetricFamily(f"trine_{kind}_{name}_messages", words, labels=labels)
        for values, row in rows.items():
            counter.add_metric(values, row[name])
        yield counter
