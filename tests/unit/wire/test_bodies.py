"""Bodies of the hot commands: what is written is read, and what lies is told."""

from __future__ import annotations

import re
import struct
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.model.errors import InvalidInput, MessageTooLarge
from trine.model.limits import FRAME_ITEMS_MAX
from trine.wire import bodies
from trine.wire.frames import WireError

u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=30).filter(lambda name: all(not 0xD800 <= ord(letter) < 0xE000 for letter in name))
levels = st.integers(0, 2)
data = st.binary(max_size=60)
held = st.lists(st.tuples(u32, i64, i64, u32), max_size=20)
runs = st.lists(
    st.tuples(u32, st.integers(0, 255), u16, i64, i64, u32, i64, st.lists(data, max_size=3)), max_size=6
)


def view(parts: bytes | list[Any]) -> memoryview:
    return memoryview(parts if isinstance(parts, bytes) else b"".join(parts))


@given(names, levels | st.just(bodies.TOPICS_OWN), u32, u32, st.lists(st.tuples(u32, data), max_size=6))
def test_publish(topic, durability, version, wait_ms, batches):
    body = view(bodies.write_publish(topic, durability, version, wait_ms, batches))
    read = bodies.read_publish(body)
    assert (read.topic, read.durability, read.version, read.wait_ms) == (topic, durability, version, wait_ms)
    assert [(partition, bytes(one)) for partition, one in read.batches] == batches


@given(levels, st.lists(st.tuples(u32, u32, i64), max_size=20))
def test_published(durability, placed):
    assert bodies.read_published(view(bodies.write_published(durability, placed))) == (durability, placed)


@given(u32, runs)
def test_delivery(session, given_runs):
    read_session, read = bodies.read_delivery(view(bodies.write_delivery(session, given_runs)))
    assert read_session == session
    assert [(*run[:7], bytes(run.batches)) for run in read] == [
        (*run[:7], b"".join(run[7])) for run in given_runs
    ]


@given(u32, held)
def test_ack(session, runs_held):
    assert bodies.read_ack(view(bodies.write_ack(session, runs_held))) == (session, runs_held)


@given(u32, st.sampled_from([bodies.NACK, bodies.REJECT, bodies.EXTEND]), i64, names, held)
def test_settle(session, what, delay_ms, reason, runs_held):
    body = bodies.write_settle(session, what, delay_ms, reason, iter(runs_held))
    assert bodies.read_settle(view(body)) == (session, what, delay_ms, reason, runs_held)


@given(u32, u32, u32)
def test_small_bodies(session, number, other):
    assert bodies.read_receive(view(bodies.write_receive(session, number, other))) == (session, number, other)
    assert bodies.read_start(view(bodies.write_start(session, number, other))) == (session, number, other)
    assert bodies.read_credit(view(bodies.write_credit(session, number))) == (session, number)
    assert bodies.read_stop(view(bodies.write_stop(session))) == session
    assert bodies.read_settled(view(bodies.write_settled(number, other % 3))) == (number, other % 3)


@given(names, u32, i64, u32, u32, data)
def test_read_and_its_range(topic, partition, offset, bytes_max, wait_ms, batches):
    body = bodies.write_read(topic, partition, offset, bytes_max, wait_ms)
    assert bodies.read_read(view(body)) == (topic, partition, offset, bytes_max, wait_ms)
    first, following, rest = bodies.read_range(view(bodies.write_range(offset, offset) + batches))
    assert (first, following, bytes(rest)) == (offset, offset, batches)


