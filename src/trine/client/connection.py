"""One TCP connection to a server: frames out, joined by loop tick, and frames in. It knows nothing of reconnecting."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import cast

from trine.model.errors import Unreachable
from trine.wire.frames import Frame, Frames, WireError


class Connection(asyncio.BufferedProtocol):
    def __init__(self, on_frame: Callable[[Frame], None], bytes_max: int) -> None:
        self._on_frame = on_frame
        self.frames = Frames(bytes_max)
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._fault: Exception | None = None
        self._recall: Callable[[], None] | None = None
        """Asks for the connection back from the thread it is lent to."""
        self.lost: asyncio.Future[Exception | None] = self._loop.create_future()
        """Done when the connection has ended; with the reason, if there is one."""
        self.heard_at = self._loop.time()
        self.sent_at = self._loop.time()

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_at = self._loop.time()
        self.frames.buffer_updated(nbytes)
        try:
            for frame in self.frames.take():
                self._on_frame(frame)
        except WireError as error:
            self.end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._recall is not None:
            self._recall()
        if not self.lost.done():
            self.lost.set_result(self._fault or exc)

    # --- what the link calls

    def write(self, frame: bytes) -> None:
        """Goes out with all that is written in this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(frame)

    def flush(self) -> None:
        """What was written goes out now; of a lent connection, when it is back."""
        if self._recall is not None:
            self._recall()
            return
        out, self._out = self._out, []
        if self._transport is not None and out:
            self.sent_at = self._loop.time()
            if len(out) == 1:
                self._transport.write(out[0])
            else:
                self._transport.writelines(out)

    def heard(self, frame: Frame) -> None:
        """A frame that was read by whom the connection is lent to."""
        try:
            self._on_frame(frame)
        except WireError as error:
            self.end(error)

    @property
    def lendable(self) -> bool:
        """Whether nothing is half done on it, so that somebody else may read and write."""
        transport = self._transport
        return not (
            self._recall is not None
            or self._out
            or self.frames.half
            or transport is None
            or transport.is_closing()
            or transport.get_write_buffer_size()
        )

    def lend(self, recall: Callable[[], None]) -> socket.socket:
        """Its socket, which nobody reads from here until `take_back`; `recall` asks for it."""
        assert self._transport is not None
        number = self._transport.get_extra_info("socket").fileno()
        lent = socket.socket(fileno=os.dup(number))
        self._transport.pause_reading()
        self._recall = recall
        return lent

    def take_back(self, unsent: memoryview | None) -> None:
        """It is ours again; `unsent` is the rest of a frame that whoever had it began to write."""
        self._recall = None
        if self._transport is None:
            return
        if unsent is not None:
            self._out.insert(0, bytes(unsent))
        self.flush()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def end(self, fault: Exception | None = None) -> None:
        """At once: what is not sent yet is dropped."""
        self._fault = self._fault or fault
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """After what was written has gone out, if it goes out soon."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
        try:
            await asyncio.wait_for(asyncio.shield(self.lost), 1)
        except TimeoutError:
            self.end(Unreachable("the server did not take what was sent last"))
            await self.lost
