"""The hot commands: done at once, in the burst they came with, under the engine's lock and without a task.

What must be synced is answered by the group commit; what must wait for a message is parked at its desk, what must wait
for a log to grow among the reads. Only a publish that waits for room in a full topic becomes a task.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from trine.broker.topic import TopicState
from trine.model.clock import SimulatedClock
from trine.model.durability import Level
from trine.model.errors import InvalidOption, StaleMetadata, TopicFull, TrineError
from trine.model.limits import FRAME_BYTES_MAX, KIB, MIB, RECEIVE_MAX
from trine.server.calls import answer
from trine.server.reads import PendingRead
from trine.wire import bodies
from trine.wire.bodies import SERVER_CHOOSES, TOPICS_OWN, Bytes, Held, Publish
from trine.wire.calls import read_call
from trine.wire.frames import Command, Frame, WireError

if TYPE_CHECKING:
    from trine.server.connection import Connection
    from trine.server.deliveries import Run, Session

READ_BYTES_MAX: Final = 8 * MIB
"""What one READ answers with at the most; a batch that is larger goes alone."""
assert READ_BYTES_MAX * 3 < FRAME_BYTES_MAX
WAITING_BYTES_MAX: Final = 32 * MIB
"""Batches of one connection that wait for room in full topics; beyond it they are refused at once."""
SMALL_BYTES_MAX: Final = 16 * KIB
"""Publishes up to this size are collected by the journal until the tick's sync: one write for many."""
LOOK_AGAIN_MS: Final = 500
"""Who waits for room looks at least this often whether the server is closing."""
CREDITS_MAX: Final = 2**31
REACHED: Final = {"memory": 0, "written": 1, "synced": 2}
LEVELS: Final = (Level.MEMORY, Level.WRITTEN, Level.SYNCED)
NACK, REJECT, EXTEND = 1, 2, 3

Copies = list[tuple[int | None, bytearray]]
"""Batches that outlive the buffer they came in, each with its partition."""


class Turn:
    """Publishes of one connection that wait for room in one topic: one after the other, as they came."""

    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


def ping(connection: Connection, frame: Frame) -> None:
    connection.reply(Command.PING, frame.correlation)


def call(connection: Connection, frame: Frame) -> None:
    try:
        asked = read_call(frame.body)
    except WireError as error:  # the frame is sound: only this call is not
        connection.fail(Command.CALL, frame.correlation, error)
        return
    connection.spawn(Command.CALL, frame.correlation, answer(connection, asked))


# --- in


def publish(connection: Connection, frame: Frame) -> None:
    given = bodies.read_publish(frame.body)
    connection.check("publish", given.topic)
    topic = connection.context.engine.topic(given.topic)
    level = _level(given.durability, topic)
    _check_version(connection, given, topic)
    copies: Copies = [
        (None if partition == SERVER_CHOOSES else partition, bytearray(data))
        for partition, data in given.batches
    ]
    if (
        given.wait_ms and given.topic in connection.full_topics
    ):  # behind those that wait already: order is kept
        _wait_for_room(connection, frame.correlation, given, copies, level)
        return
    # What is synced with all of this tick need not be written alone before.
    small = level is Level.SYNCED and len(frame.body) <= SMALL_BYTES_MAX
    try:
        placed, lsn = topic.publish_batches(copies, Level.MEMORY if small else level)
    except TopicFull:
        if not given.wait_ms:
            raise
        if isinstance(connection.context.engine.clock, SimulatedClock):
            placed, lsn = _after_waiting(connection, topic, given.wait_ms, copies, level)
        else:
            _wait_for_room(connection, frame.correlation, given, copies, level)
            return
    body = bodies.write_published(REACHED[connection.context.engine.durability(level)], placed)
    if level is Level.SYNCED:
        connection.reply_when_durable(lsn, Command.PUBLISH, frame.correlation, body)
    else:
        connection.reply(Command.PUBLISH, frame.correlation, body)


def _level(durability: int, topic: TopicState) -> Level:
    return Level[topic.config.durability.upper()] if durability == TOPICS_OWN else LEVELS[durability]


def _check_version(connection: Connection, given: Publish, topic: TopicState) -> None:
    if given.version and given.version != connection.listener.version_of(topic):
        raise StaleMetadata(f"topic {topic.name!r} was altered since; fetch it anew and publish again")


def _after_waiting(
    connection: Connection, topic: TopicState, wait_ms: int, copies: Copies, level: Level
) -> tuple[list[tuple[int, int, int]], int]:
    """On simulated time the wait is over at once: nobody else is there to make room."""
    connection.pass_time(wait_ms)
    return topic.publish_batches(copies, level)


