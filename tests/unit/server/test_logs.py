"""Logs: one line an event, whoever says it, and secrets in none of them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from trine.server.config import LogConfig
from trine.server.logs import get_log, set_up


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("uvicorn.access", "uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_json_lines_from_everybody(stream: io.StringIO) -> None:
    set_up(LogConfig(format="json"), stream)
    get_log(node="n").info("topic created", topic="orders")
    logging.getLogger("trine").warning("topic %s: due messages wait", "orders")
    logging.getLogger("asyncio").error("a task failed")
    try:
        raise ValueError("in\nlines")
    except ValueError:
        get_log().exception("a command failed")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("topic created", "info"), ("topic orders: due messages wait", "warning"), ("a task failed", "error"),
        ("a command failed", "error"),
    ]  # fmt: skip
    assert lines[0]["topic"] == "orders"
    assert lines[0]["node"] == "n"
    assert lines[1]["logger"] == "trine"
    assert "ValueError" in lines[3]["exception"]
    assert all(line["time"].endswith("Z") for line in lines)


def test_levels(stream: io.StringIO) -> None:
    set_up(LogConfig(level="warning", format="json"), stream)
    get_log().info("quiet")
    get_log().warning("heard")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["heard"]


def test_for_people_without_colours_in_a_pipe(stream: io.StringIO) -> None:
    set_up(LogConfig(format="console"), stream)
    get_log().info("ready", http="127.0.0.1:8080")
    assert "ready" in stream.getvalue()
    assert "http=127.0.0.1:8080" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
