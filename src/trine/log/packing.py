"""How messages become batches, for whoever makes them: the broker for its embedded users, a client for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from trine.log.alike import common_size
from trine.log.batch import encode_values
from trine.model.durability import Level
from trine.model.errors import InvalidOption
from trine.model.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from trine.model.message import Draft
from trine.model.options import TopicConfig

COMPRESSIONS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORD_BYTES: Final = 64
"""What a record takes beside its key, value and headers, at most."""
_LEVELS: Final = {"memory": Level.MEMORY, "written": Level.WRITTEN, "synced": Level.SYNCED}


def level_named(durability: object) -> Level:
    try:
        return _LEVELS[durability]  # type: ignore[index]
    except (KeyError, TypeError):
        raise InvalidOption(f"durability is 'memory', 'written' or 'synced', not {durability!r}") from None


def pack_values(given: Sequence[Any], config: TopicConfig, lane: int, now: int) -> bytearray | None:
    """The hot path: bytes alone, small enough for one batch, and nothing to look into. None if it is not that."""
    count = len(given)
    if config.ttl_ms is not None or config.dedup_by_content or count > BATCH_MESSAGES_MAX:
        return None
    if set(map(type, given)) != {bytes}:
        return None
    size = common_size(given)
    total = sum(map(len, given)) if size is None else size * count
    if total + count * RECORD_BYTES > BATCH_BYTES_MAX:
        return None
    if total > config.message_bytes_max and max(map(len, given)) > config.message_bytes_max:
        return None
    return encode_values(given, now, lane=lane, compression=COMPRESSIONS[config.compression], size=size)


def chunks(drafts: Sequence[Draft], indexes: Sequence[int]) -> list[list[int]]:
    """Splits what goes to one place into batches within the limits."""
    made: list[list[int]] = [[]]
    size = 0
    for index in indexes:
        more = draft_bytes(drafts[index])
        if made[-1] and (size + more > BATCH_BYTES_MAX or len(made[-1]) >= BATCH_MESSAGES_MAX):
            made.append([])
            size = 0
        made[-1].append(index)
        size += more
    return made


def draft_bytes(one: Draft) -> int:
    """What a message takes in a batch, at most."""
    return (
        len(one.value or b"")
        + len(one.key or b"")
        + sum(len(name) + len(value or b"") for name, value in one.headers)
        + RECORD_BYTES
    )
