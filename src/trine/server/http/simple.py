"""The five simple calls: topics, produce, consume, ack, dashboard. The same as their longer forms under /v1.

`/consume` is the one GET that does something: it leases messages. That is what makes it simple.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromQuery, QueryParameter
from msgspec import UNSET, Meta, UnsetType

from trine.broker.topic import TopicState
from trine.model.duration import iso
from trine.model.errors import InvalidInput, TrineError
from trine.model.ids import DLQ_SUFFIX
from trine.model.limits import RECEIVE_MAX
from trine.model.receipt import read_names
from trine.server.context import Context
from trine.server.http.bodies import Name, PublishIn, RawPublish, decode_body
from trine.server.http.counters import buried_count
from trine.server.http.delivery import Presence, member_name, receive, settle_at_once
from trine.server.http.groups import NotSettled, Received, Settled, ack_runs, settled, settled_out
from trine.server.http.options import CreateTopic, TopicOut
from trine.server.http.publishing import ENCODER, publish_given, publish_given_at_once
from trine.server.http.requests import As, Done, Given, WaitFor, read
from trine.server.http.topics import create
from trine.server.http.waiting import wait_ms
from trine.server.keys import Principal


class ProduceIn(PublishIn, kw_only=True, forbid_unknown_fields=True):
    """As in /v1/topics/{topic}/publish, with the topic beside it."""

    topic: Name


class RawProduce(RawPublish, kw_only=True, forbid_unknown_fields=True):
    topic: Name


class AckIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One receipt, or several."""

    receipt: str | UnsetType = UNSET
    receipts: Annotated[list[str], Meta(min_length=1, max_length=RECEIVE_MAX)] | UnsetType = UNSET


