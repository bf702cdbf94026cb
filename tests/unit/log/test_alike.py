"""Values of one length take a short way: what it writes and reads must be the codec's own bytes."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from trine.log import alike, batch


def codec(values: list[bytes]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**30)
    for delta, value in enumerate(values):
        builder.append(delta, 7, None, value, [])
    return bytes(builder.build())


@pytest.mark.parametrize("size", [0, 1, 50, 56, 57, 63, 64, 8100, 8191, 8192])
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 66, 127, 129, 512, 577, 1000, 4095, 4096, 16_384])
def test_the_bytes_are_the_codecs_own(size: int, count: int) -> None:
    if size * count > 10_000_000:
        count = 600
    values = [bytes((n % 251,)) * size for n in range(count)]
    written = alike.write(values, size, b"")
    assert written == codec(values)[batch.HEADER_BYTES :]
    assert batch.encode_values(values, 7, size=size)[12:] == batch.encode_values(values, 7)[12:]
    assert alike.read(written, 0, count) == values
    assert alike.size_of(written, 0, count) == size
    for first, some in (
        (0, 1),
        (0, count),
        (count // 2, count - count // 2),
        (count - 1, 1),
        (1, count // 3),
    ):
        assert alike.read_some(written, 0, count, size, first, some) == values[first : first + some]
    assert alike.read(b"head" + written, 4, count) == values


@given(
    st.lists(st.tuples(st.sampled_from([None, b"k"]), st.binary(max_size=5)), min_size=1, max_size=80),
    st.booleans(),
)
def test_whatever_differs_is_read_by_the_codec(
    records: list[tuple[bytes | None, bytes]], stamped: bool
) -> None:
    data = batch.encode([(100 + n % 2, key, value, []) for n, (key, value) in enumerate(records)])
    if stamped:
        batch.stamp(data, 5)
    batch.place(data, 1000)
    expected = [(one.offset, one.timestamp, one.key, one.value) for one in DefaultRecordBatch(bytes(data))]
    for form in (bytes(data), data, memoryview(bytes(data))):
        assert [(one.offset, one.timestamp, one.key, one.value) for one in batch.decode(form)] == expected


@given(st.integers(2, 300), st.integers(0, 40), st.data())
def test_a_changed_byte_is_never_taken_for_a_value(count: int, size: int, data: st.DataObject) -> None:
    values = [b"v" * size] * count
    written = alike.write(values, size, b"")
    position = data.draw(st.integers(0, len(written) - 1))
    written[position] ^= data.draw(st.integers(1, 255))
    found = alike.read(bytes(written), 0, count)
    assert (alike.size_of(written, 0, count) is None) == (found is None)
    if found is not None:  # it was within a value, or a value was taken for another: the rest is as it was
        assert len(found) == count
        assert sum(one != other for one, other in zip(found, values, strict=True)) == 1


@pytest.mark.parametrize("given", [b"", b"\0", b"\xff" * 20, struct.pack("<q", -1), bytes(200)])
def test_nonsense_is_not_alike(given: bytes) -> None:
    assert alike.read(given, 0, 5) is None
    assert alike.read(given, 0, 0) is None
    assert alike.size_of(given, 0, 5) is None


def test_mixed_lengths_are_not_alike() -> None:
    assert alike.common_size([b"a", b"bb"]) is None
    assert alike.common_size([b"ab", b"bb"]) == 2
