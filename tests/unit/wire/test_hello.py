"""The first frames, and errors on their way."""

from __future__ import annotations

import inspect

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.model import errors
from trine.model.errors import Corrupt, InvalidName, StoreError, TrineError
from trine.wire import hello
from trine.wire.frames import WireError
from trine.wire.hello import Hello, Welcome

ERRORS = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, TrineError) and error is not Corrupt
]
pack = msgspec.msgpack.encode
numbers = st.integers(0, 2**63 - 1)


def view(body: bytes) -> memoryview:
    return memoryview(body)


@given(numbers, numbers, st.text(max_size=9), st.none() | st.text(max_size=9))
def test_hello(least, most, client, key):
    said = Hello(least=least, most=most, client=client, key=key)
    assert hello.read_hello(view(hello.write_hello(said))) == said


@given(numbers, numbers, st.text(max_size=9))
def test_welcome(number, now_ms, text):
    said = Welcome(
        version=1, server=text, now_ms=now_ms, frame_bytes_max=number, silence_ms=number, role=text
    )
    assert hello.read_welcome(view(hello.write_welcome(said))) == said


def test_fields_of_a_later_version_are_passed_over():
    body = pack({"least": 1, "most": 9, "client": "later/9", "wish": "compression"})
    assert hello.read_hello(view(body)).client == "later/9"


@pytest.mark.parametrize(("least", "most"), [(1, 1), (0, 1), (1, 7)])
def test_versions_agree(least, most):
    assert hello.agree(Hello(least=least, most=most, client="x")) == 1


@pytest.mark.parametrize(("least", "most"), [(2, 3), (0, 0), (3, 1)])
def test_versions_do_not_agree(least, most):
    with pytest.raises(WireError, match=f"version 1 of the protocol, the client {least} to {most}"):
        hello.agree(Hello(least=least, most=most, client="x"))


def test_a_key_is_not_shown():
    assert "secret" not in repr(Hello(least=1, most=1, client="x", key="trine_a_secret"))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_every_error_arrives_as_itself(error):
    back = hello.read_failure(view(hello.write_failure(error("what to do"))))
    assert type(back) is error
    assert back.message == "what to do"


def test_corrupt_keeps_its_place():
    back = hello.read_failure(view(hello.write_failure(Corrupt("a/b", 17, "a flipped bit", "Salvage it"))))
    assert isinstance(back, Corrupt)
    assert (back.path, back.position, back.what, back.to_do) == ("a/b", 17, "a flipped bit", "Salvage it")


def test_a_class_without_a_code_of_its_own_is_told_as_the_one_above():
    class Special(InvalidName):
        pass

    assert hello._classes(TrineError)[InvalidName.code] is InvalidName


def test_a_code_of_a_later_version_is_still_an_error_with_its_sentence():
    back = hello.read_failure(view(pack({"code": "melted", "message": "the disk is warm"})))
    assert type(back) is TrineError
    assert back.message == "the disk is warm (code melted)"


@pytest.mark.parametrize(
    "details", [None, {}, {"path": "a"}, {"path": 1, "position": "x", "what": 2, "to_do": 3}, {"self": 1}]
)
def test_a_corrupt_without_its_details_is_an_error_of_the_store(details):
    back = hello.read_failure(view(pack({"code": "corrupt", "message": "m", "details": details})))
    assert type(back) is StoreError
    assert back.message == "m"


HOSTILE = [b"", b"\xc1", pack([]), pack({}), pack({"code": 1}), b"\x91" * 100_000, b"\x81\xa4code\xa1\xff"]


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("read", [hello.read_hello, hello.read_welcome, hello.read_failure])
def test_hostile_bytes(read, body):
    with pytest.raises(WireError):
        read(view(body))
