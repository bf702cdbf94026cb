"""Dead letters: messages given up on, in `<topic>.dlq`, each with why, when, how often and where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trine.broker.entry import Entry
from trine.log import batch
from trine.log.batch import StoredRecord
from trine.model.ids import DLQ_SUFFIX
from trine.model.limits import REASON_CHARS_MAX
from trine.model.message import (
    DEAD_LETTER_HEADERS,
    H_ATTEMPTS,
    H_EXPIRES,
    H_FAILED,
    H_GROUP,
    H_MEMBER,
    H_ORIGIN,
    H_REASON,
    I64,
)
from trine.model.options import TopicConfig
from trine.queue.rows import Kind, Row, pack_place

if TYPE_CHECKING:
    from trine.broker.group_part import GroupPart
    from trine.broker.settlement import Settlement


def dlq_name(topic: str) -> str:
    return topic + DLQ_SUFFIX


def dlq_config(origin: TopicConfig) -> TopicConfig:
    """Dead letters are kept until somebody looks: no retention by age, the same lanes and partitions."""
    return TopicConfig(
        kind="dead_letters",
        partitions=origin.partitions,
        lanes=origin.lanes,
        retention_ms=None,
        dedup_window_ms=1,
    )


def record_bytes(record: StoredRecord) -> int:
    """About what a record takes in a batch, as a dead letter too."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + REASON_CHARS_MAX + 256


def bury(
    entry: Entry,
    group: Settlement,
    part: GroupPart,
    first: int,
    count: int,
    attempts: int,
    reason: str,
    member: str | None,
    now: int,
    lease: int,
) -> list[Row]:
    """Adds the dead letters of a run to the entry; answers the rows that settle the run here."""
    partition = part.partition
    reason = reason[:REASON_CHARS_MAX]
    dlq = group.engine.dead_letter_topic(group.topic)
    target = dlq.partitions[partition.number % len(dlq.partitions)]
    lane = partition.lane_of(first)
    ledger = part.ledger
    who = ledger.name(member) if member else 0
    why = ledger.name(reason)
    records = partition.records(first, count)
    if not records:
        return [Row(Kind.GONE, lane, attempts, who, why, now, first, count, 0, lease)]
    letters = []
    for record in records:
        headers = [
            pair for pair in record.headers if pair[0] not in DEAD_LETTER_HEADERS and pair[0] != H_EXPIRES
        ]
        headers += [
            (H_ORIGIN, f"{partition.topic.name}/{partition.number}/{record.offset}".encode()),
            (H_GROUP, group.name.encode()),
            (H_REASON, reason.encode()),
            (H_ATTEMPTS, str(attempts).encode()),
            (H_FAILED, I64.pack(now)),
        ]
        if member:
            headers.append((H_MEMBER, member.encode()))
        letters.append((now, record.key, record.value, headers))
    offset = entry.append(target, batch.encode(letters, lane=min(lane, len(dlq.config.lanes) - 1)))
    group.engine.wake_after(entry, dlq)
    if len(records) == count:
        place = pack_place(target.number, offset)
        return [Row(Kind.DEAD_LETTERED, lane, attempts, who, why, now, first, count, place, lease)]
    here = {record.offset: index for index, record in enumerate(records)}
    return [
        Row(
            Kind.DEAD_LETTERED,
            lane,
            attempts,
            who,
            why,
            now,
            one,
            1,
            pack_place(target.number, offset + here[one]),
            lease,
        )
        if one in here
        else Row(Kind.GONE, lane, attempts, who, why, now, one, 1, 0, lease)
        for one in range(first, first + count)
    ]
