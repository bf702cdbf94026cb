"""The OpenAPI document is sound, the page made of it needs nobody else, and the server does what both say."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.integration.http_server import config
from trine.server.http.app import HANDLERS, document
from trine.server.server import Server

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
TOPIC, GROUP = "orders", "billing"
STREAMS = ("/v1/events", "/v1/live", "/v1/topics/{topic}/tail")
"""They do not end by themselves."""


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """A server in a thread of its own, with something in it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = Server(config())
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
    url = "http://{}:{}".format(*server.http_address)
    seed(url)
    yield url
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def seed(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        client.post("/v1/topics", json={"name": TOPIC, "partitions": 2, "exist_ok": True})
        client.post(f"/v1/topics/{TOPIC}/groups", json={"name": GROUP})
        client.post(f"/v1/topics/{TOPIC}/publish", json={"messages": [{"value": n} for n in range(5)]})
        client.post(f"/v1/topics/{TOPIC}/publish", json={"value": 1, "delay": "1h"})


schema = schemathesis.openapi.from_dict(document())


@schema.hook
def filter_case(context: Any, case: Any) -> bool:
    """A case that would wait for a minute says nothing more than one that does not."""
    waits = (case.query or {}).get("wait"), case.body.get("wait") if isinstance(case.body, dict) else None
    return all(wait in (None, 0) for wait in waits)


@schema.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    """Half of the time it is the topic that exists: else little but 404 would be seen."""
    if not isinstance(path_parameters, dict):
        return path_parameters
    known = {"topic": TOPIC, "group": GROUP}
    return {
        name: known[name]
        if name in known and crc32(str(value).encode("utf-8", "surrogatepass")) % 2
        else value
        for name, value in path_parameters.items()
    }


def explore(case: Any, base: str) -> None:
    if case.operation.path in STREAMS:
        return
    answer = case.call(base_url=base, timeout=20)
    case.validate_response(answer, checks=CHECKS)
    if (
        case.operation.path in ("/v1/topics/{topic}", "/v1/topics/{topic}/groups/{group}")
        and case.method == "DELETE"
    ):
        seed(base)


QUICK = settings(
    max_examples=5,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@schema.parametrize()
@QUICK
def test_the_server_does_what_its_schema_says(case: Any, base: str) -> None:
    explore(case, base)


@pytest.mark.slow
@schema.parametrize()
@settings(QUICK, max_examples=100, derandomize=False)
def test_the_server_does_what_its_schema_says_at_length(case: Any, base: str) -> None:
    explore(case, base)


# --- the document


def test_every_handler_is_in_the_document_once() -> None:
    paths = document()["paths"]
    said = [operation for item in paths.values() for operation in item.values()]
    names = [operation["operationId"] for operation in said]
    assert len(set(names)) == len(names)
    http = [
        one
        for one in HANDLERS
        if hasattr(one, "http_methods") and not one.paths <= {"/openapi.json", "/docs"}
    ]
    assert len(said) == len(http) + 2  # health and ready are the gate's
    for operation in said:
        assert operation["summary"]
        assert operation["tags"]


def test_every_path_is_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"(/[\w/{}-]*)`", page))
    assert set(document()["paths"]) <= shown
    assert "/v1/stream" in shown


def test_every_reference_leads_somewhere() -> None:
    told = document()
    names = set(re.findall(r"#/components/schemas/(\w+)", str(told)))
    assert names <= set(told["components"]["schemas"])
    assert told["openapi"].startswith("3.1")


def test_the_document_and_the_page_need_nobody_else(base: str) -> None:
    with httpx.Client(base_url=base) as client:
        assert client.get("/openapi.json").json()["info"]["title"] == "Trine"
        page = client.get("/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "<script" not in page.text
        assert not re.findall(r"(?:src|href)=['\"]?(?:https?:)?//", page.text)
        assert "/v1/topics/{topic}/publish" in page.text
        for path in ("/schema", "/schema/openapi.json", "/openapi"):
            assert client.get(path).status_code == 404
        problem = client.get("/v1/topics/none").json()
        anchor = problem["type"].removeprefix("/docs#")
        assert f"id='{anchor}'" in page.text
