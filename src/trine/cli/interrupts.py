"""Ctrl-C and SIGTERM: taken between two calls to the broker, never within one.

An exception out of nowhere in the middle of a call could leave a lock held or an entry half made, and closing the
store would then wait for ever. So the first signal is remembered, and raised when the command next looks
(`check`), or at once while it waits for people or pipes (`waiting`). Calls that wait are made in slices of `SLICE`, so
that this is soon; a long call that can be told to end is told (`cancelling`). The second signal ends the process where
it is: stores survive that, and servers notice.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, TypeVar

from trine.cli.exits import INTERRUPTED, TERMINATED

T = TypeVar("T")

SLICE_MS: Final = 250
"""The longest one call to the broker waits: how late a Ctrl-C may be heard."""

CODES: Final = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


class Interrupted(SystemExit):
    """The command was told to end; everything is closed on the way out."""


class Interrupts:
    def __init__(self) -> None:
        self._code: int | None = None
        self._waits = False
        self._cancel: Callable[[], None] | None = None

    def listen(self) -> None:
        for number in CODES:
            signal.signal(number, self._come)

    def _come(self, number: int, frame: FrameType | None) -> None:
        code = CODES[signal.Signals(number)]
        if self._code is not None:
            os._exit(code)
        self._code = code
        if self._waits:
            raise Interrupted(code)
        if self._cancel is not None:
            threading.Thread(target=self._cancel, daemon=True).start()

    def check(self) -> None:
        if self._code is not None:
            raise Interrupted(self._code)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For what may be left at any moment: reading the input, writing the output, asking."""
        self._waits = True
        try:
            self.check()
            yield
        finally:
            self._waits = False

    @contextmanager
    def cancelling(self, cancel: Callable[[], None]) -> Iterator[None]:
        """For long calls that end when `cancel` is called, in another thread; whatever they raise then, it is told as
        the interruption it is. Who makes such calls may have put handlers of his own in the place of ours."""
        self.listen()
        self._cancel = cancel
        try:
            self.check()
            yield
        except Exception:
            self.check()
            raise
        finally:
            self._cancel = None

    def sliced(self, ask: Callable[[int], T], wait_ms: int | None) -> T:
        """Asks with short waits until there is an answer or the wait is over; None waits for ever."""
        deadline = None if wait_ms is None else time.monotonic() + wait_ms / 1000
        while True:
            left = SLICE_MS if deadline is None else max(int((deadline - time.monotonic()) * 1000), 0)
            found = ask(min(left, SLICE_MS))
            self.check()
            if found or (deadline is not None and time.monotonic() >= deadline):
                return found


interrupts = Interrupts()
"""Of this process: signals are the process's."""
