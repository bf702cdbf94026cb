"""Groups of all topics, a page of them at a time; and how the members of one came and went."""

from __future__ import annotations

import msgspec
from litestar import get
from litestar.params import FromPath, FromQuery

from trine.server.context import Context
from trine.server.http.options import RebalanceOut, rebalance_out
from trine.server.http.publishing import topic_of
from trine.server.http.requests import Filter, Given, PageLimit, Skip
from trine.server.http.sampler import Sampler
from trine.server.http.summaries import (
    Direction,
    GroupSort,
    GroupSummary,
    group_summaries,
    named,
    sorted_groups,
    visible,
)
from trine.server.keys import Principal


class GroupSummaries(msgspec.Struct, frozen=True, kw_only=True):
    total: int
    """That fit the filter."""
    groups: list[GroupSummary]


class Rebalances(msgspec.Struct, frozen=True):
    rebalances: list[RebalanceOut]


@get("/v1/groups", opt={"may": "read"}, tags=["groups"], summary="Groups of all topics, in a line each")
async def list_all_groups(
    principal: Given[Principal],
    sampler: Given[Sampler],
    topic: FromQuery[str | None] = None,
    text: Filter = None,
    sort: FromQuery[GroupSort] = "name",
    order: FromQuery[Direction] = "natural",
    offset: Skip = 0,
    limit: PageLimit = 100,
) -> GroupSummaries:
    """Lag by count and age, in flight, members, rates; of one topic or of all. The filter looks at the names of groups
    and of their topics.
    """
    await sampler.refresh()
    rows = [
        one
        for row in visible(sampler, lambda name: principal.may("read", name))
        if topic is None or row.name == topic
        for one in row.groups.values()
        if text is None or named(one.name, text) or named(row.name, text)
    ]
    shown = sorted_groups(rows, sort, order)[offset : offset + limit]
    return GroupSummaries(total=len(rows), groups=await group_summaries(sampler, shown))


@get(
    "/v1/topics/{topic:str}/groups/{group:str}/rebalances",
    opt={"may": "read"},
    tags=["groups"],
    summary="How members came and went",
)
async def list_rebalances(topic: FromPath[str], group: FromPath[str], context: Given[Context]) -> Rebalances:
    """The last 100 since the server started, newest first: who joined and left, what moved, and for how long it had no
    owner.
    """
    with context.engine.lock:
        history = context.engine.group(topic_of(context, topic), group).members.history
        return Rebalances([rebalance_out(one) for one in reversed(history)])


HANDLERS = [list_all_groups, list_rebalances]
