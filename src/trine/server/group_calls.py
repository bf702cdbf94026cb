"""Calls about groups and their members, and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trine.broker.aio import AsyncGroup
from trine.broker.aio.group import LEDGER_BYTES
from trine.broker.group import GroupState
from trine.broker.group_part import GroupPart
from trine.broker.group_part import Run as HeldRun
from trine.broker.operations import commit_transaction, find_run
from trine.model.description import GroupDescription, Lag
from trine.model.errors import Closed, GroupExists, InvalidOption
from trine.model.ids import check_name
from trine.model.options import GroupConfig
from trine.model.receipt import read_names
from trine.server.deliveries import Session
from trine.server.topic_calls import instant, outgoing, published, span
from trine.wire import calls
from trine.wire.calls import CountReply, JoinReply, LedgerReply, PartitionsReply, PublishedReply

if TYPE_CHECKING:
    from trine.server.connection import Connection


def _group(connection: Connection, topic: str, name: str) -> AsyncGroup:
    """A group by name, whether it is there or not: its verbs find out."""
    check_name(name, "group")
    return AsyncGroup(connection.context.broker.topic(topic), name, GroupConfig())


def _made(connection: Connection, topic: str, name: str, options: dict[str, Any]) -> GroupState:
    """The group, created if there is none. Options that are given must agree with those it has. Under the lock."""
    engine = connection.context.engine
    state = engine.topic(topic)
    known = state.groups.get(name)
    if known is None:
        config = GroupConfig.make({**connection.context.config.group_defaults(), **options})
        return engine.create_group(state, name, config)
    if known.config.altered(options) != known.config:
        raise GroupExists(
            f"group {name!r} of topic {topic!r} exists with other options; "
            "change them with group.alter(...), or leave them out here"
        )
    return known


# --- groups


async def create_group(connection: Connection, call: calls.CreateGroup) -> None:
    topic = connection.context.broker.topic(call.topic)
    await topic.create_group(call.group, **{**connection.context.config.group_defaults(), **call.options})


async def check_group(connection: Connection, call: calls.CheckGroup) -> None:
    connection.context.broker.topic(call.topic).group(call.group, **call.options)


async def list_groups(connection: Connection, call: calls.ListGroups) -> list[GroupDescription]:
    return await connection.context.broker.topic(call.topic).groups()


async def describe_group(connection: Connection, call: calls.DescribeGroup) -> GroupDescription:
    return await _group(connection, call.topic, call.group).describe()


async def get_lag(connection: Connection, call: calls.GetLag) -> Lag:
    return await _group(connection, call.topic, call.group).lag()


async def read_ledger(connection: Connection, call: calls.ReadLedger) -> LedgerReply:
    with connection.context.engine.lock:
        group = _group(connection, call.topic, call.group)._state()
        part = group.parts[group.topic.partition(call.partition).number]
        return LedgerReply(*part.blocks_from(call.from_row, min(max(call.bytes_max, 1), LEDGER_BYTES)))


async def alter_group(connection: Connection, call: calls.AlterGroup) -> None:
    await _group(connection, call.topic, call.group).alter(**call.options)


async def delete_group(connection: Connection, call: calls.DeleteGroup) -> None:
    await _group(connection, call.topic, call.group).delete()


async def pause_group(connection: Connection, call: calls.PauseGroup) -> None:
    await _group(connection, call.topic, call.group).pause(call.reason)


async def resume_group(connection: Connection, call: calls.ResumeGroup) -> None:
    await _group(connection, call.topic, call.group).resume()


async def seek_group(connection: Connection, call: calls.SeekGroup) -> dict[int, int]:
    group = _group(connection, call.topic, call.group)
    with connection.context.engine.lock:
        _made(connection, call.topic, call.group, call.options)
    return await group.seek(
        offset=call.offset, time=instant(call.time_ms), to=call.to, partition=call.partition
    )


async def replay_group(connection: Connection, call: calls.ReplayGroup) -> CountReply:
    group = _group(connection, call.topic, call.group)
    return CountReply(
        await group.replay(
            failed=call.failed,
            key=call.key,
            from_time=instant(call.from_time_ms),
            to_time=instant(call.to_time_ms),
        )
    )


async def settle_receipts(connection: Connection, call: calls.SettleReceipts) -> CountReply:
    group = _group(connection, call.topic, call.group)
    if call.what == "ack":
        count = await group.ack(call.receipts)
    elif call.what == "nack":
        count = await group.nack(call.receipts, delay=span(call.delay_ms), reason=call.reason)
    elif call.what == "reject":
        count = await group.reject(call.receipts, call.reason or "rejected")
    elif call.what == "extend":
        if call.delay_ms is None:
            raise InvalidOption("to extend, say how long from now: delay_ms")
        count = await group.extend(call.receipts, f"{call.delay_ms}ms")
    else:
        raise InvalidOption(f"what is 'ack', 'nack', 'reject' or 'extend', not {call.what!r}")
    return CountReply(count, _level(connection, group._state()))


def _level(connection: Connection, group: GroupState) -> str:
    return connection.context.engine.durability(group.level)


# --- members


async def join(connection: Connection, call: calls.Join) -> JoinReply:
    check_name(call.member, "member")
    check_name(call.group, "group")
    engine = connection.context.engine
    with engine.lock:
        engine.check_open()
        if connection.leaving:
            raise Closed("the connection is closing; connect again")
        number = connection.next_session()
        group = _made(connection, call.topic, call.group, call.options)
        group.enter(call.member, engine.clock.now_ms(), keeps_alive=call.auto_heartbeat)
        desk = connection.listener.desks.open(group)
        connection.sessions[number] = Session(number, desk, call.member, connection, call.auto_heartbeat)
        reply = JoinReply(
            session=number,
            receipt_key=group.receipt_key,
            partitions=list(group.members.assigned(call.member)),
            lanes=group.topic.config.lanes,
            level=_level(connection, group),
        )
        lsn = engine.store.end_lsn
    await connection.context.commits.durable(lsn)  # the group may be new
    return reply


async def subscribe(connection: Connection, call: calls.Subscribe) -> str:
    defaults = connection.context.config.group_defaults()
    for word in ("start", "ephemeral", "headers"):  # what a subscriber is stands in the call
        defaults.pop(word, None)
    topic = connection.context.broker.topic(call.topic)
    consumer = await topic.subscribe(
        call.name, durable=call.durable, headers=call.headers, **{**defaults, **call.options}
    )
    return consumer.name


async def leave(connection: Connection, call: calls.Leave) -> None:
    engine = connection.context.engine
    with engine.lock:
        session = connection.sessions.pop(call.session, None)
        if session is None:
            return
        session.stop()
        session.end_polls()
        connection.listener.desks.close(session.desk)
        group = session.group
        if group.deleted or engine.closed:
            return
        group.leave(session.member, engine.clock.now_ms())
        if group.config.ephemeral and not group.members.names():
            engine.delete_group(group.topic, group.name)
        lsn = engine.store.end_lsn
    await connection.context.commits.durable(lsn)


async def heartbeat(connection: Connection, call: calls.Heartbeat) -> None:
    engine = connection.context.engine
    with engine.lock:
        session = connection.session(call.session)
        session.group.members.heartbeat(session.member, engine.clock.now_ms())


async def return_unseen(connection: Connection, call: calls.ReturnUnseen) -> CountReply:
    engine = connection.context.engine
    with engine.lock:
        session = connection.session(call.session)
        count = session.group.return_unseen(session.member, call.seen, engine.clock.now_ms())
        lsn = engine.store.end_lsn
    await connection.context.commits.durable(lsn)
    return CountReply(count, _level(connection, session.group))


async def get_partitions(connection: Connection, call: calls.GetPartitions) -> PartitionsReply:
    with connection.context.engine.lock:
        session = connection.session(call.session)
        return PartitionsReply(list(session.group.members.assigned(session.member)))


# --- transactions


async def transact(connection: Connection, call: calls.Transact) -> dict[str, PublishedReply]:
    engine = connection.context.engine
    for topic in call.messages:
        connection.check("publish", topic)
    messages = {topic: [outgoing(one) for one in some] for topic, some in call.messages.items()}
    with engine.lock:
        engine.check_open()
        acks: list[tuple[GroupState, list[tuple[GroupPart, HeldRun]]]] = []
        for number, *held in call.acks:
            group = connection.session(number).group
            partition, lease, first, count = held
            acks.append((group, group.held_runs([(partition, lease, first, count)])))
        for receipt in call.receipts:
            topic_name, group_name = read_names(receipt)
            connection.check("consume", topic_name)
            group = engine.group(engine.topic(topic_name), group_name)
            acks.append((group, [find_run(engine, group, receipt)]))
        found, lsn = commit_transaction(engine, acks, messages)
    await connection.context.commits.durable(lsn)
    return {topic: published(one.durability, one) for topic, one in found.items()}
