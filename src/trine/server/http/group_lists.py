"""Groups of all topics: a page of them at a time."""

from __future__ import annotations

import msgspec
from litestar import get
from litestar.params import FromQuery

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


HANDLERS = [list_all_groups]
