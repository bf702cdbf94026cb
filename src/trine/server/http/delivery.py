"""Receive and settle over HTTP, where a consumer is a name and not a connection.

A member lives as long as it asks, and as long as it holds leases: nobody knows whether a silent one is still at work,
so its leases end by their deadlines alone. `Presence` remembers who that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from litestar import Request

from trine.broker.group import GroupState
from trine.broker.group_part import GroupPart, Leased, Run, once
from trine.broker.operations import find_run
from trine.log.stored import LogMessage
from trine.model import limits
from trine.model.durability import Level
from trine.model.duration import iso
from trine.model.errors import InvalidOption, TrineError
from trine.model.ids import check_name
from trine.model.options import GroupConfig
from trine.model.receipt import Receipt, write_receipts
from trine.server.context import Context
from trine.server.http.bodies import Delivered, Show, fields_of
from trine.server.http.publishing import topic_of
from trine.server.http.reading import ANSWER_BYTES_MAX
from trine.server.http.waiting import first_of, ringing, watching
from trine.server.keys import Principal, check_group

Runs = list[tuple[GroupPart, Run]]
Settle = Callable[[GroupState, Runs, int], int | None]

SWEEP_SECONDS: Final = 1.0
"""How often members that fell silent are looked for; their timeout is seconds."""


class Presence:
    """Members that came over HTTP, and when each last asked."""

    def __init__(self) -> None:
        self._seen: dict[tuple[GroupState, str], int] = {}

    def seen(self, group: GroupState, member: str, now: int) -> None:
        """Under the engine's lock."""
        self._seen[group, member] = now
        group.present.add(member)

    def sweep(self, now: int) -> None:
        """Gives up those who neither ask nor hold anything. Under the engine's lock."""
        for (group, member), at in list(self._seen.items()):
            silent = now - at > group.config.member_timeout_ms
            if group.deleted:
                del self._seen[group, member]
            elif silent and not any(part.ledger.leases_of(member) for part in group.parts):
                del self._seen[group, member]
                if not group._consumers.get(member):  # another way in may have a member of the same name
                    group.present.discard(member)

    async def run(self, context: Context) -> None:
        while not context.closing.is_set():
            await asyncio.sleep(SWEEP_SECONDS)
            engine = context.engine
            with engine.lock:
                if engine.closed:
                    return
                self.sweep(engine.clock.now_ms())


def member_name(given: str | None, principal: Principal) -> str:
    return check_name(given, "member") if given is not None else f"http-{principal.id}"


def group_of(context: Context, topic: str, name: str, *, create: bool = False) -> GroupState:
    """Under the engine's lock. A receive creates the group, as the first consumer does everywhere."""
    state = topic_of(context, topic)
    if create:
        check_group(name)
    if create and name not in state.groups:
        config = GroupConfig.make(context.config.group_defaults())
        return context.engine.create_group(state, check_name(name, "group"), config)
    return context.engine.group(state, name)


async def receive(
    context: Context,
    presence: Presence,
    request: Request[Any, Any, Any],
    topic: str,
    name: str,
    member: str,
    most: int,
    wait_ms: int,
    show: Show,
) -> list[Delivered]:
    """Leases up to `most`; waits for the first. A client that went away meanwhile is given nothing."""
    engine = context.engine
    with engine.lock:
        group = group_of(context, topic, name, create=True)
        leased = _lease(context, presence, group, member, most)
    if not leased and wait_ms:
        leased = await _wait(context, presence, request, group, member, most, wait_ms)
    return [one for run in leased for one in delivered(group, run, show)]


