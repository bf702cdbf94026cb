"""Reports: the numbers, and the page and pictures made of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trine
from tests.integration.spark.lives import MESSAGES, live
from trine.model.errors import InvalidOption
from trine.spark.place import Place
from trine.spark.report import report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PNG = b"\x89PNG\r\n"


def test_a_report_counts_what_happened(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str, tmp_path: Path
) -> None:
    live(broker, topic_name)
    made = report(spark, place, [topic_name], window="10s")
    summary = made.summary
    assert (summary["messages"], summary["delivered"], summary["acked"]) == (MESSAGES, 19, 16)
    assert (summary["dead_lettered"], summary["lag"], summary["failed"]) == (1, 3, 3)
    flow = made.tables["flow"]
    assert flow.groupby("group")["acked"].sum().to_dict() == {"audit": 10, "work": 6}
    last = made.tables["lag"].sort_values("window").groupby("group")["lag"].last()
    assert last.to_dict() == {"audit": 0, "work": 3}
    assert set(made.tables["reasons"]["reason"]) == {"broken order", "not now", "member closed"}
    assert (made.tables["latency"]["p50_ms"] <= made.tables["latency"]["p99_ms"]).all()

    (page,) = made.write(tmp_path / "deep" / "report.html")
    text = page.read_text(encoding="utf-8")
    assert topic_name in text
    assert "broken order" in text
    assert text.count("data:image/svg+xml;base64,") == 4
    assert not re.search(r"(?:src|href)=\"(?!data:)", text), "the page needs something from elsewhere"
    pictures = made.write(tmp_path / "pictures")
    assert [path.name for path in pictures] == ["throughput.png", "lag.png", "failures.png", "latency.png"]
    assert all(path.read_bytes().startswith(PNG) for path in pictures)
    with pytest.raises(InvalidOption, match="neither a page"):
        made.write(tmp_path / "report.pdf")


def test_a_report_of_nothing_is_a_page_too(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str, tmp_path: Path
) -> None:
    broker.create_topic(topic_name)
    made = report(spark, place, [topic_name])
    assert made.summary["messages"] == 0
    (page,) = made.write(tmp_path / "report.html")
    assert "There are no groups." in page.read_text(encoding="utf-8")


def test_reasons_cannot_become_markup(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str
) -> None:
    topic = broker.create_topic(topic_name, partitions=1)
    topic.publish("x")
    with topic.group("g").consumer("m") as consumer:
        consumer.reject(consumer.receive(wait="5s"), reason="<script>alert(1)</script>")
    text = report(spark, place, [topic_name]).html()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
