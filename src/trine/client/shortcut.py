"""The shortcut: a thread that is alone on its link asks, and reads the answer, itself.

    the loop reads ──some calls in a row, and nobody else's──▶ lent ──somebody else has to write, or ──▶ the loop reads
                                                                      no call for a while, or trouble

A call that goes through the loop's thread wakes it twice, and each wake-up costs more than the call. So a connection
that is used by one thread at a time is lent: the loop stops reading, and whoever calls writes his frame and reads until
its answer is there. Frames for others that he comes across he gives to the loop.

Nothing is decided here. As soon as the loop has something to write, or a connection ends, the loop takes it back, and
whoever still waits for his answer waits as if the loop had asked for him: errors, reconnecting and what may be
repeated are the link's alone.

Threads: the turn is held by the thread that asks, and by the loop while it takes the connection back. Whoever holds it
is the only one who reads, writes, and touches the buffer of frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from trine.client.link import Request
from trine.client.slot import Slot
from trine.wire.frames import Flag, Frame, WireError, write_frame
from trine.wire.hello import read_failure

if TYPE_CHECKING:
    from trine.client.connection import Connection
    from trine.client.link import Link, Part

CALLS_ALONE: Final = 4
"""So many calls in a row, with nobody else's between them, and the connection is lent …"""
ALONE_SECONDS: Final = 0.1
"""… if they came within this time; and it is taken back when there was none for as long."""
REFUSED_PAUSE: Final = 64
"""Calls before it is asked for again, when it could not be lent."""
OWN_NUMBERS: Final = 0x8000_0000
"""Correlations from here on are of those who ask by themselves."""
POSSIBLE: Final = hasattr(os, "eventfd") and hasattr(select, "poll")
_REPLY: Final = int(Flag.REPLY)
_ERROR: Final = int(Flag.ERROR)


