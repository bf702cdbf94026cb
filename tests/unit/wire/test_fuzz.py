"""The codec against bytes nobody would send: only frames and WireErrors come out, and no more memory than was sent.

A round is made from a seed, so that a failure can be repeated: `attack("its seed")`.
"""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from tests.unit.wire import samples
from trine.model.errors import TrineError
from trine.model.limits import MIB
from trine.wire import bodies, calls, hello
from trine.wire.frames import BUFFER_BYTES, HEADER, Command, Flag, Frame, Frames, WireError

Reader = Callable[[memoryview], Any]
COMMANDS: dict[int, Reader] = {
    Command.HELLO: hello.read_hello,
    Command.CALL: calls.read_call,
    Command.PUBLISH: bodies.read_publish,
    Command.RECEIVE: bodies.read_receive,
    Command.ACK: bodies.read_ack,
    Command.SETTLE: bodies.read_settle,
    Command.START: bodies.read_start,
    Command.CREDIT: bodies.read_credit,
    Command.STOP: bodies.read_stop,
    Command.READ: bodies.read_read,
    Command.DELIVERY: bodies.read_delivery,
    Command.GOODBYE: hello.read_failure,
}
ANSWERS: dict[int, Reader] = {
    Command.HELLO: hello.read_welcome,
    Command.CALL: lambda body: calls.read_reply(calls.Join, body),
    Command.PUBLISH: bodies.read_published,
    Command.RECEIVE: bodies.read_delivery,
    Command.ACK: bodies.read_settled,
    Command.SETTLE: bodies.read_settled,
    Command.READ: bodies.read_range,
}
WRITERS: dict[Reader, Callable[[Any], bytes]] = {
    bodies.read_publish: lambda made: b"".join(bodies.write_publish(*made)),
    bodies.read_published: lambda made: bodies.write_published(*made),
    bodies.read_receive: lambda made: bodies.write_receive(*made),
    bodies.read_delivery: lambda made: b"".join(
        bodies.write_delivery(made[0], [(*run[:7], [run.batches]) for run in made[1]])
    ),
    bodies.read_ack: lambda made: bodies.write_ack(*made),
    bodies.read_settled: lambda made: bodies.write_settled(*made),
    bodies.read_settle: lambda made: bodies.write_settle(*made),
    bodies.read_start: lambda made: bodies.write_start(*made),
    bodies.read_credit: lambda made: bodies.write_credit(*made),
    bodies.read_stop: bodies.write_stop,
    bodies.read_read: lambda made: bodies.write_read(*made),
}
FRAMES = list(samples.frames().values())
BYTES_MAX = 2 * MIB
BOUNDARIES = (0, 1, 2, 15, 16, 17, 255, 2**16 - 1, BYTES_MAX, BYTES_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1)


def look_into(frame: Frame) -> None:
    """Reads the body as its receiver would; a WireError is a fair answer."""
    readers = ANSWERS if frame.flags & Flag.REPLY else COMMANDS
    reader = hello.read_failure if frame.flags & Flag.ERROR else readers.get(frame.command)
    if reader is not None:
        try:
            made = reader(frame.body)
        except WireError:
            return
        assert not isinstance(made, Exception) or isinstance(made, TrineError)
        writer = WRITERS.get(reader)
        if writer is not None:  # there is one way to say a thing: nothing was passed over
            assert writer(made) == frame.body


def feed(data: bytes, rng: random.Random) -> tuple[list[tuple[int, int, int, bytes]], WireError | None]:
    """What comes out of these bytes when they come in random pieces."""
    frames = Frames(BYTES_MAX)
    rest, received = memoryview(data), 0
    longest = rng.choice((1, 7, 40, 1_000, 1 << 20)) if len(data) < 5_000 else 1 << 20
    out = []
    try:
        while rest:
            room = frames.get_buffer()
            assert 0 < len(room) <= frames._room <= min(HEADER.size + BYTES_MAX, 4 * received + BUFFER_BYTES)
            count = min(rng.randint(1, longest), len(room), len(rest))
            room[:count] = rest[:count]
            frames.buffer_updated(count)
            rest, received = rest[count:], received + count
            for frame in frames.take():
                look_into(frame)
                out.append((frame.command, frame.flags, frame.correlation, bytes(frame.body)))
    except WireError as error:
        with pytest.raises(WireError):  # it is over for good
            list(frames.take())
        return out, error
    return out, None


