"""The compiled codec and our marks in the batch, held against a twin written from Kafka's guide."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import kafka_v2
from trine.log import batch
from trine.model.errors import EmptyBatch, InvalidInput, InvalidOption

GOLDEN = Path(__file__).parent / "golden"

times = st.integers(0, 2**42)
nullable = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=10), nullable), max_size=3)
records = st.lists(st.tuples(times, nullable, nullable, headers), min_size=1, max_size=20)
lanes = st.integers(0, 15)
flags = st.sampled_from([0, batch.HAS_TTL, batch.HAS_DEDUP, batch.HAS_TTL | batch.HAS_DEDUP])
compressions = st.sampled_from([batch.NONE, batch.GZIP])
offsets = st.integers(0, 2**60)


def plain(record):
    return (record.offset, record.timestamp, record.key, record.value, list(record.headers))


@given(records, lanes, flags, compressions, offsets, st.integers(-1, 2**40), st.integers(0, 2**30))
def test_the_twin_reads_what_is_encoded(rows, lane, marks, compression, offset, producer, epoch):
    data = batch.encode(
        rows,
        lane=lane,
        flags=marks,
        compression=compression,
        producer_id=producer,
        producer_epoch=3,
        base_sequence=7,
    )
    batch.place(data, offset, epoch)
    assert batch.check(data)
    twin = kafka_v2.decode(bytes(data))
    assert [r[1:] for r in twin.records] == [(t, k, v, h) for t, k, v, h in rows]
    assert [r.offset for r in twin.records] == list(range(offset, offset + len(rows)))
    header = batch.read_header(data)
    assert (header.base_offset, header.leader_epoch, header.size) == (offset, epoch, len(data))
    assert (header.lane, header.attributes & 0xF000) == (lane, marks)
    assert (header.has_ttl, header.has_dedup) == (bool(marks & 1 << 12), bool(marks & 1 << 13))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer, 3, 7)
    assert (header.count, header.next_offset) == (len(rows), offset + len(rows))
    assert (header.base_time_ms, header.max_time_ms) == (rows[0][0], max(row[0] for row in rows))
    assert [plain(r) for r in batch.decode(bytes(data))] == [tuple(r) for r in twin.records]


@given(records, lanes, compressions, offsets)
def test_what_the_twin_encodes_is_read(rows, lane, compression, offset):
    stored = [kafka_v2.Record(offset + 2 * i, *row) for i, row in enumerate(rows)]  # with gaps
    data = kafka_v2.encode(
        kafka_v2.Batch(
            offset,
            5,
            lane << 8 | compression,
            2 * len(rows),
            rows[0][0],
            max(row[0] for row in rows),
            -1,
            -1,
            -1,
            stored,
        )
    )
    assert batch.check(data)
    assert [plain(r) for r in batch.decode(data)] == [tuple(r) for r in stored]
    assert batch.read_header(data).compression == compression


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=100), times, lanes)
def test_values_are_a_batch_like_any_other(values, time_ms, lane):
    data = batch.encode_values(values, time_ms, lane=lane)
    assert data == batch.encode([(time_ms, None, value, []) for value in values], lane=lane)


@given(times, nullable, nullable, headers, lanes, flags)
def test_one_record_is_a_batch_like_any_other(time_ms, key, value, head, lane, marks):
    data = batch.encode_single(time_ms, key, value, head, lane=lane, flags=marks)
    assert data == batch.encode([(time_ms, key, value, head)], lane=lane, flags=marks)


def test_placing_keeps_the_checksum():
    data = batch.encode_values([b"a", b"b"], 5)
    before = bytes(data)
    batch.place(data, 77, 9)
    assert batch.check(data)
    assert bytes(data[16:]) == before[16:]
    assert [record.offset for record in batch.decode(data)] == [77, 78]


def test_any_changed_byte_under_the_checksum_is_found():
    data = bytearray(batch.encode([(5, b"k", b"v" * 20, [("h", b"x")])], lane=2))
    for position in range(8, len(data)):
        if 12 <= position < 16:
            continue  # the epoch is placed later, and guarded by the segment
        data[position] ^= 0x10
        assert not batch.check(data), position
        data[position] ^= 0x10
    assert batch.check(data)
    assert not any(batch.check(data[:size]) for size in range(len(data)))
    assert not batch.check(data + b"\0")


def test_a_block_is_opaque():
    data = batch.encode_block(b"rows" * 9, base_offset=40, count=3, base_time_ms=1, max_time_ms=4, flags=256)
    header = batch.read_header(data)
    assert batch.check(data)
    assert header.is_block
    assert (header.base_offset, header.next_offset, header.count, header.lane) == (40, 43, 3, 1)
    assert (header.base_time_ms, header.max_time_ms) == (1, 4)
    assert bytes(batch.block_payload(data)) == b"rows" * 9


@given(records, lanes, flags, compressions, offsets, st.data())
def test_rewriting_keeps_everything_but_the_dropped(rows, lane, marks, compression, offset, draw):
    data = batch.encode(
        rows, lane=lane, flags=marks, compression=compression, producer_id=8, producer_epoch=1
    )
    batch.place(data, offset, 4)
    wanted = draw.draw(st.sets(st.integers(offset, offset + len(rows) - 1)))
    fresh = batch.rewrite(bytes(data), lambda record: record.offset in wanted)
    if not wanted:
        assert fresh is None
        fresh = batch.rewrite(bytes(data), lambda record: False, may_vanish=False)
    assert fresh is not None
    assert batch.check(fresh)
    kept = [record for record in batch.decode(bytes(data)) if record.offset in wanted]
    assert [plain(r) for r in batch.decode(fresh)] == [plain(r) for r in kept]
    old, new = batch.read_header(data), batch.read_header(fresh)
    assert (new.base_offset, new.last_offset, new.leader_epoch) == (old.base_offset, old.last_offset, 4)
    assert (new.lane, new.has_ttl, new.has_dedup) == (old.lane, old.has_ttl, old.has_dedup)
    assert (new.producer_id, new.producer_epoch, new.base_sequence) == (8, 1, -1)
    assert kafka_v2.decode(bytes(fresh)).last_offset_delta == len(rows) - 1


def test_rewriting_gives_the_same_bytes_when_all_is_kept():
    data = bytes(batch.encode_values([b"a"], 5))
    assert batch.rewrite(data, lambda record: True) is data


def test_rewriting_keeps_a_greatest_time_that_was_set_apart():
    rows = [(5, b"a", b"1", []), (9, b"b", b"2", [])]
    data = batch.encode(rows)
    fresh = batch.rewrite(bytes(data), lambda record: record.offset == 0)
    assert fresh is not None
    assert batch.read_header(fresh).max_time_ms == 5
    batch.set_max_time(data, 70)
    fresh = batch.rewrite(bytes(data), lambda record: record.offset == 0)
    assert fresh is not None
    assert batch.check(fresh)
    assert batch.read_header(fresh).max_time_ms == 70


def test_an_empty_batch_is_refused():
    with pytest.raises(EmptyBatch):
        batch.encode_values([], 5)
    with pytest.raises(EmptyBatch):
        batch.encode([])


@pytest.mark.parametrize("code", range(8))
def test_a_compression_works_or_is_refused_with_advice(code):
    values = [b"the same again and again"] * 50
    if batch.available(code):
        data = batch.encode_values(values, 5, compression=code)
        assert batch.read_header(data).compression == code
        assert [record.value for record in batch.decode(data)] == values
    else:
        with pytest.raises(InvalidOption, match="cramjam"):
            batch.encode_values(values, 5, compression=code)
        data = bytearray(batch.encode_values(values, 5))
        data[22] |= code
        with pytest.raises((InvalidOption, InvalidInput)):
            batch.decode(data)


def test_none_and_gzip_are_always_there():
    assert batch.available(batch.NONE)
    assert batch.available(batch.GZIP)


def test_records_that_lie_are_the_producers_fault():
    data = bytearray(batch.encode_values([b"abc"], 5))
    data[61] = 0x7E
    with pytest.raises(InvalidInput, match="malformed"):
        batch.decode(data)


def golden_batch() -> bytes:
    data = batch.encode(
        [(1_700_000_000_000, b"key", b"value", [("h", b"1")]), (1_700_000_000_005, None, None, [])],
        lane=3,
        flags=batch.HAS_TTL,
        producer_id=1,
        producer_epoch=2,
        base_sequence=3,
    )
    batch.place(data, 1000, 7)
    return bytes(data)


def test_golden_batch():
    assert golden_batch().hex() == (GOLDEN / "batch.hex").read_text().strip()


def test_golden_block():
    data = batch.encode_block(b"\1\2\3", base_offset=9, count=2, base_time_ms=10, max_time_ms=11)
    assert data.hex() == (GOLDEN / "block.hex").read_text().strip()


@given(st.integers(0, 300), st.integers(1, 200), times, lanes)
def test_values_of_one_length_are_encoded_as_the_codec_does(size, count, time_ms, lane):
    values = [bytes([number % 256]) * size for number in range(count)]
    short = batch.encode_values(values, time_ms, lane=lane)
    assert short == batch.encode([(time_ms, None, value, []) for value in values], lane=lane)
