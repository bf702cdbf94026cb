"""Topics: create, list, describe, alter, delete, purge."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from litestar import Request, Response, delete, get, patch, post
from litestar.params import FromPath, FromQuery

from trine.broker.operations import REDRIVE_GROUP
from trine.broker.partition import Partition
from trine.broker.topic import TopicState
from trine.model.errors import InvalidOption
from trine.server.context import Context
from trine.server.http.options import CreateTopic, TopicOptions, TopicOut, topic_out, words
from trine.server.http.publishing import topic_of
from trine.server.http.requests import Filter, Given, PageLimit, Skip, read
from trine.server.http.sampler import Sampler
from trine.server.http.summaries import (
    Direction,
    TopicSort,
    TopicSummary,
    sorted_topics,
    topic_summaries,
    visible,
)
from trine.server.keys import Principal

PARTITIONS_AT_ONCE: Final = 64
"""Described with the lock held once."""


class Topics(msgspec.Struct, frozen=True):
    topics: list[TopicOut]


class TopicSummaries(msgspec.Struct, frozen=True, kw_only=True):
    total: int
    """That fit the filter."""
    topics: list[TopicSummary]


class GroupHere(msgspec.Struct, frozen=True, kw_only=True):
    """A group in one partition."""

    lag: int
    in_flight: int
    retrying: int
    lanes: dict[str, int]
    """Messages not settled, by lane (those settled out of order are counted until the floor passes them)."""


class PartitionOut(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    first_offset: int
    next_offset: int
    bytes: int
    first_time_ms: int | None
    """Of the oldest batch; null of an empty partition."""
    last_time_ms: int | None
    lanes: dict[str, int]
    """Messages in the log, by lane."""
    groups: dict[str, GroupHere]


class Partitions(msgspec.Struct, frozen=True):
    partitions: list[PartitionOut]


class Purged(msgspec.Struct, frozen=True):
    purged: int


@post(
    "/v1/topics",
    opt={"may": "admin", "topic": "later", "body": CreateTopic},
    tags=["topics"],
    summary="Create a topic or a queue",
)
async def create_topic(
    request: Request[Any, Any, Any], context: Given[Context], principal: Given[Principal]
) -> Response[TopicOut]:
    """A queue is a topic with one group of the same name. Options that are not given have the server's defaults."""
    given = await read(request, CreateTopic)
    principal.check("admin", given.name)
    made, found = await create(context, given)
    return Response(found, status_code=201 if made else 200)


async def create(context: Context, given: CreateTopic) -> tuple[bool, TopicOut]:
    """(whether it was made now, what it is)."""
    broker, config = context.broker, context.config
    own = words(given, "name", "kind", "exist_ok", "group")
    there = given.exist_ok and given.name in context.engine.topics
    if given.kind == "queue":
        group = words(given.group) if given.group is not None else {}
        options = {**config.queue_defaults(), **own, **group}
        await broker.create_queue(given.name, exist_ok=given.exist_ok, **options)
    else:
        if given.group is not None:
            raise InvalidOption(
                "group holds the options of a queue's group; a topic's groups are created one by one"
            )
        await broker.create_topic(given.name, exist_ok=given.exist_ok, **{**config.topic_defaults(), **own})
    return not there, topic_out(await broker.topic(given.name).describe())


@get("/v1/topics", opt={"may": "read"}, tags=["topics"], summary="List topics")
async def list_topics(context: Given[Context], principal: Given[Principal]) -> Topics:
    """All topics the key may read, dead letters (`….dlq`) among them."""
    found = await context.broker.topics()
    return Topics([topic_out(one) for one in found if principal.may("read", one.name)])


