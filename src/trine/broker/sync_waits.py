"""How the sync interface waits: on conditions and on the disk, in the calling thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from trine.broker.engine import Engine
    from trine.broker.group import GroupState
    from trine.broker.topic import TopicState

T = TypeVar("T")


class Waits:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def durable(self, lsn: int) -> None:
        """Until all below `lsn` is on disk; the callers of one moment share one sync."""
        self._engine.sync(lsn)

    def arrival(self, group: GroupState, seen: int, timeout_ms: int) -> None:
        """Until something may have come for the group since it was at version `seen`."""
        with self._engine.lock:
            if group.version == seen:
                group.waiting += 1
                try:
                    self._engine.clock.wait(group.arrived, timeout_ms)
                finally:
                    group.waiting -= 1

    def room(self, topic: TopicState, timeout_ms: int) -> None:
        """Until the topic may take messages again."""
        with self._engine.lock:
            topic.waiting_publishers += 1
            try:
                self._engine.clock.wait(topic.room, timeout_ms)
            finally:
                topic.waiting_publishers -= 1

    def run(self, work: Callable[[], T]) -> T:
        """Slow work: the caller does it itself."""
        return work()

    def written(self, seen: int, timeout_ms: int) -> None:
        """Until some log has grown since the engine was at version `seen`."""
        engine = self._engine
        with engine.lock:
            if engine.version == seen:
                engine.readers_waiting += 1
                try:
                    engine.clock.wait(engine.readers, timeout_ms)
                finally:
                    engine.readers_waiting -= 1
