"""`trine consume`: the queue view with `--group`, the log view without.

With a group a message is acked after it was written to the output and the output took it. When the pipe closes or the
command is interrupted, what was leased and not acked goes back at once and does not count as tried.
"""

from __future__ import annotations

import enum
import heapq
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trine.cli.completion import group_names
from trine.cli.interrupts import SLICE_MS, interrupts
from trine.cli.options import FromTime, TopicName, ToTime, delimiter_bytes
from trine.cli.session import Session
from trine.cli.spark import Conf, Master, spark_work
from trine.model.duration import duration_ms, instant_ms
from trine.model.errors import InvalidInput, LeaseExpired, StaleReceipt

if TYPE_CHECKING:
    from trine import Consumer, Group, Message, Messages, StoredMessage, Topic

RECEIVE: Final = 100
"""Leased at once: few enough to be written before their leases end."""

READ_AHEAD: Final = 10_000
"""Messages held while partitions are merged by time, in all."""

OUTSIDE_MAX: Final = 10_000
"""Messages beyond `--to-time` that are held aside while the others of the span are looked for."""

FOLLOW_WAIT: Final = f"{SLICE_MS}ms"


class Ack(enum.StrEnum):
    AUTO = "auto"
    MANUAL = "manual"


class Form(enum.StrEnum):
    JSON = "json"
    VALUE = "value"
    TABLE = "table"