EXAMPLES: dict[str, tuple[Callable[[memoryview], Any], bytes]] = {
    "publish": (
        bodies.read_publish,
        b"".join(bodies.write_publish("t", 2, 1, 0, [(0, b"one"), (1, b"two")])),
    ),
    "published": (bodies.read_published, bodies.write_published(2, [(0, 1, 5), (1, 1, 6)])),
    "receive": (bodies.read_receive, bodies.write_receive(1, 2, 3)),
    "delivery": (
        bodies.read_delivery,
        b"".join(bodies.write_delivery(1, [(0, 1, 1, 4, 5, 6, 7, [b"a", b"b"])])),
    ),
    "ack": (bodies.read_ack, bodies.write_ack(1, [(0, 1, 2, 3), (1, 2, 3, 4)])),
    "settled": (bodies.read_settled, bodies.write_settled(1, 2)),
    "settle": (bodies.read_settle, bodies.write_settle(1, 2, 3, "why", [(0, 1, 2, 3)])),
    "start": (bodies.read_start, bodies.write_start(1, 2, 3)),
    "credit": (bodies.read_credit, bodies.write_credit(1, 2)),
    "stop": (bodies.read_stop, bodies.write_stop(1)),
    "read": (bodies.read_read, bodies.write_read("t", 1, 2, 3, 4)),
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_body_cut_anywhere_or_with_bytes_left_over_is_refused(kind):
    read, body = EXAMPLES[kind]
    read(memoryview(body))
    for cut in range(len(body)):
        with pytest.raises(WireError):
            read(memoryview(body)[:cut])
    with pytest.raises(WireError):
        read(memoryview(body + b"\0"))


def test_a_range_may_be_without_batches_but_not_shorter():
    assert bodies.read_range(memoryview(bytes(16)))[2] == b""
    with pytest.raises(WireError, match="too short"):
        bodies.read_range(memoryview(bytes(15)))


@pytest.mark.parametrize(
    ("kind", "at"), [("publish", 12), ("published", 4), ("delivery", 4), ("ack", 4), ("settle", 19)]
)
@pytest.mark.parametrize("count", [3, 5_000, FRAME_ITEMS_MAX, FRAME_ITEMS_MAX + 1, 2**31, 2**32 - 1])
def test_a_count_that_lies_fails_at_once(kind, at, count):
    read, body = EXAMPLES[kind]
    lying = bytearray(body)
    struct.pack_into("<I", lying, at, count)
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(WireError):
            read(memoryview(lying))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000
    assert time.process_time() - began < 0.5


def test_a_frame_of_countless_empty_batches_is_refused():
    count = FRAME_ITEMS_MAX + 1
    body = struct.pack("<BBHIII", 2, 0, 0, 1, 0, count) + bytes(8 * count)
    with pytest.raises(WireError, match=f"at most {FRAME_ITEMS_MAX} items"):
        bodies.read_publish(memoryview(body))


@pytest.mark.parametrize(
    ("kind", "at", "value"),
    [
        ("publish", 0, 3),
        ("publish", 1, 1),
        ("published", 0, 3),
        ("published", 0, 255),
        ("published", 1, 1),
        ("published", 3, 1),
        ("delivery", 8 + 5, 1),
        ("settled", 4, 3),
        ("settle", 4, 0),
        ("settle", 4, 4),
        ("settle", 5, 1),
        ("publish", 16, 0xFF),
        ("settle", 16, 0xFF),
        ("read", 22, 0xFF),
    ],
)
def test_what_is_not_in_the_tables_is_refused(kind, at, value):
    read, body = EXAMPLES[kind]
    changed = bytearray(body)
    changed[at] = value
    with pytest.raises(WireError):
        read(memoryview(changed))


def test_lengths_within_lengths_lie():
    body = bytearray(EXAMPLES["publish"][1])
    struct.pack_into("<H", body, 2, 60_000)
    with pytest.raises(WireError, match=re.escape("a length of 60000 lies")):
        bodies.read_publish(memoryview(body))


def test_who_writes_is_told_what_was_wrong():
    for wrong in (
        lambda: bodies.write_receive(1, -1, 0),
        lambda: bodies.write_read("t", -1, 0, 1, 0),
        lambda: bodies.write_read("t", 0, 2**63, 1, 0),
        lambda: bodies.write_ack(1, [(0, 0, 0, -1)]),
        lambda: bodies.write_settle(1, 1, 2**63, "", []),
        lambda: bodies.write_publish("t", 2, 1, 0, [(-1, b"")]),
        lambda: bodies.write_publish("\ud800", 2, 1, 0, []),
        lambda: bodies.write_publish("t" * 70_000, 2, 1, 0, []),
        lambda: bodies.write_settle(1, 2, 0, "\ud800", []),
    ):
        with pytest.raises(InvalidInput):
            wrong()
    with pytest.raises(MessageTooLarge, match="at most"):
        bodies.write_ack(1, [(0, 0, 0, 1)] * (FRAME_ITEMS_MAX + 1))


def test_endless_waits_and_long_reasons_are_cut():
    assert bodies.read_receive(view(bodies.write_receive(1, 1, 2**40)))[2] == 2**32 - 1
    assert bodies.read_read(view(bodies.write_read("t", 0, 0, 2**40, 2**40))).wait_ms == 2**32 - 1
    assert bodies.read_settle(view(bodies.write_settle(1, 2, 0, "é" * 100_000, []))).reason == "é" * 500
