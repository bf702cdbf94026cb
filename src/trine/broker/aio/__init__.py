"""The public interface, async. The folder `sync` is generated from this one by `make generate`.

Handles (topic, group, consumer) are cheap and hold no state of their own but names: everything is in the engine.
A method waits only for durability, for a message, or for room.
"""

from trine.broker.aio.broker import AsyncBroker
from trine.broker.aio.consumer import AsyncConsumer, AsyncMessage, Messages
from trine.broker.aio.group import AsyncGroup
from trine.broker.aio.producer import AsyncProducer, AsyncTransaction
from trine.broker.aio.reader import AsyncReader
from trine.broker.aio.redrive import AsyncRedrive
from trine.broker.aio.topic import AsyncQueue, AsyncTopic

__all__ = [
    "AsyncBroker",
    "AsyncConsumer",
    "AsyncGroup",
    "AsyncMessage",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncReader",
    "AsyncRedrive",
    "AsyncTopic",
    "AsyncTransaction",
    "Messages",
]
