"""Which partition a key belongs to: murmur2, as Kafka's clients have it, so that a key lands in the same partition
whoever wrote it. The broker and its clients choose by the same function."""

from __future__ import annotations

from typing import Final

from murmurhash2 import murmurhash2

MURMUR_SEED: Final = 0x9747B28C
"""The seed Kafka's clients use."""


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key among so many.

    >>> partition_of(b"foobar", 100)
    66
    """
    return int((murmurhash2(key, MURMUR_SEED) & 0x7FFFFFFF) % partitions)
