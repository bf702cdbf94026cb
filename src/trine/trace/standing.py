"""How each message of a run was settled last in a group, told by the ledger's blocks: the bulk form of `life`.

For a search over many messages: one small array entry a message, no objects.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trine.queue.rows import SETTLES, Kind, unpack_block
from trine.trace.life import STATE_OF
from trine.trace.timeline import State

_TELLING: Final = np.array([kind in SETTLES or kind in (Kind.SEEK, Kind.REOPENED) for kind in range(256)])
_STATES: Final = {int(kind): state for kind, state in STATE_OF.items()}


class Standing:
    """Blocks are taken in with `add`, oldest first; then it can be asked."""

    __slots__ = ("_attempt", "_block", "_first", "_kind", "_member", "_names")

    def __init__(self, first: int, count: int) -> None:
        self._first = first
        self._kind = np.zeros(count, dtype=np.uint8)
        """How it was settled last, 0 if it was not."""
        self._attempt = np.zeros(count, dtype=np.uint16)
        self._member = np.zeros(count, dtype=np.uint16)
        self._block = np.zeros(count, dtype=np.int32)
        self._names: list[list[str]] = []

    def add(self, payload: bytes | memoryview) -> None:
        block = unpack_block(payload)
        number = len(self._names)
        self._names.append(block.names)
        rows = block.rows[_TELLING[block.rows["kind"]]]
        size = len(self._kind)
        start = rows["first"] - self._first
        end = start + rows["count"]
        rows = rows[((start < size) & (end > 0)) | (rows["kind"] == Kind.SEEK)]
        if not len(rows):
            return
        if (rows["count"] == 1).all():
            # Of two rows of one message the later one stands: assignment goes in order.
            at = rows["first"] - self._first
            self._kind[at] = np.where(rows["kind"] == Kind.REOPENED, 0, rows["kind"])
            self._attempt[at] = rows["attempt"]
            self._member[at] = rows["member"]
            self._block[at] = number
            return
        for kind, _, attempt, member, _, _, offset, count, _, _ in rows.tolist():
            first = max(offset - self._first, 0)
            if kind == Kind.SEEK:
                self._kind[first:] = 0
                continue
            run = slice(first, min(max(offset - self._first + count, 0), size))
            self._kind[run] = 0 if kind == Kind.REOPENED else kind
            self._attempt[run] = attempt
            self._member[run] = member
            self._block[run] = number

    def among(self, wanted: frozenset[State]) -> list[int]:
        """Offsets whose last settlement is one of these; SKIPPED are those without any."""
        table = np.array([_STATES.get(kind, State.SKIPPED) in wanted for kind in range(256)])
        found: list[int] = (np.nonzero(table[self._kind])[0] + self._first).tolist()
        return found

    def settled(self, offset: int) -> tuple[State, int, str | None]:
        """(state, attempts, member) of a message that the ledger says is settled."""
        at = offset - self._first
        kind = int(self._kind[at])
        if not kind:
            return State.SKIPPED, 0, None
        member = int(self._member[at])
        name = self._names[int(self._block[at])][member - 1] if member else None
        return _STATES[kind], int(self._attempt[at]), name
