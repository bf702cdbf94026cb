"""A report's numbers, small enough to be kept by the broker and drawn by a page: sums by window, and the tables that
people read first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trine.spark.report import FAILED

if TYPE_CHECKING:
    import pandas as pd

    from trine.spark.report import Report

WINDOWS_MAX: Final = 400
"""The last ones of a longer report."""
ROWS_MAX: Final = 50


def numbers_of(report: Report) -> dict[str, Any]:
    """`published`, `flow` and `lag` over all topics and groups by window (ms since the epoch), `groups` and `reasons`
    as rows, and the summary."""
    tables = report.tables
    flow = tables["flow"]
    failed = flow.assign(failed=flow[list(FAILED)].sum(axis=1)) if len(flow) else flow.assign(failed=[])
    return {
        "window_ms": report.window_ms,
        "made_ms": report.made_ms,
        "topics": list(report.topics)[:ROWS_MAX],
        "summary": report.summary,
        "published": _by_window(tables["published"], ["messages", "bytes"]),
        "flow": _by_window(failed, ["delivered", "acked", "failed"]),
        "lag": _by_window(tables["lag"], ["lag"]),
        "groups": _rows(tables["groups"]),
        "reasons": _rows(tables["reasons"]),
    }


def _by_window(table: pd.DataFrame, columns: list[str]) -> list[list[int]]:
    """(window, …) of each, oldest first."""
    if not len(table):
        return []
    sums = table.groupby("window")[columns].sum().sort_index().tail(WINDOWS_MAX)
    return [
        [round(window.timestamp() * 1000), *(int(value) for value in row)]
        for window, row in zip(sums.index, sums.itertuples(index=False), strict=True)
    ]


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    import pandas as pd

    return [
        {
            str(name): None if pd.isna(value) else value.item() if hasattr(value, "item") else value
            for name, value in row.items()
        }
        for row in table.head(ROWS_MAX).to_dict("records")
    ]
