"""What people write as times, and the milliseconds it means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.model.duration import DAY_MS, DURATION_MS_MAX, duration_ms, format_ms, instant_ms, iso
from trine.model.errors import InvalidDuration, InvalidTime, NegativeDelay


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        (0, 0),
        (5, 5000),
        (0.1, 100),
        (1.001, 1001),
        (0.29, 290),
        (0.0001, 1),
        (1.0000001, 1001),
        (timedelta(minutes=2, milliseconds=3), 120_003),
        (timedelta(microseconds=1), 1),
        ("250ms", 250),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        (" 7d ", 7 * DAY_MS),
        ("1.5s", 1500),
        (".5s", 500),
        ("2w", 14 * DAY_MS),
        ("10", 10_000),
        ("0.5", 500),
        ("+3s", 3000),
        ("250 MS", 250),
        ("0.1ms", 1),
        ("-0", 0),
        ("1000d", 1000 * DAY_MS),
    ],
)
def test_durations_are_read(given_value: float | timedelta | str, expected: int) -> None:
    assert duration_ms(given_value) == expected


@pytest.mark.parametrize(
    "nonsense",
    ["", " ", "abc", "5x", "1h30", "m", "1e3", "nan", "٣s", "5 m 3", "--5s", "1h-5m", "9" * 100, float("nan")]
    + [float("inf"), True, None, b"5s", [5], 10**400, 1e300, "99999999999w"],
)
def test_what_is_no_duration_is_refused_with_what_is_accepted(nonsense: object) -> None:
    with pytest.raises(InvalidDuration) as caught:
        duration_ms(nonsense, what="lease")  # type: ignore[arg-type]
    assert "lease" in caught.value.message
    assert '"1h30m"' in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("negative", [-1, -0.001, "-5s", "-1h30m", timedelta(seconds=-1), -(10**400)])
def test_negative_delays_have_their_own_cause(negative: float | str | timedelta) -> None:
    with pytest.raises(NegativeDelay, match="negative"):
        duration_ms(negative, what="delay")
    with pytest.raises(InvalidDuration, match="The ttl .* is negative"):
        duration_ms(negative, what="ttl")


@given(st.integers(0, DURATION_MS_MAX))
def test_a_formatted_duration_reads_back(ms: int) -> None:
    assert duration_ms(format_ms(ms)) == ms


@given(st.floats(0, 1e9))
def test_rounding_is_up_and_by_less_than_a_millisecond(seconds: float) -> None:
    ms = duration_ms(seconds)
    assert ms / 1000 >= seconds or ms / 1000 == pytest.approx(seconds, rel=1e-15)
    assert ms - 1 < seconds * 1000 + 1e-3
    assert ms > 0 or seconds == 0


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (250, "250 ms"), (1000, "1s"), (1500, "1.5s"), (90_000, "1m 30s"), (60_001, "1m 0.001s")]
    + [(3_600_000, "1h"), (7 * DAY_MS, "7d"), (DAY_MS + 61_000, "1d 1m 1s"), (-90_000, "-1m 30s")],
)
def test_durations_are_written_for_people(ms: int, text: str) -> None:
    assert format_ms(ms) == text


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        (0, 0),
        (1_768_402_800, 1_768_402_800_000),
        (1.5, 1500),
        ("1768402800", 1_768_402_800_000),
        ("2026-01-14T15:00:00Z", 1_768_402_800_000),
        ("2026-01-14T16:00:00+01:00", 1_768_402_800_000),
        ("2026-01-14 15:00", 1_768_402_800_000),
        ("2026-01-14", 1_768_348_800_000),
        ("20260114", 1_768_348_800_000),
        ("2026-01-14T15:00:00.0001Z", 1_768_402_800_001),
        (datetime(2026, 1, 14, 15), 1_768_402_800_000),
        (datetime(2026, 1, 14, 15, tzinfo=UTC), 1_768_402_800_000),
        (datetime(2026, 1, 14, 16, tzinfo=timezone(timedelta(hours=1))), 1_768_402_800_000),
    ],
)
def test_instants_are_read(given_value: datetime | str | float, expected: int) -> None:
    assert instant_ms(given_value) == expected


@pytest.mark.parametrize(
    "nonsense",
    ["", "tomorrow", "2026", "2026-13-01", "25:00", True, None, float("nan"), float("inf"), -1, "1969-12-31"]
    + [1_768_402_800_000, 10**400, "1768402800000", "9" * 200, datetime(1960, 1, 1), timedelta(1)],
)
def test_what_is_no_instant_is_refused_with_what_is_accepted(nonsense: object) -> None:
    with pytest.raises(InvalidTime, match="ISO 8601"):
        instant_ms(nonsense)  # type: ignore[arg-type]


def test_milliseconds_given_as_seconds_are_told_so() -> None:
    with pytest.raises(InvalidTime, match="seconds, not milliseconds"):
        instant_ms(1_768_402_800_000)


@given(st.integers(0, 253_402_300_799_999))
def test_an_instant_reads_back(ms: int) -> None:
    assert instant_ms(iso(ms)) == ms


def test_iso_has_milliseconds_and_never_fails() -> None:
    assert iso(1_768_402_800_007) == "2026-01-14T15:00:00.007Z"
    assert iso(10**18) == f"{10**18} ms since the epoch"
