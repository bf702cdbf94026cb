"""Assignment: who gets what, evenly, with as little change as possible.

One pure function over items and holders. Members of a group hold partitions; when there are more members than
partitions, and they may share, it is read the other way round and partitions hold members.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)
Holder = TypeVar("Holder", bound=Hashable)


def assign(
    items: Sequence[Item],
    holders: Sequence[Holder],
    current: Mapping[Item, Holder],
    wishes: Mapping[Item, Holder],
    loose: Collection[Item],
) -> dict[Item, Holder]:
    """Give every item a holder such that loads differ by at most one and the fewest items change hands.

    `current` says who holds an item now; holders that are gone may be named in it. Where it makes no
    difference to the number of changes, items in `loose` change hands first, and an item goes to the holder
    it wishes for. The result depends on nothing but the arguments and their order.
    """
    assert holders, "items need somebody to hold them"
    held: dict[Holder, list[Item]] = {holder: [] for holder in holders}
    homeless: set[Item] = set()
    for item in items:
        holder = current.get(item)
        if holder is not None and holder in held:
            held[holder].append(item)
        else:
            homeless.add(item)

    quota = _quotas(len(items), held)
    for holder, own in held.items():
        if len(own) > quota[holder]:
            own.sort(key=lambda item: item in loose)  # stable: loose ones last, otherwise as they were
            homeless.update(own[quota[holder] :])
            del own[quota[holder] :]

    for item in [item for item in items if item in homeless]:
        wish = wishes.get(item)
        if wish is not None and wish in held and len(held[wish]) < quota[wish]:
            held[wish].append(item)
            homeless.discard(item)

    rest = iter([item for item in items if item in homeless])
    for holder, own in held.items():
        while len(own) < quota[holder]:
            own.append(next(rest))
    return {item: holder for holder, own in held.items() for item in own}


def _quotas(count: int, held: Mapping[Holder, Collection[Item]]) -> dict[Holder, int]:
    """How many each may hold. The odd ones stay with those who hold most, or they would have to move."""
    share, odd = divmod(count, len(held))
    by_load = sorted(held, key=lambda holder: -len(held[holder]))
    return {holder: share + (rank < odd) for rank, holder in enumerate(by_load)}
