"""Every limit of Trine by name, with its reason. What has no limit here grows without one, and is a defect."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

NAME_CHARS_MAX: Final = 200
"""Names become folder names; file systems stop at 255 bytes and we add suffixes (`.dlq`)."""

VALUE_BYTES_MAX: Final = 8 * MIB
"""A message must fit a journal entry many times over; larger things belong in a blob store."""

KEY_BYTES_MAX: Final = 32 * KIB
HEADERS_MAX: Final = 256
HEADER_BYTES_MAX: Final = 64 * KIB
"""Keys and headers are read to route and to trace: they must stay small."""

BATCH_BYTES_MAX: Final = 16 * MIB
"""One encoded batch; publish_many splits above it."""

BATCH_MESSAGES_MAX: Final = 50_000
"""Records of one batch are decoded together; more would stall a reader that wants one of them."""

ENTRY_BYTES_MAX: Final = 32 * MIB
"""One journal entry (a transaction may span many logs): half a journal file, so that it always fits one."""

FRAME_BYTES_MAX: Final = 32 * MIB
"""One frame of the binary protocol: a journal entry's worth of batches. What announces more is not a client."""

HELLO_BYTES_MAX: Final = 4 * KIB
"""The first frame of a connection: names and a key. Until it has come, nobody is believed to need more."""

FRAME_ITEMS_MAX: Final = 200_000
"""Batches or runs of one frame, and items of one list of a call: they become objects, and the smallest ones that fit
a frame would take a gigabyte of memory."""

OPTIONS_BYTES_MAX: Final = 64 * KIB
"""A call that carries free-form options: hostile nesting takes sixty times its size in memory."""

PARTITIONS_MAX: Final = 4096
"""Per topic. A partition costs a folder, a file handle and a few kilobytes of memory."""

TOPICS_MAX: Final = 10_000
GROUPS_MAX: Final = 10_000
MEMBERS_MAX: Final = 10_000
"""Per group. Assignment is recomputed when one joins or leaves."""

LANES_MAX: Final = 16
"""The lane stands in four attribute bits of the batch header."""

RECEIVE_MAX: Final = 10_000
"""Messages one receive may lease; also the longest run one lease covers."""

IN_FLIGHT_MAX: Final = 200_000
"""Default leases outstanding per group: memory is bounded even if no consumer ever acks."""

DEFERRED_MAX: Final = 50_000
"""Messages of busy keys a key-ordered group holds aside per partition before it stops looking further ahead."""

DEPTH_MAX: Final = 1_000_000_000
"""Default messages a topic holds for its slowest group before publishers are refused."""

DELAY_MS_MAX: Final = 7 * 24 * 3600 * 1000
"""Default longest delay, as SPEC has it; a topic may allow more (`delay_max`)."""

DELAY_MS_CEILING: Final = 10 * 366 * 24 * 3600 * 1000
"""The most `delay_max` may be set to: schedule buckets are hours, and ten years of them still fit a folder."""

DEDUP_IDS_MAX: Final = 2_000_000
"""Ids one topic's dedup window may hold (about 150 bytes each); beyond it publishers are refused."""

DEDUP_ID_CHARS_MAX: Final = 128
PRODUCERS_MAX: Final = 10_000
"""Idempotent producers remembered per partition; the longest silent one is forgotten first."""

REASON_CHARS_MAX: Final = 500
"""Reasons of nacks and rejects are kept in the ledger; longer ones are cut."""

ATTEMPTS_MAX: Final = 65_535
"""The ledger's attempt is a u16."""

DECODED_BATCHES_MAX: Final = 16
"""Chunks kept decoded, so that small receives of a large batch decode it once. More would not be read again, and
every record kept alive is looked at by the garbage collector."""

ALIKE_BATCHES_MAX: Final = 16
"""Batches of values alike that are kept to be cut from: about one for each partition that is read in small parts."""

ALIKE_BYTES_MAX: Final = 2 * MIB
"""A larger one is not kept, so that all of them take 32 MiB at the most."""

TAIL_BYTES_MAX: Final = 1 * MIB
"""Bytes a log keeps in memory before they are handed to its segment file."""

PREFETCH_MAX: Final = 100_000
"""Messages a server may have pushed to one consumer that has not taken them yet: they are in its memory, and leased."""

SEND_BUFFER_BYTES: Final = 32 * MIB
"""What a sender holds that is not answered yet, unless it is told otherwise; beyond it `send` waits."""

SCHEDULE_FIRE_MAX: Final = 5_000
"""Due messages moved into the log in one journal entry; a larger burst takes several."""
PATH_CHARS_MAX = 1024
"""Of a topic's archive: longer than any path or address of a bucket that works elsewhere."""