def signed(frame: bytes | bytearray) -> bytes:
    """The frame with a size and a checksum that are right, whatever became of its body."""
    body = frame[HEADER.size :]
    head = len(body).to_bytes(4, "little") + bytes(frame[4:12])
    return head + crc32c(body, crc32c(head)).to_bytes(4, "little") + bytes(body)


def damage(data: bytes, rng: random.Random, start: int = 0) -> tuple[bytes, int]:
    """The bytes with one thing wrong, at or beyond `start`; and where that is."""
    at = rng.randrange(start, len(data))
    to = min(len(data), at + rng.randint(1, 40))
    match rng.randrange(7):
        case 0:
            wrong = data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
        case 1:
            wrong = data[:at] + data[to:]
        case 2:
            wrong = data[:to] + data[at:to] * rng.randint(1, 5) + data[to:]
            at = to
        case 3:
            other = rng.choice(FRAMES)
            begin = rng.randrange(len(other))
            wrong = data[:at] + other[begin : begin + rng.randint(1, 60)] + data[at:]
        case 4:
            lie = rng.choice(BOUNDARIES).to_bytes(4, "little")
            wrong = data[:at] + lie + data[at + 4 :]
        case 5:
            wrong = data[:at]
        case _:
            wrong = data[:at] + rng.randbytes(rng.randint(1, 60)) + data[to:]
    return wrong, at


def attack(seed: str) -> None:
    rng = random.Random(seed)
    kind = rng.randrange(4)
    if kind == 0:  # noise, sometimes with a head that is believed at first
        noise = rng.randbytes(rng.randrange(200))
        if rng.random() < 0.5:
            size = rng.choice((*BOUNDARIES, len(noise)))
            noise = (
                HEADER.pack(size, 1, rng.randrange(16), rng.randrange(8), 0, 7, rng.getrandbits(32)) + noise
            )
        feed(noise, rng)
        return
    chosen = [rng.choice(FRAMES) for _ in range(rng.randint(1, 6))]
    whole, error = feed(b"".join(chosen), rng)
    assert error is None
    assert len(whole) == len(chosen)
    if kind == 1:  # a body that lies under a checksum that does not
        frame, _ = damage(rng.choice(FRAMES), rng, HEADER.size - 1)
        for _ in range(rng.randrange(3)):
            if len(frame) > HEADER.size:
                frame, _ = damage(frame, rng, HEADER.size - 1)
        frame = frame[: HEADER.size].ljust(HEADER.size, b"\0") + frame[HEADER.size :]
        sound = signed(frame[:4] + b"\x01" + frame[5:7] + b"\0" + frame[8:])
        out, error = feed(b"".join(chosen) + sound + chosen[0], rng)
        assert error is None
        assert out[: len(whole)] == whole
        assert out[-1] == whole[0]
        return
    data = b"".join(chosen)
    wrong, at = damage(data, rng)
    for _ in range(rng.randrange(3) if kind == 3 else 0):
        if len(wrong) > at:
            wrong, _ = damage(wrong, rng, at)
    before, position = 0, 0
    for frame in chosen:
        position += len(frame)
        before += position <= at
    out, _ = feed(wrong, rng)
    assert out[:before] == whole[:before], "what came before the damage must come out"


def run(seed: str) -> None:
    try:
        attack(seed)
    except BaseException as error:
        error.add_note(f"repeat it with attack({seed!r})")
        raise


def test_a_bounded_attack() -> None:
    for round in range(6_000):
        run(f"steady-{round}")


def test_memory_under_attack() -> None:
    """All of it, in Python's own count, not only the buffer's size."""
    tracemalloc.start()
    try:
        for round in range(250):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            run(f"memory-{round}")
            _, most = tracemalloc.get_traced_memory()
            assert most - before < 4 * BUFFER_BYTES, f"memory-{round}"
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_long_attack() -> None:
    seed = os.environ.get("TRINE_FUZZ_SEED") or str(random.SystemRandom().getrandbits(32))
    end = time.monotonic() + 60
    round = 0
    while time.monotonic() < end:
        run(f"{seed}-{round}")
        round += 1
    assert round > 10_000