class Shortcut:
    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._loop = loop
        self._turn = threading.Lock()
        self._alone = 0
        self._alone_since = 0.0
        self._number = 0
        # What is lent, and to be changed by the loop alone:
        self._connection: Connection | None = None
        self._socket: socket.socket | None = None
        self._poll: select.poll | None = None
        self._bell = -1
        """An eventfd that tells who waits for an answer that the loop wants the connection back."""
        self._recalled = False
        self._closed = False
        self._back: asyncio.Future[None] | None = None
        # What whoever asks tells the loop:
        self._used = False
        self._unanswered: tuple[int, Request] | None = None
        self._unsent: memoryview | None = None
        self._fault: WireError | None = None

    @property
    def lent(self) -> bool:
        return self._socket is not None

    # --- in the thread that calls

    def open(self) -> bool:
        """Whether it may be asked here; counts as a call when it may not."""
        return self._socket is not None or self._borrow()

    def ask(
        self, command: int, parts: tuple[Part, ...], *, safe: bool = False, bound: int = 0
    ) -> bytes | None:
        """The answer; None if the loop has to be asked, because the connection is not lent, or in use."""
        if not self.open() or not self._turn.acquire(blocking=False):
            return None
        slot: Slot[bytes] = Slot()
        flags, body = 0, None
        try:
            if self._socket is None or self._recalled or (bound and bound != self._link.generation):
                return None
            self._number = self._number + 1 & OWN_NUMBERS - 1
            number = self._number | OWN_NUMBERS
            frame = write_frame(command, 0, number, *parts)
            self._unanswered = (number, Request(command, parts, slot, safe))
            self._used = True
            answer = self._exchange(frame, number)
            if answer is not None:
                self._unanswered = None
                flags, body = answer.flags, bytes(answer.body)
        finally:
            if self._unanswered is not None:  # trouble, or an interrupt: the loop has to go on with it
                self._recalled = True
            self._turn.release()
            if self._recalled:
                self._loop.call_soon_threadsafe(self._take_back)
        if body is None:
            return slot.wait()
        if flags & _ERROR:
            raise read_failure(memoryview(body))
        return body

    def _borrow(self) -> bool:
        """Asks the loop for the connection, if it is likely to be lent for long."""
        now = time.monotonic()
        if self._alone >= 0 and (self._link.busy or now - self._alone_since > ALONE_SECONDS):
            self._alone = 0
            self._alone_since = now
        self._alone += 1
        if self._alone < CALLS_ALONE or not POSSIBLE or self._closed:
            return False
        lent: Slot[bool] = Slot()
        self._loop.call_soon_threadsafe(self._lend, lent)
        self._alone = 0 if lent.wait() else -REFUSED_PAUSE
        return self._alone == 0

    def _exchange(self, frame: bytes, number: int) -> Frame | None:
        """Writes a frame and reads until its answer; None if the loop has to wait for it."""
        assert self._socket is not None
        assert self._poll is not None
        sock, unsent = self._socket, memoryview(frame)
        try:
            unsent = unsent[sock.send(unsent) :]
            while True:
                if unsent:
                    self._poll.modify(sock, select.POLLIN | select.POLLOUT)
                self._poll.poll()
                if self._recalled:
                    return None
                if unsent:
                    with contextlib.suppress(BlockingIOError):
                        unsent = unsent[sock.send(unsent) :]
                    self._poll.modify(sock, select.POLLIN)
                answer = self._read(sock, number)
                if answer is not None:
                    return answer
        except (OSError, WireError) as error:  # the loop will see the first by itself
            self._fault = error if isinstance(error, WireError) else None
            return None
        finally:
            self._unsent = unsent if unsent else None

    def _read(self, sock: socket.socket, number: int) -> Frame | None:
        """What is there to be read: the answer, if it is among it."""
        assert self._connection is not None
        frames = self._connection.frames
        try:
            count = sock.recv_into(frames.get_buffer())
        except BlockingIOError:
            return None
        if not count:
            raise ConnectionResetError("the server closed the connection")
        frames.buffer_updated(count)
        answer = None
        for frame in frames.take():
            if frame.correlation == number and frame.flags & _REPLY:
                answer = frame  # the last one before the next read, so that its body stays where it is
            else:
                copy = frame._replace(body=memoryview(bytes(frame.body)))
                self._loop.call_soon_threadsafe(self._connection.heard, copy)
        return answer

    # --- in the loop

    def _lend(self, lent: Slot[bool]) -> None:
        connection = self._link.lendable()
        if connection is None or self._socket is not None or self._closed:
            lent.set_result(False)
            return
        try:
            if self._bell < 0:
                self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            sock = connection.lend(self._recall)
        except OSError:  # too many files are open
            lent.set_result(False)
            return
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)
        self._connection = connection
        self._socket = sock
        self._used = True
        self._loop.call_later(ALONE_SECONDS, self._look)
        lent.set_result(True)

    def _look(self) -> None:
        """Takes the connection back when nobody has asked since the last look."""
        if self._connection is None:
            return
        if self._used:
            self._used = False
            self._connection.heard_at = self._connection.sent_at = self._loop.time()
            self._loop.call_later(ALONE_SECONDS, self._look)
        else:
            self._recall()

    def _recall(self) -> None:
        """The loop needs the connection: at once if nobody asks, else as soon as he notices."""
        self._recalled = True
        os.eventfd_write(self._bell, 1)
        self._take_back()

    def _take_back(self) -> None:
        if self._socket is None or not self._turn.acquire(blocking=False):
            return  # whoever has the turn calls for this when he is done
        try:
            connection = self._connection
            assert connection is not None
            self._socket.close()
            self._socket = self._connection = self._poll = None
            self._recalled = False
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._bell)
            unanswered, self._unanswered = self._unanswered, None
            unsent, self._unsent = self._unsent, None
            fault, self._fault = self._fault, None
        finally:
            self._turn.release()
        if self._back is not None:
            self._back.set_result(None)
            self._back = None
        if unanswered is not None:
            self._link.adopt(connection, *unanswered)
        connection.take_back(unsent)
        if fault is not None:
            connection.end(fault)

    async def close(self) -> None:
        """Takes the connection back for good, so that the link can be closed with all that is under way."""
        self._closed = True
        if self._socket is not None:
            self._back = self._loop.create_future()
            self._recall()
            if self._back is not None:
                await self._back
        if self._bell >= 0:
            os.close(self._bell)
            self._bell = -1