@get("/v1/topic-summaries", opt={"may": "read"}, tags=["topics"], summary="Topics in a line each")
async def list_summaries(
    principal: Given[Principal],
    sampler: Given[Sampler],
    text: Filter = None,
    sort: FromQuery[TopicSort] = "name",
    order: FromQuery[Direction] = "natural",
    offset: Skip = 0,
    limit: PageLimit = 100,
) -> TopicSummaries:
    """Rates, depth, size, lag, lanes: a page of what may be thousands. Topics of dead letters are not in it: they are
    counted with the topic they are of.
    """
    await sampler.refresh()
    rows = visible(sampler, lambda name: principal.may("read", name), text)
    shown = sorted_topics(sampler, rows, sort, order)[offset : offset + limit]
    return TopicSummaries(total=len(rows), topics=await topic_summaries(sampler, shown))


@get("/v1/topics/{topic:str}", opt={"may": "read"}, tags=["topics"], summary="Describe a topic")
async def describe_topic(topic: FromPath[str], context: Given[Context]) -> TopicOut:
    return topic_out(await context.broker.topic(topic).describe())


@patch(
    "/v1/topics/{topic:str}",
    opt={"may": "admin", "body": TopicOptions},
    tags=["topics"],
    summary="Alter a topic",
)
async def alter_topic(
    request: Request[Any, Any, Any], topic: FromPath[str], context: Given[Context]
) -> TopicOut:
    """Only the options that are given change. Partitions and lanes can be added, not taken away."""
    given = await read(request, TopicOptions)
    handle = context.broker.topic(topic)
    await handle.alter(**words(given))
    return topic_out(await handle.describe())


@delete("/v1/topics/{topic:str}", opt={"may": "admin"}, tags=["topics"], summary="Delete a topic")
async def delete_topic(topic: FromPath[str], context: Given[Context]) -> None:
    """With its messages, groups and schedule; its dead letters stay."""
    await context.broker.delete_topic(topic)


@post(
    "/v1/topics/{topic:str}/purge",
    status_code=200,
    opt={"may": "admin"},
    tags=["topics"],
    summary="Purge a topic",
)
async def purge_topic(topic: FromPath[str], context: Given[Context]) -> Purged:
    """Deletes all messages of the log; what is scheduled stays."""
    return Purged(await context.broker.topic(topic).purge())


@get("/v1/topics/{topic:str}/partitions", opt={"may": "read"}, tags=["topics"], summary="List partitions")
async def list_partitions(topic: FromPath[str], context: Given[Context]) -> Partitions:
    """Offsets, size, times, and what waits in each, by lane and group."""
    engine = context.engine
    with engine.lock:
        count = len(topic_of(context, topic).partitions)
    shown: list[PartitionOut] = []
    for start in range(0, count, PARTITIONS_AT_ONCE):
        with engine.lock:
            state = topic_of(context, topic)
            shown += [_partition(state, one) for one in state.partitions[start : start + PARTITIONS_AT_ONCE]]
        await asyncio.sleep(0)
    return Partitions(shown)


def _partition(topic: TopicState, one: Partition) -> PartitionOut:
    """Under the engine's lock."""
    log = one.log
    first = last = None
    if (
        log.next_offset > log.start_offset
        and (oldest := next(log.headers(log.start_offset), None)) is not None
    ):
        first, last = oldest[1].base_time_ms, log.last_time_ms()
    groups = {}
    for group in topic.groups.values():
        if group.name != REDRIVE_GROUP:
            ledger = group.parts[one.number].ledger
            groups[group.name] = GroupHere(
                lag=ledger.unsettled(log.next_offset),
                in_flight=ledger.in_flight,
                retrying=len(ledger.retries),
                lanes=_by_lane(topic, one, ledger.floor),
            )
    return PartitionOut(
        number=one.number,
        first_offset=log.start_offset,
        next_offset=log.next_offset,
        bytes=log.size_bytes,
        first_time_ms=first,
        last_time_ms=last,
        lanes=_by_lane(topic, one, log.start_offset),
        groups=groups,
    )


def _by_lane(topic: TopicState, one: Partition, from_offset: int) -> dict[str, int]:
    return dict(zip(topic.config.lanes, one.lanes.counts(from_offset), strict=True))


HANDLERS = [
    create_topic,
    list_topics,
    list_summaries,
    describe_topic,
    alter_topic,
    delete_topic,
    purge_topic,
    list_partitions,
]
