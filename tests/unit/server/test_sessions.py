"""Sessions are bounded in number and time, and end with their key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trine.model.errors import Unauthenticated
from trine.server import sessions
from trine.server.keys import Principal, _Standing
from trine.server.sessions import AGE_S_MAX, IDLE_S, OF_KEY_MAX, Sessions


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def key(name: str = "root") -> Principal:
    return Principal(name, "admin", ("*",), _Standing())


def test_a_session_has_the_rights_of_its_key() -> None:
    made = Sessions()
    text = made.begin(replace(key(), role="producer", topics=("orders",)))
    found = made.find(text)
    assert found is not None
    assert found.may("publish", "orders")
    assert not found.may("publish", "other")
    assert not found.may("admin", "orders")
    for wrong in (None, "", "x", text + "x", text[:-1], "x" * 10_000, "ü"):
        assert made.find(wrong) is None


def test_a_session_that_is_not_used_ends_and_one_that_is_used_ends_later() -> None:
    clock = Clock()
    made = Sessions(clock)
    idle, used = made.begin(key()), made.begin(key())
    clock.now = IDLE_S
    assert made.find(used) is not None
    clock.now += 1
    assert made.find(idle) is None
    while clock.now + IDLE_S - 1 <= AGE_S_MAX:
        clock.now += IDLE_S - 1
        assert made.find(used) is not None
    clock.now = AGE_S_MAX + 1
    assert made.find(used) is None
    assert len(made) == 0


def test_what_a_session_lent_ends_with_it_and_with_the_key() -> None:
    made, root = Sessions(), key()
    first, second = made.begin(root), made.begin(root)
    lent, other = made.find(first), made.find(second)
    assert lent is not None
    assert other is not None
    made.end(first)
    with pytest.raises(Unauthenticated, match="log in again"):
        lent.check("read", None)
    assert other.holds
    assert root.holds
    root._standing.end()
    with pytest.raises(Unauthenticated, match="log in again"):
        other.check("read", None)
    assert made.find(second) is None


def test_one_key_cannot_end_the_sessions_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2 * OF_KEY_MAX)
    made, root, guest = Sessions(), key("root"), key("guest")
    kept = made.begin(root)
    first = made.begin(guest)
    for _ in range(OF_KEY_MAX):
        made.begin(guest)
    assert made.find(first) is None
    assert made.find(kept) is not None
    assert len(made) == OF_KEY_MAX + 1
    for number in range(2 * OF_KEY_MAX):
        made.begin(key(f"other-{number}"))
    assert len(made) == 2 * OF_KEY_MAX
    assert len(root._standing.sessions) == 0
