"""What operators ask for: the version, the metrics, the statistics. Health and readiness are the gate's."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from litestar import Response, get

from trine.model.version import VERSION
from trine.server.context import Context
from trine.server.http.counters import Counters, counters
from trine.server.http.requests import Given
from trine.server.http.sampler import Sampler
from trine.server.keys import Principal
from trine.server.metrics import CONTENT_TYPE


class Version(msgspec.Struct, frozen=True):
    name: str
    version: str
    api: str


class Statistics(msgspec.Struct, frozen=True):
    counters: Counters
    store: dict[str, Any]


@get("/version", tags=["operations"], summary="The server's version")
async def version() -> Version:
    return Version("trine", VERSION, "v1")


@get(
    "/metrics",
    opt={"may": "read", "text": True},
    tags=["operations"],
    summary="Metrics, as Prometheus reads them",
)
async def metrics(context: Given[Context], principal: Given[Principal]) -> Response[bytes]:
    """All topics are in them, so the key must be for all topics."""
    principal.check_everywhere("read")
    return Response(
        await asyncio.to_thread(context.metrics.text), media_type=CONTENT_TYPE.removesuffix("; charset=utf-8")
    )


@get(
    "/v1/statistics",
    opt={"may": "read"},
    tags=["operations"],
    summary="Counters now, and the store's own numbers",
)
async def statistics(
    context: Given[Context],
    principal: Given[Principal],
    sampler: Given[Sampler],
) -> Statistics:
    store = (await context.broker.statistics())["store"]
    await sampler.refresh()
    told = counters(sampler, lambda name: principal.may("read", name))
    return Statistics(told, msgspec.to_builtins(store))


HANDLERS = [version, metrics, statistics]
