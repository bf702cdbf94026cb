from __future__ import annotations

import random
from itertools import pairwise

import pytest

from trine.cli.histogram import STEP, Histogram


def histogram(*times: float) -> Histogram:
    made = Histogram()
    for ms in times:
        made.add(ms)
    return made


def test_percentiles_are_right_within_a_step() -> None:
    dice = random.Random(4)
    times = sorted(dice.lognormvariate(0, 2) for _ in range(5_000))
    found = histogram(*times).percentiles()
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)):
        exact = times[int(share * len(times)) - 1]
        assert exact <= found[name] * 1.000001
        assert found[name] <= exact * STEP * 1.000001
    assert found["max"] == times[-1]
    assert found["mean"] == pytest.approx(sum(times) / len(times))


def test_nothing_has_no_percentiles_and_no_rows() -> None:
    empty = Histogram()
    assert (len(empty), empty.percentiles(), empty.rows(), empty.drawn()) == (0, {}, [], [])
    assert empty.as_dict() == {"count": 0, "histogram": []}


def test_rows_lie_between_round_numbers_and_leave_no_gap() -> None:
    rows = histogram(0.3, 0.3, 0.4, 7.0, 1500.0).rows()
    assert [count for _, _, count in rows if count] == [3, 1, 1]
    assert rows[0][:2] == (0.2, 0.5)
    assert rows[-1][:2] == (1000, 2000)
    assert all(earlier[1] == later[0] for earlier, later in pairwise(rows))


@pytest.mark.parametrize("ms", [0.0, 0.0004, 0.001, 1.0, 10.0, 99_999_999.0])
def test_any_time_has_a_row(ms: float) -> None:
    one = histogram(ms)
    assert sum(count for _, _, count in one.rows()) == 1
    assert one.percentiles()["p50"] <= max(ms, 0.001)


def test_it_takes_no_more_room_however_many_there_are() -> None:
    dice = random.Random(4)
    made = histogram(*(dice.uniform(0.01, 10_000) for _ in range(20_000)))
    assert len(made._counts) < 800


def test_two_are_joined() -> None:
    both = histogram(1.0, 2.0)
    both.join(histogram(3.0))
    assert len(both) == 3
    assert both.percentiles()["max"] == 3.0
    assert both.percentiles()["mean"] == pytest.approx(2.0)


def test_the_drawing_shows_shares() -> None:
    lines = histogram(*[1.5] * 99, 300.0).drawn(wide=10)
    assert lines[0].endswith("██████████   99.0%  99")
    assert "▏" in lines[-1]  # one of a hundred is not none
