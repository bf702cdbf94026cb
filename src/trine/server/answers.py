"""How a connection answers: frames are collected and written once, and an answer may wait for the disk or for a task.

The lower of a connection's two layers: it knows frames, the transport and what is under way; what commands there are,
and when a connection begins and ends, is decided above (`connection`).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from trine.model.errors import TrineError
from trine.model.limits import KIB
from trine.wire.bodies import Bytes
from trine.wire.frames import Command, Flag, WireError, write_frame
from trine.wire.hello import write_failure

if TYPE_CHECKING:
    from trine.server.context import Context

JOIN_BYTES_MAX: Final = 256 * KIB
"""Answers are collected up to this much, then written."""
_REPLY: Final = int(Flag.REPLY)
_FAILED: Final = int(Flag.REPLY | Flag.ERROR)
_PUSH: Final = int(Flag.PUSH)


class Answers:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.peer = "?"
        self._flushes = context.commits.flushes
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._flushing = False
        self.outbox_bytes = 0
        """What is collected and not yet handed to the transport."""
        self._pending = 0
        """Commands taken and not answered yet."""
        self._tasks: set[asyncio.Task[None]] = set()

    def _all_answered(self) -> None:
        """Nothing is under way any more."""

    def _task_over(self) -> None:
        """One command less is under way."""

    def reply(self, command: int, correlation: int, *body: Bytes) -> None:
        self._send(write_frame(command, _REPLY, correlation, *body))

    def fail(self, command: int, correlation: int, error: TrineError) -> None:
        if command != Command.CREDIT:  # which has no reply
            self._send(write_frame(command, _FAILED, correlation, write_failure(error)))

    def delivered(self, correlation: int, parts: Sequence[Bytes]) -> None:
        self._send(write_frame(Command.RECEIVE, _REPLY, correlation, *parts))

    def push(self, session: int, parts: Sequence[Bytes]) -> None:
        self._send(write_frame(Command.DELIVERY, _PUSH, session, *parts))

    def poll_failed(self, correlation: int, error: TrineError) -> None:
        self.fail(Command.RECEIVE, correlation, error)

    def push_failed(self, session: int, error: TrineError) -> None:
        flags = int(Flag.PUSH | Flag.ERROR)
        self._send(write_frame(Command.DELIVERY, flags, session, write_failure(error)))

    def goodbye(self, error: TrineError) -> None:
        self._send(write_frame(Command.GOODBYE, _PUSH, 0, write_failure(error)))

    # --- later

    def attempt(self, command: int, correlation: int, work: Callable[..., None], *arguments: Any) -> None:
        """Does it, or answers with the error; what is wrong with the frame itself is not answered here."""
        try:
            work(*arguments)
        except WireError:
            raise
        except TrineError as error:
            self.fail(command, correlation, error)
        except Exception:
            self.context.log.exception("a command failed", command=command, peer=self.peer)
            self.fail(command, correlation, inside())

    def reply_when_durable(self, lsn: int, command: int, correlation: int, body: bytes) -> None:
        self._pending += 1
        self.context.commits.when_durable(lsn, functools.partial(self._durable, command, correlation, body))

    def reply_all_when_durable(self, lsn: int, command: int, replies: list[tuple[int, bytes]]) -> None:
        self._pending += 1
        self.context.commits.when_durable(lsn, functools.partial(self._all_durable, command, replies))

    def _all_durable(self, command: int, replies: list[tuple[int, bytes]], error: Exception | None) -> None:
        if error is None:
            for correlation, body in replies:
                self._send(write_frame(command, _REPLY, correlation, body))
            self._done()
        else:
            self._pending += len(replies) - 1
            for correlation, body in replies:
                self._durable(command, correlation, body, error)

    def _durable(self, command: int, correlation: int, body: bytes, error: Exception | None) -> None:
        if error is None:
            self.reply(command, correlation, body)
        elif isinstance(error, TrineError):
            self.fail(command, correlation, error)
        else:
            self.context.log.error("a sync failed", why=str(error))
            self.fail(command, correlation, inside())
        self._done()

    def spawn(self, command: int, correlation: int, work: Coroutine[Any, Any, Sequence[Bytes]]) -> None:
        """A command that takes its time: answered when the work is done."""
        self._pending += 1
        task = self._loop.create_task(self._run(command, correlation, work))
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._task_done, work))

    async def _run(self, command: int, correlation: int, work: Coroutine[Any, Any, Sequence[Bytes]]) -> None:
        try:
            self.reply(command, correlation, *await work)
        except TrineError as error:
            self.fail(command, correlation, error)
        except Exception:
            self.context.log.exception("a command failed", command=command, peer=self.peer)
            self.fail(command, correlation, inside())

    def _task_done(self, work: Coroutine[Any, Any, Sequence[Bytes]], task: asyncio.Task[None]) -> None:
        work.close()  # for the one that was cancelled before it began
        self._tasks.discard(task)
        self._done()
        self._task_over()

    def _done(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._all_answered()

    # --- out

    def _send(self, frame: bytes) -> None:
        if self._transport is None:
            return
        self._out.append(frame)
        self.outbox_bytes += len(frame)
        if self.outbox_bytes >= JOIN_BYTES_MAX:
            self.flush()
        elif not self._flushing:
            self._flushing = True
            self._flushes.add(self.flush)

    def flush(self) -> None:
        self._flushing = False
        if not self._out:
            return
        out, self._out = self._out, []
        self.outbox_bytes = 0
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(out[0] if len(out) == 1 else b"".join(out))


def inside() -> TrineError:
    return TrineError("the command failed inside the server; its log says why")