def _wait_for_room(
    connection: Connection, correlation: int, given: Publish, copies: Copies, level: Level
) -> None:
    size = sum(len(data) for _, data in copies)
    if connection.waiting_bytes + size > WAITING_BYTES_MAX:
        raise TopicFull(
            f"topic {given.topic!r} is full, and {connection.waiting_bytes} bytes of this connection wait for room "
            "already; publish again later"
        )
    connection.waiting_bytes += size
    turn = connection.full_topics.get(given.topic)
    if turn is None:
        turn = connection.full_topics[given.topic] = Turn()
    turn.waiting += 1
    work = _publish_later(connection, turn, given, copies, level, size)
    connection.spawn(Command.PUBLISH, correlation, work)


async def _publish_later(
    connection: Connection, turn: Turn, given: Publish, copies: Copies, level: Level, size: int
) -> list[Bytes]:
    context = connection.context
    engine = context.engine
    deadline = engine.clock.now_ms() + given.wait_ms
    try:
        async with turn.lock:
            placed, lsn = await _when_there_is_room(connection, given.topic, copies, level, deadline)
    finally:
        connection.waiting_bytes -= size
        turn.waiting -= 1
        if not turn.waiting:
            connection.full_topics.pop(given.topic, None)
    if level is Level.SYNCED:
        await context.commits.durable(lsn)
    return [bodies.write_published(REACHED[engine.durability(level)], placed)]


async def _when_there_is_room(
    connection: Connection, name: str, copies: Copies, level: Level, deadline: int
) -> tuple[list[tuple[int, int, int]], int]:
    context = connection.context
    engine = context.engine
    while True:
        with engine.lock:
            topic = engine.topic(name)
            try:
                return topic.publish_batches(copies, level)
            except TopicFull:
                left = deadline - engine.clock.now_ms()
                if left <= 0 or connection.leaving:
                    raise
        await context.broker._waits.room(topic, min(left, LOOK_AGAIN_MS))


# --- out


def receive(connection: Connection, frame: Frame) -> None:
    number, most, wait_ms = bodies.read_receive(frame.body)
    session = connection.session(number)
    if not 1 <= most <= RECEIVE_MAX:
        raise InvalidOption(f"max is {most}; it must be 1 to {RECEIVE_MAX}")
    engine = connection.context.engine
    runs = session.desk.lease(session.member, most, engine.clock.now_ms())
    if not runs and wait_ms and not connection.leaving:
        if not isinstance(engine.clock, SimulatedClock):
            connection.check_parked()
            session.park(frame.correlation, most, wait_ms)
            return
        runs = _receive_later(connection, session, most, wait_ms)
    connection.delivered(frame.correlation, bodies.write_delivery(number, runs))


def _receive_later(connection: Connection, session: Session, most: int, wait_ms: int) -> list[Run]:
    """On simulated time a wait passes at once, from one event to the next."""
    engine, housekeeper = connection.context.engine, connection.context.broker._housekeeper
    now = engine.clock.now_ms()
    deadline = now + wait_ms
    while now < deadline:
        connection.pass_time(housekeeper.pause_ms(now, deadline, session.group.next_event()))
        now = engine.clock.now_ms()
        runs = session.desk.lease(session.member, most, now)
        if runs:
            return runs
    return []


def start(connection: Connection, frame: Frame) -> None:
    number, credits, most = bodies.read_start(frame.body)
    connection.session(number).start(min(credits, CREDITS_MAX), most)
    connection.reply(Command.START, frame.correlation)


def credit(connection: Connection, frame: Frame) -> None:
    """Has no reply: what is wrong with it is told as the end of the push."""
    number, credits = bodies.read_credit(frame.body)
    session = connection.sessions.get(number)
    if session is None or session.push is None:  # it was just stopped or left
        return
    try:
        connection.session(number)
    except TrineError as error:
        session.push.fail(error)
    else:
        session.credit(min(credits, CREDITS_MAX - session.push.credits))


def stop(connection: Connection, frame: Frame) -> None:
    connection.session(bodies.read_stop(frame.body)).stop()
    connection.reply(Command.STOP, frame.correlation)


def ack(connection: Connection, frame: Frame) -> None:
    """Noted only: the acks of a burst become one entry of the journal."""
    number, held = bodies.read_ack(frame.body)
    connection.acks.append((frame.correlation, connection.session(number), held))


def settle_acks(connection: Connection) -> None:
    """What `ack` noted, before anything that came after it is done. An ack that is off spoils no other."""
    noted, connection.acks = connection.acks, []
    by_session: dict[Session, list[tuple[int, list[Held]]]] = {}
    for correlation, session, held in noted:
        by_session.setdefault(session, []).append((correlation, held))
    for session, acks in by_session.items():
        try:
            _ack_together(connection, session, acks)
        except TrineError:
            for one in acks:
                connection.attempt(Command.ACK, one[0], _ack_together, connection, session, [one])


