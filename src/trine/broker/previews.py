"""What a verb that steers a group would do, before it does it: read out of the ledgers, changing nothing.

Called under the engine's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trine.broker.operations import replay_runs, seek_targets
from trine.model.description import PartitionPreview, Preview

if TYPE_CHECKING:
    from trine.broker.group import GroupState
    from trine.queue.ledger import Ledger


def preview_seek(group: GroupState, **where: Any) -> Preview:
    """Takes what `seek` takes."""
    found, returned = [], 0
    for number, offset in seek_targets(group, **where).items():
        part = group.parts[number]
        log, ledger = part.partition.log, part.ledger
        target = min(max(offset, log.start_offset), log.next_offset)
        before = target - log.start_offset
        found.append(
            PartitionPreview(
                partition=number,
                from_offset=ledger.first_unsettled(),
                to_offset=target,
                again=_settled(ledger, target, log.next_offset),
                skipped=before - _settled(ledger, log.start_offset, target),
            )
        )
        returned += ledger.in_flight
    again, skipped = sum(one.again for one in found), sum(one.skipped for one in found)
    told = [f"Of {_many(len(found), 'partition')}: {_many(again, 'settled message')} would come again"]
    told.append(f", {_many(skipped, 'message')} that nobody has settled would be skipped")
    if returned:
        told.append(f", and {returned} in flight would be void: who holds them cannot settle them any more")
    return Preview(found, again, skipped, returned, "".join(told) + ".")


def preview_replay(group: GroupState, **what: Any) -> Preview:
    """Takes what `replay` takes."""
    runs: dict[int, list[tuple[int, int]]] = {}
    for number, first, count in replay_runs(group, **what):
        runs.setdefault(number, []).append((first, count))
    found = [
        PartitionPreview(
            partition=number,
            from_offset=some[0][0],
            to_offset=some[-1][0] + some[-1][1],
            again=sum(count for _, count in some),
            skipped=0,
        )
        for number, some in runs.items()
    ]
    again = sum(one.again for one in found)
    told = f"{_many(again, 'settled message')} would come again, beside what is new; nothing is skipped."
    return Preview(found, again, 0, 0, told)


def preview_pause(group: GroupState) -> Preview:
    flying, waiting = group.in_flight(), group.lag() - group.in_flight()
    told = (
        f"{_many(waiting, 'message')} would wait until the group is resumed; {flying} in flight can still be settled "
        f"by {_many(len(group.members), 'member')}."
    )
    if group.paused is not None:
        told = f"The group is paused already: {group.paused}. The reason would change."
    return Preview([], 0, 0, 0, told)


def preview_resume(group: GroupState) -> Preview:
    waiting = group.lag() - group.in_flight()
    told = f"{_many(waiting, 'message')} could be delivered to {_many(len(group.members), 'member')}."
    if group.paused is None:
        told = "The group is not paused: nothing would change."
    return Preview([], 0, 0, 0, told)


def _settled(ledger: Ledger, first: int, end: int) -> int:
    """How many of these are settled."""
    if end <= first:
        return 0
    count = max(min(end, ledger.floor) - first, 0)
    beyond = max(first, ledger.floor)
    if end > beyond:
        count += int(ledger.settled.range_cardinality(beyond, end))
    return count - int(ledger.reopened.range_cardinality(first, end))


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
