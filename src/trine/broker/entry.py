"""One journal entry in the making: changes of several logs that become durable, and take effect, together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trine.broker.metadata import META_LOG, PACK, AnyRecord
from trine.log import batch

if TYPE_CHECKING:
    from trine.broker.group_part import GroupPart
    from trine.broker.partition import Partition
    from trine.queue.rows import Row


class Entry:
    """Collects parts and what to do once the journal has them. Nothing changes before `Engine.commit`."""

    __slots__ = ("_next", "_rows", "afterwards", "effects", "new_buckets", "parts")

    def __init__(self) -> None:
        self.parts: list[tuple[int, Any]] = []
        self.effects: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.afterwards: list[Callable[[], None]] = []
        """What has to see all other effects done, the rows' too."""
        self._next: dict[int, int] = {}
        """Where the next batch of a log goes, if this entry has put some there already."""
        self.new_buckets: dict[tuple[str, int], int] = {}
        """Log ids of the schedule's hours that this entry creates, by topic and hour."""
        self._rows: dict[int, tuple[GroupPart, list[Row]]] = {}

    def append(self, partition: Partition, data: bytearray) -> int:
        """Adds a batch to a partition; answers its first offset."""
        offset = self._next.get(partition.log_id, partition.log.next_offset)
        batch.place(data, offset)
        header = batch.read_header(data)
        self._next[partition.log_id] = header.next_offset
        self.parts.append((partition.log_id, data))
        self.effects.append((partition.apply, (data, header)))
        return offset

    def next_offset(self, log_id: int, otherwise: int) -> int:
        """Where the next batch of a log goes, this entry's own included."""
        return self._next.get(log_id, otherwise)

    def reserve(self, log_id: int, next_offset: int) -> None:
        self._next[log_id] = next_offset

    def rows(self, part: GroupPart, rows: Sequence[Row]) -> None:
        """Adds rows to a ledger; all rows of one ledger become one change."""
        known = self._rows.get(part.log_id)
        if known is None:
            self._rows[part.log_id] = (part, list(rows))
        else:
            known[1].extend(rows)

    def meta(self, record: AnyRecord, apply: Callable[[AnyRecord], None]) -> None:
        self.parts.append((META_LOG, PACK.encode(record)))
        self.effects.append((apply, (record,)))

    def payload(self, log_id: int, data: Any, apply: Callable[..., None], *arguments: Any) -> None:
        self.parts.append((log_id, data))
        self.effects.append((apply, arguments))

    def seal(self) -> None:
        """The ledgers' rows become parts: called once, by the engine, before the journal is written."""
        for part, rows in self._rows.values():
            if rows:
                change = part.ledger.change(rows)
                self.parts.append((part.log_id, change))
                self.effects.append((part.commit, (rows, change)))
        self._rows.clear()
        self.effects += [(effect, ()) for effect in self.afterwards]
