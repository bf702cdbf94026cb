"""Durations and instants: what people write, as whole milliseconds, and back.

Everywhere inside Trine time is an `int` of milliseconds: spans as `..._ms`, instants as milliseconds since
the epoch, UTC. This module is the only place where other notations come in (seconds as numbers, `timedelta`,
`"1h30m"`, ISO 8601) and where milliseconds are written out for people.

Fractions of a millisecond are rounded up, always: a delayed message is never early, and a tiny positive
timeout does not become "no wait at all". Arithmetic is decimal, so that `0.1` is 100 ms and not 101.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final, TypeGuard

from trine.model.errors import InvalidDuration, InvalidTime, NegativeDelay

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
WEEK_MS: Final = 7 * DAY_MS

UNITS_MS: Final = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS, "w": WEEK_MS}

DURATION_MS_MAX: Final = 1000 * 366 * DAY_MS
"""A thousand years: anything longer is a mistake in units, and would leave the calendar when added to now."""

TEXT_CHARS_MAX: Final = 64
"""No duration or instant needs more characters; longer text is not worth parsing."""

ACCEPTED: Final = (
    'Give seconds as a number, a timedelta, or text such as "250ms", "1.5s", "5m", "1h30m", "7d" or "2w"'
)
ACCEPTED_TIME: Final = (
    'Give a datetime, seconds since the epoch as a number, or ISO 8601 text such as "2026-01-14T15:00:00Z"'
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT_MS_MAX: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z: the calendar's end
_MICROSECOND: Final = timedelta(microseconds=1)
_NUMBER: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_SECONDS: Final = re.compile(rf"([+-]?)({_NUMBER})")
_PARTS: Final = re.compile(rf"([+-]?)((?:\s*{_NUMBER}\s*(?:ms|[smhdw]))+)", re.IGNORECASE)
_PART: Final = re.compile(rf"({_NUMBER})\s*(ms|[smhdw])", re.IGNORECASE)
_EPOCH_SECONDS: Final = re.compile(r"[0-9]{9,11}")


def duration_ms(value: float | timedelta | str, *, what: str = "duration") -> int:
    """The duration in whole milliseconds; `what` names it in the error.

    >>> duration_ms(1.5), duration_ms("1h30m"), duration_ms("250ms"), duration_ms("10")
    (1500, 5400000, 250, 10000)
    """
    exact = _exact_ms(value, what)
    if exact < 0:
        error = NegativeDelay if what == "delay" else InvalidDuration
        raise error(f"The {what} {_shown(value)} is negative. {ACCEPTED}, zero or more.")
    if exact > DURATION_MS_MAX:
        raise InvalidDuration(f"The {what} {_shown(value)} is longer than a thousand years. {ACCEPTED}.")
    return int(exact.to_integral_value(rounding=ROUND_CEILING))


def instant_ms(value: datetime | str | float) -> int:
    """The instant in milliseconds since the epoch. A time without a zone is taken as UTC, on every machine.

    >>> instant_ms("2026-01-14T15:00:00Z") == instant_ms("2026-01-14T16:00:00+01:00") == 1768402800000
    True
    """
    if isinstance(value, str):
        value = _from_text(value)
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        instant = -((_EPOCH - aware) // timedelta(milliseconds=1))
    elif not _is_number(value):
        raise InvalidTime(f"{_shown(value)} is not a time. {ACCEPTED_TIME}.")
    elif abs(value) > _INSTANT_MS_MAX:
        raise _beyond(value)
    else:
        instant = int((_decimal(value) * SECOND_MS).to_integral_value(rounding=ROUND_CEILING))
    if instant < 0:
        raise InvalidTime(f"The time {_shown(value)} lies before 1970. {ACCEPTED_TIME}.")
    if instant > _INSTANT_MS_MAX:
        raise _beyond(value)
    return instant


def format_ms(ms: int) -> str:
    """A duration for people: "1m 30s", "1.5s", "250 ms". `duration_ms` reads it back without loss."""
    if ms < 0:
        return "-" + format_ms(-ms)
    if ms < SECOND_MS:
        return f"{ms} ms"
    parts = []
    rest = ms
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    seconds, thousandths = divmod(rest, SECOND_MS)
    if thousandths:
        parts.append(f"{seconds}.{thousandths:03d}".rstrip("0") + "s")
    elif seconds:
        parts.append(f"{seconds}s")
    return " ".join(parts)


@lru_cache(maxsize=1024)  # messages of a batch have one time, those of a lease one deadline
def iso(ms: int) -> str:
    """An instant in UTC with milliseconds: "2026-01-14T15:00:00.000Z". Never raises: errors use it."""
    try:
        instant = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms since the epoch"
    return instant.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _exact_ms(value: object, what: str) -> Decimal:
    if isinstance(value, timedelta):
        return Decimal(value // _MICROSECOND) / 1000
    if isinstance(value, str):
        return _text_ms(value, what)
    if not _is_number(value):
        raise InvalidDuration(f"{_shown(value)} is not a {what}. {ACCEPTED}.")
    return _decimal(value) * SECOND_MS


@lru_cache(maxsize=256)  # consumers say the same "5s" with each receive
def _text_ms(text: str, what: str) -> Decimal:
    trimmed = text.strip()
    if len(trimmed) <= TEXT_CHARS_MAX:
        if bare := _SECONDS.fullmatch(trimmed):
            return Decimal(bare[1] + bare[2]) * SECOND_MS
        if parts := _PARTS.fullmatch(trimmed):
            total = sum(
                (Decimal(number) * UNITS_MS[unit.lower()] for number, unit in _PART.findall(parts[2])),
                start=Decimal(0),
            )
            return -total if parts[1] == "-" else total
    raise InvalidDuration(f"{_shown(text)} is not a {what}. {ACCEPTED}.")


def _from_text(text: str) -> datetime | int:
    trimmed = text.strip()
    if len(trimmed) <= TEXT_CHARS_MAX:
        if _EPOCH_SECONDS.fullmatch(trimmed):
            return int(trimmed)
        # Other runs of digits would be read as odd ISO forms; only "20260114" is one that people mean.
        if not trimmed.isdigit() or len(trimmed) == 8:
            try:
                return datetime.fromisoformat(trimmed)
            except ValueError:
                pass
    raise InvalidTime(f"{_shown(text)} is not a time. {ACCEPTED_TIME}.")


def _is_number(value: object) -> TypeGuard[float]:
    """Whether it is an integer or a finite float; True and False are answers, not amounts."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _decimal(value: float) -> Decimal:
    """The decimal that the number is written as: 0.1 is one tenth, not the binary fraction nearest to it."""
    return Decimal(value) if isinstance(value, int) else Decimal(repr(float(value)))


def _beyond(value: object) -> InvalidTime:
    return InvalidTime(
        f"The time {_shown(value)} lies beyond the year 9999; numbers are seconds, not milliseconds. "
        f"{ACCEPTED_TIME}."
    )


def _shown(value: object) -> str:
    """The value as given, cut short; never a failure of its own (huge integers refuse to be printed)."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, int) and abs(value) > 10**40:
        return "a number of more than 40 digits"
    shown = repr(value)
    return shown if len(shown) <= TEXT_CHARS_MAX + 2 else shown[:TEXT_CHARS_MAX] + "…"
