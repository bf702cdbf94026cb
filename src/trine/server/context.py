"""What all listeners of one server share, and how far its start has come.

The HTTP listener starts before the store has recovered, so that `/health` and `/ready` answer meanwhile: it is handed
a `Host`, whose `context` is None until the server is ready. All others start with the context itself.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

# Not only for type checkers: the HTTP framework looks at the types of what handlers are given.
from trine.broker.aio import AsyncBroker
from trine.broker.engine import Engine
from trine.server.commits import Commits
from trine.server.config import ServerConfig
from trine.server.keys import Keys
from trine.server.metrics import Metrics

State = Literal["starting", "recovering", "ready", "closing", "failed"]


@dataclass(slots=True, kw_only=True, eq=False)
class Context:
    """One for each server; made when the store has recovered."""

    config: ServerConfig
    broker: AsyncBroker
    """All rare operations go through it."""
    engine: Engine
    """Under `with engine.lock:`, for hot paths only."""
    keys: Keys
    metrics: Metrics
    commits: Commits
    log: Any
    """A structlog logger: `log.info("topic created", topic=name)`."""
    ready_since: float = field(default_factory=time.monotonic)
    """By the monotonic clock."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when shutdown has begun: long polls and streams end, consumers are told."""
    binary_tls: ssl.SSLContext | None = None
    http_tls: ssl.SSLContext | None = None


@dataclass(slots=True, eq=False)
class Readiness:
    """How far the server has come. Written by the thread that recovers, read by the loop."""

    state: State = "starting"
    step: str = ""
    """Of recovery: its logs are opened, the journal is replayed, its topics are looked through."""
    done: int = 0
    """Logs, bytes of the journal, topics."""
    total: int = 0
    journal_bytes: int = 0
    """How much of the journal was replayed."""
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    """How long recovery took; 0 until it is over."""

    def recovering(self) -> None:
        self.began = time.monotonic()
        self.state = "recovering"

    def progress(self, step: str, done: int, total: int) -> None:
        """Recovery tells how far it is, from its thread."""
        self.step, self.done, self.total = step, done, total
        if step == "journal":
            self.journal_bytes = done

    def recovered(self) -> None:
        self.seconds = time.monotonic() - self.began
        self.state = "ready"

    def describe(self) -> dict[str, Any]:
        """As `/ready` and the log show it."""
        shown: dict[str, Any] = {"state": self.state}
        if self.state in ("starting", "recovering"):
            shown["seconds"] = round(time.monotonic() - self.began, 1)
            if self.total:
                percent = min(100 * self.done // self.total, 100)
                shown |= {"step": self.step, "done": self.done, "total": self.total, "percent": percent}
        elif self.state == "ready":
            shown["recovery_seconds"] = round(self.seconds, 3)
        return shown


class Host(Protocol):
    """What the HTTP listener is started with: the server, of which `context` comes later."""

    @property
    def config(self) -> ServerConfig: ...

    @property
    def readiness(self) -> Readiness: ...

    @property
    def context(self) -> Context | None:
        """None until the server is ready."""

    @property
    def http_tls(self) -> ssl.SSLContext | None: ...


Observe = Callable[[float], None]
"""Takes one measurement, in seconds."""
