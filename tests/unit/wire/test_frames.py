"""Frames, however the bytes come in: in pieces, in heaps, larger than the buffer, or as lies."""

from __future__ import annotations

import tracemalloc

import pytest
from crc32c import crc32c

from tests.unit.wire import samples
from trine.model.errors import MessageTooLarge
from trine.model.limits import FRAME_BYTES_MAX, HELLO_BYTES_MAX, KIB, MIB
from trine.wire import frames as module
from trine.wire.frames import BUFFER_BYTES, FIRST_BUFFER_BYTES, Command, Frame, Frames, WireError, write_frame

Plain = tuple[int, int, int, bytes]


def plain(frame: Frame) -> Plain:
    return (frame.command, frame.flags, frame.correlation, bytes(frame.body))


def read(frames: Frames, data: bytes, piece: int = 1 << 30) -> list[Plain]:
    """As a socket would bring it: at most `piece` bytes a read, and no more than the buffer takes."""
    rest = memoryview(data)
    out = []
    while rest:
        room = frames.get_buffer()
        assert len(room)
        count = min(piece, len(room), len(rest))
        room[:count] = rest[:count]
        frames.buffer_updated(count)
        rest = rest[count:]
        out += [plain(frame) for frame in frames.take()]
    return out


def test_a_frame_is_what_its_table_says():
    data = write_frame(Command.PING, 4, 0x01020304, b"ab", bytearray(b"c"), memoryview(b"de"))
    head = bytes.fromhex("05000000 01 02 04 00 04030201")
    assert data == head + crc32c(head + b"abcde").to_bytes(4, "little") + b"abcde"
    assert read(Frames(), data) == [(2, 4, 0x01020304, b"abcde")]


def test_a_frame_split_at_every_byte():
    data = write_frame(3, 1, 7, b"first") + write_frame(4, 0, 8, b"second")
    whole = [(3, 1, 7, b"first"), (4, 0, 8, b"second")]
    for cut in range(len(data) + 1):
        frames = Frames()
        assert read(frames, data[:cut]) + read(frames, data[cut:]) == whole
        assert not frames.half


def test_bytes_one_by_one():
    everything = b"".join(samples.frames().values())
    frames = Frames()
    assert read(frames, everything, 1) == read(Frames(), everything)
    assert len(read(Frames(), everything)) == len(samples.frames())


def test_many_frames_in_one_read():
    count = 3 * BUFFER_BYTES // 21
    data = b"".join(write_frame(6, 0, number, b"hello") for number in range(count))
    assert [frame[2] for frame in read(Frames(), data)] == list(range(count))


