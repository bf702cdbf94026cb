"""Columns that are made without an object a message are what a loop would make."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyspark")

from trine.spark.decode import message_ids


@pytest.mark.parametrize(
    "offsets",
    [
        range(1),
        range(3, 9),
        range(5, 15),  # one digit, then two
        range(10, 99),
        range(100, 1000),
        range(998, 1002),
        range(1000, 1001),
        range(1999, 4003),
        range(123_456, 135_000),
        [7, 9, 12],  # compacted
        [1000, 1002],
    ],
    ids=str,
)
def test_message_ids(offsets: range | list[int]) -> None:
    made = message_ids("orders-ü/3/", np.array(offsets, dtype=np.int64))
    made.validate(full=True)
    assert made.to_pylist() == [f"orders-ü/3/{offset}" for offset in offsets]
