"""A group as a table of messages: what the broker may do next, and what it must never do.

The model is told of every call and every delivery and checks them. It is copied before what is not yet synced, so
that after a power cut the machine goes on with the copy that fits what survived.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

LANES = ("high", "normal", "low")
MAX_DELIVERIES = 3
LEASE_MS = 10_000
MEMBER_TIMEOUT_MS = 25_000
WINDOW_MS = 30_000

SCHEDULED, FREE, LEASED, RETRY, SETTLED = "scheduled", "free", "leased", "retry", "settled"


def backoff_ms(attempt: int) -> int:
    return min(1000 * 2 ** (attempt - 1), 8000)


@dataclass
class Entry:
    serial: int
    key: bytes | None
    lane: int
    phase: str
    due: int = 0
    expires: int | None = None
    partition: int = -1
    offset: int = -1
    counts: frozenset[int] = frozenset({0})
    """How many deliveries count so far; several only if a crash left it open."""
    deadline: int = 0
    member: str = ""
    failed: bool = False
    how: str = ""

    @property
    def id(self) -> str:
        return f"t/{self.partition}/{self.offset}"

    def expired(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now


@dataclass
class Model:
    order: str
    entries: dict[int, Entry] = field(default_factory=dict)
    at: dict[tuple[int, int], int] = field(default_factory=dict)
    """The serial by place in the log."""
    ends: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    dedup: dict[str, tuple[int, str, int]] = field(default_factory=dict)
    """By dedup id: when, the message id answered, the serial."""
    dead: Counter[str] = field(default_factory=Counter)
    paused: bool = False
    disordered: bool = False
    """After a replay messages come out of order; a seek mends it."""
    seen: dict[str, int] = field(default_factory=dict)
    """When each member that must speak for itself did so last."""

    def copy(self) -> Model:
        return replace(
            self,
            entries={serial: replace(one) for serial, one in self.entries.items()},
            at=dict(self.at),
            ends=list(self.ends),
            starts=list(self.starts),
            dedup=dict(self.dedup),
            dead=self.dead.copy(),
            seen=dict(self.seen),
        )

    # --- in

    def placed(self, serial: int, partition: int, offset: int, value: bytes, now: int) -> None:
        """The log has this message at this place."""
        entry = self.entries[serial]
        assert entry.phase == SCHEDULED, (
            f"{serial} is in the log twice: at {entry.id} and {partition}/{offset}"
        )
        assert entry.due <= now, f"{serial} came {entry.due - now} ms early"
        entry.phase, entry.partition, entry.offset = FREE, partition, offset
        self.at[partition, offset] = serial

    def known_duplicate(self, dedup_id: str | None, now: int) -> str | None:
        if dedup_id is None or dedup_id not in self.dedup:
            return None
        at, place, _ = self.dedup[dedup_id]
        return place if at + WINDOW_MS > now else None

    def forgot_dedup(self, dedup_id: str) -> bool:
        """Recovery finds ids in the log: one whose message was deleted may be forgotten."""
        entry = self.entries.get(self.dedup[dedup_id][2])
        return (
            entry is None
            or (entry.phase == SETTLED and entry.how in ("cancelled", "gone"))
            or self.gone(entry)
        )

    # --- questions

    def gone(self, entry: Entry) -> bool:
        return entry.partition >= 0 and entry.offset < self.starts[entry.partition]

    def in_log(self) -> list[Entry]:
        return [one for one in self.entries.values() if one.partition >= 0 and not self.gone(one)]

    def leased(self) -> list[Entry]:
        return [one for one in self.entries.values() if one.phase == LEASED]

    def lag(self, now: int) -> tuple[int, int]:
        """The least and the most it can be: what has expired is noticed when it would be delivered."""
        open_ = [one for one in self.in_log() if one.phase in (FREE, LEASED, RETRY)]
        sure = sum(1 for one in open_ if one.phase == LEASED or not one.expired(now))
        return sure, len(open_)

    def deliverable(self, now: int) -> list[Entry]:
        """What a receive must find, if it returns nothing else."""
        free = [
            one for one in self.in_log()
            if not one.expired(now) and (one.phase == FREE or (one.phase == RETRY and one.due <= now))
        ]  # fmt: skip
        if self.order == "key":
            return [one for one in free if one.key is None or not self.holders(one)]
        if self.order == "partition":
            return [one for one in free if not self._blocked(one)]
        return free

    def holders(self, entry: Entry) -> list[Entry]:
        """Others of the same key that are delivered or tried again."""
        return [
            one for one in self.in_log()
            if one is not entry and one.key == entry.key and one.partition == entry.partition
            and one.phase in (LEASED, RETRY)
        ]  # fmt: skip

    def _blocked(self, entry: Entry) -> bool:
        return any(
            one.phase == RETRY
            and (one.offset < entry.offset or self.disordered)  # a replay waits for retries
            for one in self.in_log()
            if (one.partition, one.lane) == (entry.partition, entry.lane)
        )

    # --- deliveries

    def delivered(self, serial: int, attempt: int, deadline: int, member: str, now: int) -> None:
        entry = self.entries[serial]
        assert entry.phase in (FREE, RETRY), (
            f"{serial} was delivered while {entry.phase} {entry.how}: {entry}"
        )
        assert not entry.expired(now), f"{serial} was delivered after it expired"
        if entry.phase == RETRY:
            assert entry.due <= now, f"{serial} was delivered {entry.due - now} ms before its retry was due"
        assert attempt - 1 in entry.counts, (
            f"{serial}: attempt {attempt}, but {entry.counts} deliveries count so far"
        )
        assert attempt <= MAX_DELIVERIES
        assert deadline == now + LEASE_MS
        self._check_order(entry)
        entry.phase, entry.counts, entry.deadline, entry.member = (
            LEASED,
            frozenset({attempt - 1}),
            deadline,
            member,
        )

    def _check_order(self, entry: Entry) -> None:
        if self.disordered:
            return
        if self.order == "key" and entry.key is not None:
            assert not self.holders(entry), (
                f"two of key {entry.key!r} at a time: {self.holders(entry)} and {entry}"
            )
        if self.order == "none":
            return
        for one in self.in_log():
            same = (one.partition, one.lane) == (entry.partition, entry.lane)
            if (
                not same
                or one is entry
                or (self.order == "key" and (one.key != entry.key or one.key is None))
            ):
                continue
            if one.offset < entry.offset:
                done = one.phase in (LEASED, SETTLED) or one.expires is not None
                assert done, f"{entry} was delivered before the earlier {one}"
            elif self.order == "partition":
                assert one.phase != LEASED, f"{entry} was delivered again while the later {one} was in flight"

    def check_lanes(self, returned: list[int], now: int) -> None:
        """Order none: nothing of a lower lane comes while a higher one of its partition has a free message."""
        if self.order != "none" or self.disordered:
            return
        left = self.deliverable(now)
        for serial in returned:
            entry = self.entries[serial]
            better = [one for one in left if one.partition == entry.partition and one.lane < entry.lane]
            assert not better, f"{entry} was delivered while these of higher lanes were free: {better}"

    # --- settle

    def acked(self, serial: int) -> None:
        self._settle(self.entries[serial], "acked")
        self.entries[serial].failed = False

    def rejected(self, serial: int) -> None:
        self._bury(self.entries[serial])

    def _settle(self, entry: Entry, how: str) -> None:
        entry.phase, entry.how = SETTLED, how

    def _bury(self, entry: Entry) -> None:
        self._settle(entry, "dead")
        entry.failed = True
        self.dead[entry.id] += 1

    def fail(self, failing: list[Entry], now: int, delay: int | None) -> None:
        """Deliveries in vain, of one call."""
        again: dict[tuple[int, int], int] = {}
        for entry in failing:
            attempt = max(entry.counts) + 1
            if attempt >= MAX_DELIVERIES:
                self._bury(entry)
                continue
            entry.phase, entry.counts = RETRY, frozenset({attempt})
            entry.due = now + (backoff_ms(attempt) if delay is None else delay)
            lane = (entry.partition, entry.lane)
            again[lane] = min(again.get(lane, entry.offset), entry.offset)
        if self.order == "partition":
            followers = [
                one for one in self.leased()
                if one.offset > again.get((one.partition, one.lane), one.offset)
            ]  # fmt: skip
            self.give_back(followers, now)

    def give_back(self, entries: list[Entry], now: int) -> None:
        for entry in entries:
            entry.phase, entry.due = RETRY, now

    def tick(self, now: int) -> None:
        for partition in range(len(self.ends)):
            over = [one for one in self.leased() if one.partition == partition and one.deadline <= now]
            self.fail(over, now, None)
        for member, seen in list(self.seen.items()):
            if now - seen > MEMBER_TIMEOUT_MS:
                del self.seen[member]
                self.fail([one for one in self.leased() if one.member == member], now, 0)

    def recovered(self, now: int) -> None:
        self.fail(self.leased(), now, 0)
        self.seen.clear()

    # --- steering

    def seek(self, partition: int, target: int) -> None:
        for entry in self.in_log():
            if entry.partition != partition:
                continue
            if entry.offset >= target:
                entry.phase, entry.counts, entry.how = FREE, frozenset({0}), ""
            elif entry.phase != SETTLED:
                self._settle(entry, "skipped")

    def reopen(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.phase == SETTLED:
                entry.phase, entry.counts, entry.how = FREE, frozenset({0}), ""
        self.disordered = self.disordered or bool(entries)

    def moved_start(self, partition: int, start: int, *, by_force: bool = False) -> None:
        """The log begins here now: only what was settled may be gone, unless it was purged."""
        for entry in self.in_log():
            if entry.partition == partition and entry.offset < start and entry.phase != SETTLED:
                assert by_force or entry.expires is not None, f"retention took {entry}"
                self._settle(entry, "gone")
        self.starts[partition] = start
