"""A group: the consumers that share the work of a topic, with one ledger a partition.

Three layers, one file each: it settles (`settlement`), it delivers (`delivery`), and it is steered (here).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trine.broker.delivery import Delivery
from trine.broker.entry import Entry
from trine.broker.group_part import GroupPart, Run, once
from trine.model.errors import StaleReceipt
from trine.model.options import GroupConfig
from trine.queue.ledger import REDELIVERED
from trine.queue.rows import Kind, Row


class GroupState(Delivery):
    # --- steering

    def resume(self) -> int:
        if self._breaker is not None:
            self._breaker.reset()
        lsn = self._alter(self.config, None)
        self.wake()
        return lsn

    def alter(self, config: GroupConfig) -> int:
        return self._alter(config, self.meta.paused)

    def seek(self, targets: dict[int, int], now: int) -> int:
        """The group continues at these offsets (by partition); what it had in flight there is void."""
        entry = Entry()
        for number, offset in targets.items():
            part = self.parts[number]
            log = part.partition.log
            clamped = min(max(offset, log.start_offset), log.next_offset)
            entry.rows(part, (Row(Kind.SEEK, 0, 0, 0, 0, now, clamped, 0, 0, -1),))
        lsn = self.engine.commit(entry, self.level, reserve=True)
        self.wake()
        return lsn

    def reopen(self, runs: Iterable[tuple[int, int, int]], now: int) -> int:
        """Settled messages are delivered again, beside live ones: (partition, first, count)."""
        entry = Entry()
        for number, first, count in runs:
            row = Row(Kind.REOPENED, 0, 0, 0, 0, now, first, count, 0, -1)
            entry.rows(self.parts[number], (row,))
        lsn = self.engine.commit(entry, self.level, reserve=True)
        self.wake()
        return lsn

    def part_of(self, partition: int) -> GroupPart:
        if not 0 <= partition < len(self.parts):
            raise StaleReceipt(
                f"this receipt is of partition {partition}, which the topic does not have any more"
            )
        return self.parts[partition]

    def held_runs(self, held: Iterable[tuple[int, int, int, int]]) -> list[tuple[GroupPart, Run]]:
        """(partition, lease, first, count) of each, as the verbs that settle take them; each message once."""
        return once([(self.part_of(number), (lease, first, count)) for number, lease, first, count in held])

    def ack_held(self, held: Sequence[tuple[int, int, int, int]], now: int) -> int:
        """`ack` by numbers alone: for who holds a lease and not its object."""
        if len(held) == 1:
            ((number, lease, first, count),) = held
            return self.ack_run(self.part_of(number), lease, first, count, now)
        lsn = self.ack(self.held_runs(held), now)
        assert lsn is not None
        return lsn

    # --- numbers

    def lag(self) -> int:
        return sum(part.ledger.unsettled(part.partition.log.next_offset) for part in self.parts)

    def totals(self) -> dict[str, int]:
        """Messages by what happened to them, ever since the group began; a restart does not change them."""
        counts = [sum(column) for column in zip(*(part.ledger.counts for part in self.parts), strict=True)]
        return {
            "delivered": counts[Kind.DELIVERED],
            "redelivered": counts[REDELIVERED],
            "acked": counts[Kind.ACKED],
            "nacked": counts[Kind.NACKED],
            "returned": counts[Kind.RETURNED],
            "rejected": counts[Kind.REJECTED],
            "dead_lettered": counts[Kind.DEAD_LETTERED],
            "expired": counts[Kind.EXPIRED],
            "filtered": counts[Kind.FILTERED],
            "gone": counts[Kind.GONE],
            "redriven": counts[Kind.REDRIVEN],
        }

    def oldest_ms(self) -> dict[int, int]:
        """By partition, the time of the batch with the oldest message that is not settled: its header is enough,
        nothing is decoded. Partitions with nothing to settle are left out."""
        times = {}
        for part in self.parts:
            log = part.partition.log
            offset = max(part.ledger.first_unsettled(), log.start_offset)
            if offset < log.next_offset and (found := next(log.headers(offset), None)) is not None:
                times[part.partition.number] = found[1].base_time_ms
        return times
