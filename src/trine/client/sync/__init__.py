# Generated from aio/__init__.py by `make generate`. Do not edit.
"""The interface of a broker that is a server, async. The folder `sync` is generated from this one by `make generate`.

Names, arguments, answers and errors are those of the embedded library, `trine.broker.sync`.
"""

from trine.client.sync.broker import Broker
from trine.client.sync.consumer import Consumer, Message, Messages
from trine.client.sync.group import Group
from trine.client.sync.producer import Producer, Transaction
from trine.client.sync.reader import Reader
from trine.client.sync.redrive import Redrive
from trine.client.sync.sender import Sender
from trine.client.sync.topic import Queue, Topic

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
    "Sender",
    "Topic",
    "Transaction",
]
