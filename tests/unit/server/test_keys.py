"""API keys: roles, actions and topics; what is on disk; changes while the server runs; refused attempts."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, get_args

import pytest

from trine.model.errors import (
    Conflict,
    Denied,
    Forbidden,
    InvalidConfig,
    InvalidOption,
    NotFound,
    Unauthenticated,
)
from trine.server.keys import (
    ANONYMOUS,
    FORGIVEN_S,
    FREE_ATTEMPTS,
    PEERS_MAX,
    PENALTY_S_MAX,
    VERBS,
    Action,
    Keys,
    Principal,
    create_key,
    delete_key,
    is_exposed,
    matches,
    read_keys,
)

MATRIX = {
    "admin": {"admin", "publish", "consume", "read"},
    "producer": {"publish", "read"},
    "consumer": {"consume", "read"},
    "read-only": {"read"},
}


class Notes:
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self.lines.append((level, event, fields))


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "keys.yaml")


@pytest.mark.parametrize("action", get_args(Action))
@pytest.mark.parametrize("role", MATRIX)
def test_roles_and_actions(role: Any, action: Action) -> None:
    principal = Principal("k", role, ("orders*",))
    allowed = action in MATRIX[role]
    assert principal.may(action, "orders-eu") is allowed
    assert principal.may(action, "invoices") is False
    if allowed:
        principal.check(action, "orders-eu")
    else:
        with pytest.raises(
            Forbidden, match=f"'k' has the role {role}, which may not {VERBS[action]} topic 'orders-eu'"
        ):
            principal.check(action, "orders-eu")
    with pytest.raises(Forbidden):
        principal.check(action, "invoices")


def test_a_name_that_no_topic_has_is_neither_remembered_nor_told_back() -> None:
    endless = "orders" + "x" * 100_000
    before = matches.cache_info().misses
    with pytest.raises(Forbidden) as caught:
        Principal("k", "consumer", ("orders*",)).check("read", endless)
    assert len(str(caught.value)) < 500
    assert Principal("k", "consumer", ("*",)).may("read", endless), "the engine says what is wrong with it"
    assert matches.cache_info().misses == before
    longest = "orders" + "x" * 194 + ".dlq"
    assert Principal("k", "consumer", ("orders*",)).may("read", longest)


@pytest.mark.parametrize(
    ("globs", "topic", "matches"),
    [
        (("*",), "anything", True), (("orders",), "orders", True), (("orders",), "orders-eu", False),
        (("orders*",), "orders-eu", True), (("orders",), "orders.dlq", True), (("orders*",), "orders-eu.dlq", True),
        (("orders.dlq",), "orders.dlq", True), (("orders.dlq",), "orders", False), (("a", "b"), "b", True),
        (("Orders",), "orders", False), (("orders",), "xorders", False),
    ],
)  # fmt: skip
def test_globs(globs: tuple[str, ...], topic: str, matches: bool) -> None:
    assert Principal("k", "read-only", globs).may("read", topic) is matches


def test_what_is_about_the_whole_server_needs_an_admin_of_all_topics() -> None:
    assert ANONYMOUS.may("admin", None)
    assert Principal("k", "read-only", ("orders",)).may("read", None)
    with pytest.raises(Forbidden, match="is for orders, and this is about the whole server"):
        Principal("k", "admin", ("orders",)).check("admin", None)


def test_a_key_comes_in_and_its_secret_is_not_on_disk(file: str) -> None:
    key = create_key(file, role="producer", topics=["orders*", "mail"], id="shop")
    assert key.startswith("trine_shop_")
    secret = key.removeprefix("trine_shop_")
    assert len(secret) >= 43
    assert secret not in Path(file).read_text()
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert not is_exposed(file)
    assert Keys(file).authenticate(key, "10.0.0.9") == Principal("shop", "producer", ("orders*", "mail"))


def test_equal_files_never_have_equal_hashes(file: str) -> None:
    create_key(file, role="admin", id="a")
    create_key(file, role="admin", id="b")
    a, b = read_keys(file).values()
    assert a.salt != b.salt
    assert not b.proves("")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "missing"), ("", "missing"), ("hello", "malformed"), ("trine_shop", "malformed"),
        ("trine__x", "malformed"), ("trine_../../etc_x", "malformed"), ("kafka_shop_x", "malformed"),
        ("trine_other_x", "unknown"), ("trine_shop_wrong", "wrong"), ("trine_shop_" + "x" * 100_000, "wrong"),
    ],
)  # fmt: skip
def test_who_is_refused_is_counted_and_logged_without_the_key(file: str, text: str | None, why: str) -> None:
    create_key(file, role="admin", id="shop")
    notes, counted = Notes(), []
    keys = Keys(file, log=notes, refused=counted.append)
    with pytest.raises(Unauthenticated) as caught:
        keys.authenticate(text, "10.0.0.9")
    assert counted == [why]
    ((level, event, fields),) = notes.lines
    assert (level, event, fields["peer"], fields["why"]) == ("warning", "refused", "10.0.0.9", why)
    for told in (str(fields), str(caught.value)):
        assert "wrong" not in told.replace("'why': 'wrong'", "")
        assert "xxx" not in told


def test_without_keys_only_this_machine_comes_in() -> None:
    counted: list[str] = []
    keys = Keys(refused=counted.append)
    assert keys.authenticate(None, "127.0.0.1") is ANONYMOUS
    assert keys.authenticate("trine_any_thing", "::1") is ANONYMOUS
    for peer in ("10.0.0.9", "", "testclient"):
        with pytest.raises(Unauthenticated, match="only its own machine"):
            keys.authenticate(None, peer)
    assert counted == ["not_local"] * 3


def test_with_an_empty_file_nobody_comes_in(file: str) -> None:
    Path(file).write_text("keys: []\n")
    with pytest.raises(Unauthenticated):
        Keys(file).authenticate(None, "127.0.0.1")


def test_forbidden_is_counted_too(file: str) -> None:
    key = create_key(file, role="consumer", id="c")
    notes, counted = Notes(), []
    principal = Keys(file, log=notes, refused=counted.append).authenticate(key, "127.0.0.1")
    for _ in range(100):
        with pytest.raises(Forbidden):
            principal.check("publish", "orders")
    assert counted == ["forbidden"] * 100
    assert len(notes.lines) == 13  # 1 to 10, 16, 32, 64: a flood is told, not repeated


def test_changes_of_the_file_are_noticed(file: str) -> None:
    first = create_key(file, role="admin", id="first")
    notes = Notes()
    keys = Keys(file, log=notes)
    principal = keys.authenticate(first, "127.0.0.1")
    assert keys.refresh() is False
    second = create_key(file, role="read-only", id="second")
    assert keys.refresh() is True
    assert keys.authenticate(second, "127.0.0.1").role == "read-only"
    assert keys.authenticate(first, "127.0.0.1") is principal, "a key that did not change stays who it was"

    delete_key(file, "first")
    assert keys.refresh() is True
    with pytest.raises(Unauthenticated):
        keys.authenticate(first, "127.0.0.1")
    with pytest.raises(Unauthenticated, match="was deleted or changed"):  # on an open connection too
        principal.check("read", "orders")
    assert not principal.may("read", "orders")


def test_a_file_that_is_off_changes_nothing(file: str) -> None:
    key = create_key(file, role="admin", id="a")
    notes = Notes()
    keys = Keys(file, log=notes)
    for broken in ("keys: [", "keys: [{id: a}]", "[]", "keys: [{id: 'a b', role: admin, topics: ['*']}]"):
        Path(file).write_text(broken + " " * len(notes.lines))
        assert keys.refresh() is False
    os.unlink(file)
    assert keys.refresh() is False
    assert keys.authenticate(key, "127.0.0.1").id == "a"
    assert [level for level, _, _ in notes.lines] == ["error"] * 5
    with pytest.raises(InvalidConfig):
        Keys(file)


def test_a_peer_that_fails_often_waits_and_nobody_else_does(file: str) -> None:
    create_key(file, role="admin", id="a")
    now = [0.0]
    keys = Keys(file, clock=lambda: now[0])
    waits = []
    for _ in range(FREE_ATTEMPTS + 12):
        with pytest.raises(Denied):
            keys.authenticate("trine_a_guess", "10.0.0.9")
        waits.append(keys.penalty_s("10.0.0.9"))
    assert waits[:FREE_ATTEMPTS] == [0.0] * FREE_ATTEMPTS
    assert waits == sorted(waits)
    assert 0 < waits[FREE_ATTEMPTS] < waits[-1] == PENALTY_S_MAX
    assert keys.penalty_s("10.0.0.8") == 0.0
    now[0] += FORGIVEN_S + 1
    assert keys.penalty_s("10.0.0.9") == 0.0


def test_peers_are_remembered_in_bounds(file: str) -> None:
    keys = Keys()
    for number in range(PEERS_MAX + 100):
        with pytest.raises(Denied):
            keys.authenticate(None, f"10.1.{number >> 8}.{number & 255}")
    assert len(keys._refusals) == PEERS_MAX


def test_ids_roles_and_patterns_are_checked(file: str) -> None:
    for bad in ("a_b", "a b", "", "../x", "x" * 65):
        with pytest.raises(InvalidOption, match="a key's id"):
            create_key(file, role="admin", id=bad)
    with pytest.raises(InvalidOption, match="the roles are: admin, producer"):
        create_key(file, role="root")
    for bad in ("a/b", "", "a b"):
        with pytest.raises(InvalidOption, match="matches no topic"):
            create_key(file, role="admin", topics=[bad])
    with pytest.raises(InvalidOption):
        create_key(file, role="admin", topics=[])
    create_key(file, role="admin", id="a")
    with pytest.raises(Conflict, match="there is a key 'a' already"):
        create_key(file, role="admin", id="a")
    with pytest.raises(NotFound, match="there are: a"):
        delete_key(file, "b")


def test_json_files_work_too(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.json")
    key = create_key(path, role="admin")
    assert Path(path).read_text().startswith("{")
    assert Keys(path).authenticate(key, "127.0.0.1").role == "admin"


def test_a_file_others_may_change_is_told(file: str) -> None:
    create_key(file, role="admin")
    os.chmod(file, 0o622)
    assert is_exposed(file)
