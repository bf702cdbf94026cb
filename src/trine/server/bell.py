"""A bell that any thread may ring, and that is answered in the loop: once, however often it was rung until then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class Bell:
    """To be made in the loop that answers."""

    __slots__ = ("_answer", "_loop", "_rung", "_thread")

    def __init__(self, answer: Callable[[], None]) -> None:
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._rung = False

    def ring(self) -> None:
        if self._rung:
            return
        self._rung = True
        if threading.get_ident() == self._thread:
            self._loop.call_soon(self._go)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._go)

    def _go(self) -> None:
        self._rung = False
        self._answer()
