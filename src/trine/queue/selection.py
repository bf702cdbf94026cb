"""Which messages a group delivers next: the volatile half of a ledger.

Nothing here is durable. All of it follows from the ledger and the lanes, and `rewind` makes it anew: after
recovery, a seek, a replay, or a delivery that could not be recorded.

    order none        any free message: due retries first, then the lane's next run
    order key         one message of a key at a time; later ones of a busy key are set aside until it is settled
    order partition   retries block what comes after them, so that the log's order within a lane is kept
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pyroaring import BitMap64

from trine.model.limits import DEFERRED_MAX, RECEIVE_MAX
from trine.model.options import Order
from trine.queue.lanes import Cursor, Lanes
from trine.queue.ledger import Ledger, Retry, next_set, run_end

KeysOf = Callable[[int, int], list[bytes | None]]
"""The keys of a run of offsets (first, count), handed in: only a key-ordered group asks."""

REPLAY_SHARE = 0.2
"""Of what is delivered, the part a replay may take while there is live work: it runs beside, not before."""


class Pick(NamedTuple):
    first: int
    count: int  # type: ignore[assignment]
    attempt: int


class Selection:
    __slots__ = (
        "_cursors",
        "_deferred",
        "_due",
        "_key_of",
        "_keys",
        "_keys_of",
        "_lanes",
        "_ledger",
        "_order",
        "_ready",
        "_replay",
        "_replay_credit",
        "_shared",
        "_taken",
        "_taken_end",
    )

    def __init__(self, ledger: Ledger, lanes: Lanes, order: Order, keys_of: KeysOf) -> None:
        self._ledger = ledger
        self._lanes = lanes
        self._order = order
        self._keys_of = keys_of
        self._replay_credit = 0.0
        self.rewind()
        ledger.watcher = self

    def rewind(self) -> None:
        ledger, lanes = self._ledger, self._lanes
        self._cursors = [Cursor() for _ in range(len(lanes))]
        for lane, cursor in enumerate(self._cursors):
            lanes.place(lane, cursor, ledger.floor)
        leased = BitMap64()
        for lease in ledger.leases.values():
            for first, count in lease.open_runs():
                leased.add_range(first, first + count)
        retrying = BitMap64(ledger.retries)
        self._replay = ledger.reopened - leased - retrying
        self._taken = ledger.settled | leased | retrying
        """Offsets at or beyond the cursors that are not free."""
        self._taken_end = self._taken.max() + 1 if self._taken else 0
        self._due: list[tuple[int, int]] = []
        self._ready: list[list[int]] = [[] for _ in self._cursors]
        self._keys: dict[bytes, deque[int] | None] = {}
        """Keys with a message leased or retrying, each with the later ones set aside."""
        self._key_of: dict[int, bytes] = {}
        self._shared: dict[bytes, int] = {}
        """Keys that several messages hold, because the group had no order when they were delivered: how many more."""
        self._deferred = 0
        if self._order == "key":
            for offset in [*leased, *retrying]:
                self._hold_key(offset)
        for offset, retry in ledger.retries.items():
            self.retry_added(offset, retry)

    # --- what the ledger tells

    def retry_added(self, offset: int, retry: Retry) -> None:
        if self._order == "partition":
            heapq.heappush(self._ready_of(retry.lane), offset)
        else:
            heapq.heappush(self._due, (retry.due, offset))

    def freed(self, first: int, count: int) -> None:
        """Settled: the next message of each key may go."""
        if not self._key_of:
            return
        for offset in range(first, first + count):
            key = self._key_of.pop(offset, None)
            if key is None:
                continue
            if key in self._shared:
                self._shared[key] -= 1
                if not self._shared[key]:
                    del self._shared[key]
                continue
            waiting = self._keys[key]
            if waiting:
                following = waiting.popleft()
                self._deferred -= 1
                self._key_of[following] = key
                heapq.heappush(self._ready_of(self._lanes.lane_of(following)), following)
            else:
                del self._keys[key]

    # --- picking

    def waits(self, lane: int, now: int) -> bool:
        """Whether a pick in this lane may find something; cheap, and never wrongly False."""
        if self._due and self._due[0][0] <= now:
            return True
        if lane >= len(self._cursors):
            return lane < len(self._lanes)
        return self._lanes.waits(lane, self._cursors[lane]) or bool(self._ready[lane]) or bool(self._replay)

    def next_due(self) -> int | None:
        """When the next message that is tried again becomes free."""
        retries = self._ledger.retries
        if self._order == "partition":
            heads = [self._head(ready) for ready in self._ready]
            return min((retries[head].due for head in heads if head is not None), default=None)
        while self._due:
            due, offset = self._due[0]
            retry = retries.get(offset)
            if retry is not None and retry.due == due:
                return due
            heapq.heappop(self._due)
        return None

    def pick(self, lane: int, most: int, now: int, new_most: int = RECEIVE_MAX) -> list[Pick]:
        """At most `most` messages of a lane to deliver now, `new_most` of them for the first time.

        They count as taken; `rewind` gives them back.
        """
        while lane >= len(self._cursors):
            self._cursors.append(Cursor())
            self._ready.append([])
        if self._order == "partition":
            return self._pick_in_order(lane, most, now, new_most)
        if self._due:
            self._promote(now)
        picks: list[Pick] = []
        replay = 0
        if self._replay:
            replay = min(int(self._replay_credit + most * REPLAY_SHARE), most)
        live = self._pick_live(lane, most - replay, new_most, picks)
        if self._replay and new_most > 0:
            fresh = sum(pick.count for pick in picks if pick.attempt == 1)
            taken = self._pick_replay(lane, min(most - live, new_most - fresh), picks)
            if taken < replay and live == most - replay:
                # What the replay left of its share, because its keys are busy or its lane is another one.
                live += self._pick_live(lane, replay - taken, new_most - fresh - taken, picks)
            earned = live * REPLAY_SHARE / (1 - REPLAY_SHARE)
            self._replay_credit = max(self._replay_credit + earned - taken, 0.0)
        return picks

    def _pick_live(self, lane: int, most: int, new_most: int, picks: list[Pick]) -> int:
        taken = self._pick_ready(lane, most, picks) if self._ready[lane] else 0
        if taken < most:
            taken += self._pick_fresh(lane, min(most - taken, new_most), picks)
        return taken

    def _promote(self, now: int) -> None:
        retries = self._ledger.retries
        while self._due and self._due[0][0] <= now:
            due, offset = heapq.heappop(self._due)
            retry = retries.get(offset)
            if retry is not None and retry.due == due:
                heapq.heappush(self._ready_of(retry.lane), offset)

    def _pick_ready(self, lane: int, most: int, picks: list[Pick]) -> int:
        ready, retries = self._ready[lane], self._ledger.retries
        taken = 0
        last = -1
        while ready and taken < most:
            offset = heapq.heappop(ready)
            if offset == last or (offset not in retries and offset not in self._key_of):
                continue
            last = offset
            retry = retries.get(offset)
            _join(picks, offset, (retry.attempt if retry is not None else 0) + 1)
            taken += 1
        return taken

    def _pick_fresh(self, lane: int, most: int, picks: list[Pick]) -> int:
        cursor, taken = self._cursors[lane], 0
        while taken < most and self._deferred < DEFERRED_MAX:
            run = self._lanes.take(lane, cursor, most - taken)
            if run is None:
                break
            for first, count in self._free_parts(*run):
                if self._order == "key":
                    taken += self._pick_free_keys(first, count, picks)
                else:
                    picks.append(Pick(first, count, 1))
                    taken += count
        return taken

    def _pick_free_keys(self, first: int, count: int, picks: list[Pick]) -> int:
        taken = 0
        for offset, key in enumerate(self._keys_of(first, count), first):
            if key is not None:
                if key in self._keys:
                    self._defer(offset, key)
                    continue
                self._keys[key] = None
                self._key_of[offset] = key
            _join(picks, offset, 1)
            taken += 1
        return taken

    def _defer(self, offset: int, key: bytes) -> None:
        waiting = self._keys[key]
        if waiting is None:
            waiting = self._keys[key] = deque()
        waiting.append(offset)
        self._deferred += 1

    def _pick_replay(self, lane: int, most: int, picks: list[Pick]) -> int:
        taken = 0
        for offset in self._replay[: most * len(self._cursors)]:
            if taken == most:
                break
            if self._lanes.lane_of(offset) != lane:
                continue
            self._replay.discard(offset)
            if self._order == "key":
                taken += self._pick_free_keys(offset, 1, picks)
            else:
                _join(picks, offset, 1)
                taken += 1
        return taken

    def _pick_in_order(self, lane: int, most: int, now: int, new_most: int) -> list[Pick]:
        picks: list[Pick] = []
        ready, retries = self._ready[lane], self._ledger.retries
        taken = 0
        while taken < most and (head := self._head(ready)) is not None:
            if retries[head].due > now:
                return picks
            heapq.heappop(ready)
            if not picks or head != picks[-1].first + picks[-1].count - 1:
                _join(picks, head, retries[head].attempt + 1)
                taken += 1
        new_most = min(new_most, most - taken)
        if new_most > 0 and self._replay:
            new_most -= self._pick_replay(lane, new_most, picks)
        if new_most > 0:
            self._pick_fresh(lane, new_most, picks)
        return picks

    def _head(self, ready: list[int]) -> int | None:
        """The least retrying offset; entries of retries that are over are dropped on the way."""
        retries = self._ledger.retries
        while ready:
            if ready[0] in retries:
                return ready[0]
            heapq.heappop(ready)
        return None

    def _free_parts(self, first: int, count: int) -> list[tuple[int, int]]:
        if first >= self._taken_end:
            return [(first, count)]
        parts, position, end = [], first, first + count
        while position < end:
            found = next_set(self._taken, position)
            if found is None or found >= end:
                parts.append((position, end - position))
                break
            if found > position:
                parts.append((position, found - position))
            position = run_end(self._taken, found)
        return parts

    def _hold_key(self, offset: int) -> None:
        keys = self._keys_of(offset, 1)
        if keys and keys[0] is not None:
            if keys[0] in self._keys:
                self._shared[keys[0]] = self._shared.get(keys[0], 0) + 1
            self._keys.setdefault(keys[0], None)
            self._key_of[offset] = keys[0]

    def _ready_of(self, lane: int) -> list[int]:
        while lane >= len(self._ready):
            self._cursors.append(Cursor())
            self._ready.append([])
        return self._ready[lane]


def _join(picks: list[Pick], offset: int, attempt: int) -> None:
    if picks:
        last = picks[-1]
        if last.attempt == attempt and last.first + last.count == offset:
            picks[-1] = Pick(last.first, last.count + 1, attempt)
            return
    picks.append(Pick(offset, 1, attempt))
