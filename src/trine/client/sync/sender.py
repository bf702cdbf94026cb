# Generated from aio/sender.py by `make generate`. Do not edit.
"""A sender: publishes in the background, in batches."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Self

from trine.client.sending import Gathering
from trine.client.sync_link import Sent
from trine.model.errors import Closed, InvalidOption
from trine.model.message import Draft, Duration, Headers, Outgoing, draft

if TYPE_CHECKING:
    from trine.client.sync.topic import Topic


NOTHING_ELSE = (None,) * 6


class Sender:
    """Gathers messages into batches. Close it, or use it as a context manager: it sends what it still has.

    Messages of a partition arrive in the order they were given. An error is told by the message's own answer, and the
    first one by the next `flush` or `close` as well.
    """

    def __init__(
        self,
        topic: Topic,
        level: int,
        linger_ms: int,
        batch_bytes: int,
        batch_messages: int,
        in_flight: int,
        buffer_bytes: int,
        wait_ms: int,
    ) -> None:
        for name, value in (
            ("batch_bytes", batch_bytes), ("batch_messages", batch_messages), ("in_flight", in_flight),
            ("buffer_bytes", buffer_bytes),
        ):  # fmt: skip
            if value < 1:
                raise InvalidOption(f"{name} is {value}; it must be at least 1")
        self._topic = topic
        self._caller = topic._caller
        self._settings = {
            "level": level, "linger_ms": linger_ms, "batch_bytes": batch_bytes, "wait_ms": wait_ms,
            "batch_messages": batch_messages, "in_flight": in_flight, "buffer_bytes": buffer_bytes,
        }  # fmt: skip
        self._gathering: Gathering | None = None
        self._closed = False

    def __enter__(self) -> Self:
        self._begun()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.close()

    def _begun(self) -> Gathering:
        if self._closed:
            raise Closed("this sender is closed; make another one")
        if self._gathering is None:
            known = self._topic._known()
            if known.config.dedup_by_content:
                raise InvalidOption(
                    f"topic {self._topic.name!r} has dedup_by_content: its messages go one by one, by publish"
                )
            broker = self._topic._broker
            self._gathering = Gathering(
                broker._link, broker._topics, known, self._caller.soon, **self._settings
            )
        return self._gathering

    def send(
        self,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        priority: str | None = None,
        ttl: Duration | None = None,
        partition: int | None = None,
        producer: str | None = None,
    ) -> Sent:
        """Takes a message, and answers a future of its receipt. Waits only while the buffer is full."""
        gathering = self._gathering
        if gathering is None:
            gathering = self._begun()
        known = gathering.known
        if (
            type(value) is bytes and len(value) <= known.plain_bytes_max
            and (key, headers, priority, ttl, partition, producer) == NOTHING_ELSE
        ):  # fmt: skip
            one = Draft(None, value, [], known.config.default_lane, 0, False, None, None)
        else:
            message = Outgoing(
                value=value, key=key, headers=headers, priority=priority, ttl=ttl, partition=partition,
                producer=producer,
            )  # fmt: skip
            one = draft(message, known.config, self._caller.now_ms())
        sent = self._caller.sent()
        while not gathering.put(one, sent):
            self._caller.run(gathering.room())
        return sent

    def flush(self) -> None:
        """Until all that was given is answered; raises the first error since the last flush."""
        if self._gathering is not None:
            self._caller.run(self._gathering.flush())

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._gathering is not None:
                self._caller.run(self._gathering.close())

    def statistics(self) -> dict[str, int]:
        """Messages not answered yet, their bytes, and frames under way."""
        if self._gathering is None:
            return {"unanswered": 0, "bytes": 0, "in_flight": 0}
        return self._gathering.statistics()
