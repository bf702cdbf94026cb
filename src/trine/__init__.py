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

from trine import aio
from trine.broker.opening import open_store, salvage
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
from trine.client.address import DEFAULT
from trine.client.opening import make_link
from trine.log.stored import DeadLetter, StoredMessage
from trine.model import errors
from trine.model.clock import Clock, SimulatedClock, SystemClock
from trine.model.description import CronDescription, GroupDescription, Lag, Scheduled, TopicDescription
from trine.model.errors import TrineError
from trine.model.message import Duration, Outgoing, Published, PublishReceipt
from trine.model.options import BackoffConfig, BreakerConfig, GroupConfig, TopicConfig
from trine.trace.timeline import Found, Trace

__version__ = "0.1.0"


def open(path: str, *, clock: Clock | None = None, seed: int | None = None) -> Broker:
    """Opens a store: a folder, made if there is none, or ":memory:".

    One process at a time may have it open. With a simulated clock nothing happens by itself: call `broker.tick()`.
    """
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
