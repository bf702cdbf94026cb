"""The life of a message as its ledger's rows tell it, one at a time and in bulk, and the timeline's text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.model.clock import SIMULATED_START_MS
from trine.queue.ledger import Ledger
from trine.queue.rows import Kind, Row
from trine.trace.life import Told, live, place_id, rows_about
from trine.trace.standing import Standing
from trine.trace.timeline import UNSETTLED, Event, Found, GroupLife, State, Trace, What, told

T0 = SIMULATED_START_MS
NAMES = ["worker-1", "db down"]


def block(*rows: Row) -> bytes:
    packed = Ledger()
    for name in NAMES:
        packed.name(name)
    packed.commit(rows, packed.change(rows))
    made = packed.open_block()
    assert made is not None
    return made


def row(
    kind: Kind, at: int, *, first: int = 5, count: int = 1, attempt: int = 1, until: int = 0, why: int = 0
) -> Row:
    return Row(kind, 1, attempt, 1, why, T0 + at, first, count, until, -1)


def lived(
    *rows: Row, settled: bool = True, kept: bool = True, began_after: bool = False
) -> tuple[list[Event], GroupLife]:
    return live(
        "billing",
        rows_about(block(*rows), 5),
        letters="orders.dlq",
        published_ms=T0,
        due_ms=None,
        settled=settled,
        kept=kept,
        began_after=began_after,
    )


def test_delivered_and_acked() -> None:
    events, life = lived(
        row(Kind.DELIVERED, 10, first=0, count=100, until=T0 + 30_010), row(Kind.ACKED, 250, first=4, count=2)
    )
    assert [(event.what, event.member, event.attempt) for event in events] == [
        ("DELIVERED", "worker-1", 1),
        ("ACKED", "worker-1", 1),
    ]
    assert life.state is State.ACKED
    assert (life.attempts, life.deliveries, life.latency_ms, life.member) == (1, 1, 250, "worker-1")


def test_rows_of_other_messages_are_not_told() -> None:
    payload = block(
        row(Kind.DELIVERED, 1, first=0, count=5), row(Kind.DELIVERED, 1, first=6), row(Kind.ACKED, 2)
    )
    assert [told.kind for told in rows_about(payload, 5)] == [Kind.ACKED]


def test_a_redelivery_says_why() -> None:
    events, life = lived(
        row(Kind.DELIVERED, 0, until=T0 + 30_000),
        row(Kind.NACKED, 5, why=2, until=T0 + 1_005),
        row(Kind.DELIVERED, 1_005, attempt=2, until=T0 + 31_005),
        row(Kind.EXTENDED, 1_010, attempt=2, until=T0 + 60_000),
        settled=False,
    )
    assert [event.what for event in events] == ["DELIVERED", "NACKED", "REDELIVERED", "EXTENDED"]
    assert events[2].detail.startswith("db down")
    assert life.state is State.IN_FLIGHT
    assert (life.attempts, life.deadline_ms, life.latency_ms) == (2, T0 + 60_000, None)


def test_while_it_is_retrying_the_due_time_is_known() -> None:
    _, life = lived(row(Kind.DELIVERED, 0), row(Kind.NACKED, 5, why=2, until=T0 + 1_005), settled=False)
    assert (life.state, life.retry_ms, life.reason, life.member) == (
        State.RETRYING,
        T0 + 1_005,
        "db down",
        None,
    )


def test_a_delivery_given_back_unseen_does_not_count_as_an_attempt() -> None:
    _, life = lived(
        row(Kind.DELIVERED, 0), row(Kind.RETURNED, 1, attempt=0), row(Kind.DELIVERED, 2), row(Kind.ACKED, 3)
    )
    assert (life.attempts, life.deliveries) == (1, 2)


def test_a_dead_letter_of_a_run_has_its_own_id() -> None:
    events, life = lived(
        row(Kind.DELIVERED, 0, first=3, count=4),
        row(Kind.DEAD_LETTERED, 7, first=3, count=4, why=2, until=2 << 48 | 40),
    )
    assert events[-1].detail == "db down; it is orders.dlq/2/42"
    assert (life.state, life.reason, life.latency_ms) == (State.DEAD_LETTERED, "db down", 7)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (Kind.EXPIRED, "expired"),
        (Kind.FILTERED, "filtered"),
        (Kind.GONE, "gone"),
        (Kind.REJECTED, "rejected"),
    ],
)
def test_other_ends(kind: Kind, state: str) -> None:
    events, life = lived(row(kind, 9, attempt=0))
    assert events[0].what == kind.name
    assert events[0].attempt is None
    assert life.state == state
    assert life.latency_ms == 9


def test_a_seek_is_an_event_only_where_it_changed_something() -> None:
    forward, life = lived(row(Kind.SEEK, 1, first=9, count=0, attempt=0))
    assert [event.what for event in forward] == ["SEEK"]
    assert life.state is State.SKIPPED
    over_it_before, _ = lived(row(Kind.SEEK, 1, first=2, count=0, attempt=0), settled=False)
    assert over_it_before == []
    done, life = lived(row(Kind.ACKED, 1), row(Kind.SEEK, 2, first=9, count=0, attempt=0))
    assert [event.what for event in done] == ["ACKED"]
    assert life.state is State.ACKED


def test_a_seek_back_delivers_again() -> None:
    events, life = lived(
        row(Kind.DELIVERED, 0),
        row(Kind.ACKED, 1),
        row(Kind.SEEK, 2, first=0, count=0, attempt=0),
        row(Kind.DELIVERED, 3),
        row(Kind.ACKED, 4),
    )
    assert [event.what for event in events] == ["DELIVERED", "ACKED", "SEEK", "REDELIVERED", "ACKED"]
    assert "moved back" in events[3].detail
    assert (life.attempts, life.deliveries, life.latency_ms) == (1, 2, 4)


def test_a_replay_opens_it_again() -> None:
    events, life = lived(
        row(Kind.DELIVERED, 0), row(Kind.ACKED, 1), row(Kind.REOPENED, 2, attempt=0), settled=False
    )
    assert [event.what for event in events] == ["DELIVERED", "ACKED", "REOPENED"]
    assert (life.state, life.latency_ms, life.member) == (State.WAITING, None, None)


def test_settled_without_a_row() -> None:
    assert lived(row(Kind.DELIVERED, 0, first=6))[1].state is State.SKIPPED
    assert lived(row(Kind.DELIVERED, 0), kept=False)[1].state is State.GONE


def test_a_group_that_began_later_passes_over_it_until_it_is_moved_back() -> None:
    assert lived(row(Kind.ACKED, 0, first=8), began_after=True)[1].state is State.SKIPPED
    events, life = lived(row(Kind.SEEK, 1, first=0, count=0, attempt=0), began_after=True, settled=False)
    assert [event.what for event in events] == ["SEEK"]
    assert life.state is State.WAITING


def test_places() -> None:
    assert place_id("orders.dlq", 3 << 48 | 17, 2) == "orders.dlq/3/19"


# --- in bulk

KINDS = [kind for kind in Kind if kind not in (Kind.DELIVERED, Kind.EXTENDED, Kind.NACKED, Kind.RETURNED)]


@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(0, 11), st.integers(1, 4)), min_size=1, max_size=30
    ),
    st.integers(1, 5),
    st.booleans(),
)
def test_the_bulk_form_agrees_with_the_single_one(
    steps: list[tuple[Kind, int, int]], per_block: int, singles: bool
) -> None:
    rows = [
        Row(kind, 0, 1, 1, 0, T0 + at, first, 0 if kind is Kind.SEEK else 1 if singles else count, 0, -1)
        for at, (kind, first, count) in enumerate(steps)
    ]
    ledger = Ledger()
    for one in rows:
        ledger.apply(one)
    blocks = [block(*rows[at : at + per_block]) for at in range(0, len(rows), per_block)]
    standing = Standing(4, 6)
    for payload in blocks:
        standing.add(payload)
    for offset in range(4, 10):
        about: list[Told] = [one for payload in blocks for one in rows_about(payload, offset)]
        _, life = live(
            "g", about, letters="x.dlq", published_ms=T0, due_ms=None, settled=ledger.is_settled(offset)
        )
        assert (life.state in UNSETTLED) is not ledger.is_settled(offset)
        if ledger.is_settled(offset):
            assert standing.settled(offset)[0] is life.state


def test_the_bulk_form_knows_member_and_attempt() -> None:
    standing = Standing(0, 10)
    standing.add(block(row(Kind.ACKED, 1, attempt=3)))
    assert standing.settled(5) == (State.ACKED, 3, "worker-1")
    assert standing.settled(6) == (State.SKIPPED, 0, None)


# --- for people

TRACE = Trace(
    message_id="orders/2/1841",
    key=b"c-7",
    published_ms=T0,
    events=[
        Event(at_ms=T0, what=What.PUBLISHED),
        Event(at_ms=T0 + 20, what=What.DELIVERED, group="billing", member="worker-1", attempt=1),
        Event(
            at_ms=T0 + 1_520,
            what=What.NACKED,
            group="billing",
            member="worker-1",
            attempt=1,
            detail="db down",
        ),
    ],
    groups={
        "billing": GroupLife(
            state=State.RETRYING, attempts=1, deliveries=1, retry_ms=T0 + 2_000, reason="db down"
        )
    },
    links={"schedule": ["orders@494221-17"]},
)


def test_the_timeline_as_text() -> None:
    assert str(TRACE) == (
        "orders/2/1841  key c-7\n"
        "  schedule: orders@494221-17\n"
        "\n"
        "2026-01-01T00:00:00.000Z   +0 ms  PUBLISHED\n"
        "2026-01-01T00:00:00.020Z  +20 ms  DELIVERED  billing  worker-1 #1\n"
        "2026-01-01T00:00:01.520Z  +1.52s  NACKED     billing  worker-1 #1  db down\n"
        "\n"
        "billing  retrying, due 2026-01-01T00:00:02.000Z, 1 attempt: db down"
    )


def test_what_the_log_has_no_longer_is_said() -> None:
    assert "the log has this message no longer" in str(Trace(message_id="orders/0/1", kept=False))


def test_as_json() -> None:
    made = json.loads(json.dumps(TRACE.to_dict()))
    assert made["key"] == "c-7"
    assert made["events"][1]["what"] == "DELIVERED"
    assert made["events"][1]["at"] == "2026-01-01T00:00:00.020Z"
    assert made["groups"]["billing"]["state"] == "retrying"
    found = Found("orders/0/1", b"\xff", T0, State.IN_FLIGHT, "billing", 1, "worker-1")
    assert json.loads(json.dumps(found.to_dict()))["key"] == "\\xff"


@pytest.mark.parametrize(
    ("life", "text"),
    [
        (GroupLife(state=State.WAITING), "waiting"),
        (
            GroupLife(state=State.IN_FLIGHT, attempts=2, deliveries=3, member="w", deadline_ms=T0),
            "in flight with w until 2026-01-01T00:00:00.000Z, 2 attempts (3 deliveries in all)",
        ),
        (
            GroupLife(
                state=State.ACKED, attempts=1, deliveries=1, member="w", latency_ms=90_000, latency_due_ms=5
            ),
            "acked by w after 1 attempt, 1m 30s after it was published, 5 ms after it was due",
        ),
    ],
)
def test_a_groups_line(life: GroupLife, text: str) -> None:
    assert told(life) == text
