"""What a client knows of topics, and the batches it makes by that.

A topic is asked for once and remembered; the server refuses batches that were made by what is no longer true
(`stale_metadata`), and then it is asked for again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from trine.log import batch
from trine.log.packing import COMPRESSIONS, chunks, level_named
from trine.model.duration import duration_ms, instant_ms
from trine.model.message import RESERVED, Draft, Outgoing, Place, Published, PublishReceipt
from trine.model.options import TopicConfig
from trine.model.partitioning import partition_of
from trine.wire.bodies import SERVER_CHOOSES, TOPICS_OWN, read_published, write_publish
from trine.wire.calls import GetTopic, PublishedReply, TopicReply, WireOutgoing

if TYPE_CHECKING:
    from trine.client.link import Link

WORDS: Final = ("memory", "written", "synced")
BATCH_HEAD: Final = struct.Struct("<II")
"""Of a batch in a PUBLISH: its partition and its size."""
KNOWN_MAX: Final = 10_000
"""Topics remembered; a client that touches more asks again."""

Batch = tuple[int, bytearray, list[int] | range]
"""Partition (or SERVER_CHOOSES), bytes, and which of the call's messages are in it."""


class Known(msgspec.Struct, frozen=True, gc=False):
    name: str
    config: TopicConfig
    version: int
    compression: int
    plain_bytes_max: int
    """The longest value that needs no look at it: 0 if the topic wants all of them looked at."""
    heads: dict[int, bytes]
    """How a PUBLISH of one batch begins, by durability."""

    def head(self, level: int) -> bytes:
        known = self.heads.get(level)
        if known is None:
            known = self.heads[level] = write_publish_head(self.name, level, self.version)
        return known


class Topics:
    def __init__(self, link: Link) -> None:
        self._link = link
        self.known: dict[str, Known] = {}

    async def fetch(self, name: str, kind: str | None = None) -> Known:
        return self.keep(await self._link.call(GetTopic(name=name, kind=kind)))

    def keep(self, reply: TopicReply) -> Known:
        config = msgspec.convert(reply.config, TopicConfig)
        looks = config.ttl_ms is not None or config.dedup_by_content
        known = Known(
            reply.name,
            config,
            reply.version,
            COMPRESSIONS[config.compression],
            0 if looks else config.message_bytes_max,
            {},
        )
        if len(self.known) >= KNOWN_MAX:
            self.known.clear()
        self.known[reply.name] = known
        return known

    def forget(self, name: str) -> None:
        self.known.pop(name, None)


def level_number(durability: str | None) -> int:
    """The number a PUBLISH says its durability by."""
    return TOPICS_OWN if durability is None else level_named(durability)


def needs_server(drafts: Sequence[Draft], config: TopicConfig) -> bool:
    """Whether the messages must go one by one: the schedule and the dedup window are the server's."""
    return config.dedup_by_content or any(one.due_ms or one.dedup_id is not None for one in drafts)


def chosen_partition(one: Draft, config: TopicConfig) -> int:
    if one.partition is not None:
        return one.partition
    return SERVER_CHOOSES if one.key is None else partition_of(one.key, config.partitions)


def encode_one(one: Draft, known: Known, now: int) -> bytearray:
    flags = batch.HAS_TTL if one.flags_ttl else 0
    return batch.encode_single(
        now, one.key, one.value, one.headers, lane=one.lane, flags=flags, compression=known.compression
    )


def encode_value(known: Known, lane: int, key: bytes | None, value: bytes, now: int) -> bytearray:
    """A batch of one message without headers."""
    return batch.encode_single(now, key, value, None, lane=lane, compression=known.compression)


def encode_drafts(drafts: Sequence[Draft], known: Known, now: int) -> list[Batch]:
    """Batches by partition and lane, each within the limits, in the order the places were first named."""
    targets: dict[tuple[int, int], list[int]] = {}
    for index, one in enumerate(drafts):
        targets.setdefault((chosen_partition(one, known.config), one.lane), []).append(index)
    return [
        (number, encode_some([drafts[index] for index in chunk], known, now, lane), chunk)
        for (number, lane), indexes in targets.items()
        for chunk in chunks(drafts, indexes)
    ]


def encode_some(drafts: Sequence[Draft], known: Known, now: int, lane: int) -> bytearray:
    return batch.encode(
        [(now, one.key, one.value, one.headers) for one in drafts],
        lane=lane,
        flags=batch.HAS_TTL if any(one.flags_ttl for one in drafts) else 0,
        compression=known.compression,
    )


def frames_of(batches: Sequence[Batch], bytes_max: int) -> list[list[Batch]]:
    """The batches by the frames they fit: one, unless a call publishes more than a frame takes."""
    frames: list[list[Batch]] = [[]]
    room = bytes_max
    for one in batches:
        size = len(one[1]) + 8
        if frames[-1] and size > room:
            frames.append([])
            room = bytes_max
        frames[-1].append(one)
        room -= size
    return frames


def placed(topic: str, answers: Sequence[tuple[bytes, list[Batch]]], count: int) -> Published:
    """The answers to the frames of one call, as the embedded library gives them."""
    levels = []
    places: list[Place] = []
    for body, batches in answers:
        level, found = read_published(memoryview(body))
        levels.append(level)
        if len(answers) == len(batches) == 1:
            partition, _, first = found[0]
            return Published(topic, WORDS[level], run=(partition, first, count))
        places = places or [(0, 0)] * count
        for (_, _, indexes), (partition, _, first) in zip(batches, found, strict=True):
            for step, index in enumerate(indexes):
                places[index] = (partition, first + step)
    return Published(topic, WORDS[min(levels)], places=places)


def write_publish_head(topic: str, level: int, version: int) -> bytes:
    """A PUBLISH of one batch, without the batch."""
    head = write_publish(topic, level, version, 0, [(0, b"")])
    return bytes(head[0])


def single_parts(known: Known, level: int, partition: int, data: bytearray) -> tuple[bytes, bytes, bytearray]:
    """A PUBLISH of one batch, which does not wait for room."""
    return known.head(level), BATCH_HEAD.pack(partition, len(data)), data


def receipt_of(topic: str, body: bytes) -> PublishReceipt:
    """The answer to a PUBLISH of one message."""
    level, ((partition, _, first),) = read_published(memoryview(body))
    return PublishReceipt(topic, WORDS[level], partition, first)


def replied(topic: str, reply: PublishedReply) -> Published:
    return Published(topic, reply.durability, places=reply.places, duplicates=frozenset(reply.duplicates))


def wire_outgoing(message: Outgoing, one: Draft) -> WireOutgoing:
    """A message and its draft, which has been checked, as it goes to the server."""
    own = {name: value or b"" for name, value in one.headers if not name.startswith(RESERVED)}
    return WireOutgoing(
        value=one.value,
        key=one.key,
        headers=own or None,
        priority=message.priority,
        delay_ms=None if message.delay is None else duration_ms(message.delay, what="delay"),
        deliver_at_ms=None if message.deliver_at is None else instant_ms(message.deliver_at),
        ttl_ms=None if message.ttl is None else duration_ms(message.ttl, what="ttl"),
        dedup_id=message.dedup_id,
        partition=message.partition,
        producer=message.producer,
    )