def test_frames_of_all_sizes_follow_each_other():
    sizes = [
        0,
        1,
        FIRST_BUFFER_BYTES - 17,
        FIRST_BUFFER_BYTES - 16,
        FIRST_BUFFER_BYTES - 15,
        BUFFER_BYTES - 16,
    ]
    sizes += [BUFFER_BYTES - 15, 3 * BUFFER_BYTES, 5, MIB + 3, 20, BUFFER_BYTES // 2, 2 * MIB, 0]
    bodies = [bytes([number]) * size for number, size in enumerate(sizes, 1)]
    data = b"".join(write_frame(4, 0, number, body) for number, body in enumerate(bodies, 1))
    for piece in (997, 65_536, 1 << 30):
        assert [frame[3] for frame in read(Frames(), data, piece)] == bodies


def test_a_buffer_grows_with_a_large_frame_and_shrinks_when_it_was_taken():
    frames = Frames()
    data = write_frame(4, 0, 1, bytes(4 * MIB))
    read(frames, data[:-1])
    assert frames._room == len(data)
    assert read(frames, data[-1:] + write_frame(2, 0, 2)[:5]) != []
    assert frames._room == BUFFER_BYTES
    assert frames.half
    assert read(frames, write_frame(2, 0, 2)[5:]) == [(2, 0, 2, b"")]


def test_a_buffer_grows_when_reads_fill_it_and_small_talk_leaves_it_small():
    frames = Frames()
    for number in range(100):
        read(frames, write_frame(2, 0, number))
    assert frames._room == FIRST_BUFFER_BYTES
    read(frames, b"".join(write_frame(2, 0, 1) for _ in range(50_000)))
    assert frames._room == BUFFER_BYTES


def test_who_announces_much_gets_no_more_memory_than_it_sends():
    head = bytearray(write_frame(4, 0, 1, bytes(100)))
    head[:4] = (FRAME_BYTES_MAX).to_bytes(4, "little")
    tracemalloc.start()
    try:
        frames = [Frames() for _ in range(20)]
        for one in frames:
            assert read(one, bytes(head)) == []
            assert one.half
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20 * 2 * FIRST_BUFFER_BYTES


def test_views_of_a_burst_stay_whole_until_the_next_read():
    """Even when the buffer shrinks at the end of the burst."""
    frames = Frames()
    data = write_frame(4, 0, 1, b"x" * MIB)
    rest = memoryview(data)
    taken: list[Frame] = []
    while rest:
        room = frames.get_buffer()
        count = min(len(room), len(rest))
        room[:count] = rest[:count]
        frames.buffer_updated(count)
        rest = rest[count:]
        taken += frames.take()
    assert frames._room == BUFFER_BYTES
    assert bytes(taken[0].body) == b"x" * MIB


def test_a_burst_may_be_taken_in_parts():
    """A connection that is full stops in the middle and goes on later."""
    frames = Frames()
    list(frames.feed(write_frame(2, 0, 0)))
    room = frames.get_buffer()
    data = b"".join(write_frame(2, 0, number) for number in range(1, 4))
    room[: len(data)] = data
    frames.buffer_updated(len(data))
    assert next(iter(frames.take())).correlation == 1
    assert frames.half
    assert [frame.correlation for frame in frames.take()] == [2, 3]


def test_a_buffer_that_nobody_empties_is_never_empty_itself():
    frames = Frames(bytes_max=KIB)
    frame = write_frame(2, 0, 1)
    with pytest.raises(AssertionError, match="never taken"):
        for _ in range(100_000):
            room = frames.get_buffer()
            assert len(room)
            count = min(len(room), len(frame))
            room[:count] = frame[:count]
            frames.buffer_updated(count)


@pytest.mark.parametrize("at", range(16 + 5))
def test_every_flipped_byte_is_found_out(at):
    data = bytearray(write_frame(4, 0, 1, b"hello") + write_frame(2, 0, 2))
    data[at] ^= 0x40
    frames = Frames()
    if at < 3:  # a size that became larger waits for bytes that do not come
        assert read(frames, bytes(data)) == []
        assert frames.half
    else:
        with pytest.raises(WireError):
            read(frames, bytes(data))


def test_what_came_before_the_damage_comes_out_and_nothing_after_it():
    data = write_frame(2, 0, 1) + write_frame(4, 0, 2, b"good") + write_frame(4, 0, 3, b"bad")
    data = data[:-1] + b"?" + write_frame(2, 0, 4)
    frames = Frames()
    out = []
    for _ in range(2):  # the error stays
        with pytest.raises(WireError, match="checksum"):
            for frame in frames.feed(data):
                out.append(plain(frame))  # noqa: PERF401 - it must be kept although it raises
    assert out == [(2, 0, 1, b""), (4, 0, 2, b"good")]


def test_a_frame_above_the_limit_is_refused_by_its_head():
    with pytest.raises(WireError, match="a frame of 4097 bytes was announced; at most 4096"):
        read(Frames(HELLO_BYTES_MAX), write_frame(1, 0, 1, bytes(HELLO_BYTES_MAX + 1))[:16])


def test_the_limit_may_be_raised_in_the_middle_of_a_connection():
    frames = Frames(HELLO_BYTES_MAX)
    read(frames, write_frame(1, 0, 1, b"hello"))
    frames.bytes_max = FRAME_BYTES_MAX
    assert len(read(frames, write_frame(4, 0, 2, bytes(MIB)))) == 1


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("160301020001 0001fc0303") + bytes(20),  # TLS
        b"\0\0\0\0" + bytes((2,)) + bytes(30),  # a version to come
        bytes(64),
    ],
)
def test_other_protocols_are_told_apart(start):
    with pytest.raises(WireError, match="not frames of version 1"):
        read(Frames(), start)


def test_a_frame_too_large_to_be_taken_is_not_sent(monkeypatch):
    monkeypatch.setattr(module, "FRAME_BYTES_MAX", 10)
    assert write_frame(2, 0, 1, bytes(10))
    for body in ((bytes(11),), (bytes(5), bytes(6))):
        with pytest.raises(MessageTooLarge, match="at most 10"):
            write_frame(2, 0, 1, *body)
