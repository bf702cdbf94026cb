# Generated from aio/group.py by `make generate`. Do not edit.
"""A group: settling by receipt, and steering."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from trine.client.options import plain
from trine.client.sync.consumer import Consumer, many
from trine.model.description import GroupDescription, Lag, MemberDescription
from trine.model.duration import duration_ms, instant_ms
from trine.model.errors import InvalidOption, InvalidReceipt
from trine.model.ids import check_name
from trine.model.limits import PREFETCH_MAX
from trine.model.message import Duration, Instant, as_bytes
from trine.wire import calls

if TYPE_CHECKING:
    from trine.client.sync.topic import Topic
    from trine.client.sync_link import Caller


class Group:
    def __init__(self, topic: Topic, name: str, options: dict[str, Any]) -> None:
        self._topic = topic
        self._broker = topic._broker
        self._caller: Caller = topic._caller
        self._options: dict[str, Any] = options
        self.name: str = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._topic.name}/{self.name}>"

    def _check(self) -> Self:
        """Whether the topic is there, and these options agree with what the group has."""
        call = calls.CheckGroup(topic=self._topic.name, group=self.name, options=self._options)
        self._broker._call(call)
        return self

    def consumer(self, name: str, *, heartbeat: str = "auto", prefetch: int = 0) -> Consumer:
        """A member of the group. With heartbeat="manual" it is given up when it is silent for `member_timeout`.

        With a `prefetch` the server pushes up to so many messages ahead, and `receive` takes them from here.
        """
        if heartbeat not in ("auto", "manual"):
            raise InvalidOption(f"heartbeat is 'auto' or 'manual', not {heartbeat!r}")
        if not 0 <= prefetch <= PREFETCH_MAX:
            raise InvalidOption(f"prefetch is {prefetch}; it must be 0 to {PREFETCH_MAX}")
        return Consumer(self, check_name(name, "member"), heartbeat == "auto", prefetch)

    # --- settle by receipt

    def ack(self, receipts: Iterable[str]) -> int:
        return self._settled("ack", receipts)

    def nack(
        self, receipts: Iterable[str], *, delay: Duration | None = None, reason: str | None = None
    ) -> int:
        delay_ms = None if delay is None else duration_ms(delay, what="delay")
        return self._settled("nack", receipts, delay_ms, reason)

    def reject(self, receipts: Iterable[str], reason: str = "rejected") -> int:
        return self._settled("reject", receipts, None, reason)

    def extend(self, receipts: Iterable[str], duration: Duration) -> int:
        return self._settled("extend", receipts, duration_ms(duration, what="duration"))

    def _settled(
        self, what: str, receipts: Iterable[str], delay_ms: int | None = None, reason: str | None = None
    ) -> int:
        given = list(many(receipts))
        for receipt in given:
            if not isinstance(receipt, str):
                raise InvalidReceipt(
                    f"a receipt is a string, not {type(receipt).__name__}; pass message.receipt"
                )
        call = calls.SettleReceipts(
            topic=self._topic.name, group=self.name, what=what, receipts=given, delay_ms=delay_ms,
            reason=reason,
        )  # fmt: skip
        count: int = (self._broker._call(call)).count
        return count

    # --- its ledger

    def ledger(self, partition: int, from_row: int = 0) -> tuple[list[bytes], int, bool]:
        """Blocks of rows as they are stored (see `trine.queue.rows`), the row after them, whether there are more."""
        call = calls.ReadLedger(
            topic=self._topic.name, group=self.name, partition=partition, from_row=from_row
        )
        found: calls.LedgerReply = self._broker._call(call)
        return found.blocks, found.next, found.more

    # --- steering

    def lag(self) -> Lag:
        """How far behind the group is, by count and by age."""
        found: Lag = self._broker._call(calls.GetLag(topic=self._topic.name, group=self.name))
        return found

    def describe(self) -> GroupDescription:
        call = calls.DescribeGroup(topic=self._topic.name, group=self.name)
        found: GroupDescription = self._broker._call(call)
        return found

    def members(self) -> list[MemberDescription]:
        return (self.describe()).members

    def pause(self, reason: str = "paused by hand") -> None:
        """Nothing is delivered until `resume`; what is in flight can be settled."""
        self._broker._call(calls.PauseGroup(topic=self._topic.name, group=self.name, reason=reason))

    def resume(self) -> None:
        self._broker._call(calls.ResumeGroup(topic=self._topic.name, group=self.name))

    def seek(
        self,
        *,
        offset: int | None = None,
        time: Instant | None = None,
        to: str | None = None,
        partition: int | None = None,
    ) -> dict[int, int]:
        """Moves a live group to an offset, a time, "earliest" or "latest"; answers the offsets by partition."""
        call = calls.SeekGroup(
            topic=self._topic.name,
            group=self.name,
            options=self._options,
            offset=offset,
            time_ms=None if time is None else instant_ms(time),
            to=to,
            partition=partition,
        )
        found: dict[int, int] = self._broker._call(call)
        return found

    def replay(
        self,
        *,
        failed: bool = False,
        key: bytes | str | None = None,
        from_time: Instant | None = None,
        to_time: Instant | None = None,
    ) -> int:
        """Delivers settled messages again, beside live traffic: failed ones only, those of a key, or of a time."""
        call = calls.ReplayGroup(
            topic=self._topic.name,
            group=self.name,
            failed=failed,
            key=as_bytes(key, "key"),
            from_time_ms=None if from_time is None else instant_ms(from_time),
            to_time_ms=None if to_time is None else instant_ms(to_time),
        )
        count: int = (self._broker._call(call)).count
        return count

    def alter(self, **options: Any) -> None:
        call = calls.AlterGroup(topic=self._topic.name, group=self.name, options=plain(options))
        self._broker._call(call)

    def delete(self) -> None:
        self._broker._call(calls.DeleteGroup(topic=self._topic.name, group=self.name))
