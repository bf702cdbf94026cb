"""The interface of a broker that is a server, async. The folder `sync` is generated from this one by `make generate`.

Names, arguments, answers and errors are those of the embedded library, `trine.broker.aio`.
"""

from trine.client.aio.broker import AsyncBroker
from trine.client.aio.consumer import AsyncConsumer, AsyncMessage, Messages
from trine.client.aio.group import AsyncGroup
from trine.client.aio.producer import AsyncProducer, AsyncTransaction
from trine.client.aio.reader import AsyncReader
from trine.client.aio.redrive import AsyncRedrive
from trine.client.aio.sender import AsyncSender
from trine.client.aio.topic import AsyncQueue, AsyncTopic

__all__ = [
    "AsyncBroker",
    "AsyncConsumer",
    "AsyncGroup",
    "AsyncMessage",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncReader",
    "AsyncRedrive",
    "AsyncSender",
    "AsyncTopic",
    "AsyncTransaction",
    "Messages",
]
