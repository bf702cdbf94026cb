"""The first look of the dashboard: totals, the busiest topics, the groups most behind, and how the broker is.

    /v1/live      SSE: `live`, once a second
    /v1/history   the totals of the last fifteen minutes

An event is made once for all readers that may see everything and ask for the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from litestar import get
from litestar.params import FromQuery, QueryParameter
from litestar.response import Stream

from trine.model.duration import iso
from trine.model.errors import InvalidOption, TrineError
from trine.server.context import Context
from trine.server.http import problems
from trine.server.http.requests import Given
from trine.server.http.sampler import EVERY_S, RING_FIELDS, Sampler, sums_of
from trine.server.http.streams import EVENTS, QUIET_MS, Streams, event
from trine.server.http.summaries import (
    GroupSummary,
    TopicNumbers,
    busiest,
    group_summaries,
    most_behind,
    topic_numbers,
    visible,
)
from trine.server.http.vitals import Doctor, Vitals
from trine.server.http.waiting import first_of
from trine.server.keys import Principal

NAMED_MAX: Final = 50
"""Topics one reader may ask for by name."""
KEPT_MAX: Final = 32
"""Events of one second that are kept for the next reader who asks for the same."""


class LiveTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Over all topics that the key may read; a message of two groups counts in both."""

    published_rate: float
    delivered_rate: float
    settled_rate: float
    acked: int
    """Ever since each group began."""
    failed: int
    """Deliveries that came to nothing, ever."""
    dead_lettered: int
    """In the dead letters now."""
    pending: int
    in_flight: int
    scheduled: int
    lag: int
    messages: int


class Live(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    at_ms: int
    totals: LiveTotals
    broker: Vitals
    topics: dict[str, TopicNumbers]
    """Those that were asked for, and are there."""
    top: list[TopicNumbers]
    """The busiest, at most 20."""
    groups: list[GroupSummary]
    """Paused ones, then those most behind, at most 20; none unless they were asked for."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    every_s: float
    fields: list[str]
    samples: list[list[float]]
    """Oldest first. None for a key that is not for all topics: they are sums over all."""


class Looks:
    """Makes the events, and keeps those of this second."""

    def __init__(self, context: Context, sampler: Sampler) -> None:
        self._sampler = sampler
        self._doctor = Doctor(context, sampler)
        self._version = -1
        self._since = 0.0
        self._kept: dict[tuple[tuple[str, ...], bool], bytes] = {}

    async def event(self, principal: Principal, names: tuple[str, ...], groups: bool) -> bytes:
        if not principal.may_everywhere("read"):
            return await self._made(principal, names, groups)
        if self._version != self._sampler.version or time.monotonic() - self._since > EVERY_S / 2:
            self._version = self._sampler.version
            self._since = time.monotonic()
            self._kept.clear()
        known = self._kept.get((names, groups))
        if known is None:
            known = await self._made(principal, names, groups)
            if len(self._kept) < KEPT_MAX:
                self._kept[names, groups] = known
        return known

    async def _made(self, principal: Principal, names: tuple[str, ...], groups: bool) -> bytes:
        sampler = self._sampler

        def sees(name: str) -> bool:
            return principal.may("read", name)

        rows = visible(sampler, sees)
        everything = principal.may_everywhere("read")
        sums = (
            sampler.totals if everything else sums_of(row for name, row in sampler.rows.items() if sees(name))
        )
        told = sums._asdict()
        del told["size_bytes"]
        now = sampler.context.engine.clock.now_ms()
        await asyncio.sleep(
            0
        )  # each of these steps takes up to a millisecond of a store of thousands of groups
        top, behind = busiest(rows), most_behind(rows) if groups else []
        await asyncio.sleep(0)
        asked = [row for name in names if (row := sampler.rows.get(name)) is not None and sees(name)]
        look = Live(
            at=iso(now),
            at_ms=now,
            totals=LiveTotals(**told),
            broker=await self._doctor.vitals(sees),
            topics={row.name: topic_numbers(row, sampler) for row in asked},
            top=[topic_numbers(row, sampler) for row in top],
            groups=await group_summaries(sampler, behind),
        )
        return event("live", msgspec.json.encode(look))


@get(
    "/v1/live", opt={"may": "read", "events": True}, tags=["streams"], summary="The first look, as it changes"
)
async def live(
    context: Given[Context],
    principal: Given[Principal],
    sampler: Given[Sampler],
    streams: Given[Streams],
    looks: Given[Looks],
    topics: Annotated[
        str | None,
        QueryParameter(description="Names of topics, separated by commas: their numbers come too."),
    ] = None,
    groups: FromQuery[bool] = False,
) -> Stream:
    """`event: live`, once a second: totals, how the broker is, the busiest topics, those asked for, and with
    `groups=true` the groups most behind.
    """
    streams.check()
    names = tuple(dict.fromkeys(name for name in (topics or "").split(",") if name))
    if len(names) > NAMED_MAX:
        raise InvalidOption(
            f"topics has {len(names)} names; {NAMED_MAX} is the most: /v1/topics/summary lists all"
        )

    async def events() -> AsyncIterator[bytes]:
        with streams.one_more():
            try:
                await sampler.refresh()
                while not context.closing.is_set():
                    principal.check("read", None)  # the key may have been deleted meanwhile
                    sampler.watched()
                    bell = sampler.ticked
                    yield await looks.event(principal, names, groups)
                    await first_of(context, bell, QUIET_MS)
            except TrineError as error:
                yield event("error", problems.encode(problems.problem_of(error, "/v1/live")))
                return
            yield event("closing", b'"the server is closing"')

    return Stream(events(), media_type="text/event-stream", headers=EVENTS)


@get("/v1/history", opt={"may": "read"}, tags=["streams"], summary="Totals of the last fifteen minutes")
async def history(principal: Given[Principal], sampler: Given[Sampler]) -> History:
    """One sample a second, at most 900, oldest first: what charts begin with. They are sums over all topics, so a key
    that is not for all of them is shown none.
    """
    shown = principal.may_everywhere("read")
    return History(
        every_s=EVERY_S, fields=RING_FIELDS, samples=[list(one) for one in sampler.ring] if shown else []
    )


HANDLERS = [live, history]