def _ack_together(connection: Connection, session: Session, acks: list[tuple[int, list[Held]]]) -> None:
    engine, group = connection.context.engine, session.group
    held = _joined(acks)
    lsn = group.ack_held(held, engine.clock.now_ms()) if held else 0
    reached = REACHED[engine.durability(group.level)]
    replies = [
        (correlation, _settled_body(sum(one[3] for one in some), reached)) for correlation, some in acks
    ]
    if group.level is Level.SYNCED:
        connection.reply_all_when_durable(lsn, Command.ACK, replies)
    else:
        for correlation, body in replies:
            connection.reply(Command.ACK, correlation, body)


def _joined(acks: list[tuple[int, list[Held]]]) -> list[Held]:
    """All runs of these acks; those that continue each other as one."""
    joined: list[Held] = []
    partition, lease, first, count = -1, -1, -1, 0
    for _, held in acks:
        for one in held:
            if one[0] == partition and one[1] == lease and one[2] == first + count:
                count += one[3]
                continue
            if count:
                joined.append((partition, lease, first, count))
            partition, lease, first, count = one
    if count:
        joined.append((partition, lease, first, count))
    return joined


@functools.lru_cache(maxsize=1024)
def _settled_body(count: int, reached: int) -> bytes:
    return bodies.write_settled(count, reached)


def settle(connection: Connection, frame: Frame) -> None:
    given = bodies.read_settle(frame.body)
    session = connection.session(given.session)
    group, now = session.group, connection.context.engine.clock.now_ms()
    runs = group.held_runs(given.held)
    if given.what == NACK:
        delay_ms = None if given.delay_ms < 0 else given.delay_ms
        lsn = group.nack(runs, now, delay_ms, given.reason or None)
    elif given.what == REJECT:
        lsn = group.reject(runs, now, given.reason or "rejected")
    elif given.what == EXTEND:
        if given.delay_ms < 0:
            raise InvalidOption(f"a lease is extended by 0 ms or more, not by {given.delay_ms}")
        lsn = group.extend(runs, now, given.delay_ms)
    else:
        raise InvalidOption(f"what to settle as is 1 (nack), 2 (reject) or 3 (extend), not {given.what}")
    body = _settled_body(
        sum(run[2] for _, run in runs), REACHED[connection.context.engine.durability(group.level)]
    )
    if group.level is Level.SYNCED:
        connection.reply_when_durable(lsn, Command.SETTLE, frame.correlation, body)
    else:
        connection.reply(Command.SETTLE, frame.correlation, body)


# --- the log


def read(connection: Connection, frame: Frame) -> None:
    given = bodies.read_read(frame.body)
    connection.check("read", given.topic)
    engine = connection.context.engine
    engine.check_open()
    log = engine.topic(given.topic).partition(given.partition).log
    waits = given.wait_ms and log.next_offset <= given.offset and not connection.leaving
    if waits and isinstance(engine.clock, SimulatedClock):
        housekeeper = connection.context.broker._housekeeper
        deadline = engine.clock.now_ms() + given.wait_ms
        while log.next_offset <= given.offset and (now := engine.clock.now_ms()) < deadline:
            connection.pass_time(housekeeper.pause_ms(now, deadline))
    elif waits:
        connection.check_parked()
        parked = PendingRead(log, given.offset, lambda: None)
        parked.answer = functools.partial(_read_again, connection, parked, frame.correlation, given)
        connection.reads.add(parked)
        connection.listener.reads.park(parked, given.wait_ms)
        return
    _reply_found(connection, frame.correlation, given)


def _read_again(connection: Connection, parked: PendingRead, correlation: int, given: bodies.Read) -> None:
    connection.reads.discard(parked)
    connection.attempt(Command.READ, correlation, _reply_found, connection, correlation, given)


def _reply_found(connection: Connection, correlation: int, given: bodies.Read) -> None:
    connection.reply(Command.READ, correlation, *_found(connection, given))


def _found(connection: Connection, given: bodies.Read) -> list[Bytes]:
    engine = connection.context.engine
    with engine.lock:
        engine.check_open()
        log = engine.topic(given.topic).partition(given.partition).log
        found = log.read(given.offset, min(given.bytes_max, READ_BYTES_MAX)) if given.bytes_max else []
        return [bodies.write_range(log.start_offset, log.next_offset), *found]


def goodbye(connection: Connection, frame: Frame) -> None:
    connection.leave()


COMMANDS: Final[dict[int, Callable[[Connection, Frame], None]]] = {
    Command.PING: ping,
    Command.CALL: call,
    Command.PUBLISH: publish,
    Command.RECEIVE: receive,
    Command.ACK: ack,
    Command.SETTLE: settle,
    Command.START: start,
    Command.CREDIT: credit,
    Command.STOP: stop,
    Command.READ: read,
    Command.GOODBYE: goodbye,
}
"""What a client may say after its HELLO."""
