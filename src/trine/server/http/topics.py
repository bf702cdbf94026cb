"""Topics: create, list, describe, alter, delete, purge."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response, delete, get, patch, post
from litestar.params import FromPath

from trine.model.description import PartitionDescription
from trine.model.errors import InvalidOption
from trine.server.context import Context
from trine.server.http.options import CreateTopic, TopicOptions, TopicOut, topic_out, words
from trine.server.http.requests import Given, read
from trine.server.keys import Principal


class Topics(msgspec.Struct, frozen=True):
    topics: list[TopicOut]


class Partitions(msgspec.Struct, frozen=True):
    partitions: list[PartitionDescription]


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
    return Partitions((await context.broker.topic(topic).describe()).partitions)


HANDLERS = [
    create_topic,
    list_topics,
    describe_topic,
    alter_topic,
    delete_topic,
    purge_topic,
    list_partitions,
]
