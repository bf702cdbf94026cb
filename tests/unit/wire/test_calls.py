"""The calls: each goes there and comes back, and hostile MessagePack is a WireError with a name in it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trine.model.errors import InvalidInput
from trine.model.limits import FRAME_ITEMS_MAX, OPTIONS_BYTES_MAX
from trine.wire import calls
from trine.wire.frames import WireError

pack = msgspec.msgpack.encode
_PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5)


def strategy(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a msgspec type, made from its description."""
    made: st.SearchStrategy[Any]
    match kind:
        case msgspec.inspect.StrType():
            made = st.text(max_size=8)
        case msgspec.inspect.BytesType():
            made = st.binary(max_size=8)
        case msgspec.inspect.BoolType():
            made = st.booleans()
        case msgspec.inspect.FloatType():
            made = st.floats(allow_nan=False)
        case msgspec.inspect.IntType(ge=least, le=most):
            made = st.integers(-(2**63) if least is None else least, 2**63 - 1 if most is None else most)
        case msgspec.inspect.NoneType():
            made = st.none()
        case msgspec.inspect.AnyType():
            made = _PLAIN
        case msgspec.inspect.LiteralType(values=values):
            made = st.sampled_from(values)
        case msgspec.inspect.UnionType(types=types):
            made = st.one_of([strategy(one) for one in types])
        case msgspec.inspect.ListType(item_type=item):
            made = st.lists(strategy(item), max_size=3)
        case msgspec.inspect.VarTupleType(item_type=item):
            made = st.lists(strategy(item), max_size=3).map(tuple)
        case msgspec.inspect.TupleType(item_types=items):
            made = st.tuples(*map(strategy, items))
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            made = st.dictionaries(strategy(key), strategy(value), max_size=3)
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            arguments = {field.name: strategy(field.type) for field in fields}
            made = st.builds(cls, **arguments)
        case _:
            raise AssertionError(f"no values are known for {kind}")
    return made


CALLS = {kind: strategy(msgspec.inspect.type_info(kind)) for kind in calls.REPLIES}
REPLIES = {kind: strategy(msgspec.inspect.type_info(reply)) for kind, reply in calls.REPLIES.items()}


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.__name__)
@settings(max_examples=20)
@given(st.data())
def test_calls_and_their_replies_come_back(kind, data):
    call = data.draw(CALLS[kind])
    assert calls.read_call(calls.write_call(call)) == call
    reply = data.draw(REPLIES[kind])
    assert calls.read_reply(kind, calls.write_reply(reply)) == reply


def test_every_call_has_a_reply_and_a_name_of_its_own():
    kinds = {
        one
        for one in vars(calls).values()
        if isinstance(one, type) and issubclass(one, calls.Call) and one is not calls.Call
    }
    assert kinds == set(calls.REPLIES)
    assert calls.NAMES["create_topic"] is calls.CreateTopic
    assert len(calls.NAMES) == len(calls.REPLIES)


def with_field(name: str, field: str, value: bytes) -> bytes:
    """A call with one field of raw MessagePack."""
    return b"\x82" + pack("call") + pack(name) + pack(field) + value


DEEP = b"\x91" * 200_000 + b"\xc0"
HOSTILE = {
    "nothing": (b"", "no map"),
    "no map": (pack([1, 2]), "no map"),
    "no name": (pack({"x": 1}), "no map with the name"),
    "a name that is a number": (pack({"call": 5}), "no map with the name"),
    "an unknown call": (pack({"call": "drop_everything"}), "no call 'drop_everything'"),
    "a long unknown name": (pack({"call": "x" * 100_000}), "no call 'xxx"),
    "a field missing": (pack({"call": "create_topic"}), "create_topic .* `name`"),
    "a field of another type": (
        pack({"call": "delete_topic", "topic": 5}),
        r"delete_topic .*got `int` - at `\$.topic`",
    ),
    "a field too many": (pack({"call": "tick", "tock": 1}), "tick .*unknown field `tock`"),
    "bytes left over": (pack({"call": "tick"}) + b"\0", "no map|trailing"),
    "text that is no UTF-8": (with_field("delete_topic", "topic", b"\xa2\xff\xfe"), "delete_topic .*utf-8"),
    "a key that is no UTF-8": (
        with_field("create_topic", "options", b"\x81\xa2\xff\xfe\x01"),
        "create_topic",
    ),
    "nesting": (with_field("create_topic", "options", b"\x81\xa1a" + DEEP), "create_topic|no map"),
    "nesting elsewhere": (DEEP, "no map"),
    "nesting before the name": (b"\x82\xa1x" + DEEP + pack("call") + pack("tick"), "no map"),
    "an array that lies": (with_field("send", "messages", b"\xdd\xff\xff\xff\xff"), "send|no map"),
    "a map that lies": (
        with_field("create_topic", "options", b"\xdf\xff\xff\xff\xff"),
        "create_topic|no map",
    ),
    "text that lies": (with_field("delete_topic", "topic", b"\xdb\xff\xff\xff\xff"), "delete_topic|no map"),
    "a number too great": (with_field("list_schedules", "limit", pack(2**64 - 1)), "list_schedules .*limit"),
    "options without end": (
        with_field(
            "create_topic", "options", b"\x81\xa1a\xdd" + (10**6).to_bytes(4, "big") + b"\x90" * 10**6
        ),
        f"create_topic of .* at most {OPTIONS_BYTES_MAX}",
    ),
    "too many messages": (
        with_field(
            "send",
            "messages",
            b"\xdd"
            + (FRAME_ITEMS_MAX + 1).to_bytes(4, "big")
            + pack({"value": None}) * (FRAME_ITEMS_MAX + 1),
        ),
        f"send .*<= {FRAME_ITEMS_MAX}",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_bytes_are_named(what):
    body, words = HOSTILE[what]
    with pytest.raises(WireError) as caught:
        calls.read_call(memoryview(body))
    assert re.search(words, caught.value.message), caught.value.message
    assert len(caught.value.message) < 400


def test_a_reply_that_is_none_is_told():
    for body in (b"", b"\xc1", DEEP, pack({"durability": 5})):
        with pytest.raises(WireError, match="reply to send"):
            calls.read_reply(calls.Send, body)


@pytest.mark.parametrize("option", [object(), 2**64, {1: {2: object()}}, "\ud800"])
def test_an_argument_that_cannot_be_sent_is_told(option):
    with pytest.raises(InvalidInput, match="create_topic has an argument that cannot be sent"):
        calls.write_call(calls.CreateTopic(name="a", options={"x": option}))