def consume(
    session: Session,
    topic: TopicName,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", help="Consume as this group; without it, read.", autocompletion=group_names
        ),
    ] = None,
    ack: Annotated[Ack, typer.Option("--ack", help="auto: when it is written; manual: asks you.")] = Ack.AUTO,
    from_offset: Annotated[
        str | None,
        typer.Option("--from-offset", metavar="PLACE", help="N, -N (the last N), earliest or latest."),
    ] = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="This one alone.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Go on: wait for more until Ctrl-C.")
    ] = False,
    most: Annotated[int | None, typer.Option("--max", "-n", min=1, help="End after this many.")] = None,
    wait: Annotated[
        str,
        typer.Option(
            "--wait", metavar="TIME", help="With --group: how long to wait for more before it ends."
        ),
    ] = "250ms",
    output: Annotated[
        Form | None,
        typer.Option("--output", "-o", help="table on a terminal, value in a pipe.", show_default=False),
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", "-D", metavar="TEXT", help="What follows a value; may be empty.")
    ] = r"\n",
    member: Annotated[str | None, typer.Option("--member", help="The name of this consumer.")] = None,
    from_snapshot: Annotated[
        str | None,
        typer.Option("--from-snapshot", metavar="DATE", help="From this date on, e.g. 2026-01-01."),
    ] = None,
    include_deleted: Annotated[
        bool,
        typer.Option(
            "--include-deleted", help="With --from-snapshot: first what only the archive still has."
        ),
    ] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Consume messages as a member of a group, or read the log.

    With --group, --from-offset and --from-time move the whole group first (as `trine group seek` does), and messages
    of --to-time and later are left in it. `-o value` writes the bytes as they are, followed by the delimiter.

    --from-snapshot begins at a date as --from-time does; with --include-deleted the messages since then that the log
    has deleted come first, read from the archive on Spark.
    """
    if include_deleted and from_snapshot is None:
        raise typer.BadParameter("--include-deleted needs --from-snapshot: since when?")
    if from_snapshot is not None:
        if from_offset is not None or from_time is not None:
            raise typer.BadParameter(
                "give --from-snapshot, --from-offset or --from-time: one place to begin at"
            )
        instant_ms(from_snapshot)
        from_time = from_snapshot
    if from_offset is not None and from_time is not None:
        raise typer.BadParameter("give --from-offset or --from-time: one place to begin at")
    if follow and to_time is not None:
        raise typer.BadParameter("--follow goes on for ever; leave it out with --to-time")
    if ack is Ack.MANUAL and group is None:
        raise typer.BadParameter("--ack manual needs a --group: without one nothing is leased")
    if group is not None and partition is not None and from_offset is None and from_time is None:
        raise typer.BadParameter(
            "a group takes from all partitions; --partition is for --from-offset and reading"
        )
    if ack is Ack.MANUAL and not sys.stdin.isatty():
        raise typer.BadParameter(
            "--ack manual asks for each message, and nobody is here: stdin is no terminal"
        )
    if session.json:
        output = Form.JSON
    if output is None:
        output = Form.TABLE if sys.stdout.isatty() else Form.VALUE
    wait_ms = None if follow else duration_ms(wait, what="wait")
    write = message_writer(session, output, delimiter_bytes(delimiter))
    if include_deleted:
        assert from_snapshot is not None
        written = _deleted(session, topic, partition, from_snapshot, to_time, most, write, master, conf)
        if most is not None:
            most -= written
            if not most:
                return
    handle = session.broker.topic(topic)
    if group is None:
        left = sys.maxsize if most is None else most
        for message in _log(handle, partition, from_offset, from_time, to_time, follow):
            interrupts.check()
            if message is None:
                session.flush()
                continue
            write(message)
            left -= 1
            if not left:
                break
        return
    members = handle.group(group)
    _move(handle, members, partition, from_offset, from_time)
    with members.consumer(member or _member()) as consumer:
        if ack is Ack.MANUAL:
            _ask_for_each(session, consumer, write, wait_ms, most)
        else:
            _drain(session, handle, consumer, write, wait_ms, most, to_time)


# --- the archive


def _deleted(
    session: Session,
    topic: str,
    partition: int | None,
    since: str,
    to_time: str | None,
    most: int | None,
    write: Callable[[StoredMessage], None],
    master: str | None,
    conf: list[str] | None,
) -> int:
    """Writes what the log no longer has, by time; how many. The log then goes on at its first offsets."""
    written = 0
    with spark_work(session, master, conf, topics=[topic]) as (spark, place):
        from trine.spark.replay import Choice, replay

        choice = Choice(topic, partition=partition, from_time=since, to_time=to_time)
        deleted = replay(spark, place, choice, only_deleted=True)
        for message in session.awaited("what the log has deleted", deleted):
            write(message)
            written += 1
            if written == most:
                break
    session.flush()
    return written


# --- the log view


def _log(
    topic: Topic,
    partition: int | None,
    from_offset: str | None,
    from_time: str | None,
    to_time: str | None,
    follow: bool,
) -> Iterator[StoredMessage | None]:
    """Messages by time, up to what is there now; then, with `follow`, as they come. None: all for the moment."""
    offsets = topic.offsets()
    if partition is not None:
        topic.read(partition=partition, max=1)  # says so if there is no such partition
        offsets = {partition: offsets[partition]}
    starts = {
        number: _start(topic, number, first, end, from_offset, from_time)
        for number, (first, end) in offsets.items()
    }
    chunk = max(READ_AHEAD // len(starts), 10)
    streams = [
        _partition(topic, number, start, offsets[number][1], to_time, chunk)
        for number, start in starts.items()
    ]
    yield from heapq.merge(*streams, key=_by_time)
    if not follow:
        return
    positions = {number: max(start, offsets[number][1]) for number, start in starts.items()}
    yield None
    reader = topic.reader(_member(), start="latest")
    for number, position in positions.items():
        reader.seek(offset=position, partition=number)
    while True:
        if partition is None:
            found = reader.read(max=1000, wait=FOLLOW_WAIT)
        else:
            found = topic.read(
                partition=partition, from_offset=positions[partition], max=1000, wait=FOLLOW_WAIT
            )
            positions[partition] += len(found) and found[-1].offset + 1 - positions[partition]
        yield from sorted(found, key=_by_time)
        yield None


def _start(
    topic: Topic, number: int, first: int, end: int, from_offset: str | None, from_time: str | None
) -> int:
    """The offset a partition is read from."""
    if from_time is not None:
        found = topic.read(partition=number, from_time=from_time, max=1)
        return found[0].offset if found else end
    match from_offset:
        case None | "earliest":
            return first
        case "latest":
            return end
    place = _number(from_offset)
    return max(end + place, first) if place < 0 else max(place, first)


def _number(place: str) -> int:
    try:
        return int(place)
    except ValueError:
        raise typer.BadParameter(
            f"--from-offset is a number, -N for the last N, earliest or latest, not {place!r}"
        ) from None


def _partition(
    topic: Topic, number: int, start: int, end: int, to_time: str | None, chunk: int
) -> Iterator[StoredMessage]:
    while start < end:
        found = topic.read(partition=number, from_offset=start, to_offset=end, to_time=to_time, max=chunk)
        if not found:
            return
        yield from found
        start = found[-1].offset + 1


def _by_time(message: StoredMessage) -> tuple[int, int, int]:
    return message.timestamp_ms, message.partition, message.offset


# --- the queue view


def _move(
    topic: Topic, group: Group, partition: int | None, from_offset: str | None, from_time: str | None
) -> None:
    if from_time is not None:
        group.seek(time=from_time, partition=partition)
    elif from_offset in ("earliest", "latest"):
        group.seek(to=from_offset, partition=partition)
    elif from_offset is not None:
        place = _number(from_offset)
        if place >= 0:
            group.seek(offset=place, partition=partition)
            return
        for number, (first, end) in topic.offsets().items():
            if partition is None or partition == number:
                group.seek(offset=max(end + place, first), partition=number)


def _drain(
    session: Session,
    topic: Topic,
    consumer: Consumer,
    write: Callable[[StoredMessage], None],
    wait_ms: int | None,
    most: int | None,
    to_time: str | None,
) -> None:
    """Write, flush, ack, in that order, until there is nothing more."""
    span = Span(topic, to_time)
    left = sys.maxsize if most is None else most
    while left:
        messages = _received(consumer, min(RECEIVE, left), wait_ms)
        if not messages:
            return
        inside = [message for message in messages if span.holds(message)]
        for message in inside:
            write(message)
        session.flush()
        if inside:
            _ack(session, consumer, messages if len(inside) == len(messages) else inside)
        left -= len(inside)
        if span.is_over():
            return


def _received(consumer: Consumer, most: int, wait_ms: int | None) -> Messages:
    return interrupts.sliced(lambda ms: consumer.receive(max=most, wait=ms / 1000), wait_ms)


def _ack(session: Session, consumer: Consumer, messages: Iterable[Message]) -> None:
    try:
        consumer.ack(messages)
    except (LeaseExpired, StaleReceipt) as error:
        # The reader of the output took longer than the lease: they come again, and that is all there is to do.
        session.note(f"not acked, they will be delivered again: {error.message}")


class Span:
    """What lies before `--to-time`, and when no more of it is to be expected."""

    def __init__(self, topic: Topic, to_time: str | None) -> None:
        self._end_ms = None if to_time is None else instant_ms(to_time)
        self._passed: set[int] = set()
        self._outside = 0
        self._in_order = False
        self._later: set[int] = set()
        if to_time is not None:
            described = topic.describe()
            # Within a lane a partition is delivered in order, so one message beyond the span ends it there.
            self._in_order = sum(count > 0 for count in described.lanes.values()) <= 1
            self._later = {
                one.number
                for one in described.partitions
                if topic.read(partition=one.number, from_time=to_time, max=1)
            }

    def holds(self, message: StoredMessage) -> bool:
        if self._end_ms is None or message.timestamp_ms < self._end_ms:
            return True
        self._passed.add(message.partition)
        self._outside += 1
        return False

    def is_over(self) -> bool:
        """Whether every partition with later messages has given one of them; the others end by themselves."""
        if self._end_ms is None:
            return False
        passed = self._in_order and bool(self._later) and self._passed >= self._later
        return passed or self._outside >= OUTSIDE_MAX


def _ask_for_each(
    session: Session,
    consumer: Consumer,
    write: Callable[[StoredMessage], None],
    wait_ms: int | None,
    most: int | None,
) -> None:
    left = sys.maxsize if most is None else most
    while left:
        messages = _received(consumer, 1, wait_ms)
        if not messages:
            return
        write(messages[0])
        session.flush()
        if not _settled(session, messages[0]):
            return
        left -= 1


QUESTION: Final = "[a]ck, [n]ack [DELAY [REASON]], [r]eject [REASON], [e]xtend TIME, [s]kip, [q]uit? "


def _settled(session: Session, message: Message) -> bool:
    """Asks until it is settled or skipped; False to quit. What is skipped goes back when the command ends."""
    while True:
        with interrupts.waiting():
            print(QUESTION, end="", file=sys.stderr, flush=True)
            answer = sys.stdin.readline()
        if not answer:
            return False
        word, _, rest = answer.strip().partition(" ")
        rest = rest.strip()
        try:
            match word:
                case "a" | "ack":
                    message.ack()
                case "n" | "nack":
                    delay, _, reason = rest.partition(" ")
                    message.nack(delay=delay or None, reason=reason.strip() or None)
                case "r" | "reject":
                    message.reject(rest or "rejected by hand")
                case "e" | "extend":
                    message.extend(rest or "30s")
                    continue
                case "s" | "skip":
                    return True
                case "q" | "quit":
                    return False
                case _:
                    continue
        except InvalidInput as error:
            session.note(error.message)
            continue
        except (LeaseExpired, StaleReceipt) as error:
            session.note(error.message)
        return True


def _member() -> str:
    host = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in socket.gethostname())
    return f"cli-{host[:100]}-{os.getpid()}"


# --- the output


def message_writer(session: Session, form: Form, ends: bytes) -> Callable[[StoredMessage], None]:
    from trine.cli.message import LINE_HEAD, message_line, message_record

    if form is Form.VALUE:
        return lambda message: session.write((message.value or b"") + ends)
    if form is Form.JSON:
        return lambda message: session.record(message_record(message))
    heads = iter([LINE_HEAD])

    def line(message: StoredMessage) -> None:
        for head in heads:
            session.line(head)
        session.line(message_line(message))

    return line
