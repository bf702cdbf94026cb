"""The async form: the same names as `trine`, with `await`.

>>> import asyncio, trine.aio
>>> async def main():
...     async with trine.aio.open(":memory:") as broker:
...         orders = await broker.create_topic("orders")
...         return (await orders.publish(b"1")).durability
>>> asyncio.run(main())
'memory'
"""

from __future__ import annotations

from trine.broker.aio import AsyncBroker as Broker
from trine.broker.aio import AsyncConsumer as Consumer
from trine.broker.aio import AsyncGroup as Group
from trine.broker.aio import AsyncMessage as Message
from trine.broker.aio import AsyncProducer as Producer
from trine.broker.aio import AsyncQueue as Queue
from trine.broker.aio import AsyncReader as Reader
from trine.broker.aio import AsyncRedrive as Redrive
from trine.broker.aio import AsyncTopic as Topic
from trine.broker.aio import AsyncTransaction as Transaction
from trine.broker.aio import Messages
from trine.broker.opening import open_store
from trine.client import aio as remote
from trine.client.address import DEFAULT
from trine.client.opening import make_link
from trine.model.clock import Clock
from trine.model.message import Duration


def open(path: str, *, clock: Clock | None = None, seed: int | None = None) -> Broker:
    """Opens a store, as `trine.open` does; recovery of a large one takes its time before this returns."""
    return Broker(*open_store(path, clock=clock, seed=seed))


def connect(
    url: str = DEFAULT,
    *,
    key: str | None = None,
    ca: str | None = None,
    timeout: Duration = "30s",
    name: str | None = None,
) -> remote.AsyncBroker:
    """Connects to a server, as `trine.connect` does: on `async with`, or with the first call."""
    return remote.AsyncBroker(make_link(url, key, ca, timeout, name))


__all__ = [
    "Broker",
    "Consumer",
    "Group",
    "Message",
    "Messages",
    "Producer",
    "Queue",
    "Reader",
    "Redrive",
    "Topic",
    "Transaction",
    "connect",
    "open",
]
