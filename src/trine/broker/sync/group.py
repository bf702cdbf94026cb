# Generated from aio/group.py by `make generate`. Do not edit.
"""A group: settling by receipt, and steering."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from trine.broker.description import describe_group, lag_of
from trine.broker.group import GroupState
from trine.broker.group_part import GroupPart, Run, once
from trine.broker.operations import (
    find_run,
    replay_runs,
    seek_targets,
)
from trine.broker.sync.consumer import Consumer, many
from trine.model.description import GroupDescription, Lag, MemberDescription
from trine.model.durability import Level
from trine.model.duration import duration_ms
from trine.model.errors import (
    InvalidOption,
)
from trine.model.ids import check_name
from trine.model.limits import MIB
from trine.model.message import Duration, Instant
from trine.model.options import GroupConfig

if TYPE_CHECKING:
    from trine.broker.engine import Engine
    from trine.broker.sync.topic import Topic
    from trine.broker.sync_waits import Waits


LEDGER_BYTES = 4 * MIB
"""Of one look into a ledger."""


class Group:
    def __init__(self, topic: Topic, name: str, config: GroupConfig) -> None:
        self._topic = topic
        self._engine: Engine = topic._engine
        self._waits: Waits = topic._broker._waits
        self._config = config
        self.name = name

    def _state(self) -> GroupState:
        return self._engine.group(self._topic._state(), self.name)

    def _made(self) -> GroupState:
        """The group, created if there is none yet: for consumers, and for a seek before there is one."""
        topic = self._topic._state()
        group = topic.groups.get(self.name)
        if group is None:
            group = self._engine.create_group(topic, self.name, self._config)
        return group

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._topic.name}/{self.name}>"

    def consumer(self, name: str, *, heartbeat: str = "auto") -> Consumer:
        """A member of the group. With heartbeat="manual" it is given up when it is silent for `member_timeout`."""
        if heartbeat not in ("auto", "manual"):
            raise InvalidOption(f"heartbeat is 'auto' or 'manual', not {heartbeat!r}")
        return Consumer(self, check_name(name, "member"), heartbeat == "auto")

    # --- settle by receipt

    def ack(self, receipts: Iterable[str]) -> int:
        return self._settled(lambda group, runs, now: group.ack(runs, now), receipts)

    def nack(
        self, receipts: Iterable[str], *, delay: Duration | None = None, reason: str | None = None
    ) -> int:
        delay_ms = None if delay is None else duration_ms(delay, what="delay")
        return self._settled(lambda group, runs, now: group.nack(runs, now, delay_ms, reason), receipts)

    def reject(self, receipts: Iterable[str], reason: str = "rejected") -> int:
        return self._settled(lambda group, runs, now: group.reject(runs, now, reason), receipts)

    def extend(self, receipts: Iterable[str], duration: Duration) -> int:
        extra = duration_ms(duration, what="duration")
        return self._settled(lambda group, runs, now: group.extend(runs, now, extra), receipts)

    def _settled(
        self,
        settle: Callable[[GroupState, list[tuple[GroupPart, Run]], int], int | None],
        receipts: Iterable[str],
    ) -> int:
        with self._engine.lock:
            group = self._state()
            runs = once([find_run(self._engine, group, receipt) for receipt in many(receipts)])
            lsn = settle(group, runs, self._engine.clock.now_ms())
        if group.level is Level.SYNCED and lsn is not None:
            self._waits.durable(lsn)
        return len(runs)

    # --- its ledger

    def ledger(self, partition: int, from_row: int = 0) -> tuple[list[bytes], int, bool]:
        """Blocks of rows as they are stored (see `trine.queue.rows`), the row after them, whether there are more."""
        with self._engine.lock:
            state = self._state()
            state.topic.partition(partition)
            return state.parts[partition].blocks_from(from_row, LEDGER_BYTES)

    # --- steering

    def lag(self) -> Lag:
        """How far behind the group is, by count and by age."""
        with self._engine.lock:
            return lag_of(self._state(), self._engine.clock.now_ms())

    def describe(self) -> GroupDescription:
        with self._engine.lock:
            return describe_group(self._state())

    def members(self) -> list[MemberDescription]:
        return (self.describe()).members

    def pause(self, reason: str = "paused by hand") -> None:
        """Nothing is delivered until `resume`; what is in flight can be settled."""
        with self._engine.lock:
            lsn = self._state().pause(reason)
        self._waits.durable(lsn)

    def resume(self) -> None:
        with self._engine.lock:
            lsn = self._state().resume()
        self._waits.durable(lsn)

    def seek(
        self,
        *,
        offset: int | None = None,
        time: Instant | None = None,
        to: str | None = None,
        partition: int | None = None,
    ) -> dict[int, int]:
        """Moves a live group to an offset, a time, "earliest" or "latest"; answers the offsets by partition."""
        with self._engine.lock:
            group = self._made()
            targets = seek_targets(group, offset, time, to, partition)
            lsn = group.seek(targets, self._engine.clock.now_ms())
        self._waits.durable(lsn)
        return targets

    def replay(
        self,
        *,
        failed: bool = False,
        key: bytes | str | None = None,
        from_time: Instant | None = None,
        to_time: Instant | None = None,
    ) -> int:
        """Delivers settled messages again, beside live traffic: failed ones only, those of a key, or of a time."""
        with self._engine.lock:
            group = self._state()
            runs = replay_runs(group, failed, key, from_time, to_time)
            lsn = group.reopen(runs, self._engine.clock.now_ms())
        self._waits.durable(lsn)
        return sum(count for _, _, count in runs)

    def alter(self, **options: Any) -> None:
        with self._engine.lock:
            group = self._state()
            lsn = group.alter(group.config.altered(options))
        self._waits.durable(lsn)

    def delete(self) -> None:
        with self._engine.lock:
            topic = self._topic._state()
            lsn = self._engine.delete_group(topic, self._engine.group(topic, self.name).name)
        self._waits.durable(lsn)
