"""How many dead letters there are, by topic, group and reason, and by when they were given up.

Why a letter was given up stands in the letter, so letters are read to be counted: once each. What was counted of a
partition is kept, and added to as letters come; only when some of it was redriven or purged it is counted anew. A call
reads a bounded number and goes on where the last one stopped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from trine.broker.operations import REDRIVE_GROUP
from trine.broker.partition import Partition
from trine.broker.topic import TopicState
from trine.broker.walking import Wanted, forward
from trine.log.stored import DeadLetter
from trine.model.errors import UnknownTopic
from trine.model.ids import DLQ_SUFFIX
from trine.server.context import Context

READ_MAX: Final = 100_000
"""Letters one call reads: a tenth of a second, with others served in between."""
TURN: Final = 200
REASONS_MAX: Final = 500
"""Of one partition: reasons may have ids in them, so that no two are the same; the rest is counted together."""
OTHERS: Final = "(others)"
SHOWN_MAX: Final = 200
MINUTES_MAX: Final = 7 * 24 * 60


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    group: str
    reason: str
    count: int
    last_at_ms: int
    """When the last of them was given up."""


@dataclass(slots=True)
class Part:
    """What was counted of one partition."""

    mark: tuple[int, int]
    """While the ledger of what was dealt with has not changed, letters are only added."""
    next_offset: int
    total: int = 0
    reasons: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """(group, reason) to (count, when last)."""
    minutes: Counter[int] = field(default_factory=Counter)

    def add(self, letter: DeadLetter) -> None:
        self.total += 1
        name = (letter.group, letter.reason)
        known = self.reasons.get(name)
        if known is None and len(self.reasons) >= REASONS_MAX:
            name = (letter.group, OTHERS)
            known = self.reasons.get(name)
        if known is None:
            known = self.reasons[name] = [0, 0]
        known[0] += 1
        known[1] = max(known[1], letter.failed_ms)
        self.minutes[letter.failed_ms // 60_000] += 1
        if len(self.minutes) > 2 * MINUTES_MAX:
            for minute in sorted(self.minutes)[:MINUTES_MAX]:
                del self.minutes[minute]


@dataclass(slots=True)
class Counts:
    """Of all topics that somebody may see."""

    total: int = 0
    complete: bool = True
    reasons: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    minutes: Counter[int] = field(default_factory=Counter)

    def add(self, topic: str, part: Part) -> None:
        self.total += part.total
        self.minutes.update(part.minutes)
        for (group, reason), (count, last) in part.reasons.items():
            known = self.reasons.setdefault((topic, group, reason), [0, 0])
            known[0] += count
            known[1] = max(known[1], last)

    def largest(self) -> list[Counted]:
        rows = [
            Counted(topic=topic, group=group, reason=reason, count=count, last_at_ms=last)
            for (topic, group, reason), (count, last) in self.reasons.items()
        ]
        rows.sort(key=lambda one: (-one.count, one.topic, one.group, one.reason))
        return rows[:SHOWN_MAX]


class LetterCounts:
    def __init__(self, context: Context) -> None:
        self._engine = context.engine
        self._parts: dict[int, Part] = {}
        """By log."""
        self._looking = asyncio.Lock()

    async def look(self, sees: Callable[[str], bool]) -> Counts:
        """Of the topics that may be seen, by the names of those that the letters are of."""
        async with self._looking:  # two who count at once would count twice
            engine = self._engine
            with engine.lock:
                engine.check_open()
                topics = [one for one in engine.topics.values() if one.name.endswith(DLQ_SUFFIX)]
            kept = {one.log_id for topic in topics for one in topic.partitions}
            for log_id in self._parts.keys() - kept:
                del self._parts[log_id]
            told = Counts()
            room = READ_MAX
            for topic in topics:
                name = topic.name.removesuffix(DLQ_SUFFIX)
                if sees(name):
                    room = await self._look_at(topic, name, told, room)
            return told

    async def _look_at(self, topic: TopicState, name: str, told: Counts, room: int) -> int:
        for one in list(topic.partitions):
            part, end = self._known(topic, one)
            if part.next_offset < end:
                if room > 0:
                    room = await self._count(topic, one, part, end, room)
                told.complete = told.complete and part.next_offset >= end
            told.add(name, part)
        return room

    def _known(self, topic: TopicState, one: Partition) -> tuple[Part, int]:
        """What was counted, and where the partition ends now."""
        with self._engine.lock:
            group = topic.groups.get(REDRIVE_GROUP)
            ledger = group.parts[one.number].ledger if group is not None else None
            mark = (one.log.start_offset, ledger.next_row if ledger is not None else 0)
            part = self._parts.get(one.log_id)
            if part is None or part.mark != mark:
                first = max(ledger.first_unsettled() if ledger is not None else 0, one.log.start_offset)
                part = self._parts[one.log_id] = Part(mark, first)
            return part, one.log.next_offset

    async def _count(self, topic: TopicState, one: Partition, part: Part, end: int, room: int) -> int:
        group = topic.groups.get(REDRIVE_GROUP)
        ledger = group.parts[one.number].ledger if group is not None else None
        try:
            for step in forward(one, part.next_offset, end, Wanted()):
                if step.record is not None and (ledger is None or not ledger.is_settled(step.record.offset)):
                    part.add(DeadLetter(step.record, one.origin, 0))
                part.next_offset = step.offset
                room -= 1
                if room <= 0:
                    return 0
                if room % TURN == 0:
                    await asyncio.sleep(0)
        except UnknownTopic:  # deleted meanwhile: there is nothing to count
            pass
        part.next_offset = end
        return room
