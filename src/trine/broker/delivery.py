"""A group delivers: which messages a member gets next, and the lease it gets them with.

The middle of a group's three layers: settle (`settlement`), deliver (here), steer (`group`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trine.broker.dead_letters import bury
from trine.broker.entry import Entry
from trine.broker.group_part import GroupPart, Leased
from trine.broker.settlement import Settlement
from trine.log.batch import StoredRecord
from trine.model.durability import Level
from trine.model.errors import UnknownGroup
from trine.model.limits import RECEIVE_MAX
from trine.model.message import H_EXPIRES, I64
from trine.queue.ledger import Lease, runs_of
from trine.queue.rows import Kind, Row, make_row
from trine.queue.selection import Pick

TURN_MESSAGES = 256
"""A receive begins with the same partition for this many messages: what was decoded of it is used up first."""
# For the rows of the hot paths: a member of an enum takes longer to look up than to pack.
_DELIVERED, _ACKED = int(Kind.DELIVERED), int(Kind.ACKED)


class Delivery(Settlement):
    # --- receive

    def enter(self, member: str, now: int, *, keeps_alive: bool) -> None:
        """A consumer joins; one of this process is kept alive for as long as it is open."""
        if self.members.join(member, now):
            self._quiet_until = 0
            self._finish_moves(now)
        self._consumers[member] += 1
        if keeps_alive:
            self.present.add(member)

    def lost(self, member: str, now: int, grace_ms: int) -> None:
        """A consumer vanished without a word: it may come back within the grace, and find its leases."""
        self._consumers[member] -= 1
        if self._consumers[member] > 0:
            return
        del self._consumers[member]
        self.present.discard(member)
        self.members.expect(member, now + grace_ms)
        self._quiet_until = 0
        self.wake()

    def return_unseen(self, member: str, seen: Mapping[int, int], now: int) -> int:
        """A consumer is back, and says which lease it got last of each partition: what was leased to it since was lost
        on the way. Unless there is another one of its name: then nobody knows whose they are."""
        if self._consumers[member] > 1:
            return 0
        failing = [
            (part, lease, lease.open_runs())
            for part in self.parts
            for lease in part.ledger.leases_of(member)
            if lease.number > seen.get(part.partition.number, -1)
        ]
        if not failing:
            return 0
        self._return_all(failing, "lost on the way", now, 0)
        self._after_failures(now)
        self.wake()
        return sum(count for _, _, runs in failing for _, count in runs)

    def lease(self, member: str, most: int, now: int) -> list[tuple[GroupPart, Lease]]:
        """`receive` for who sends batches on as they are stored: see `GroupPart.stored`."""
        return [(part, lease) for part, lease, _ in self.receive(member, most, now, opened=False)]

    def receive(self, member: str, most: int, now: int, *, opened: bool = True) -> list[Leased]:
        """Leases up to `most` messages to a member; nothing if there is nothing free, or the group is paused.

        With `opened` off, the records are read only where they must be looked into.
        """
        if self.deleted:
            raise UnknownGroup(f"group {self.name!r} of topic {self.topic.name!r} was deleted")
        if self.members.join(member, now) or now >= self._quiet_until:
            self.expire(now)
        if self.meta.paused is not None:
            return []
        most = new_most = min(most, RECEIVE_MAX)
        if most > self._known_free:
            # What is tried again has its place in memory already: only new work has to wait for room.
            room = self.config.in_flight_max - self.in_flight()
            new_most = self._known_free = room - self.retrying()
            most = min(most, room)
        while most > 0:
            try:
                picked = self._pick(member, most, new_most, now)
            except BaseException:  # keys could not be read: what was looked at is not taken
                for part in self.parts:
                    part.selection.rewind()
                raise
            if not picked:
                return []
            leased = self._deliver(member, picked, now, opened)
            if leased:
                return leased
        return []

    def in_flight(self) -> int:
        return sum(part.ledger.in_flight for part in self.parts)

    def retrying(self) -> int:
        return sum(len(part.ledger.retries) for part in self.parts)

    def _pick(
        self, member: str, most: int, new_most: int, now: int
    ) -> list[tuple[GroupPart, int, list[Pick]]]:
        own = self.members.assigned(member)
        picked = self._pick_from(own, most, new_most, now)
        if not picked and self.config.order != "partition" and len(own) < len(self.parts):
            # Nobody idles while others have more than they can do.
            picked = self._pick_from(range(len(self.parts)), most, new_most, now)
        return picked

    def _pick_from(
        self, numbers: Sequence[int], most: int, new_most: int, now: int
    ) -> list[tuple[GroupPart, int, list[Pick]]]:
        picked: list[tuple[GroupPart, int, list[Pick]]] = []
        if not numbers:
            return picked
        if self._served >= TURN_MESSAGES:
            self._turn += 1
            self._served = 0
        turn = self._turn % len(numbers)
        parts = [self.parts[number] for number in (*numbers[turn:], *numbers[:turn])]
        for lane, quota in self._lane_quotas(parts, most, now):
            if most <= 0:
                break
            for part in parts:
                if quota <= 0 or most <= 0:
                    break
                if not part.selection.waits(lane, now):
                    continue
                picks = part.selection.pick(lane, min(quota, most), now, new_most)
                if picks:
                    picked.append((part, lane, picks))
                    for _, count, attempt in picks:
                        quota -= count
                        most -= count
                        self._served += count
                        if attempt == 1:
                            new_most -= count
                        if self.config.lane_weights is not None:
                            self._credits[lane] -= count
        return picked

    def _lane_quotas(self, parts: Sequence[GroupPart], most: int, now: int) -> Iterable[tuple[int, int]]:
        """Lanes in the order they are served, each with how many it may give: by weight first, then strictly."""
        lanes = range(len(self.topic.config.lanes))
        weights = self.config.lane_weights
        if weights is None:
            return [(lane, most) for lane in self.topic.lanes_used]
        ready = [lane for lane in lanes if any(part.selection.waits(lane, now) for part in parts)]
        total = sum(weights[lane] for lane in ready if lane < len(weights)) or 1
        for lane in lanes:
            if lane not in ready:
                self._credits[lane] = 0.0
            elif lane < len(weights):
                self._credits[lane] += most * weights[lane] / total
        first = sorted(ready, key=lambda lane: (-self._credits[lane], lane))
        return [(lane, round(self._credits[lane])) for lane in first] + [(lane, most) for lane in ready]

    def _deliver(
        self, member: str, picked: list[tuple[GroupPart, int, list[Pick]]], now: int, opened: bool
    ) -> list[Leased]:
        until = now + self.config.lease_ms
        if until < self._quiet_until:
            self._quiet_until = until
        if len(picked) == 1:
            leased = self._deliver_run(member, *picked[0], now, until, opened)
            if leased is not None:
                return [leased]
        entry = Entry()
        made: list[tuple[GroupPart, Lease, list[StoredRecord]]] = []
        upcoming: dict[int, int] = {}
        look = self._filter is not None or self.topic.config.compact
        try:
            for part, lane, picks in picked:
                ledger, partition = part.ledger, part.partition
                rows: list[Row] = []
                # Read before anything is leased: what cannot be read is not delivered, what is missing is gone.
                if opened or look or partition.has_ttl or not part.read_ahead_all(picks):
                    found = [partition.records(pick.first, pick.count) for pick in picks]
                    if look or partition.has_ttl or any(map(_is_short, found, picks)):
                        picks, found = self._screen(entry, part, lane, picks, found, now, rows)
                else:
                    found = [[] for _ in picks]
                name = ledger.name(member)
                number = upcoming.get(part.log_id, ledger.next_row) + len(rows)
                for (first, count, attempt), records in zip(picks, found, strict=True):
                    self._known_free -= count
                    rows.append(Row(_DELIVERED, lane, attempt, name, 0, now, first, count, until, -1))
                    made.append((part, Lease(number, member, first, count, attempt, until, lane), records))
                    if self.config.auto_ack:
                        rows.append(Row(_ACKED, lane, attempt, name, 0, now, first, count, 0, number))
                        number += 1
                    number += 1
                upcoming[part.log_id] = number
                entry.rows(part, rows)
            self.engine.commit(entry, Level.WRITTEN, reserve=True)
        except BaseException:
            for part, _, _ in picked:
                part.selection.rewind()
            raise
        if self.config.auto_ack and made:
            self.settled(sum(lease.count for _, lease, _ in made), now)
        return [
            Leased(part, part.ledger.leases.get(lease.number, lease), records)
            for part, lease, records in made
        ]

    def _deliver_run(
        self, member: str, part: GroupPart, lane: int, picks: list[Pick], now: int, until: int, opened: bool
    ) -> Leased | None:
        """`_deliver` of what most deliveries are: one run, with nothing to look into. None if it is not that."""
        partition, config = part.partition, self.topic.config
        if len(picks) > 1 or self._filter or config.compact or partition.has_ttl or self.config.auto_ack:
            return None
        first, count, attempt = picks[0]
        try:
            records: list[StoredRecord] = []
            if opened:
                records = partition.records(first, count)
                if len(records) < count:
                    return None
            elif not part.read_ahead(first, count):
                return None
            ledger = part.ledger
            number = ledger.next_row
            row = make_row((_DELIVERED, lane, attempt, ledger.name(member), 0, now, first, count, until, -1))
            self._commit_rows(part, (row,), Level.WRITTEN)
        except BaseException:
            part.selection.rewind()
            raise
        self._known_free -= count
        return Leased(part, ledger.leases[number], records)

    def _screen(
        self,
        entry: Entry,
        part: GroupPart,
        lane: int,
        picks: list[Pick],
        found: list[list[StoredRecord]],
        now: int,
        rows: list[Row],
    ) -> tuple[list[Pick], list[list[StoredRecord]]]:
        """Takes out what must not be delivered: expired, filtered, or gone; rows say so."""
        good: list[Pick] = []
        kept: list[list[StoredRecord]] = []
        expired: list[int] = []
        for (first, count, attempt), records in zip(picks, found, strict=True):
            known = {record.offset: record for record in records}
            verdicts = [self._verdict(known.get(offset), now) for offset in range(first, first + count)]
            start = 0
            for end in range(1, count + 1):
                if end < count and verdicts[end] == verdicts[start]:
                    continue
                verdict = verdicts[start]
                if verdict is None:
                    good.append(Pick(first + start, end - start, attempt))
                    kept.append([known[offset] for offset in range(first + start, first + end)])
                elif verdict is Kind.EXPIRED and self.topic.config.dead_letter_expired and not self._burns:
                    expired += range(first + start, first + end)
                else:
                    rows.append(Row(verdict, lane, attempt - 1, 0, 0, now, first + start, end - start, 0, -1))
                start = end
        if expired:
            used = sum(len(data) for _, data in entry.parts)
            full = used > self.engine.store.entry_bytes_max // 4
            fitting = [] if full else next(self._fitting(part, runs_of(expired)))
            if (count := sum(run[1] for run in fitting)) < len(expired):
                # The rest is looked at again, once these are settled.
                entry.afterwards.append(part.selection.rewind)
                del expired[count:]
        for offset in expired:
            retry = part.ledger.retries.get(offset)
            rows += bury(
                entry, self, part, offset, 1, retry.attempt if retry else 0, "expired", None, now, -1
            )
        return good, kept

    def _verdict(self, record: StoredRecord | None, now: int) -> Kind | None:
        if record is None:
            return Kind.GONE
        headers = record.headers
        for name, value in headers:
            if name == H_EXPIRES and value is not None and I64.unpack(value)[0] <= now:
                return Kind.EXPIRED
        if self._filter is not None and any(wanted not in headers for wanted in self._filter):
            return Kind.FILTERED
        return None


def _is_short(records: list[StoredRecord], pick: Pick) -> bool:
    return len(records) < pick.count
