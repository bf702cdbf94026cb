"""The life of one message in one group, told by the rows of the group's ledger.

The rows are handed in, oldest first; `rows_about` takes those that concern one offset out of a block. A row that
moves the group (SEEK) concerns every offset, and is an event of this message only if it changed what was to become
of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from trine.model.duration import iso
from trine.queue.rows import SETTLES, Kind, unpack_block, unpack_place
from trine.trace.timeline import UNSETTLED, Event, GroupLife, State, What

STATE_OF: Final = {
    Kind.ACKED: State.ACKED,
    Kind.REJECTED: State.REJECTED,
    Kind.DEAD_LETTERED: State.DEAD_LETTERED,
    Kind.EXPIRED: State.EXPIRED,
    Kind.FILTERED: State.FILTERED,
    Kind.GONE: State.GONE,
    Kind.REDRIVEN: State.REDRIVEN,
}
assert set(STATE_OF) == SETTLES


class Told(NamedTuple):
    """One row, as far as it is about one message."""

    kind: Kind
    attempt: int
    member: str | None
    reason: str | None
    at_ms: int
    step: int
    """How far into its run the message is."""
    until: int
    first: int


def rows_about(payload: bytes | memoryview, offset: int) -> list[Told]:
    """What a block says of one offset, in order."""
    block = unpack_block(payload)
    rows = block.rows
    first = rows["first"]
    within = (first <= offset) & (offset < first + rows["count"])
    chosen = rows[within | (rows["kind"] == Kind.SEEK)]
    return [
        Told(Kind(kind), attempt, block.name(member), block.name(reason), at, offset - start, until, start)
        for kind, _, attempt, member, reason, at, start, _, until, _ in chosen.tolist()
    ]


def place_id(topic: str, place: int, step: int = 0) -> str:
    """The message id of a place in a ledger row."""
    partition, offset = unpack_place(place)
    return f"{topic}/{partition}/{offset + step}"


class _Life:
    """What the rows so far add up to."""

    def __init__(self) -> None:
        self.state = State.WAITING
        self.attempts = 0
        self.deliveries = 0
        self.member: str | None = None
        self.settled_ms: int | None = None
        self.until: int | None = None
        self.reason: str | None = None
        self.why: str | None = None
        """Why the next delivery is one more."""

    def open_again(self, why: str) -> None:
        self.state = State.WAITING
        self.attempts = 0
        self.member = self.settled_ms = self.until = self.reason = None
        self.why = why


def live(
    group: str,
    rows: Iterable[Told],
    *,
    letters: str,
    published_ms: int | None,
    due_ms: int | None,
    settled: bool,
    kept: bool = True,
    began_after: bool = False,
) -> tuple[list[Event], GroupLife]:
    """A message's events in a group, and where it stands. `letters` is the topic its dead letters go to.

    `settled` is what the ledger itself says now: a group's start, and what retention takes, write no rows.
    `began_after`: the group was to begin with what was published after this.
    """
    life = _Life()
    if began_after:
        life.state = State.SKIPPED
    events = []
    for row in rows:
        told = _tell(life, row, letters)
        if told is not None:
            what, detail = told
            shown = row.kind not in (Kind.SEEK, Kind.REOPENED) and row.attempt
            events.append(
                Event(
                    at_ms=row.at_ms,
                    what=what,
                    group=group,
                    member=row.member,
                    attempt=row.attempt if shown else None,
                    detail=detail,
                )
            )
    if settled and life.state in UNSETTLED:
        life.open_again("")
        life.state = State.SKIPPED if kept else State.GONE
    elif not settled and life.state not in UNSETTLED:
        life.state = State.WAITING
    state, at = life.state, life.settled_ms
    return events, GroupLife(
        state=state,
        attempts=life.attempts,
        deliveries=life.deliveries,
        latency_ms=None if at is None or published_ms is None else at - published_ms,
        latency_due_ms=None if at is None or due_ms is None else at - due_ms,
        member=life.member,
        settled_ms=at,
        deadline_ms=life.until if state is State.IN_FLIGHT else None,
        retry_ms=life.until if state is State.RETRYING else None,
        reason=life.reason,
    )


def _tell(life: _Life, row: Told, letters: str) -> tuple[What, str] | None:
    """Takes a row into the life; its event and detail, if it is one."""
    kind = row.kind
    if kind is Kind.DELIVERED:
        return _delivered(life, row)
    if kind is Kind.EXTENDED:
        life.until = row.until
        return What.EXTENDED, f"the lease ends {iso(row.until)}"
    if kind is Kind.NACKED or kind is Kind.RETURNED:
        life.state, life.attempts, life.until = State.RETRYING, row.attempt, row.until
        life.member, life.reason = None, row.reason
        life.why = row.reason or kind.name.lower()
        after = "at once" if row.until <= row.at_ms else f"due again {iso(row.until)}"
        return What[kind.name], f"{life.why}; {after}"
    if kind is Kind.SEEK:
        return _moved(life, row)
    if kind is Kind.REOPENED:
        if life.state in UNSETTLED and life.deliveries:
            return None  # only what is settled is opened again
        life.open_again("replay")
        return What.REOPENED, "a replay delivers it again"
    return _settled(life, row, letters)


def _delivered(life: _Life, row: Told) -> tuple[What, str]:
    again, why = life.deliveries > 0, life.why
    life.state, life.attempts, life.until = State.IN_FLIGHT, row.attempt, row.until
    life.deliveries += 1
    life.member, life.reason, life.why = row.member, None, None
    detail = f"the lease ends {iso(row.until)}"
    if not again:
        return What.DELIVERED, detail
    return What.REDELIVERED, f"{why}; {detail}" if why else detail


def _moved(life: _Life, row: Told) -> tuple[What, str] | None:
    if row.step < 0:
        if life.state not in UNSETTLED:
            return None
        life.open_again("the group was moved")
        life.state = State.SKIPPED
        return What.SEEK, f"the group was moved past it, to offset {row.first}"
    if life.state is State.WAITING:
        return None
    life.open_again("the group was moved back")
    return What.SEEK, f"the group was moved back, to offset {row.first}: it is delivered again"


def _settled(life: _Life, row: Told, letters: str) -> tuple[What, str]:
    life.state = STATE_OF[row.kind]
    life.settled_ms, life.member, life.reason = row.at_ms, row.member, row.reason
    life.until = life.why = None
    if row.attempt:
        life.attempts = row.attempt
    if row.kind is Kind.DEAD_LETTERED:
        return (
            What.DEAD_LETTERED,
            f"{row.reason or 'given up'}; it is {place_id(letters, row.until, row.step)}",
        )
    details = {
        Kind.EXPIRED: "its ttl was over before it could be delivered",
        Kind.FILTERED: "the group's header filter does not want it",
        Kind.GONE: "it was deleted before it could be delivered",
    }
    return What[row.kind.name], row.reason or details.get(row.kind, "")
