"""A message on the screen, and as JSON.

In JSON a key, a value or a header is text if its bytes are UTF-8. If they are not, the field is null, and the bytes
are in a field beside it whose name ends in `_base64`.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from trine.cli.session import cell
from trine.log.stored import StoredMessage
from trine.model.duration import iso
from trine.model.message import H_ATTEMPTS, H_FAILED, H_GROUP, H_MEMBER, H_ORIGIN, H_REASON, I64, RESERVED

VALUE_BYTES_SHOWN: Final = 500
"""Of a value in a table: more is cut off before it is decoded."""


def shown(raw: bytes | None) -> str | None:
    """Bytes for a table."""
    return None if raw is None else raw[:VALUE_BYTES_SHOWN].decode(errors="backslashreplace")


def put(record: dict[str, Any], name: str, raw: bytes | None) -> None:
    """Sets a field of bytes as the module's docstring says."""
    record[name] = None
    if raw is not None:
        try:
            record[name] = raw.decode()
        except UnicodeDecodeError:
            record[f"{name}_base64"] = base64.b64encode(raw).decode()


def message_record(message: StoredMessage) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": message.id,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "time": iso(message.timestamp_ms),
        "timestamp_ms": message.timestamp_ms,
    }
    put(record, "key", message.key)
    put(record, "value", message.value)
    headers: dict[str, Any] = {}
    for name, raw in message.headers.items():
        if not name.startswith(RESERVED):
            put(headers, name, raw)
    record["headers"] = headers
    record["priority"] = message.priority
    if message.expires_ms is not None:
        record["expires"] = iso(message.expires_ms)
    for word in ("dedup_id", "producer", "schedule_id"):
        if (given := getattr(message, word)) is not None:
            record[word] = given
    for word in ("attempt", "receipt"):
        if (given := getattr(message, word, None)) is not None:
            record[word] = given
    return record


def letter_record(letter: StoredMessage) -> dict[str, Any]:
    """A dead letter: the message, and what its own headers say of how it ended."""
    headers = letter.headers
    record = message_record(letter)

    def text(name: str) -> str:
        return headers.get(name, b"").decode(errors="replace")

    failed = headers.get(H_FAILED)
    record |= {
        "reason": text(H_REASON),
        "origin": text(H_ORIGIN),
        "group": text(H_GROUP),
        "member": text(H_MEMBER) or None,
        "attempts": int(text(H_ATTEMPTS) or 0),
        "failed": iso(letter.timestamp_ms if failed is None else I64.unpack(failed)[0]),
    }
    return record


def message_line(message: StoredMessage) -> str:
    """One line for people: time, id, key, value."""
    attempt = getattr(message, "attempt", 1)
    told = f"{iso(message.timestamp_ms)}  {message.id:<20}  {cell(shown(message.key)):<16}  "
    return told + (f"(attempt {attempt}) " if attempt > 1 else "") + cell(shown(message.value))


LINE_HEAD: Final = f"{'time':<24}  {'id':<20}  {'key':<16}  value"
