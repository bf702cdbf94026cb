"""A pure-Python twin of the record batch codec, version 2, written from Kafka's protocol guide.

Slow and plain. Tests hold it against the compiled codec in both directions; nothing else uses it.
"""

from __future__ import annotations

import gzip
import struct
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
POLYNOMIAL = 0x82F63B78


class Record(NamedTuple):
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Batch(NamedTuple):
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_time_ms: int
    max_time_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: list[Record]


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


TABLE = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        assert self.at + size <= len(self.data), "ran out of bytes"
        piece = self.data[self.at : self.at + size]
        self.at += size
        return piece

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def nullable(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.take(size)


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record, base_offset: int, base_time_ms: int) -> bytes:
    body = b"\0" + varint(record.time_ms - base_time_ms) + varint(record.offset - base_offset)
    body += _nullable(record.key) + _nullable(record.value) + varint(len(record.headers))
    for name, value in record.headers:
        body += _nullable(name.encode()) + _nullable(value)
    return varint(len(body)) + body


def encode(batch: Batch) -> bytes:
    payload = b"".join(encode_record(r, batch.base_offset, batch.base_time_ms) for r in batch.records)
    if batch.attributes & 7 == 1:
        payload = gzip.compress(payload)
    checked = struct.pack(
        ">hiqqqhii",
        batch.attributes,
        batch.last_offset_delta,
        batch.base_time_ms,
        batch.max_time_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(batch.records),
    )
    checked += payload
    front = struct.pack(">ibI", batch.leader_epoch, 2, crc32c(checked))
    return struct.pack(">qi", batch.base_offset, len(front) + len(checked)) + front + checked


def decode(data: bytes) -> Batch:
    base, length, epoch, magic, crc, attributes, delta, base_time, max_time, pid, pepoch, sequence, count = (
        HEADER.unpack_from(data)
    )
    assert length == len(data) - 12
    assert magic == 2
    assert crc == crc32c(data[21:])
    payload = data[61:]
    if attributes & 7:
        assert attributes & 7 == 1, "the twin knows gzip only"
        payload = gzip.decompress(payload)
    reader = Reader(payload)
    records = []
    for _ in range(count):
        end = reader.varint() + reader.at
        assert reader.take(1) == b"\0"
        time_ms, offset = base_time + reader.varint(), base + reader.varint()
        key, value = reader.nullable(), reader.nullable()
        headers = []
        for _ in range(reader.varint()):
            name = reader.nullable()
            assert name is not None
            headers.append((name.decode(), reader.nullable()))
        assert reader.at == end
        records.append(Record(offset, time_ms, key, value, headers))
    assert reader.at == len(payload)
    return Batch(base, epoch, attributes, delta, base_time, max_time, pid, pepoch, sequence, records)
