"""Names and ids: how they are spelled, and the refusal of what could not be one.

    message id    topic/partition/offset       orders/2/1841
    schedule id   topic@hour-row               orders@494221-17

A name becomes a folder, so its letters are restricted here, once, for every way in: nothing a user types
can name a path outside the data directory.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from trine.model.errors import InvalidName, UnknownMessage, UnknownSchedule
from trine.model.limits import NAME_CHARS_MAX

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_MESSAGE = re.compile(r"([^/@]+)/(\d{1,9})/(\d{1,18})")
_SCHEDULE = re.compile(r"([^/@]+)@(\d{1,12})-(\d{1,12})")

DLQ_SUFFIX = ".dlq"


class MessageId(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class ScheduleId(NamedTuple):
    topic: str
    hour: int
    row: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.hour}-{self.row}"


def check_name(name: object, what: str) -> str:
    """The name itself, or InvalidName that says which letters a `what` may have."""
    if not isinstance(name, str):
        raise InvalidName(f"a {what} name is a string, not {type(name).__name__}")
    if not name:
        raise InvalidName(f"a {what} name is empty; give it 1 to {NAME_CHARS_MAX} characters")
    if len(name) > NAME_CHARS_MAX:
        raise InvalidName(f"a {what} name has {len(name)} characters; {NAME_CHARS_MAX} are allowed")
    if not _NAME.fullmatch(name):
        raise InvalidName(
            f"{name!r} is not a {what} name: use letters, digits, '.', '_' and '-', beginning with a letter, "
            "a digit or '_'"
        )
    return name


def parse_message_id(text: str) -> MessageId:
    match = _MESSAGE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise UnknownMessage(f"{text!r} is not a message id; one looks like orders/2/1841")
    return MessageId(match[1], int(match[2]), int(match[3]))


def parse_schedule_id(text: str) -> ScheduleId:
    match = _SCHEDULE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise UnknownSchedule(f"{text!r} is not a schedule id; one looks like orders@494221-17")
    return ScheduleId(match[1], int(match[2]), int(match[3]))
