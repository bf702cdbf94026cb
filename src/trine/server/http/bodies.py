"""Messages as JSON: how they are given to publish, and how they are shown.

Content is given as one of `value` (any JSON), `text`, or `base64`; `"value": null` is a message without a value, which
is what a compacted topic deletes a key by. It is shown by the first of these that can hold it, unless `as` says
otherwise. Keys and headers are text; what is not text stands in `key_base64` and `headers_base64`.
"""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from trine.log.stored import DeadLetter, StoredMessage
from trine.model import limits
from trine.model.duration import iso
from trine.model.errors import InvalidInput
from trine.model.message import RESERVED, Outgoing, PublishReceipt
from trine.server.http.problems import BadRequest, bad_body

Show = Literal["auto", "json", "text", "base64"]
Span = Annotated[
    str | float,
    Meta(
        description="A duration: seconds as a number, or text such as `250ms`, `30s`, `1h30m`, `7d`.",
        examples=["30s"],
    ),
]
When = Annotated[
    str | float,
    Meta(
        description="An instant: ISO 8601 text, or seconds since the epoch.",
        examples=["2026-01-14T15:00:00Z"],
    ),
]
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.NAME_CHARS_MAX,
        pattern="^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        description="Letters, digits, `.`, `_` and `-`.",
    ),
]
PUBLISH_MESSAGES_MAX: Final = limits.BATCH_MESSAGES_MAX
"""Of one request: each becomes an object before it is a record."""
JSON_SHOWN_BYTES_MAX: Final = limits.MIB
"""Larger values are not looked into to see whether they are JSON: they are shown as text."""


class MessageIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One message to publish: its content (one of value, text and base64) and its options."""

    value: Any = UNSET
    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] | None = None
    headers_base64: dict[str, str] | None = None
    priority: str | None = None
    delay: Span | None = None
    deliver_at: When | None = None
    ttl: Span | None = None
    dedup_id: str | None = None
    partition: Annotated[int, Meta(ge=0)] | None = None
    producer: str | None = None


class PublishIn(MessageIn, kw_only=True, forbid_unknown_fields=True):
    """One message, or many under `messages`; the options beside `messages` hold for those without their own."""

    messages: Annotated[list[MessageIn], Meta(min_length=1, max_length=PUBLISH_MESSAGES_MAX)] | UnsetType = (
        UNSET
    )
    durability: Literal["memory", "written", "synced"] | None = None
    wait: Span | None = None
    """How long to wait for room in a full topic."""


class _RawMessage(MessageIn, kw_only=True, forbid_unknown_fields=True):
    """`MessageIn` as it is decoded: JSON values are stored as they came, byte for byte."""

    value: msgspec.Raw | UnsetType = UNSET


class RawPublish(PublishIn, kw_only=True, forbid_unknown_fields=True):
    value: msgspec.Raw | UnsetType = UNSET
    messages: (
        Annotated[list[_RawMessage], Meta(min_length=1, max_length=PUBLISH_MESSAGES_MAX)] | UnsetType
    ) = UNSET  # type: ignore[assignment]


class PublishedOne(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a message is, and how durable it was when this was answered."""

    id: str
    """The message id, or the schedule id of a message that waits for its time."""
    durability: str
    partition: int | None = None
    offset: int | None = None
    schedule_id: str | None = None
    duplicate: bool = False