PRODUCE: Final = msgspec.json.Decoder(RawProduce)
ACK: Final = msgspec.json.Decoder(AckIn)


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What became of messages, over all groups: a message of two groups counts in both."""

    pending: int
    """Not delivered yet, or to be tried again; of a topic without groups, all its messages."""
    in_flight: int
    acked: int
    """Ever since each group began."""
    failed: int
    """Deliveries that came to nothing, ever: nacked, the lease ended, or given back when a consumer left."""
    dead_lettered: int
    """In the dead letters now."""
    scheduled: int


class Dashboard(msgspec.Struct, frozen=True):
    at: str
    totals: Tally
    topics: dict[str, Tally]


@post(
    "/topics",
    opt={"may": "admin", "topic": "later", "body": CreateTopic},
    tags=["simple"],
    summary="Create a topic",
)
async def simple_create(
    request: Request[Any, Any, Any], context: Given[Context], principal: Given[Principal]
) -> Response[TopicOut]:
    given = await read(request, CreateTopic)
    principal.check("admin", given.name)
    made, found = await create(context, given)
    return Response(found, status_code=201 if made else 200)


@post(
    "/produce",
    status_code=200,
    opt={"may": "publish", "topic": "later", "body": ProduceIn, "answer": "published"},
    tags=["simple"],
    summary="Publish one message or many",
)
async def produce(
    request: Request[Any, Any, Any], context: Given[Context], principal: Given[Principal]
) -> Response[bytes]:
    given = await read(request, RawProduce)
    principal.check("publish", given.topic)
    return Response(await publish_given(context, given.topic, given), media_type="application/json")


def produce_at_once(context: Context, principal: Principal, _: str, body: bytes) -> Done | None:
    """All of `produce`, or None if that must wait, or be refused."""
    given = decode_body(body, PRODUCE)
    if not principal.may("publish", given.topic):
        return None
    return publish_given_at_once(context, given.topic, given)


@get("/consume", opt={"may": "consume", "topic": "later"}, tags=["simple"], summary="Receive messages")
async def simple_consume(
    request: Request[Any, Any, Any],
    topic: FromQuery[str],
    group: FromQuery[str],
    context: Given[Context],
    principal: Given[Principal],
    presence: Given[Presence],
    most: Annotated[int, QueryParameter(name="max", ge=1, le=RECEIVE_MAX)] = 1,
    wait: WaitFor = None,
    member: FromQuery[str | None] = None,
    show: As = "auto",
) -> Received:
    """Leases them: ack each by its receipt before its deadline, or it comes again."""
    principal.check("consume", topic)
    found = await receive(
        context,
        presence,
        request,
        topic,
        group,
        member_name(member, principal),
        most,
        wait_ms(wait),
        show,
    )
    return Received(found)


@post(
    "/ack",
    status_code=200,
    opt={"may": "consume", "topic": "later", "body": AckIn},
    tags=["simple"],
    summary="Ack",
)
async def simple_ack(
    request: Request[Any, Any, Any], context: Given[Context], principal: Given[Principal]
) -> Settled:
    """By receipt alone: it says which topic and group it is of. Several may be of several groups."""
    groups = by_group(await read(request, AckIn))
    for topic, _ in groups:
        principal.check("consume", topic)
    count, durability = 0, "synced"
    failed: list[NotSettled] = []
    refused: TrineError | None = None
    for (topic, group), texts in groups.items():
        try:
            told = await settled(context, topic, group, texts, ack_runs)
        except TrineError as error:
            refused = error
            failed += [NotSettled(text, error.code, error.message) for text in texts]
            continue
        count += told.count
        durability = told.durability
        failed += told.failed
    if refused is not None and not count:
        raise refused
    return Settled(count, durability, failed)


def ack_at_once(context: Context, principal: Principal, _: str, body: bytes) -> Done | None:
    """All of `simple_ack`, or None if the receipts are of several groups, or it must be refused."""
    groups = by_group(decode_body(body, ACK))
    (topic, group), receipts = next(iter(groups.items()))
    if len(groups) > 1 or not principal.may("consume", topic):
        return None
    count, durability, failed, lsn = settle_at_once(context, topic, group, receipts, ack_runs)
    return Done(ENCODER.encode(settled_out(count, durability, failed)), lsn)


def by_group(given: AckIn) -> dict[tuple[str, str], list[str]]:
    """The receipts by the topic and group they say they are of."""
    if given.receipts is UNSET:
        if given.receipt is UNSET:
            raise InvalidInput("give receipt, or receipts")
        return {read_names(given.receipt): [given.receipt]}
    if given.receipt is not UNSET:
        raise InvalidInput("give receipt, or receipts")
    groups: dict[tuple[str, str], list[str]] = {}
    for text in given.receipts:
        groups.setdefault(read_names(text), []).append(text)
    return groups


@get(
    "/dashboard",
    opt={"may": "read"},
    tags=["simple"],
    summary="Counts: pending, in flight, acked, failed, dead",
)
async def dashboard(context: Given[Context], principal: Given[Principal]) -> Dashboard:
    engine = context.engine
    with engine.lock:
        engine.check_open()
        topics = {
            name: tally(topic)
            for name, topic in engine.topics.items()
            if not name.endswith(DLQ_SUFFIX) and principal.may("read", name)
        }
        now = engine.clock.now_ms()
    totals = Tally(
        **{word: sum(getattr(one, word) for one in topics.values()) for word in Tally.__struct_fields__}
    )
    return Dashboard(iso(now), totals, topics)


def tally(topic: TopicState) -> Tally:
    """Under the engine's lock."""
    counts = topic.counts()
    groups = list(topic.groups.values())
    in_flight = sum(group.in_flight() for group in groups)
    totals = [group.totals() for group in groups]
    return Tally(
        pending=sum(group.lag() for group in groups) - in_flight if groups else counts["messages"],
        in_flight=in_flight,
        acked=sum(one["acked"] for one in totals),
        failed=sum(one["nacked"] + one["returned"] for one in totals),
        dead_lettered=buried_count(topic),
        scheduled=counts["scheduled"],
    )


HANDLERS = [simple_create, produce, simple_consume, simple_ack, dashboard]