async def _wait(
    context: Context,
    presence: Presence,
    request: Request[Any, Any, Any],
    group: GroupState,
    member: str,
    most: int,
    wait_ms: int,
) -> list[Leased]:
    engine = context.engine
    deadline = engine.clock.now_ms() + wait_ms
    with ringing(engine, group.listeners) as bell:
        async with watching(request) as gone:
            while not context.closing.is_set():
                bell.clear()
                with engine.lock:
                    leased = _lease(context, presence, group, member, most)
                    now = engine.clock.now_ms()
                    event = group.next_event()
                if leased or now >= deadline:
                    return leased
                # Asking is what keeps a member alive: a long wait asks again in between.
                until = min(deadline, now + group.config.member_timeout_ms // 3)
                until = until if event is None else min(until, event)
                await first_of(context, bell, max(until - now, 1), gone)
                if gone.done():
                    return []
    return []


def _lease(context: Context, presence: Presence, group: GroupState, member: str, most: int) -> list[Leased]:
    """Under the engine's lock."""
    engine = context.engine
    engine.check_open()
    now = engine.clock.now_ms()
    leased = group.receive(member, fitting(group, most), now)
    presence.seen(group, member, now)
    return leased


def fitting(group: GroupState, most: int) -> int:
    """How many messages of the topic's usual size fit one answer."""
    counts = group.topic.counts() if most > 1 else {"messages": 0, "bytes": 0}
    if not counts["messages"]:
        return most
    usual = max(counts["bytes"] // counts["messages"], 1)
    return min(most, max(ANSWER_BYTES_MAX // usual, 1))


def delivered(group: GroupState, leased: Leased, show: Show) -> list[Delivered]:
    part, lease, records = leased
    origin = part.partition.origin
    deadline = iso(lease.deadline)
    first = Receipt(origin.topic, group.name, origin.partition, 0, lease.attempt, lease.number)
    receipts = write_receipts(first, group.receipt_key, [record.offset for record in records])
    return [
        Delivered(
            **fields_of(LogMessage(record, origin, lease.lane), show),
            receipt=receipt,
            attempt=lease.attempt,
            deadline=deadline,
            deadline_ms=lease.deadline,
        )
        for record, receipt in zip(records, receipts, strict=True)
    ]


# --- settle


async def settle(
    context: Context, topic: str, name: str, receipts: Sequence[str], how: Settle
) -> tuple[int, str, list[tuple[str, TrineError]]]:
    """(how many, how durable, which were not settled and why). If none was, the first one's error is raised."""
    count, durability, failed, lsn = settle_at_once(context, topic, name, receipts, how)
    if lsn is not None:
        await context.commits.durable(lsn)
    return count, durability, failed


def settle_at_once(
    context: Context, topic: str, name: str, receipts: Sequence[str], how: Settle
) -> tuple[int, str, list[tuple[str, TrineError]], int | None]:
    """As `settle`, with the lsn that is yet to be synced before it may be answered; None: there is none."""
    if len(receipts) > limits.RECEIVE_MAX:
        raise InvalidOption(f"there are {len(receipts)} receipts; one request takes {limits.RECEIVE_MAX}")
    engine = context.engine
    failed: list[tuple[str, TrineError]] = []
    with engine.lock:
        engine.check_open()
        group = group_of(context, topic, name)
        now = engine.clock.now_ms()
        try:
            runs = once([find_run(engine, group, text) for text in receipts])
            lsn, count = how(group, runs, now), len(runs)
        except TrineError as error:
            if len(receipts) == 1:
                raise
            lsn, count, failed = _settle_singly(engine, group, receipts, how, now)
            if not count:
                raise failed[0][1] from error
    return count, engine.durability(group.level), failed, lsn if group.level is Level.SYNCED else None


def _settle_singly(
    engine: Any, group: GroupState, receipts: Sequence[str], how: Settle, now: int
) -> tuple[int | None, int, list[tuple[str, TrineError]]]:
    """One stale receipt must not keep the others from being settled."""
    last, count = None, 0
    failed: list[tuple[str, TrineError]] = []
    for text in dict.fromkeys(receipts):
        try:
            last = how(group, [find_run(engine, group, text)], now)
            count += 1
        except TrineError as error:
            failed.append((text, error))
    return last, count, failed
