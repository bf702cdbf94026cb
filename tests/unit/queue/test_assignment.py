"""Assignment: balanced, and with the fewest changes there can be."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from trine.queue.assignment import assign

HOLDERS = "abcd"


def kept(current: dict[int, str], placed: dict[int, str]) -> int:
    return sum(1 for item, holder in placed.items() if current.get(item) == holder)


def balanced(placed: dict[int, str], holders: str) -> bool:
    loads = Counter(placed.values())
    return max(loads[holder] for holder in holders) - min(loads[holder] for holder in holders) <= 1


@given(
    owners=st.lists(st.sampled_from([*HOLDERS, "gone", None]), min_size=1, max_size=6),
    count=st.integers(1, 4),
    wish=st.sampled_from([*HOLDERS, "gone"]),
)
def test_no_balanced_assignment_changes_fewer(owners: list[str | None], count: int, wish: str) -> None:
    holders = HOLDERS[:count]
    items = range(len(owners))
    current = {item: owner for item, owner in enumerate(owners) if owner is not None}
    placed = assign(items, holders, current, {0: wish}, {1})
    assert set(placed) == set(items)
    assert balanced(placed, holders)
    possible = (dict(enumerate(choice)) for choice in product(holders, repeat=len(owners)))
    best = max(kept(current, other) for other in possible if balanced(other, holders))
    assert kept(current, placed) == best


def test_loose_items_change_hands_first_and_wishes_are_granted_where_they_cost_nothing() -> None:
    current = dict.fromkeys(range(4), "a")
    assert assign(range(4), "ab", current, {}, {0, 1}) == {0: "b", 1: "b", 2: "a", 3: "a"}
    assert assign(range(4), "ab", current, {}, ()) == {0: "a", 1: "a", 2: "b", 3: "b"}
    homeless = {0: "gone", 1: "gone"}
    assert assign(range(2), "ab", homeless, {0: "b"}, ()) == {0: "b", 1: "a"}
