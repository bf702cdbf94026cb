"""A message's whole life as one ordered list of events, and how that is shown to people.

    PUBLISHED ─▶ SCHEDULED ─▶ (MOVED, CANCELLED) ─▶ DUE          before the log
    DELIVERED ─▶ EXTENDED ─▶ NACKED | RETURNED ─▶ REDELIVERED    in each group
    ACKED | REJECTED | DEAD_LETTERED | EXPIRED | FILTERED | GONE how it ended there
    SEEK, REOPENED                                               the group was moved, or replays
    REDRIVEN, PURGED                                             what became of a dead letter
    RETAINED                                                     until when the log keeps it

Only structs and text are here: whoever makes a trace reads the log and the ledgers (see `life`). Nothing is
written anywhere in order to be traced.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec

from trine.model.duration import format_ms, iso


class What(enum.StrEnum):
    PUBLISHED = "PUBLISHED"
    SCHEDULED = "SCHEDULED"
    MOVED = "MOVED"
    CANCELLED = "CANCELLED"
    DUE = "DUE"
    DELIVERED = "DELIVERED"
    EXTENDED = "EXTENDED"
    REDELIVERED = "REDELIVERED"
    NACKED = "NACKED"
    RETURNED = "RETURNED"
    ACKED = "ACKED"
    REJECTED = "REJECTED"
    DEAD_LETTERED = "DEAD_LETTERED"
    REDRIVEN = "REDRIVEN"
    PURGED = "PURGED"
    EXPIRED = "EXPIRED"
    FILTERED = "FILTERED"
    GONE = "GONE"
    SEEK = "SEEK"
    REOPENED = "REOPENED"
    RETAINED = "RETAINED"


class State(enum.StrEnum):
    """Where a message stands in a group."""

    WAITING = "waiting"
    IN_FLIGHT = "in flight"
    RETRYING = "retrying"
    ACKED = "acked"
    REJECTED = "rejected"
    DEAD_LETTERED = "dead-lettered"
    EXPIRED = "expired"
    FILTERED = "filtered"
    GONE = "gone"
    SKIPPED = "skipped"
    """The group began after it, or was moved past it: it was never to be delivered."""
    REDRIVEN = "redriven"


UNSETTLED: Final = frozenset({State.WAITING, State.IN_FLIGHT, State.RETRYING})


class Event(msgspec.Struct, frozen=True, kw_only=True):
    at_ms: int
    what: What
    group: str | None = None
    member: str | None = None
    attempt: int | None = None
    """Which delivery this is of; the first is 1."""
    detail: str = ""


class GroupLife(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message stands in one group."""

    state: State
    attempts: int = 0
    """Deliveries that count towards `max_deliveries`."""
    deliveries: int = 0
    """All deliveries, those given back unseen and those before a replay included."""
    latency_ms: int | None = None
    """From publish to settlement, once it is settled."""
    latency_due_ms: int | None = None
    """The same, from when a scheduled message was due."""
    member: str | None = None
    """Who settled it, or holds it now."""
    settled_ms: int | None = None
    deadline_ms: int | None = None
    """When the lease ends, while it is in flight."""
    retry_ms: int | None = None
    """When it is due again, while it is retrying."""
    reason: str | None = None
    """Why it is tried again, or was given up."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that happened to one message. `print(trace)` shows it; `to_dict()` is for JSON."""

    message_id: str | None
    """None while it waits for its time, or when it was cancelled."""
    schedule_id: str | None = None
    key: bytes | None = None
    published_ms: int | None = None
    """When it was given to the broker; None if the log has it no longer."""
    due_ms: int | None = None
    """The time it was, or is, scheduled for."""
    kept: bool = True
    """Whether the log (or the schedule) still has it."""
    events: list[Event] = []
    groups: dict[str, GroupLife] = {}
    links: dict[str, list[str]] = {}
    """What it came from and became: schedule, origin, dead_letters, redriven_from, redriven_to, traceparent."""

    @property
    def attempts(self) -> dict[str, int]:
        return {name: life.attempts for name, life in self.groups.items()}

    def to_dict(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, key=None))
        made["key"] = shown_key(self.key)
        for event in made["events"]:
            event["at"] = iso(event["at_ms"])
        return made

    def __str__(self) -> str:
        return render(self)


class Found(msgspec.Struct, frozen=True):
    """One message a search found, and where it stands in a group."""

    message_id: str
    key: bytes | None
    at_ms: int
    state: State | None = None
    """None when the search named neither a group nor a state."""
    group: str | None = None
    attempts: int = 0
    member: str | None = None

    def to_dict(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, key=None))
        made["key"] = shown_key(self.key)
        made["at"] = iso(self.at_ms)
        return made


def shown_key(key: bytes | None) -> str | None:
    return None if key is None else key.decode(errors="backslashreplace")


# --- for people

SINCE: Final = 1
"""The column of spans: numbers stand to the right."""


def render(trace: Trace) -> str:
    """The timeline as text: what it is, the events in columns, then a line for each group."""
    lines = [_title(trace)]
    lines += [f"  {name.replace('_', ' ')}: {', '.join(ids)}" for name, ids in trace.links.items()]
    if not trace.kept:
        lines.append("  the log has this message no longer; this is what the ledgers know of it")
    if trace.events:
        lines += ["", *_table(trace)]
    if trace.groups:
        lines.append("")
        wide = max(map(len, trace.groups))
        lines += [f"{name:<{wide}}  {told(life)}" for name, life in trace.groups.items()]
    return "\n".join(lines)


def _title(trace: Trace) -> str:
    title = trace.message_id or trace.schedule_id or "?"
    if trace.key is not None:
        title += f"  key {shown_key(trace.key)}"
    return title


def _table(trace: Trace) -> list[str]:
    start = trace.published_ms if trace.published_ms is not None else trace.events[0].at_ms
    rows = [
        (
            iso(event.at_ms),
            _since(event.at_ms - start),
            event.what.value,
            event.group or "",
            _member(event),
            event.detail,
        )
        for event in trace.events
    ]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if column == SINCE else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, wide, strict=True))
            if width
        ).rstrip()
        for row in rows
    ]


def _since(ms: int) -> str:
    return f"{'-' if ms < 0 else '+'}{format_ms(abs(ms))}"


def _member(event: Event) -> str:
    member = event.member or ""
    return f"{member} #{event.attempt}".strip() if event.attempt else member


def told(life: GroupLife) -> str:
    """A group's line: "acked by worker-1 after 2 attempts, 1.5s after it was published"."""
    told = str(life.state)
    if life.member is not None:
        told += f" {'with' if life.state is State.IN_FLIGHT else 'by'} {life.member}"
    if life.deadline_ms is not None:
        told += f" until {iso(life.deadline_ms)}"
    if life.retry_ms is not None:
        told += f", due {iso(life.retry_ms)}"
    if life.deliveries:
        told += ", " if life.state in UNSETTLED else " after "
        told += f"{life.attempts} attempt{'s' if life.attempts != 1 else ''}"
        if life.deliveries != life.attempts:
            told += f" ({life.deliveries} deliveries in all)"
    if life.latency_ms is not None:
        told += f", {format_ms(life.latency_ms)} after it was published"
    if life.latency_due_ms is not None:
        told += f", {format_ms(life.latency_due_ms)} after it was due"
    if life.reason:
        told += f": {life.reason}"
    return told
