"""Cron: when recurring schedules are due, also where clocks change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.model.duration import instant_ms, iso
from trine.model.errors import InvalidCron
from trine.queue.cron import check, next_after

BERLIN = "Europe/Berlin"  # 2026: forward on 29 March at 01:00Z, back on 25 October at 01:00Z


def occurrences(expression: str, after: str, count: int, tz: str = "UTC") -> list[str]:
    instant = instant_ms(after)
    found = []
    for _ in range(count):
        instant = next_after(expression, instant, tz)
        found.append(iso(instant).removesuffix(":00.000Z"))
    return found


def test_fields_names_and_intervals() -> None:
    assert occurrences("30 9 * * MON-FRI", "2026-01-02T09:30:00Z", 2) == [
        "2026-01-05T09:30",
        "2026-01-06T09:30",
    ]
    assert occurrences("@hourly", "2026-01-01T00:00:00.001Z", 2) == ["2026-01-01T01:00", "2026-01-01T02:00"]
    assert occurrences("@daily", "2026-01-01", 1) == ["2026-01-02T00:00"]
    assert occurrences("@Weekly", "2026-01-01", 1) == ["2026-01-04T00:00"]
    assert occurrences("@monthly", "2026-01-01", 1) == ["2026-02-01T00:00"]
    assert occurrences("@yearly", "2026-01-01", 1) == ["2027-01-01T00:00"]
    assert occurrences("every 5m", "2026-01-01T00:04:59.999Z", 2) == ["2026-01-01T00:05", "2026-01-01T00:10"]
    assert next_after("Every 30s", 0) == 30_000
    assert next_after("every 1h30m", 1) == 5_400_000
    assert next_after("*/10 * * * * *", 1) == 10_000, "six fields begin with seconds"


def test_a_time_zone_moves_the_day() -> None:
    assert occurrences("0 0 * * *", "2026-01-01T12:00:00Z", 1, "Asia/Tokyo") == ["2026-01-01T15:00"]


def test_a_time_the_clock_skips_runs_right_after_the_gap_and_once() -> None:
    found = occurrences("30 2 * * *", "2026-03-28T00:00:00Z", 3, BERLIN)
    assert found == ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]
    assert occurrences("15,30,45 2 * * *", "2026-03-29T00:00:00Z", 2, BERLIN)[0] == "2026-03-29T01:00"
    assert occurrences("15,30,45 2 * * *", "2026-03-29T00:00:00Z", 2, BERLIN)[1] == "2026-03-30T00:15"


def test_a_time_that_comes_twice_runs_once() -> None:
    found = occurrences("30 2 * * *", "2026-10-24T12:00:00Z", 2, BERLIN)
    assert found == ["2026-10-25T00:30", "2026-10-26T01:30"]


def test_asked_within_the_second_of_the_two_hours_it_does_not_answer_the_first() -> None:
    assert occurrences("30 2 * * *", "2026-10-25T01:10:00Z", 1, BERLIN) == ["2026-10-26T01:30"]


def test_every_hour_goes_on_through_both_changes() -> None:
    assert occurrences("0 * * * *", "2026-03-28T23:30:00Z", 3, BERLIN) == [
        "2026-03-29T00:00",
        "2026-03-29T01:00",
        "2026-03-29T02:00",
    ]
    assert occurrences("0 * * * *", "2026-10-24T23:30:00Z", 4, BERLIN) == [
        "2026-10-25T00:00",
        "2026-10-25T01:00",
        "2026-10-25T02:00",
        "2026-10-25T03:00",
    ]


@given(
    expression=st.sampled_from(
        ["* * * * *", "0 * * * *", "30 2 * * *", "*/20 1-3 * * *", "15,45 2 * * *", "0 0 29 2 *", "@daily"]
        + ["every 7m", "0 12 L * *", "59 59 23 * * *", "0 0 * * 7#1"]
    ),
    start_ms=st.integers(instant_ms("2026-01-01"), instant_ms("2027-01-01")),
    tz=st.sampled_from(
        ["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Cairo"]
    ),
)
def test_occurrences_are_strictly_later_and_none_is_skipped(expression: str, start_ms: int, tz: str) -> None:
    first = next_after(expression, start_ms, tz)
    assert first > start_ms
    assert next_after(expression, first, tz) > first
    assert next_after(expression, first - 1, tz) == first
    assert next_after(expression, (start_ms + first) // 2, tz) == first


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        " ",
        "* * * *",
        "61 * * * *",
        "* * * * FOO",
        "0 0 30 2 *",
        "0 0 1 2 MON#6",
        "@reboot",
        "every",
        "every x",
    ]
    + ["every 0s", "every 1ms", "every -5s", "*/0 * * * *", "5-1 * * * *", "x" * 1000, "9" * 250, None],
)
def test_wrong_expressions_are_refused_with_a_sentence(wrong: str) -> None:
    with pytest.raises(InvalidCron) as caught:
        check(wrong)
    assert caught.value.message.endswith(".")


def test_what_never_occurs_is_refused() -> None:
    with pytest.raises(InvalidCron, match="no occurrence"):
        next_after("@yearly", instant_ms("9999-12-30"))
    with pytest.raises(InvalidCron, match="no occurrence"):
        next_after("@yearly", 10**18)


@pytest.mark.parametrize("wrong", ["", "Mars/Olympus", "America", "../etc/passwd", "/etc/passwd", None, "\0"])
def test_wrong_time_zones_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidCron, match="not a time zone"):
        check("@daily", wrong)
