"""Writes that are held back until the work at hand is done: one write for each connection, not one for each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Flushes:
    """`with flushes:` around work that answers many; what is added outside of one is done at the end of the tick."""

    def __init__(self) -> None:
        self._held: list[Callable[[], None]] = []
        self._depth = 0
        self._asked = False

    def add(self, flush: Callable[[], None]) -> None:
        """To be called once, soon. Who adds sees to it that it adds itself once."""
        self._held.append(flush)
        if not self._depth and not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._run)

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._run()

    def _run(self) -> None:
        self._asked = False
        held, self._held = self._held, []
        for flush in held:
            flush()