class PublishedMany(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    durability: str
    messages: list[PublishedOne]


class MessageOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message as it stands in the log."""

    id: str
    topic: str
    partition: int
    offset: int
    timestamp: str
    timestamp_ms: int
    priority: str
    value: Any = UNSET
    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] = {}
    headers_base64: dict[str, str] = {}
    expires: str | None = None
    dedup_id: str | None = None
    producer: str | None = None
    schedule_id: str | None = None


class PreviewOut(MessageOut, frozen=True, kw_only=True, omit_defaults=True):
    """A message whose value may be cut."""

    size: int | None
    """Bytes of the value; null of a message without one."""
    cut: bool = False
    """What is shown is the beginning of the value, as text or base64."""


class Delivered(MessageOut, frozen=True, kw_only=True, omit_defaults=True):
    """A message with a lease: settle it by its receipt before the deadline."""

    receipt: str
    attempt: int
    deadline: str
    deadline_ms: int


class LetterOut(PreviewOut, frozen=True, kw_only=True, omit_defaults=True):
    """A dead letter, with why, when, how often and where it came from."""

    reason: str
    origin: str
    group: str
    attempts: int
    failed: str


# --- in


def outgoing(given: MessageIn) -> Outgoing:
    return Outgoing(
        value=_content(given),
        key=either(given.key, given.key_base64, "key"),
        headers=_headers(given),
        priority=given.priority,
        delay=given.delay,
        deliver_at=given.deliver_at,
        ttl=given.ttl,
        dedup_id=given.dedup_id,
        partition=given.partition,
        producer=given.producer,
    )


def has_content(given: MessageIn) -> bool:
    return given.value is not UNSET or given.text is not UNSET or given.base64 is not UNSET


def _content(given: MessageIn) -> bytes | str | None:
    value, text, encoded = given.value, given.text, given.base64
    if text is UNSET and encoded is UNSET:
        if value is UNSET:
            raise InvalidInput("a message has one of value (JSON), text and base64; this one has none")
        raw = bytes(value) if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
        return None if raw == b"null" else raw
    if value is not UNSET or (text is not UNSET and encoded is not UNSET):
        raise InvalidInput("a message has one of value (JSON), text and base64, not several")
    return text if text is not UNSET else decode_base64(encoded, "base64")  # type: ignore[arg-type]


def either(text: str | None, encoded: str | None, what: str) -> bytes | str | None:
    if encoded is None:
        return text
    if text is not None:
        raise InvalidInput(f"give {what} or {what}_base64, not both")
    return decode_base64(encoded, f"{what}_base64")


def _headers(given: MessageIn) -> Mapping[str, bytes | str] | None:
    if given.headers_base64 is None:
        return given.headers
    binary = {name: decode_base64(text, f"header {name!r}") for name, text in given.headers_base64.items()}
    return {**(given.headers or {}), **binary}


def decode_base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(f"{what} is not base64: {error}") from error


# --- out


def published_one(receipt: PublishReceipt) -> PublishedOne:
    return PublishedOne(
        id=receipt.message_id,
        durability=receipt.durability,
        partition=receipt.partition,
        offset=receipt.offset,
        schedule_id=receipt.schedule_id,
        duplicate=receipt.duplicate,
    )


def message_out(message: StoredMessage, show: Show) -> MessageOut:
    return MessageOut(**fields_of(message, show))


def preview_out(message: StoredMessage, show: Show, most: int | None) -> PreviewOut:
    """With at most so many bytes of its value; None: all of it."""
    fields = fields_of(message, show, most)
    return PreviewOut(**fields, **_size(message, most))


def _size(message: StoredMessage, most: int | None) -> dict[str, Any]:
    size = None if message.value is None else len(message.value)
    return {"size": size, "cut": most is not None and size is not None and size > most}


def letter_out(letter: DeadLetter, show: Show, most: int | None = None) -> LetterOut:
    return LetterOut(
        **fields_of(letter, show, most),
        **_size(letter, most),
        reason=letter.reason,
        origin=letter.origin,
        group=letter.group,
        attempts=letter.attempts,
        failed=iso(letter.failed_ms),
    )


def fields_of(message: StoredMessage, show: Show, most: int | None = None) -> dict[str, Any]:
    """What every kind of message shows, and at most so many bytes of its value. The broker's own headers are shown as
    fields, not among the headers.
    """
    timestamp = message.timestamp_ms
    fields: dict[str, Any] = {
        "id": message.id,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": iso(timestamp),
        "timestamp_ms": timestamp,
        "priority": message.priority,
    }
    form, content = shown_content(message.value, show, most)
    fields[form] = content
    if message.key is not None:
        put_bytes(fields, "key", message.key)
    headers = message._record.headers
    if headers:
        _show_headers(fields, message, headers)
    return fields


def _show_headers(
    fields: dict[str, Any], message: StoredMessage, headers: Sequence[tuple[str, bytes | None]]
) -> None:
    texts: dict[str, str] = {}
    binary: dict[str, str] = {}
    for name, value in headers:
        if name.startswith(RESERVED):
            continue
        try:
            texts[name] = (value or b"").decode()
        except UnicodeDecodeError:
            binary[name] = base64.b64encode(value or b"").decode()
    fields["headers"] = texts
    fields["headers_base64"] = binary
    if (expires := message.expires_ms) is not None:
        fields["expires"] = iso(expires)
    fields["dedup_id"] = message.dedup_id
    fields["producer"] = message.producer
    fields["schedule_id"] = message.schedule_id


def put_bytes(fields: dict[str, Any], name: str, raw: bytes) -> None:
    try:
        fields[name] = raw.decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = base64.b64encode(raw).decode()


def shown_content(value: bytes | None, show: Show, most: int | None = None) -> tuple[str, Any]:
    """(which field, what stands in it). A value that is the word null is text: null means no value."""
    if value is None:
        return "value", None
    if most is not None and len(value) > most:
        return _beginning(value[:most], show)
    if (
        show in ("auto", "json")
        and value != b"null"
        and len(value) <= JSON_SHOWN_BYTES_MAX
        and is_json(value)
    ):
        return "value", msgspec.Raw(value)
    if show != "base64":
        try:
            return "text", value.decode()
        except UnicodeDecodeError:
            pass
    return "base64", base64.b64encode(value).decode()


def _beginning(value: bytes, show: Show) -> tuple[str, Any]:
    """Of a value that is cut: a character that the cut went through is left out."""
    if show != "base64":
        try:
            return "text", codecs.getincrementaldecoder("utf-8")().decode(value)
        except UnicodeDecodeError:
            pass
    return "base64", base64.b64encode(value).decode()


_JSON: Final = msgspec.json.Decoder()


def is_json(value: bytes) -> bool:
    try:
        _JSON.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


# --- reading a request's body


def decode_body(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """The body as its struct, or a problem that names the field."""
    try:
        return decoder.decode(body or b"{}")
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise bad_body(error) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(400, f"the body is not JSON: {error}") from error
