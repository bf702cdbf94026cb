# Generated from aio/__init__.py by `make generate`. Do not edit.
"""The public interface, async. The folder `sync` is generated from this one by `make generate`.

Handles (topic, group, consumer) are cheap and hold no state of their own but names: everything is in the engine.
A method waits only for durability, for a message, or for room.
"""

from trine.broker.sync.broker import Broker
from trine.broker.sync.consumer import Consumer, Message, Messages
from trine.broker.sync.group import Group
from trine.broker.sync.producer import Producer, Transaction
from trine.broker.sync.reader import Reader
from trine.broker.sync.redrive import Redrive
from trine.broker.sync.topic import Queue, Topic

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
]
