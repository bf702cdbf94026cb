"""Frames: the outermost layer of the binary protocol, version 1. Little-endian throughout.

    0   u32  size of the body in bytes
    4   u8   version of the protocol (1)
    5   u8   command
    6   u8   flags: 1 it is a reply, 2 it is an error, 4 it was sent unasked (a push)
    7   u8   0
    8   u32  correlation: chosen by who asks, and given back in the reply
   12   u32  crc32c of the 12 bytes before it, then of the body
   16        the body

A frame that is not that (a size above the limit, another version, a bad checksum) is the end of the connection: what
follows cannot be trusted. `Frames` tells so by `WireError`; who holds the socket says goodbye and closes it.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

from crc32c import crc32c

from trine.model.errors import MessageTooLarge, TrineError
from trine.model.limits import FRAME_BYTES_MAX, KIB

VERSION: Final = 1
HEADER: Final = struct.Struct("<IBBBBII")
assert HEADER.size == 16
_CHECKED: Final = struct.Struct("<IBBBBI")
assert _CHECKED.size == 12
_U32: Final = struct.Struct("<I")

FIRST_BUFFER_BYTES: Final = 16 * KIB
"""What a connection begins with: most of them only ever send small frames."""

BUFFER_BYTES: Final = 256 * KIB
"""What is read from a socket at once when there is much to read. A larger frame gets a larger buffer for as long as it
takes, which grows with the bytes that have come, not with those that were announced."""


class Command(enum.IntEnum):
    HELLO = 1
    PING = 2
    CALL = 3
    PUBLISH = 4
    RECEIVE = 5
    ACK = 6
    SETTLE = 7
    START = 8
    CREDIT = 9
    DELIVERY = 10
    READ = 11
    STOP = 12
    GOODBYE = 13


class Flag(enum.IntFlag):
    REPLY = 1
    ERROR = 2
    PUSH = 4


class WireError(TrineError):
    """The other side does not speak this protocol; the connection is closed."""

    code = "protocol_error"


class Frame(NamedTuple):
    command: int
    flags: int
    correlation: int
    body: memoryview
    """Valid until the next read: keep a copy, not the view."""


def write_frame(command: int, flags: int, correlation: int, *body: bytes | bytearray | memoryview) -> bytes:
    """One frame, ready to be sent."""
    size = len(body[0]) if len(body) == 1 else sum(map(len, body))
    if size > FRAME_BYTES_MAX:
        raise MessageTooLarge(
            f"a frame of {size} bytes is too large to be sent; at most {FRAME_BYTES_MAX} fit: ask for less at once"
        )
    head = _CHECKED.pack(size, VERSION, command, flags, 0, correlation)
    crc = crc32c(head)
    for part in body:
        crc = crc32c(part, crc)
    return b"".join((head, _U32.pack(crc), *body))


class Frames:
    """Bytes in, frames out: the two calls of `asyncio.BufferedProtocol`, and `take`.

    `bytes_max` may be set at any time: a server takes little from whom it does not know yet.
    """

    __slots__ = ("_buffer", "_end", "_room", "_start", "_view", "bytes_max")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._start = 0
        self._end = 0
        self._begin(FIRST_BUFFER_BYTES)

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; never empty. Views of frames taken before are void from here on."""
        start, end, room = self._start, self._end, self._room
        if start == end:
            self._start = self._end = 0
            if end == room < BUFFER_BYTES:
                self._begin(min(4 * room, BUFFER_BYTES))  # the last read could have been longer
            return self._view
        wanted = self._wanted()
        if start and (start + wanted > room or end == room):
            held = end - start
            self._view[:held] = self._view[start:end]  # a memmove: the two places may overlap
            self._start, self._end = 0, held
        if self._end == room:
            self._grow(wanted)
        return self._view[self._end :]

    def buffer_updated(self, count: int) -> None:
        self._end += count

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """The same for whoever has the bytes already: all frames that are whole with them.

        A frame is valid until the next one is asked for: `for frame in frames.feed(data)`, never a list of them.
        """
        data = memoryview(data)
        while data:
            room = self.get_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.buffer_updated(count)
            data = data[count:]
            yield from self.take()

    def take(self) -> Iterator[Frame]:
        """All whole frames that are here. After a `WireError` it gives nothing but the same error again."""
        unpack, new = HEADER.unpack_from, tuple.__new__  # half the time of Frame(…), once for each frame
        while self._end - self._start >= 16:
            start, view = self._start, self._view
            size, version, command, flags, zero, correlation, crc = unpack(view, start)
            if version != VERSION or zero or size > self.bytes_max:
                self._refuse(size, version, zero)
            end = start + 16 + size
            if end > self._end:
                break
            body = view[start + 16 : end]
            if crc32c(body, crc32c(view[start : start + 12])) != crc:
                raise WireError("a frame's checksum is wrong: bytes were changed or lost on the way")
            self._start = end
            yield new(Frame, (command, flags, correlation, body))
        held = self._end - self._start
        if self._room > BUFFER_BYTES and held <= BUFFER_BYTES // 2 and self._wanted() <= BUFFER_BYTES:
            # Now, not at the next read: a silent connection would hold on to it. Views keep their own buffer alive.
            self._begin(BUFFER_BYTES, self._view[self._start : self._end])

    @property
    def half(self) -> bool:
        """Whether a frame has begun and not ended: a connection must not end here."""
        return self._end > self._start

    def _wanted(self) -> int:
        """How many bytes, from the start of what is held, the frame in hand takes."""
        if self._end - self._start < HEADER.size:
            return HEADER.size
        (size,) = _U32.unpack_from(self._view, self._start)
        return HEADER.size + min(int(size), self.bytes_max)

    def _refuse(self, size: int, version: int, zero: int) -> NoReturn:
        if version != VERSION or zero:
            raise WireError(
                f"these are not frames of version {VERSION} of Trine's protocol: "
                "is this another program, or is TLS on at one side only?"
            )
        raise WireError(f"a frame of {size} bytes was announced; at most {self.bytes_max} are taken")

    def _grow(self, wanted: int) -> None:
        """Four times the room, or what the frame in hand takes if less: who announces much must also send it."""
        room = self._room
        assert room < HEADER.size + self.bytes_max + BUFFER_BYTES, "frames are read but never taken"
        self._begin(min(4 * room, wanted) if wanted > room else 2 * room, self._view[: self._end])

    def _begin(self, room: int, held: bytes | memoryview = b"") -> None:
        self._room = room
        self._buffer = bytearray(room)
        self._view = memoryview(self._buffer)
        self._view[: len(held)] = held
        self._start, self._end = 0, len(held)
