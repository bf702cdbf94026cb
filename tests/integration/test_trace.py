"""Traces and searches through the public interface: whole lives, on simulated time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import OpenBroker
from trine import Broker, SimulatedClock
from trine.broker import searching
from trine.model.errors import (
    InvalidOption,
    UnknownGroup,
    UnknownMessage,
    UnknownSchedule,
    UnknownTopic,
)
from trine.trace.timeline import Found, Trace


def whats(trace: Trace) -> list[str]:
    return [event.what.value for event in trace.events]


# --- a message's life


def test_published_delivered_acked(broker: Broker, clock: SimulatedClock) -> None:
    orders = broker.create_topic("orders", partitions=3, retention="7d")
    receipt = orders.publish(b"1", key="c-7")
    clock.advance("2s")
    with orders.group("billing").consumer("worker-1") as worker:
        (message,) = worker.receive()
        clock.advance("500ms")
        message.ack()
    trace = broker.trace(receipt.message_id)
    assert whats(trace) == ["PUBLISHED", "DELIVERED", "ACKED", "RETAINED"]
    assert trace.message_id == receipt.message_id
    assert trace.key == b"c-7"
    assert [event.at_ms - trace.events[0].at_ms for event in trace.events[:3]] == [0, 2000, 2500]
    assert trace.events[3].at_ms == trace.events[0].at_ms + 7 * 24 * 3600 * 1000
    life = trace.groups["billing"]
    assert (life.state, life.attempts, life.latency_ms, life.member) == ("acked", 1, 2500, "worker-1")


def test_each_group_has_a_life_of_its_own(broker: Broker) -> None:
    orders = broker.create_topic("orders", partitions=1)
    id_ = orders.publish(b"1").message_id
    with orders.group("billing").consumer("b") as billing, orders.group("audit").consumer("a") as audit:
        billing.receive()[0].ack()
        (held,) = audit.receive()
        orders.create_group("idle")
        orders.create_group("later", start="latest")
        groups = broker.trace(id_).groups
        assert {name: life.state.value for name, life in groups.items()} == {
            "billing": "acked",
            "audit": "in flight",
            "idle": "waiting",
            "later": "skipped",
        }
        assert (groups["audit"].member, groups["audit"].deadline_ms) == ("a", held.deadline_ms)


def test_retries_say_why(broker: Broker, clock: SimulatedClock) -> None:
    orders = broker.create_topic("orders", partitions=1)
    id_ = orders.publish(b"1").message_id
    with orders.group("billing", lease="30s").consumer("w") as worker:
        (message,) = worker.receive()
        message.extend("1m")
        message.nack(delay="5s", reason="db down")
        life = broker.trace(id_).groups["billing"]
        assert (life.state, life.retry_ms) == ("retrying", clock.now_ms() + 5000)
        clock.advance("5s")
        worker.receive()
        clock.advance("31s")
        broker.tick()
        clock.advance("1h")
        (message,) = worker.receive()
        message.ack()
    trace = broker.trace(id_)
    assert whats(trace)[1:-1] == [
        "DELIVERED", "EXTENDED", "NACKED", "REDELIVERED", "RETURNED", "REDELIVERED", "ACKED",
    ]  # fmt: skip
    assert trace.events[4].detail.startswith("db down")
    assert trace.events[6].detail.startswith("lease expired")
    assert trace.groups["billing"].attempts == 3


def test_dead_letter_and_redrive_are_linked_all_around(broker: Broker, clock: SimulatedClock) -> None:
    orders = broker.create_topic("orders", partitions=2)
    orders.publish_many([b"0", b"1", b"2"], partition=1)
    with orders.group("billing").consumer("w") as worker:
        worker.reject(worker.receive(max=10), "no such customer")
    clock.advance("1s")
    origin, letter = "orders/1/1", "orders.dlq/1/1"
    trace = broker.trace(origin)
    assert whats(trace) == ["PUBLISHED", "DELIVERED", "DEAD_LETTERED", "RETAINED"]
    assert trace.links == {"dead_letters": [letter]}
    assert trace.groups["billing"].reason == "no such customer"
    assert letter in trace.events[2].detail
    assert broker.trace(letter).links == {"origin": [origin]}

    broker.redrive("orders").run()
    again = broker.trace(origin).links["redriven_to"][0]
    assert whats(broker.trace(origin)) == ["PUBLISHED", "DELIVERED", "DEAD_LETTERED", "REDRIVEN", "RETAINED"]
    buried = broker.trace(letter)
    assert whats(buried) == ["PUBLISHED", "REDRIVEN"]
    assert buried.links == {"origin": [origin], "redriven_to": [again]}
    new = broker.trace(again)
    assert whats(new)[:2] == ["PUBLISHED", "REDRIVEN"]
    assert new.links == {"redriven_from": [letter], "origin": [origin]}


def test_a_redrive_to_the_very_first_place_is_linked(broker: Broker) -> None:
    orders = broker.create_topic("orders", partitions=1)
    broker.create_topic("second", partitions=1)
    orders.publish(b"1")
    with orders.group("billing").consumer("w") as worker:
        worker.reject(worker.receive(), "bad")
    broker.redrive("orders", to="second").run()
    assert broker.trace("orders/0/0").links["redriven_to"] == ["second/0/0"]
    assert broker.trace("second/0/0").links["redriven_from"] == ["orders.dlq/0/0"]


def test_a_purged_dead_letter(broker: Broker) -> None:
    orders = broker.create_topic("orders", partitions=1)
    orders.publish(b"1")
    with orders.group("billing").consumer("w") as worker:
        worker.reject(worker.receive(), "bad")
    orders.purge_dead_letters()
    assert "PURGED" in whats(broker.trace("orders/0/0"))
    assert whats(broker.trace("orders.dlq/0/0")) == ["PUBLISHED", "PURGED"]


def test_without_dead_letters_it_is_rejected(broker: Broker) -> None:
    orders = broker.create_topic("orders", partitions=1)
    id_ = orders.publish(b"1").message_id
    with orders.group("billing", dead_letters=False).consumer("w") as worker:
        worker.reject(worker.receive(), "bad")
    assert whats(broker.trace(id_))[1:3] == ["DELIVERED", "REJECTED"]
    assert broker.trace(id_).groups["billing"].state == "rejected"


def test_expired_and_filtered(broker: Broker, clock: SimulatedClock) -> None:
    orders = broker.create_topic("orders", partitions=1)
    short = orders.publish(b"1", ttl="1s", headers={"kind": "a"}).message_id
    other = orders.publish(b"2", headers={"kind": "b"}).message_id
    clock.advance("2s")
    with orders.group("only-a", headers={"kind": "a"}).consumer("w") as worker:
        assert worker.receive() == ()
    assert broker.trace(short).groups["only-a"].state == "expired"
    assert whats(broker.trace(other)) == ["PUBLISHED", "FILTERED", "RETAINED"]


def test_seek_and_replay(broker: Broker) -> None:
    orders = broker.create_topic("orders", partitions=1)
    first, second = (orders.publish(value).message_id for value in (b"1", b"2"))
    group = orders.group("billing")
    with group.consumer("w") as worker:
        worker.receive(max=1)[0].ack()
        group.seek(to="latest")
        assert whats(broker.trace(second)) == ["PUBLISHED", "SEEK", "RETAINED"]
        assert broker.trace(second).groups["billing"].state == "skipped"
        assert "SEEK" not in whats(broker.trace(first))
        group.replay(from_time=0)
        assert broker.trace(first).groups["billing"].state == "waiting"
        for message in worker.receive(max=10):
            message.ack()
        assert whats(broker.trace(first))[1:-1] == ["DELIVERED", "ACKED", "REOPENED", "REDELIVERED", "ACKED"]
        group.seek(offset=0, partition=0)
        assert whats(broker.trace(first))[-2] == "SEEK"
        assert broker.trace(first).groups["billing"].state == "waiting"


# --- the schedule


def test_a_scheduled_message_is_linked_both_ways(broker: Broker, clock: SimulatedClock) -> None:
    orders = broker.create_topic("orders", partitions=1)
    schedule_id = orders.publish(b"1", key="k", delay="90s").schedule_id
    assert schedule_id is not None
    waiting = broker.trace(schedule_id)
    assert whats(waiting) == ["SCHEDULED"]
    assert (waiting.message_id, waiting.key, waiting.due_ms) == (None, b"k", clock.now_ms() + 90_000)
    clock.advance("91s")
    broker.tick()
    with orders.group("billing").consumer("w") as worker:
        worker.receive()[0].ack()
    trace = broker.trace("orders/0/0")
    assert whats(trace) == ["PUBLISHED", "SCHEDULED", "DUE", "DELIVERED", "ACKED", "RETAINED"]
    assert (trace.message_id, trace.schedule_id) == ("orders/0/0", schedule_id)
    assert broker.trace(schedule_id) == trace
    assert (trace.groups["billing"].latency_ms, trace.groups["billing"].latency_due_ms) == (91_000, 0)
    assert "1s late" in trace.events[2].detail


def test_moved_and_cancelled(broker: Broker, clock: SimulatedClock) -> None:
    orders = broker.create_topic("orders", partitions=1)
    moved = orders.publish(b"1", delay="5m").schedule_id
    cancelled = orders.publish(b"2", delay="5m").schedule_id
    assert moved is not None
    assert cancelled is not None
    clock.advance("1m")
    broker.reschedule(moved, delay="20m")
    broker.reschedule(moved, delay="10m")
    broker.reschedule(moved, delay="2h")
    broker.cancel(cancelled)
    assert whats(broker.trace(moved)) == ["SCHEDULED", "MOVED", "MOVED", "MOVED"]
    assert broker.trace(moved).due_ms == clock.now_ms() + 2 * 3600 * 1000
    assert whats(broker.trace(cancelled)) == ["SCHEDULED", "CANCELLED"]
    clock.advance("2h")
    broker.tick()
    assert whats(broker.trace(moved)) == [
        "PUBLISHED",
        "SCHEDULED",
        "MOVED",
        "MOVED",
        "MOVED",
        "DUE",
        "RETAINED",
    ]
    assert broker.trace(moved).message_id == "orders/0/0"


def test_a_far_schedule_is_traced_without_loading_its_hour(broker: Broker, clock: SimulatedClock) -> None:
    orders = broker.create_topic("orders", partitions=1)
    ids = [orders.publish(b"1", delay="3d").schedule_id for _ in range(3)]
    assert ids[1] is not None
    broker.cancel(ids[1])
    assert [whats(broker.trace(str(one))) for one in ids] == [
        ["SCHEDULED"],
        ["SCHEDULED", "CANCELLED"],
        ["SCHEDULED"],
    ]


# --- what is gone, and what never was


def test_what_retention_took_is_told_by_the_ledgers(broker: Broker) -> None:
    orders = broker.create_topic("orders", partitions=1)
    orders.publish_many([b"1", b"2"])
    with orders.group("billing").consumer("w") as worker:
        worker.receive(max=1)[0].ack()
    orders.purge()
    trace = broker.trace("orders/0/0")
    assert not trace.kept
    assert whats(trace) == ["DELIVERED", "ACKED"]
    assert trace.groups["billing"].state == "acked"
    with pytest.raises(UnknownMessage, match="no longer in the log"):
        broker.trace("orders/0/1")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("orders/0/0", UnknownMessage),
        ("orders/9/0", UnknownMessage),
        ("nonsense", UnknownMessage),
        ("orders/0", UnknownMessage),
        ("elsewhere/0/0", UnknownTopic),
        ("orders@1-0", UnknownSchedule),
        ("orders@x", UnknownSchedule),
        ("elsewhere@1-0", UnknownTopic),
    ],
)
def test_unknown_ids(broker: Broker, text: str, error: type[Exception]) -> None:
    broker.create_topic("orders", partitions=1)
    with pytest.raises(error):
        broker.trace(text)


def test_a_row_that_is_not_in_the_hour(broker: Broker) -> None:
    orders = broker.create_topic("orders", partitions=1)
    schedule_id = orders.publish(b"1", delay="5m").schedule_id
    with pytest.raises(UnknownSchedule):
        broker.trace(str(schedule_id)[:-1] + "7")


def test_after_a_restart(tmp_path: Path, clock: SimulatedClock, open_broker: OpenBroker) -> None:
    with open_broker(str(tmp_path), clock=clock) as broker:
        orders = broker.create_topic("orders", partitions=1)
        orders.publish_many([b"x"] * 5000)
        worker = orders.group("billing").consumer("w")
        for message in worker.receive(max=4000):
            message.ack()
        worker.receive(max=1)
        scheduled = orders.publish(b"later", delay="10m").schedule_id
    clock.advance("1s")
    with open_broker(str(tmp_path), clock=clock) as broker:
        for offset in (0, 1490, 3999):
            assert whats(broker.trace(f"orders/0/{offset}")) == [
                "PUBLISHED",
                "DELIVERED",
                "ACKED",
                "RETAINED",
            ]
        trace = broker.trace("orders/0/4000")
        assert whats(trace) == ["PUBLISHED", "DELIVERED", "RETURNED", "RETAINED"]
        # A client leaves its groups when it is closed; the embedded library drops all at once.
        assert trace.groups["billing"].reason in ("broker restarted", "member closed")
        assert broker.trace("orders/0/4500").groups["billing"].state == "waiting"
        assert whats(broker.trace(str(scheduled))) == ["SCHEDULED"]
        assert len(broker.search("orders", group="billing", state="acked", limit=5000)) == 4000


# --- search


def ids(found: list[Found]) -> list[str]:
    return [one.message_id for one in found]


def test_by_key_and_time(broker: Broker, clock: SimulatedClock) -> None:
    orders = broker.create_topic("orders", partitions=4)
    start = clock.now_ms() / 1000
    sent = []
    for minute in range(6):
        sent += [(minute, key, orders.publish(b"x", key=key).message_id) for key in ("a", "b")]
        clock.advance("1m")
    assert ids(broker.search("orders", key="a")) == [id_ for _, key, id_ in sent if key == "a"]
    between = broker.search("orders", key="b", from_time=start + 60, to_time=start + 180)
    assert ids(between) == [id_ for minute, key, id_ in sent if key == "b" and 1 <= minute < 3]
    assert len(broker.search("orders")) == 12
    assert ids(broker.search("orders", limit=3)) == [id_ for *_, id_ in sent[:3]]
    assert broker.search("orders", key="c") == []
    assert broker.search("orders")[0].state is None


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("key", [b"", b"k", b"c-7", b"long" * 40, b"longer" * 4000])
def test_a_key_is_found_in_a_long_log(broker: Broker, key: bytes, compression: str) -> None:
    orders = broker.create_topic("orders", partitions=1, compression=compression)
    for _ in range(4):
        orders.publish_many([b"x"] * 200)
    orders.publish(b"y", key=key)
    orders.publish_many([{"value": b"z", "key": key + b"2"}] * 200)
    assert ids(broker.search("orders", key=key)) == ["orders/0/800"]


def test_by_state(broker: Broker, clock: SimulatedClock) -> None:
    orders = broker.create_topic("orders", partitions=1)
    orders.publish_many([b"x"] * 10)
    with orders.group("billing", breaker=None).consumer("w") as worker:
        messages = worker.receive(max=8)
        worker.ack(messages[0:3])
        worker.reject(messages[3], "bad")
        worker.nack(messages[4:6], delay="10s")

        def offsets(state: str) -> list[int]:
            found = broker.search("orders", group="billing", state=state)
            return [int(one.message_id.rpartition("/")[2]) for one in found]

        assert offsets("acked") == [0, 1, 2]
        assert offsets("dead-lettered") == [3]
        assert offsets("retrying") == [4, 5]
        assert offsets("in flight") == offsets("in_flight") == [6, 7]
        assert offsets("waiting") == [8, 9]
        assert offsets("unacked") == [4, 5, 6, 7, 8, 9]
        assert offsets("expired") == []
        states = [one.state for one in broker.search("orders", group="billing")]
        assert (
            states
            == ["acked"] * 3 + ["dead-lettered"] + ["retrying"] * 2 + ["in flight"] * 2 + ["waiting"] * 2
        )
        held = broker.search("orders", state="in flight")[0]
        assert (held.member, held.attempts, held.group) == ("w", 1, "billing")
        given_up = broker.search("orders", state="dead-lettered")[0]
        assert (given_up.member, given_up.attempts) == ("w", 1)
        for one in broker.search("orders", group="billing"):
            assert broker.trace(one.message_id).groups["billing"].state == one.state


def test_unacked_for_more_than_five_minutes(broker: Broker, clock: SimulatedClock) -> None:
    orders = broker.create_topic("orders", partitions=2)
    orders.create_group("billing")
    orders.create_group("audit")
    old = orders.publish(b"x", key="k").message_id
    clock.advance("5m")
    orders.publish(b"y", key="k")
    found = broker.search("orders", state="unacked", older_than="5m", key="k")
    assert [(one.message_id, one.group) for one in found] == [(old, "billing"), (old, "audit")]
    with orders.group("audit").consumer("w") as worker:
        for message in worker.receive(max=10):
            message.ack()
    assert [one.group for one in broker.search("orders", state="unacked")] == ["billing", "billing"]


def test_unacked_after_a_replay(broker: Broker) -> None:
    orders = broker.create_topic("orders", partitions=1)
    orders.publish_many([{"value": b"x", "key": str(n % 3)} for n in range(9)])
    group = orders.group("billing")
    with group.consumer("w") as worker:
        worker.ack(worker.receive(max=7))
        group.replay(key="1")
        assert ids(broker.search("orders", state="unacked")) == [f"orders/0/{n}" for n in (1, 4, 7, 8)]
        assert ids(broker.search("orders", state="acked")) == [f"orders/0/{n}" for n in (0, 2, 3, 5, 6)]


def test_over_many_stretches(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "STRETCH", 700)
    orders = broker.create_topic("orders", partitions=1)
    orders.publish_many([b"x"] * 6000)
    with orders.group("billing").consumer("w") as worker:
        for message in worker.receive(max=6000):
            if message.offset % 7:
                message.ack()
        assert len(broker.search("orders", state="acked", limit=10_000)) == 6000 - 858
        assert len(broker.search("orders", state="in flight", limit=10_000)) == 858
        assert len(broker.search("orders", state="unacked", limit=10_000)) == 858
        assert len(broker.search("orders", state="acked", limit=10)) == 10


def test_a_bad_search_says_what_is_possible(broker: Broker) -> None:
    broker.create_topic("orders", partitions=1)
    with pytest.raises(InvalidOption, match="unacked, waiting, in flight, retrying, acked"):
        broker.search("orders", state="lost")
    with pytest.raises(InvalidOption, match="limit"):
        broker.search("orders", limit=0)
    with pytest.raises(UnknownGroup):
        broker.search("orders", group="nobody", state="acked")
    with pytest.raises(UnknownTopic):
        broker.search("elsewhere")
