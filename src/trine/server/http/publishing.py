"""Publish: one message or many, as JSON, or one as raw bytes with its options in the query.

This is the one call that must be fast on HTTP: the gate hands it over before Litestar looks at the request, so it is
a plain function of the bytes that came. Litestar's handler calls the same function, and is what the schema is made of.
What need not wait (`publish_at_once`) is done before there is a task for it: see `direct`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from litestar import Request, Response, post
from litestar.params import FromPath
from msgspec import UNSET

from trine.broker.aio.topic import level_of
from trine.broker.topic import TopicState
from trine.model.durability import Level
from trine.model.duration import duration_ms
from trine.model.errors import InvalidInput, InvalidOption, TopicFull
from trine.model.message import Outgoing, Published, draft, outgoing_many
from trine.server.context import Context
from trine.server.http.bodies import (
    PublishedMany,
    PublishIn,
    RawPublish,
    decode_body,
    has_content,
    outgoing,
    published_one,
)
from trine.server.http.problems import BadRequest
from trine.server.http.requests import Done, Given
from trine.server.http.waiting import first_of, ringing
from trine.server.keys import Principal

DECODER: Final = msgspec.json.Decoder(RawPublish)
ENCODER: Final = msgspec.json.Encoder()
OCTETS: Final = "application/octet-stream"
QUERY_WORDS: Final = frozenset(
    {
        "key",
        "priority",
        "delay",
        "deliver_at",
        "ttl",
        "dedup_id",
        "partition",
        "producer",
        "durability",
        "wait",
    }
)
HEADER_PREFIX: Final = "header."
"""`?header.kind=order` gives the message a header."""


@post(
    "/v1/topics/{topic:str}/publish",
    status_code=200,
    opt={"may": "publish", "body": PublishIn, "octets": True},
    tags=["publish"],
    summary="Publish one message or many",
)
async def publish(
    request: Request[Any, Any, Any], topic: FromPath[str], context: Given[Context]
) -> Response[bytes]:
    """Content is one of `value` (any JSON), `text` and `base64`; or the body itself, as `application/octet-stream`,
    with the options as query parameters. The answer says where each message is and how durable it was by then. With
    `messages` all of them become durable together, or none is stored.
    """
    body = await request.body()
    query = request.scope["query_string"]
    answered = await publish_bytes(context, topic, body, request.headers.get("content-type", ""), query)
    return Response(answered, media_type="application/json")


async def publish_bytes(context: Context, topic: str, body: bytes, content_type: str, query: bytes) -> bytes:
    """The whole call: from the body to the body of the answer."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == OCTETS:
        return await _publish_octets(context, topic, body, query)
    if kind != "application/json" and not kind.endswith("+json"):
        given = kind or "nothing: say what the body is"
        raise BadRequest(415, f"a message is published as application/json or {OCTETS}, not as {given}")
    return await publish_given(context, topic, decode_body(body, DECODER))


async def publish_given(context: Context, name: str, given: RawPublish) -> bytes:
    if given.messages is UNSET:
        published = await _publish_one(context, name, outgoing(given), given.durability, given.wait)
        return ENCODER.encode(published_one(published[0]))
    if has_content(given):
        raise InvalidInput("give one message, or several under messages, not both")
    # A default has options only; a value stands in for the content it does not have.
    defaults = outgoing(msgspec.structs.replace(given, text=""))
    topic = topic_of(context, name)
    level = level_of(given.durability, topic)
    now = context.engine.clock.now_ms()
    drafts = [
        draft(message, topic.config, now)
        for message in outgoing_many([outgoing(one) for one in given.messages], defaults)
    ]
    published = await admitted(context, topic, lambda: topic.publish_drafts(drafts, level), level, given.wait)
    return ENCODER.encode(
        PublishedMany(
            count=len(published),
            durability=published.durability,
            messages=[published_one(receipt) for receipt in published],
        )
    )


def publish_at_once(context: Context, principal: Principal, topic: str, body: bytes) -> Done | None:
    """All of a publish of JSON, or None if that must wait, or be refused."""
    if not principal.may("publish", topic):
        return None
    return publish_given_at_once(context, topic, decode_body(body, DECODER))


def publish_given_at_once(context: Context, name: str, given: RawPublish) -> Done | None:
    """One message, now; None for several, and for one that may wait for room."""
    if given.messages is not UNSET or given.wait is not None:
        return None
    topic = topic_of(context, name)
    level = level_of(given.durability, topic)
    published, lsn = topic.publish_one(outgoing(given), level)
    return Done(ENCODER.encode(published_one(published[0])), lsn if level is Level.SYNCED else None)


async def _publish_octets(context: Context, topic: str, body: bytes, query: bytes) -> bytes:
    words: dict[str, Any] = {}
    headers: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name.startswith(HEADER_PREFIX):
            headers[name.removeprefix(HEADER_PREFIX)] = value
        elif name in QUERY_WORDS:
            words[name] = value
        else:
            known = ", ".join(sorted(QUERY_WORDS))
            raise InvalidOption(f"there is no option {name!r}; the options are: {known}, {HEADER_PREFIX}NAME")
    durability, wait = words.pop("durability", None), words.pop("wait", None)
    if "partition" in words:
        if not words["partition"].isdecimal() or len(words["partition"]) > 9:
            raise InvalidOption(f"partition is a whole number, not {words['partition']!r}")
        words["partition"] = int(words["partition"])
    message = Outgoing(value=body, headers=headers or None, **words)
    published = await _publish_one(context, topic, message, durability, wait)
    return ENCODER.encode(published_one(published[0]))


async def _publish_one(
    context: Context, name: str, message: Outgoing, durability: str | None, wait: float | str | None
) -> Published:
    topic = topic_of(context, name)
    level = level_of(durability, topic)
    return await admitted(context, topic, lambda: topic.publish_one(message, level), level, wait)


def topic_of(context: Context, name: str) -> TopicState:
    engine = context.engine
    with engine.lock:
        engine.check_open()
        return engine.topic(name)


async def admitted(
    context: Context,
    topic: TopicState,
    publish: Callable[[], tuple[Published, int]],
    level: Level,
    wait: float | str | None,
) -> Published:
    """Publishes, when there is room; answers when it is as durable as asked."""
    try:
        published, lsn = publish()
    except TopicFull:
        if wait is None:
            raise
        published, lsn = await _when_there_is_room(context, topic, publish, duration_ms(wait, what="wait"))
    if level is Level.SYNCED:
        await context.commits.durable(lsn)
    return published


async def _when_there_is_room(
    context: Context, topic: TopicState, publish: Callable[[], tuple[Published, int]], wait_ms: int
) -> tuple[Published, int]:
    clock = context.engine.clock
    deadline = clock.now_ms() + wait_ms
    with ringing(context.engine, topic.room_listeners) as bell:
        while True:
            bell.clear()
            try:
                return publish()
            except TopicFull:
                left = deadline - clock.now_ms()
                if left <= 0 or context.closing.is_set():
                    raise
            await first_of(context, bell, left)
