"""The receipt: proof of a lease, self-describing and signed, so that no table of receipts has to be kept.

A receipt is base64url text of, version 1:

    0   u8   version (1)
    1   u32  partition
    5   i64  offset
   13   u16  attempt
   15   i64  lease number (the ledger row that recorded the delivery)
   23   u8   length of the topic's name, then the name
        u8   length of the group's name, then the name
        16 B BLAKE2s of all before it, keyed with the group's key: BLAKE2s of "topic/group" under the store's secret

Who may consume in a group may know the group's key: it lets nobody settle what he could not settle anyway. A stale
receipt (the lease is over) is well signed and told apart from a forged one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from trine.model.errors import InvalidReceipt
from trine.model.ids import MessageId

_FIXED: Final = struct.Struct("<BIqHq")
_MAC_BYTES: Final = 16
_VERSION: Final = 1


class Receipt(NamedTuple):
    topic: str
    group: str
    partition: int
    offset: int
    attempt: int
    lease: int

    @property
    def message_id(self) -> MessageId:
        return MessageId(self.topic, self.partition, self.offset)


def write_receipt(receipt: Receipt, key: bytes) -> str:
    return write_receipts(receipt, key, (receipt.offset,))[0]


def write_receipts(first: Receipt, key: bytes, offsets: Iterable[int]) -> list[str]:
    """Receipts that differ in their offsets alone: those of the messages of one lease."""
    topic, group = first.topic.encode(), first.group.encode()
    names = b"%c%b%c%b" % (len(topic), topic, len(group), group)
    unsigned = _signer(key)
    made = []
    for offset in offsets:
        body = _FIXED.pack(_VERSION, first.partition, offset, first.attempt, first.lease) + names
        signer = unsigned.copy()
        signer.update(body)
        made.append(base64.urlsafe_b64encode(body + signer.digest()).decode().rstrip("="))
    return made


def group_key(secret: bytes, topic: str, group: str) -> bytes:
    """The key that signs the receipts of one group."""
    return hashlib.blake2s(f"{topic}/{group}".encode(), key=secret).digest()


def read_receipt(text: str, key: bytes, topic: str, group: str) -> Receipt:
    """What the text is proof of, if it is a receipt of this group."""
    body, mac, receipt = _read(text)
    version = body[0]
    if version == _VERSION and (receipt.topic, receipt.group) != (topic, group):
        raise InvalidReceipt(
            f"this receipt is of group {receipt.group!r} of topic {receipt.topic!r}, not of {group!r} of {topic!r}"
        )
    if version != _VERSION or not hmac.compare_digest(mac, _mac(body, key)):
        raise InvalidReceipt(
            "this receipt was not made by this broker, or was changed; use the one given with it"
        )
    return receipt


def read_names(text: str) -> tuple[str, str]:
    """The topic and the group a receipt says it is of: whose key `read_receipt` has to check it with."""
    _, _, receipt = _read(text)
    return receipt.topic, receipt.group


def _read(text: str) -> tuple[bytes, bytes, Receipt]:
    """(what is signed, the signature, what it says): believed by nobody yet."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        body, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        _, partition, offset, attempt, lease = _FIXED.unpack_from(body)
        topic_end = _FIXED.size + 1 + body[_FIXED.size]
        topic = body[_FIXED.size + 1 : topic_end].decode()
        group = body[topic_end + 1 : topic_end + 1 + body[topic_end]].decode()
    except (binascii.Error, struct.error, IndexError, UnicodeDecodeError, ValueError, TypeError) as error:
        raise InvalidReceipt(
            "this is not a receipt; use the one given with the message, unchanged"
        ) from error
    return body, mac, Receipt(topic, group, partition, offset, attempt, lease)


def _mac(body: bytes, key: bytes) -> bytes:
    signer = _signer(key)
    signer.update(body)
    return signer.digest()


def _signer(key: bytes) -> hashlib.blake2s:
    return hashlib.blake2s(key=key, digest_size=_MAC_BYTES)
