"""Every call of the protocol over a real socket, at least once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.tcp_peer import Peer, Served, serving, values
from trine import SimulatedClock
from trine.log import batch
from trine.model import errors
from trine.model.receipt import Receipt, write_receipt
from trine.trace.timeline import Found, Trace
from trine.wire import calls
from trine.wire.bodies import Run
from trine.wire.calls import JoinReply, WireOutgoing


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving(clock=SimulatedClock()) as one:
        yield one


@pytest.fixture
async def peer(served: Served) -> Peer:
    return await served.peer()


def message(value: bytes, **options: Any) -> WireOutgoing:
    return WireOutgoing(value=value, **options)


def receipts(joined: JoinReply, runs: list[Run]) -> list[str]:
    return [
        write_receipt(Receipt("t", "g", run.partition, offset, run.attempt, run.lease), joined.receipt_key)
        for run in runs
        for offset in range(run.first, run.first + run.count)
    ]


async def test_topics(peer: Peer) -> None:
    topic = await peer.call(calls.CreateTopic(name="t", options={"partitions": 2, "retention": "1h"}))
    assert (topic.name, topic.kind, topic.config["partitions"]) == ("t", "topic", 2)
    assert topic.config["retention_ms"] == 3_600_000
    again = await peer.call(calls.CreateTopic(name="t", exist_ok=True))
    assert again == topic
    with pytest.raises(errors.TopicExists):
        await peer.call(calls.CreateTopic(name="t"))
    with pytest.raises(errors.InvalidOption):
        await peer.call(calls.CreateTopic(name="u", kind="dead_letters"))
    with pytest.raises(errors.InvalidOption, match="partitoins"):
        await peer.call(calls.CreateTopic(name="u", options={"partitoins": 2}))
    with pytest.raises(errors.InvalidName):
        await peer.call(calls.CreateTopic(name="../../etc"))
    assert await peer.call(calls.GetTopic(name="t")) == topic
    with pytest.raises(errors.InvalidOption):
        await peer.call(calls.GetTopic(name="t", kind="queue"))
    queue = await peer.call(
        calls.CreateTopic(name="q", kind="queue", options={"lease": "5s", "partitions": 1})
    )
    assert queue.kind == "queue"
    assert (await peer.call(calls.DescribeGroup(topic="q", group="q"))).config.lease_ms == 5_000
    assert {one.name for one in await peer.call(calls.ListTopics())} == {"t", "q"}
    await peer.publish("t", b"1", b"2", partition=1)
    described = await peer.call(calls.DescribeTopic(topic="t"))
    assert (described.messages, described.config.partitions) == (2, 2)
    await peer.call(calls.AlterTopic(topic="t", options={"partitions": 3}))
    assert await peer.call(calls.GetOffsets(topic="t")) == {0: (0, 0), 1: (0, 2), 2: (0, 0)}
    assert (await peer.call(calls.PurgeTopic(topic="t"))).count == 2
    assert (await peer.call(calls.GetOffsets(topic="t")))[1] == (2, 2)
    await peer.call(calls.DeleteTopic(topic="t"))
    with pytest.raises(errors.UnknownTopic):
        await peer.call(calls.GetTopic(name="t"))


async def test_the_servers_defaults_hold_under_what_is_given() -> None:
    async with serving() as served:
        config = msgspec.structs.replace(
            served.context.config, defaults={"partitions": 2}, delivery={"lease": "7s", "max_deliveries": 3}
        )
        served.context.config = config
        peer = await served.peer()
        assert (await peer.call(calls.CreateTopic(name="t"))).config["partitions"] == 2
        assert (await peer.call(calls.CreateTopic(name="u", options={"partitions": 5}))).config[
            "partitions"
        ] == 5
        await peer.join("t", "g", lease="9s")
        group = await peer.call(calls.DescribeGroup(topic="t", group="g"))
        assert (group.config.lease_ms, group.config.max_deliveries) == (9_000, 3)
        await peer.join("t", "g", "other", lease="9s")
        with pytest.raises(errors.GroupExists):
            await peer.join("t", "g", "third", lease="10s")
        name = await peer.call(calls.Subscribe(topic="t"))
        group = await peer.call(calls.DescribeGroup(topic="t", group=name))
        assert (group.config.ephemeral, group.config.start, group.config.lease_ms) == (True, "latest", 7_000)
        await peer.call(calls.CreateTopic(name="q", kind="queue"))
        assert (await peer.call(calls.DescribeGroup(topic="q", group="q"))).config.lease_ms == 7_000


async def test_messages_with_options(peer: Peer) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 1}))
    sent = await peer.call(
        calls.Send(
            topic="t",
            messages=[
                message(b"1", key=b"k", headers={"h": b"v"}, priority="high", ttl_ms=60_000, producer="p"),
                message(b"2", dedup_id="once"),
                message(b"2", dedup_id="once"),
                message(b"3", delay_ms=5_000),
                message(b"4", partition=0),
            ],
            durability="written",
        )
    )
    assert sent.duplicates == [2]
    assert sent.places[2] == sent.places[1]
    assert str(sent.places[3]).startswith("t@")
    assert tuple(sent.places[0]) == (0, 0)
    with pytest.raises(errors.InvalidOption, match="durability"):
        await peer.call(calls.Send(topic="t", messages=[message(b"x")], durability="eternal"))
    with pytest.raises(errors.EmptyBatch):
        await peer.call(calls.Send(topic="t", messages=[]))


async def test_numbered_batches_are_stored_once(peer: Peer) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 1}))
    producer = await peer.call(calls.RegisterProducer(name="p"))
    numbered = calls.SendNumbered(
        topic="t",
        messages=[message(b"1"), message(b"2")],
        producer=("p", producer.id, producer.epoch),
        partition=0,
        sequence=0,
    )
    first = await peer.call(numbered)
    again = await peer.call(numbered)
    assert [tuple(place) for place in again.places] == [tuple(place) for place in first.places]
    assert again.duplicates == [0, 1]
    asked = calls.NextSequence(topic="t", partition=0, producer_id=producer.id)
    assert (await peer.call(asked)).count == 2


async def test_batches_that_a_producer_numbered_himself(peer: Peer) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 1}))
    producer = await peer.call(calls.RegisterProducer(name="bulk.1"))
    data = batch.encode(
        [(0, None, b"1", []), (0, None, b"2", [])],
        producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=0,
    )  # fmt: skip
    for duplicate in (False, True):
        reply = await peer.call(calls.SendBatch(topic="t", partition=0, data=bytes(data)))
        assert (reply.first, reply.count, reply.duplicate) == (0, 2, duplicate)
    assert (await peer.call(calls.ForgetProducers(prefix="bulk."))).count == 1
    with pytest.raises(errors.InvalidOption, match="how their names begin"):
        await peer.call(calls.ForgetProducers(prefix=""))


async def test_the_archive_and_the_ledger(peer: Peer) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 1, "archive": "/lake"}))
    await peer.publish("t", b"1", b"2")
    await peer.call(calls.SetArchived(topic="t", positions={0: 1}))
    assert await peer.call(calls.GetArchived(topic="t")) == {0: 1}
    joined = await peer.join("t", "g")
    await peer.receive(joined.session, most=2)
    reply = await peer.call(calls.ReadLedger(topic="t", group="g", partition=0, from_row=0))
    assert (len(reply.blocks), reply.more) == (1, False)


async def test_groups(peer: Peer, served: Served) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 1}))
    await peer.publish("t", b"1", b"2", b"3")
    await peer.call(calls.CreateGroup(topic="t", group="g", options={"lease": "10s"}))
    await peer.call(calls.CheckGroup(topic="t", group="g", options={"lease": 10}))
    await peer.call(calls.CheckGroup(topic="t", group="unheard-of"))
    with pytest.raises(errors.GroupExists):
        await peer.call(calls.CheckGroup(topic="t", group="g", options={"lease": "11s"}))
    joined = await peer.join("t", "g")
    runs = await peer.receive(joined.session, most=1)
    assert (await peer.call(calls.GetLag(topic="t", group="g"))).in_flight == 1
    assert [one.name for one in await peer.call(calls.ListGroups(topic="t"))] == ["g"]
    assert (await peer.call(calls.DescribeGroup(topic="t", group="g"))).members[0].name == "m"
    await peer.call(calls.PauseGroup(topic="t", group="g", reason="for a while"))
    assert (await peer.call(calls.DescribeGroup(topic="t", group="g"))).paused == "for a while"
    assert await peer.receive(joined.session) == []
    await peer.call(calls.ResumeGroup(topic="t", group="g"))
    await peer.ack(joined.session, runs)
    await peer.call(calls.AlterGroup(topic="t", group="g", options={"max_deliveries": 9}))
    assert await peer.call(calls.SeekGroup(topic="t", group="g", to="earliest")) == {0: 0}
    assert await peer.call(calls.SeekGroup(topic="t", group="new", offset=2)) == {0: 2}
    runs = await peer.receive(joined.session)
    assert values(runs) == [b"1", b"2", b"3"]
    await peer.ack(joined.session, runs)
    replay = calls.ReplayGroup(topic="t", group="g", from_time_ms=0)
    assert (await peer.call(replay)).count == 3
    await peer.call(calls.DeleteGroup(topic="t", group="g"))
    with pytest.raises(errors.UnknownGroup):
        await peer.call(calls.GetLag(topic="t", group="g"))
    assert served.engine.topic("t").groups.keys() == {"new"}


async def test_receipts_settle_from_anywhere(peer: Peer, served: Served) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 1}))
    await peer.publish("t", *(b"%d" % number for number in range(4)))
    joined = await peer.join("t", "g")
    proofs = receipts(joined, await peer.receive(joined.session))
    other = await served.peer()

    async def settle(what: str, index: int, **options: Any) -> int:
        call = calls.SettleReceipts(topic="t", group="g", what=what, receipts=[proofs[index]], **options)
        return int((await other.call(call)).count)

    assert await settle("ack", 0) == 1
    assert await settle("nack", 1, delay_ms=0, reason="again") == 1
    assert await settle("reject", 2, reason="never") == 1
    assert await settle("extend", 3, delay_ms=60_000) == 1
    with pytest.raises(errors.InvalidOption):
        await settle("extend", 3)
    with pytest.raises(errors.InvalidOption, match="'shred'"):
        await settle("shred", 3)
    with pytest.raises(errors.StaleReceipt):
        await settle("ack", 0)
    assert values(await peer.receive(joined.session)) == [b"1"]


async def test_members(peer: Peer, served: Served) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 4}))
    one = await peer.call(calls.Join(topic="t", group="g", member="a"))
    two = await peer.call(calls.Join(topic="t", group="g", member="b", auto_heartbeat=False))
    assert one.session != two.session
    assert one.lanes == ("high", "normal", "low")
    assert len((await peer.call(calls.GetPartitions(session=one.session))).partitions) == 2
    clock = served.engine.clock
    assert isinstance(clock, SimulatedClock)
    clock.advance("25s")
    await peer.call(calls.Heartbeat(session=two.session))
    clock.advance("25s")
    await peer.call(calls.Tick())
    assert len((await peer.call(calls.GetPartitions(session=one.session))).partitions) == 2
    clock.advance("31s")
    await peer.call(calls.Tick())
    assert len((await peer.call(calls.GetPartitions(session=one.session))).partitions) == 4
    await peer.call(calls.Leave(session=one.session))
    await peer.call(calls.Leave(session=one.session))
    with pytest.raises(errors.Closed):
        await peer.call(calls.GetPartitions(session=one.session))
    with pytest.raises(errors.InvalidName):
        await peer.call(calls.Join(topic="t", group="g", member="no/slash"))


async def test_what_was_lost_on_the_way_comes_again(peer: Peer) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 1}))
    for value in (b"1", b"2", b"3"):
        await peer.publish("t", value)
    session = (await peer.join("t", "g", "m")).session
    seen = (await peer.receive(session, most=1))[0]
    assert values(await peer.receive(session, most=1)) == [b"2"]
    back = await peer.call(calls.ReturnUnseen(session=session, seen={0: seen.lease}))
    assert back.count == 1
    again = await peer.receive(session)
    assert values(again) == [b"2", b"3"]
    assert again[0].attempt == 2
    twin = (await peer.join("t", "g", "m")).session
    assert (await peer.call(calls.ReturnUnseen(session=twin, seen={}))).count == 0


async def test_subscribers(peer: Peer, served: Served) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 1}))
    await peer.publish("t", b"before")
    name = await peer.call(calls.Subscribe(topic="t", headers={"for": "me"}))
    session = (await peer.join("t", name, name)).session
    sent = [message(b"yes", headers={"for": b"me"}), message(b"no")]
    await peer.call(calls.Send(topic="t", messages=sent))
    assert values(await peer.receive(session)) == [b"yes"]
    await peer.call(calls.Leave(session=session))
    assert name not in served.engine.topic("t").groups


async def test_readers(peer: Peer) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 2}))
    await peer.publish("t", b"1", b"2", partition=0)
    assert await peer.call(calls.OpenReader(topic="t", reader="r")) == {0: 0, 1: 0}
    await peer.call(calls.CommitReader(topic="t", reader="r", positions={0: 1}))
    assert await peer.call(calls.OpenReader(topic="t", reader="r", start="latest")) == {0: 1, 1: 0}
    assert await peer.call(calls.FindOffsets(topic="t", offset=99)) == {0: 2, 1: 0}
    assert await peer.call(calls.FindOffsets(topic="t", time_ms=0, partition=0)) == {0: 0}
    with pytest.raises(errors.InvalidOption):
        await peer.call(calls.OpenReader(topic="t", reader="r", start="middle"))


async def test_schedules(peer: Peer, served: Served) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 1}))
    now = served.engine.clock.now_ms()
    sent = await peer.call(
        calls.Send(
            topic="t", messages=[message(b"1", delay_ms=9_000), message(b"2", deliver_at_ms=now + 7_001)]
        )
    )
    listed = await peer.call(calls.ListSchedules())
    assert [one.due_ms - now for one in listed] == [7_001, 9_000]
    await peer.call(calls.MoveSchedule(schedule_id=sent.places[0], delay_ms=1_000))
    await peer.call(calls.CancelSchedule(schedule_id=sent.places[1]))
    assert [one.due_ms - now for one in await peer.call(calls.ListSchedules(topic="t"))] == [1_000]
    with pytest.raises(errors.UnknownSchedule):
        await peer.call(calls.CancelSchedule(schedule_id="nonsense"))
    cron = calls.CreateCron(name="c", topic="t", expression="every 30s", value=b"tick", headers={"a": b"b"})
    assert (await peer.call(cron)).next_ms == now + 30_000
    assert [one.name for one in await peer.call(calls.ListCrons())] == ["c"]
    await peer.call(calls.DeleteCron(name="c"))
    with pytest.raises(errors.UnknownSchedule):
        await peer.call(calls.DeleteCron(name="c"))


async def bury(peer: Peer, *some: bytes) -> None:
    await peer.call(calls.CreateTopic(name="t", options={"partitions": 1}, exist_ok=True))
    joined = await peer.join("t", "g", breaker=None)
    await peer.publish("t", *some)
    await peer.settle(joined.session, 2, await peer.receive(joined.session), reason="bad")
    await peer.call(calls.Leave(session=joined.session))


async def test_dead_letters(peer: Peer) -> None:
    await bury(peer, b"1", b"2", b"3")
    letters = await peer.call(calls.ListDeadLetters(topic="t", reason="bad"))
    assert [letter.value for letter in letters] == [b"1", b"2", b"3"]
    assert dict(letters[0].headers)["trine-origin"] == b"t/0/0"
    job = await peer.call(calls.BeginRedrive(topic="t"))
    assert not job.done
    assert len(await peer.call(calls.PreviewRedrive(id=job.id))) == 3
    stepped = await peer.call(calls.StepRedrive(id=job.id, limit=1))
    assert (stepped.looked, stepped.progress["moved"], stepped.done) == (1, 1, False)
    assert (await peer.call(calls.ResumeRedrive(id=job.id))).progress["moved"] == 1
    assert [one.id for one in await peer.call(calls.ListRedrives())] == [job.id]
    assert (await peer.call(calls.CancelRedrive(id=job.id))).progress["state"] == "cancelled"
    with pytest.raises(errors.UnknownJob):
        await peer.call(calls.StepRedrive(id="redrive-99"))
    named = await peer.call(calls.BeginRedrive(topic="t", where="offset = 1"))
    moved = await peer.call(
        calls.MoveLetters(id=named.id, letters=[(letters[1].partition, letters[1].offset)])
    )
    assert (moved.where, moved.looked, moved.progress["moved"], moved.done) == ("offset = 1", 1, 1, False)
    assert (await peer.call(calls.PurgeDeadLetters(topic="t"))).count == 1


async def test_nobody_steers_the_brokers_own_account_of_dead_letters(peer: Peer) -> None:
    own: dict[str, Any] = {"topic": "orders.dlq", "group": "_dead_letters"}
    for call in (
        calls.CreateGroup(**own, options={}),
        calls.AlterGroup(**own, options={}),
        calls.DeleteGroup(**own),
        calls.PauseGroup(**own, reason="x"),
        calls.ResumeGroup(**own),
        calls.SeekGroup(**own, to="latest"),
        calls.ReplayGroup(**own),
        calls.SettleReceipts(**own, what="ack", receipts=["x"]),
        calls.Join(**own, member="m", options={}),
        calls.Subscribe(topic="orders.dlq", name="_dead_letters", durable=True, headers=None, options={}),
    ):
        with pytest.raises(errors.Forbidden, match="broker's own"):
            await peer.call(call)


async def test_a_redrive_that_the_caller_edits(peer: Peer) -> None:
    await bury(peer, b"1", b"2", b"3", b"4", b"5")
    job = await peer.call(calls.BeginRedrive(topic="t", edited=True))
    with pytest.raises(errors.InvalidOption):
        await peer.call(calls.StepRedrive(id=job.id))
    with pytest.raises(errors.InvalidOption, match="edit"):
        await peer.call(calls.ResumeRedrive(id=job.id))
    steps = 0
    while not job.done:
        letters = await peer.call(calls.PreviewRedrive(id=job.id, limit=2))
        edits: list[tuple[str, WireOutgoing | None]] = [
            (
                f"{letter.topic}/{letter.partition}/{letter.offset}",
                None if letter.value == b"3" else message(b"mended " + letter.value),
            )
            for letter in letters
        ]
        job = await peer.call(calls.StepRedrive(id=job.id, edits=edits))
        steps += 1
    assert steps <= 4
    assert (job.progress["moved"], job.progress["passed_over"]) == (4, 1)
    joined = await peer.join("t", "g")
    again = values(await peer.receive(joined.session))
    assert again == [b"mended 1", b"mended 2", b"mended 4", b"mended 5"]
    assert [one.value for one in await peer.call(calls.ListDeadLetters(topic="t"))] == [b"3"]


async def test_transactions(peer: Peer) -> None:
    for name in ("t", "u"):
        await peer.call(calls.CreateTopic(name=name, options={"partitions": 1}))
    await peer.publish("t", b"1", b"2", b"3")
    joined = await peer.join("t", "g")
    (run,) = await peer.receive(joined.session)
    proofs = receipts(joined, [run])
    found = await peer.call(
        calls.Transact(
            acks=[(joined.session, run.partition, run.lease, run.first, 2)],
            receipts=proofs[2:],
            messages={"u": [message(b"out")]},
        )
    )
    assert [tuple(place) for place in found["u"].places] == [(0, 0)]
    assert (await peer.call(calls.GetLag(topic="t", group="g"))).count == 0
    with pytest.raises(errors.StaleReceipt):
        await peer.call(calls.Transact(acks=[], receipts=proofs[:1], messages={"u": [message(b"twice")]}))
    assert (await peer.call(calls.GetOffsets(topic="u"))) == {0: (0, 1)}
    with pytest.raises(errors.InvalidReceipt):
        await peer.call(calls.Transact(acks=[], receipts=["forged"]))


async def test_traces(peer: Peer) -> None:
    await bury(peer, b"1")
    trace = msgspec.msgpack.decode(await peer.call(calls.GetTrace(message_id="t/0/0")), type=Trace)
    assert [event.what for event in trace.events][:2] == ["PUBLISHED", "DELIVERED"]
    packed = await peer.call(calls.Search(topic="t", group="g", state="dead-lettered"))
    assert [one.message_id for one in msgspec.msgpack.decode(packed, type=list[Found])] == ["t/0/0"]
    for bad in ("t/0/99", "nonsense"):
        with pytest.raises(errors.UnknownMessage):
            await peer.call(calls.GetTrace(message_id=bad))


async def test_runs(peer: Peer) -> None:
    run = await peer.call(calls.BeginRun(kind="archive", name="/lake", topics=["t"]))
    await peer.call(calls.TellRun(id=run, rows=3))
    (seen,) = await peer.call(calls.ListRuns(kind="archive"))
    assert (seen.id, seen.state, seen.rows) == (run, "running", 3)
    assert await peer.call(calls.ListRuns(kind="report")) == []
    await peer.call(calls.EndRun(id=run, rows=5, summary='{"commits":1}'))
    assert (await peer.call(calls.GetRun(id=run))).summary == '{"commits":1}'
    with pytest.raises(errors.InvalidOption, match="JSON"):
        await peer.call(
            calls.EndRun(id=await peer.call(calls.BeginRun(kind="report", name="x")), summary="[]")
        )
    with pytest.raises(errors.UnknownJob):
        await peer.call(calls.GetRun(id="run-99"))


async def test_upkeep(peer: Peer) -> None:
    await peer.call(calls.CreateTopic(name="t"))
    await peer.publish("t", b"1")
    await peer.call(calls.Checkpoint())
    await peer.call(calls.Tick())
    await peer.call(calls.ApplyRetention())
    assert (await peer.call(calls.Verify())).count > 0
    statistics = await peer.call(calls.Statistics())
    assert statistics["topics"]["t"]["messages"] == 1


def test_every_call_is_made_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [one.__name__ for one in calls.REPLIES if f"calls.{one.__name__}(" not in text] == []
