"""`trine produce`: messages from an argument, from a file, or from the lines of stdin.

Lines are published as they come: what one read of the input gives is one batch. So a file goes in large batches, and
`tail -f | trine produce` publishes each line when it is there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, cast

import typer

from trine.cli.interrupts import interrupts
from trine.cli.options import TopicName, delimiter_bytes, pairs
from trine.cli.session import Session
from trine.model.duration import duration_ms
from trine.model.errors import InvalidInput, MessageTooLarge, TopicFull, UnknownTopic
from trine.model.limits import MIB, VALUE_BYTES_MAX

if TYPE_CHECKING:
    from trine import Published, Topic

READ_BYTES: Final = 1 * MIB
"""Asked for at once: some thousands of lines, and far below what one publish may hold."""


class Input(Protocol):
    """Where messages are read from; `read1` gives what is there, and waits only while that is nothing."""

    def read(self, size: int, /) -> bytes: ...
    def read1(self, size: int, /) -> bytes: ...
    def isatty(self) -> bool: ...


Lines = Iterator[tuple[list[bytes], int]]
"""Batches of lines, each with the bytes that were read so far."""


def produce(
    session: Session,
    topic: TopicName,
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="The message; lines of stdin if it is left out.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Lines of a file; - is stdin.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="The input is one message, not lines.")] = False,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every message.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="A line is key, this, and value."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Repeatable.")
    ] = None,
    delay: Annotated[str | None, typer.Option("--delay", metavar="TIME", help='Deliver later: "5m".')] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Deliver at 2026-01-14T15:00:00Z.")
    ] = None,
    priority: Annotated[str | None, typer.Option("--priority", help="high, normal, low: the lane.")] = None,
    ttl: Annotated[str | None, typer.Option("--ttl", metavar="TIME", help="Expires after this.")] = None,
    dedup_id: Annotated[
        str | None,
        typer.Option("--dedup-id", metavar="ID", help="Stored once. Line 2 and on get ID:2, ID:3, …"),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="This one.")] = None,
    producer: Annotated[str | None, typer.Option("--producer", help="Who publishes, for traces.")] = None,
    durability: Annotated[str | None, typer.Option("--durability", help="memory, written or synced.")] = None,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="TIME", help="Wait this long for room in a full topic.")
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", "-D", metavar="TEXT", help=r"What ends a line; \0, \t, … work.")
    ] = r"\n",
    null: Annotated[
        bool, typer.Option("--null", "-Z", help="Empty values are null: tombstones of compacted topics.")
    ] = False,
    create: Annotated[bool, typer.Option("--create", help="Create the topic if there is none.")] = False,
) -> None:
    """Publish messages.

    One message is answered with its id and its durability. Of many, a terminal shows each; a pipe gets a summary.
    """
    if value is not None and (file is not None or whole or key_separator is not None):
        raise typer.BadParameter("VALUE is the message itself: leave out --file, --whole and --key-separator")
    if key is not None and key_separator is not None:
        raise typer.BadParameter("give --key or --key-separator: where the keys come from")
    ends = delimiter_bytes(delimiter)
    if not ends:
        raise typer.BadParameter(
            "an empty --delimiter ends no line; the whole input as one message is --whole"
        )
    session.makes = create
    target = _found(session, topic, create)
    options: dict[str, Any] = {
        "key": key, "headers": pairs(header, "header") or None, "priority": priority, "delay": delay,
        "deliver_at": at, "ttl": ttl, "partition": partition, "producer": producer,
        "durability": durability,
    }  # fmt: skip

    separator = None if key_separator is None else delimiter_bytes(key_separator)
    wait_ms = 0 if wait is None else duration_ms(wait, what="wait")

    def publish(values: list[bytes], before: int) -> Published:
        items: list[Any] = values
        if separator is not None or dedup_id is not None or null:
            items = [
                _item(value, separator, null, _line_id(dedup_id, before + number))
                for number, value in enumerate(values)
            ]
        return _admitted(lambda ms: target.publish_many(items, **options, wait=ms / 1000), wait_ms)

    if value is not None:
        _show(session, publish([os.fsencode(value)], 0))
    elif whole:
        with _source(file) as (source, _):
            _show(session, publish([_all(source)], 0))
    else:
        with _source(file) as (source, size):
            _publish_lines(session, publish, source, size, ends)


def _found(session: Session, topic: str, create: bool) -> Topic:
    try:
        return session.broker.topic(topic)
    except UnknownTopic:
        if not create:
            raise
        return session.broker.create_topic(topic, exist_ok=True)


def _admitted(publish: Callable[[int], Published], wait_ms: int) -> Published:
    """A publish that waits for room in a full topic."""
    full: list[TopicFull] = []

    def attempt(ms: int) -> Published | None:
        try:
            return publish(ms)
        except TopicFull as error:
            full.append(error)
            return None

    published = interrupts.sliced(attempt, wait_ms)
    if published is None:
        raise full[-1]
    return published


def _publish_lines(
    session: Session,
    publish: Callable[[list[bytes], int], Published],
    source: Input,
    size: int | None,
    ends: bytes,
) -> None:
    count, durability = 0, ""
    shows_each = session.json or sys.stdout.isatty()
    if source.isatty():
        session.note("a message a line; end with Ctrl-D")
    with session.progress("produce", None if shows_each else size) as reached:
        held: Published | None = None
        for lines, position in lines_of(source, ends):
            published = publish(lines, count)
            count += len(lines)
            durability = published.durability
            if shows_each:
                _show(session, published)
                session.flush()
            elif count == 1:
                held = published
            reached(position)
    if not shows_each:
        if count == 1 and held is not None:
            _show(session, held)
        elif count:
            session.line(f"{count} messages published, {durability}")
    if not count:
        session.note("there was nothing to publish: the input is empty")


def lines_of(source: Input, ends: bytes) -> Lines:
    """Batches of whole lines, as soon as they are there. The last one need not be ended."""
    rest, position = b"", 0
    while chunk := _next(source):
        position += len(chunk)
        *lines, rest = (rest + chunk).split(ends)
        if len(rest) > VALUE_BYTES_MAX + READ_BYTES:
            raise MessageTooLarge(
                f"a line has more than {VALUE_BYTES_MAX} bytes; give the --delimiter that ends a message"
            )
        if lines:
            yield lines, position
    if rest:
        yield [rest], position


def _next(source: Input) -> bytes:
    with interrupts.waiting():
        return source.read1(READ_BYTES)


def _all(source: Input) -> bytes:
    with interrupts.waiting():
        found = source.read(VALUE_BYTES_MAX + 1)
    if len(found) > VALUE_BYTES_MAX:
        raise MessageTooLarge(
            f"the input has more than {VALUE_BYTES_MAX} bytes: store it elsewhere and publish a reference"
        )
    return found


@contextlib.contextmanager
def _source(file: Path | None) -> Iterator[tuple[Input, int | None]]:
    """The input, and its size if it is known."""
    if file is None or str(file) == "-":
        yield cast(Input, sys.stdin.buffer), None
        return
    try:
        source = file.open("rb")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    with source:
        yield source, os.fstat(source.fileno()).st_size


def _item(value: bytes, separator: bytes | None, null: bool, dedup_id: str | None) -> dict[str, Any]:
    item: dict[str, Any] = {}
    if separator is not None:
        key, found, rest = value.partition(separator)
        if found:
            item["key"], value = key, rest
    if dedup_id is not None:
        item["dedup_id"] = dedup_id
    item["value"] = None if null and not value else value
    return item


def _line_id(dedup_id: str | None, number: int) -> str | None:
    """The same file published twice is stored once: each line has an id of its own."""
    return dedup_id if dedup_id is None or number == 0 else f"{dedup_id}:{number + 1}"


def _show(session: Session, published: Published) -> None:
    for receipt in published:
        if session.json:
            record = {
                "id": receipt.message_id,
                "topic": receipt.topic,
                "partition": receipt.partition,
                "offset": receipt.offset,
                "schedule_id": receipt.schedule_id,
                "durability": receipt.durability,
                "duplicate": receipt.duplicate,
            }
            session.record(record)
        else:
            told = f"{receipt.message_id}  {receipt.durability}"
            session.line(told + ("  duplicate" if receipt.duplicate else ""))
