"""Cron: when a recurring schedule is next due.

Three notations: cron expressions of five fields (six with seconds in front), the usual names (`@hourly`,
`@daily` and so on), and intervals (`every 30s`, `every 5m`) that are aligned to the epoch, so that every
broker and every restart agrees on the instants without remembering the last one.

Expressions are read and stepped by `cronsim`, which follows Debian's cron where clocks change: a job at a
fixed time that the clock skips runs right after the gap, one at a time that comes twice runs once, and jobs
of every hour or minute just go on. What is added here is the guarantee the schedule needs: the answer is
always later than the instant asked about, also in the hour that comes twice.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from trine.model.duration import duration_ms, format_ms, iso
from trine.model.errors import InvalidCron, InvalidDuration

EXPRESSION_CHARS_MAX: Final = 256
"""Longer than any expression a person wrote; what is longer is not worth parsing."""

EVERY_MS_MIN: Final = 100
"""Each occurrence is a message and a journal entry: a shorter interval is a load test, not a schedule."""

NAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@minutely": "* * * * *",
}

_ACCEPTED: Final = 'Give five fields such as "0 9 * * MON-FRI", a name such as "@hourly", or "every 5m"'
_EVERY: Final = re.compile(r"every\s+(.+)", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def check(expression: str, tz: str = "UTC") -> None:
    """Raise InvalidCron, with what is wrong, unless the expression has occurrences in the time zone."""
    next_after(expression, 0, tz)


def next_after(expression: str, after_ms: int, tz: str = "UTC") -> int:
    """The first occurrence strictly after an instant.

    >>> iso(next_after("30 9 * * *", 0)), iso(next_after("every 5m", 1))
    ('1970-01-01T09:30:00.000Z', '1970-01-01T00:05:00.000Z')
    """
    zone = _zone(tz)
    text = expression.strip() if isinstance(expression, str) else ""
    if not text or len(text) > EXPRESSION_CHARS_MAX:
        raise InvalidCron(
            f"A cron expression is a text of 1 to {EXPRESSION_CHARS_MAX} characters. {_ACCEPTED}."
        )
    if every := _EVERY.fullmatch(text):
        interval_ms = _interval_ms(every[1])
        return (after_ms // interval_ms + 1) * interval_ms
    return _next_by_fields(_fields(text), text, after_ms, zone)


def _fields(text: str) -> str:
    if not text.startswith("@"):
        return text
    fields = NAMES.get(text.lower())
    if fields is None:
        raise InvalidCron(f"{text!r} is not a known name; there are {', '.join(NAMES)}.")
    return fields


def _interval_ms(text: str) -> int:
    try:
        interval_ms = duration_ms(text, what="interval")
    except InvalidDuration as error:
        raise InvalidCron(error.message) from None
    if interval_ms < EVERY_MS_MIN:
        raise InvalidCron(f"The interval {text!r} is too short; the shortest is {format_ms(EVERY_MS_MIN)}.")
    return interval_ms


def _next_by_fields(fields: str, text: str, after_ms: int, zone: tzinfo) -> int:
    try:
        after = _EPOCH + timedelta(milliseconds=after_ms)
        # In the hour that comes twice, and behind a gap, the library may answer an instant that is not later
        # than the one asked about; one of its next answers is.
        for occurrence in CronSim(fields, after.astimezone(zone)):
            instant = (occurrence - _EPOCH) // _MS
            if instant > after_ms:
                return instant
    except CronSimError as error:
        raise InvalidCron(f"{text!r} is not a cron expression: {str(error).lower()}. {_ACCEPTED}.") from None
    except OverflowError:
        pass  # the search left the calendar: the same as finding nothing
    raise InvalidCron(f"{text!r} has no occurrence within 50 years after {iso(after_ms)}. {_ACCEPTED}.")


def _zone(tz: str) -> tzinfo:
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, TypeError, OSError):
        # OSError: "America" names a folder of the zone database.
        raise InvalidCron(
            f'{tz!r} is not a time zone; give a name of the IANA database such as "Europe/Berlin", or "UTC".'
        ) from None
