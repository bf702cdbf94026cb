"""Trine: one topic, three views: a log, a queue and a table.

>>> import trine
>>> with trine.open(":memory:") as broker:
...     orders = broker.create_topic("orders", partitions=3)
...     receipt = orders.publish(b'{"id": 1}', key="c-7")
...     with orders.group("billing").consumer("worker-1") as consumer:
...         for message in consumer.receive(max=100, wait="2s"):
...             message.ack()
>>> receipt.message_id.startswith("orders/")
True

`trine.aio` is the same with `await`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from trine.client.address import DEFAULT
from trine.model.version import VERSION

if TYPE_CHECKING:
    from trine import aio
    from trine.broker.opening import salvage
    from trine.broker.sync import (
        Broker,
        Consumer,
        Group,
        Message,
        Messages,
        Producer,
        Queue,
        Reader,
        Redrive,
        Topic,
        Transaction,
    )
    from trine.client import sync as remote
    from trine.log.stored import DeadLetter, StoredMessage
    from trine.model import errors
    from trine.model.clock import Clock, SimulatedClock, SystemClock
    from trine.model.description import CronDescription, GroupDescription, Lag, Scheduled, TopicDescription
    from trine.model.errors import TrineError
    from trine.model.message import Duration, Outgoing, Published, PublishReceipt
    from trine.model.options import BackoffConfig, BreakerConfig, GroupConfig, TopicConfig
    from trine.trace.timeline import Found, Trace

__version__ = VERSION

_HOMES: Final = {
    "trine.broker.opening": "salvage",
    "trine.broker.sync": "Broker Consumer Group Message Messages Producer Queue Reader Redrive Topic Transaction",
    "trine.log.stored": "DeadLetter StoredMessage",
    "trine.model.clock": "Clock SimulatedClock SystemClock",
    "trine.model.description": "CronDescription GroupDescription Lag Scheduled TopicDescription",
    "trine.model.errors": "TrineError",
    "trine.model.message": "Outgoing PublishReceipt Published",
    "trine.model.options": "BackoffConfig BreakerConfig GroupConfig TopicConfig",
    "trine.trace.timeline": "Found Trace",
}
"""Where each public name lives. They are fetched when they are first asked for: the command line, and programs that
only connect, need not load the engine."""
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in ("aio", "errors"):
        found: Any = import_module("trine.aio" if name == "aio" else "trine.model.errors")
    elif name in _HOME_OF:
        found = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"trine has no {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def open(path: str, *, clock: Clock | None = None, seed: int | None = None) -> Broker:
    """Opens a store: a folder, made if there is none, or ":memory:".

    One process at a time may have it open. With a simulated clock nothing happens by itself: call `broker.tick()`.
    """
    from trine.broker.opening import open_store
    from trine.broker.sync import Broker

    return Broker(*open_store(path, clock=clock, seed=seed))


def connect(
    url: str = DEFAULT,
    *,
    key: str | None = None,
    ca: str | None = None,
    timeout: Duration = "30s",
    name: str | None = None,
) -> remote.Broker:
    """Connects to a server: `trine://host:port`, or `trines://` with TLS. The broker has the interface of `open`'s.

    `key` is the API key (it may stand in the URL: `trine://KEY@host`), `ca` the file of certificates to trust, `name`
    what the server's logs call this client. The first connection is made at once, or the error says why not; later
    ones by themselves, and a call waits up to `timeout` for them.
    """
    from trine.client import sync as remote
    from trine.client.opening import make_link

    return remote.Broker(make_link(url, key, ca, timeout, name))


__all__ = [
    "BackoffConfig",
    "BreakerConfig",
    "Broker",
    "Clock",
    "Consumer",
    "CronDescription",
    "DeadLetter",
    "Found",
    "Group",
    "GroupConfig",
    "GroupDescription",
    "Lag",
    "Message",
    "Messages",
    "Outgoing",
    "Producer",
    "PublishReceipt",
    "Published",
    "Queue",
    "Reader",
    "Redrive",
    "Scheduled",
    "SimulatedClock",
    "StoredMessage",
    "SystemClock",
    "Topic",
    "TopicConfig",
    "TopicDescription",
    "Trace",
    "Transaction",
    "TrineError",
    "aio",
    "connect",
    "errors",
    "open",
    "salvage",
]
