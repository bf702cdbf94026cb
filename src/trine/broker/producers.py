"""Idempotent producers: what a partition remembers of each, so that a batch sent twice is stored once.

A producer numbers its messages for each partition. A batch that continues the numbers is stored; one that was
stored before is answered with its first place; a gap is refused. The numbers stand in the batch headers, so
recovery learns them from the log.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from trine.model.errors import OutOfOrder, ProducerFenced
from trine.model.limits import PRODUCERS_MAX

BATCHES_KEPT = 5
"""As in Kafka: answers to the last few batches are remembered exactly, older ones are known to be duplicates."""


class Sequence(msgspec.Struct, array_like=True):
    epoch: int
    next: int
    batches: list[tuple[int, int, int]]
    """(first sequence, count, first offset) of the last batches."""


class Producers:
    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: OrderedDict[int, Sequence] = OrderedDict()

    def check(self, producer: int, epoch: int, sequence: int, count: int) -> int | None:
        """None if the batch is new, the first offset if it was stored before, -1 if that is no longer known."""
        known = self._known.get(producer)
        if known is None:
            if sequence != 0:
                raise OutOfOrder(
                    f"this producer's first sequence here is 0, not {sequence}; an earlier batch is missing"
                )
            return None
        if epoch < known.epoch:
            raise ProducerFenced(
                f"a newer producer of this name has epoch {known.epoch}; this one, {epoch}, is out of use"
            )
        if sequence == known.next:
            return None
        if sequence > known.next:
            raise OutOfOrder(
                f"sequence {sequence} was given where {known.next} follows; a batch before it is missing"
            )
        for first, kept, offset in known.batches:
            if first == sequence and kept == count:
                return offset
        if sequence + count <= known.next:
            return -1
        raise OutOfOrder(
            f"sequences {sequence} to {sequence + count - 1} overlap what is stored, up to {known.next - 1}"
        )

    def apply(self, producer: int, epoch: int, sequence: int, count: int, offset: int) -> None:
        known = self._known.get(producer)
        if known is None:
            known = self._known[producer] = Sequence(epoch, 0, [])
        known.epoch = max(known.epoch, epoch)
        known.next = sequence + count
        known.batches.append((sequence, count, offset))
        del known.batches[:-BATCHES_KEPT]
        self._known.move_to_end(producer)
        if len(self._known) > PRODUCERS_MAX:
            self._known.popitem(last=False)

    def next_sequence(self, producer: int) -> int:
        known = self._known.get(producer)
        return known.next if known is not None else 0

    def save(self) -> dict[int, Sequence]:
        return dict(self._known)

    def restore(self, saved: dict[int, Sequence]) -> None:
        self._known = OrderedDict(saved)
