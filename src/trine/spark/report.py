"""A report: throughput, lag, failures and latency by time window, as tables and as pictures.

Spark counts; what is left are a few hundred rows, and those are pandas tables:

    published   topic, window, messages, bytes
    flow        topic, group, window, delivered, acked, nacked, returned, rejected, dead_lettered, expired
    lag         topic, group, window, lag (messages not settled at the window's end)
    latency     topic, group, window, acked, p50_ms, p95_ms, p99_ms (from publish to ack)
    groups      topic, group: messages, states and latencies over all
    reasons     topic, group, event, reason, messages: why deliveries failed, most frequent first
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trine.model.duration import duration_ms, instant_ms
from trine.model.errors import InvalidOption
from trine.spark.errors import plain
from trine.spark.lives import Lives, read_lives
from trine.spark.runs import telling
from trine.spark.traces import _LATENCIES, Progress

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession

    from trine.spark.place import Place

WINDOWS_MAX: Final = 5_000
"""More points than a picture has pixels."""
WINDOWS_GOOD: Final = 120
NICE_MS: Final = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400)
)
EVENTS: Final = ("delivered", "acked", "nacked", "returned", "rejected", "dead_lettered", "expired")
FAILED: Final = ("nacked", "returned", "rejected", "dead_lettered", "expired")
REASONS_MAX: Final = 20

_PUBLISHED: Final = """
SELECT topic, timestamp_millis({w} * (unix_millis(published) div {w})) AS window,
       count(*) AS messages, sum(size) AS bytes
FROM {{messages}} GROUP BY 1, 2 ORDER BY 2, 1
"""
_FLOW: Final = """
SELECT topic, `group`, timestamp_millis({w} * (unix_millis(at) div {w})) AS window, {counts}
FROM {{events}} WHERE event <> 'seek' GROUP BY 1, 2, 3 ORDER BY 3, 1, 2
"""
_LATENCY: Final = """
SELECT topic, `group`, window, acked, p[0] AS p50_ms, p[1] AS p95_ms, p[2] AS p99_ms FROM (
  SELECT topic, `group`, timestamp_millis({w} * (unix_millis(settled) div {w})) AS window, count(*) AS acked,
         percentile_approx(settle_ms, array(0.5, 0.95, 0.99), 10000) AS p
  FROM {{lives}} WHERE state = 'acked' AND settle_ms IS NOT NULL GROUP BY 1, 2, 3
) ORDER BY window, topic, `group`
"""
_CHANGES: Final = """
SELECT topic, `group`, window, sum(change) AS change FROM (
  SELECT topic, `group`, timestamp_millis({w} * (unix_millis(published) div {w})) AS window, 1 AS change
  FROM {{lives}} WHERE published IS NOT NULL AND state <> 'skipped'
  UNION ALL
  SELECT topic, `group`, timestamp_millis({w} * (unix_millis(settled) div {w})), -1
  FROM {{lives}} WHERE published IS NOT NULL AND settled IS NOT NULL
) GROUP BY 1, 2, 3 ORDER BY 3, 1, 2
"""
_REASONS: Final = f"""
SELECT topic, `group`, event, coalesce(reason, '') AS reason, count(*) AS messages
FROM {{events}} WHERE event IN ({", ".join(repr(one) for one in FAILED)})
GROUP BY 1, 2, 3, 4 ORDER BY messages DESC, 1, 2, 3, 4 LIMIT {REASONS_MAX}
"""


@dataclass(frozen=True, slots=True)
class Report:
    topics: tuple[str, ...]
    window_ms: int
    made_ms: int
    tables: dict[str, pd.DataFrame]
    summary: dict[str, Any]

    def pictures(self) -> dict[str, Figure]:
        """By name: throughput, lag, failures, latency."""
        from trine.spark import charts

        seconds = self.window_ms / 1000
        found = {
            "throughput": charts.throughput(self.tables["published"], seconds),
            "lag": charts.lag(_labelled(self.tables["lag"], self.topics)),
            "failures": charts.failures(self.tables["flow"], seconds),
            "latency": charts.latency(_labelled(self.tables["latency"], self.topics), seconds),
        }
        drawn = [self.tables[name]["window"] for name in ("published", "lag", "flow", "latency")]
        known = [windows for windows in drawn if len(windows)]
        if known:
            first, last = min(one.min() for one in known), max(one.max() for one in known)
            charts.aligned(found.values(), first, last + timedelta(milliseconds=self.window_ms))
        return found

    def numbers(self) -> dict[str, Any]:
        """What the broker keeps of it, for others to look at."""
        from trine.spark.numbers import numbers_of

        return numbers_of(self)

    def html(self) -> str:
        """A page that needs nothing else."""
        from trine.spark.page import page

        return page(self)

    def write(self, out: str | Path) -> list[Path]:
        """A page if the name ends with .html, else a directory of PNG files; what was written."""
        from trine.spark import charts

        path = Path(out)
        if is_page(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.part")
            part.write_text(self.html(), encoding="utf-8")
            part.replace(path)
            return [path]
        path.mkdir(parents=True, exist_ok=True)
        written = []
        for name, figure in self.pictures().items():
            file = path / f"{name}.png"
            file.write_bytes(charts.png(figure))
            written.append(file)
        return written


def is_page(path: Path) -> bool:
    """Whether a report goes into this file, or its pictures into this directory; refused if it is neither."""
    if path.suffix.lower() in (".html", ".htm"):
        return True
    if path.suffix or path.is_file():
        raise InvalidOption(f"{path} is neither a page (name.html) nor a directory for pictures")
    return False


def report(
    spark: SparkSession,
    place: Place,
    topics: Sequence[str] | None = None,
    *,
    window: float | str | None = None,
    from_time: str | float | None = None,
    to_time: str | float | None = None,
    progress: Progress | None = None,
) -> Report:
    """Counts what happened, by windows of this length (chosen by itself if None), within the times given."""
    said: Callable[[str, float, float | None], None] = progress or (lambda what, done, total: None)
    window_ms = None if window is None else duration_ms(window, what="window")
    if window_ms is not None and window_ms < 1:
        raise InvalidOption("a window has at least 1 ms")
    first = None if from_time is None else instant_ms(from_time)
    end = None if to_time is None else instant_ms(to_time)
    with telling(place, "report", "report", topics) as run, plain():
        said("reading the ledgers", 0, 4)
        lives = read_lives(spark, place, topics)
        try:
            said("looking at times", 1, 4)
            chosen = _window(spark, lives, window_ms, first, end)
            said("counting", 2, 4)
            tables = _tables(spark, lives, chosen)
        finally:
            lives.close()
        tables["lag"] = _lag(tables.pop("changes"), chosen)
        for name in ("published", "flow", "lag", "latency"):
            tables[name] = _within(tables[name], first, end)
        said("done", 4, 4)
        made = Report(lives.topics, chosen, int(time.time() * 1000), tables, _summary(tables, chosen))
        run.rows = made.summary["messages"]
        run.summary = made.summary
        run.report = made.numbers()
        return made


def _window(spark: SparkSession, lives: Lives, given: int | None, first: int | None, end: int | None) -> int:
    times = spark.sql(
        "SELECT min(a) AS a, max(b) AS b FROM ("
        "SELECT min(unix_millis(published)) AS a, max(unix_millis(published)) AS b FROM {messages} "
        "UNION ALL SELECT min(unix_millis(at)), max(unix_millis(at)) FROM {events})",
        messages=lives.messages,
        events=lives.events,
    ).collect()[0]
    if times.a is None:
        return given or NICE_MS[0]
    span = min(times.b, end or times.b) - max(times.a, first or times.a)
    if given is None:
        return next((nice for nice in NICE_MS if span / nice <= WINDOWS_GOOD), NICE_MS[-1])
    if (times.b - times.a) / given > WINDOWS_MAX:
        least = next((nice for nice in NICE_MS if (times.b - times.a) / nice <= WINDOWS_MAX), NICE_MS[-1])
        raise InvalidOption(
            f"windows of {given} ms make more than {WINDOWS_MAX} of them; "
            f"take at least {least // 1000}s, or leave it out"
        )
    return given


def _tables(spark: SparkSession, lives: Lives, window_ms: int) -> dict[str, pd.DataFrame]:
    counts = ", ".join(f"count_if(event = '{event}') AS {event}" for event in EVENTS)
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "groups": (_LATENCIES, {"lives": lives.lives}),
        "published": (_PUBLISHED.format(w=window_ms), {"messages": lives.messages}),
        "flow": (_FLOW.format(w=window_ms, counts=counts), {"events": lives.events}),
        "latency": (_LATENCY.format(w=window_ms), {"lives": lives.lives}),
        "changes": (_CHANGES.format(w=window_ms), {"lives": lives.lives}),
        "reasons": (_REASONS, {"events": lives.events}),
    }
    return {name: spark.sql(query, **frames).toPandas() for name, (query, frames) in asked.items()}


def _lag(changes: pd.DataFrame, window_ms: int) -> pd.DataFrame:
    """Running sums on a grid of windows, so that a window in which nothing happened has a lag too."""
    import pandas as pd

    if not len(changes):
        return pd.DataFrame({"topic": [], "group": [], "window": changes["window"], "lag": []})
    grid = pd.date_range(
        changes["window"].min(), changes["window"].max(), freq=pd.Timedelta(milliseconds=window_ms)
    )
    found = []
    for (topic, group), mine in changes.groupby(["topic", "group"]):
        lag = mine.set_index("window")["change"].reindex(grid, fill_value=0).cumsum()
        found.append(pd.DataFrame({"topic": topic, "group": group, "window": grid, "lag": lag.to_numpy()}))
    return pd.concat(found, ignore_index=True)


def _within(table: pd.DataFrame, first: int | None, end: int | None) -> pd.DataFrame:
    import pandas as pd

    if not len(table) or (first is None and end is None):
        return table
    at = pd.to_datetime(table["window"], utc=True)
    keep = pd.Series(True, index=table.index)
    if first is not None:
        keep &= at >= pd.Timestamp(first, unit="ms", tz="UTC")
    if end is not None:
        keep &= at < pd.Timestamp(end, unit="ms", tz="UTC")
    return table[keep].reset_index(drop=True)


def _summary(tables: dict[str, pd.DataFrame], window_ms: int) -> dict[str, Any]:
    published, flow, groups = tables["published"], tables["flow"], tables["groups"]
    windows = published.groupby("window")["messages"].sum() if len(published) else None
    seconds = window_ms / 1000
    span = 0.0
    if windows is not None:
        span = (windows.index.max() - windows.index.min()).total_seconds() + seconds
    delivered = int(flow["delivered"].sum())
    failed = int(flow[["nacked", "returned"]].to_numpy().sum()) if len(flow) else 0
    acked = groups[groups["acked"] > 0] if len(groups) else groups
    return {
        "messages": int(published["messages"].sum()),
        "bytes": int(published["bytes"].sum()),
        "per_second": 0.0 if windows is None else float(windows.sum()) / span,
        "peak_per_second": 0.0 if windows is None else float(windows.max()) / seconds,
        "delivered": delivered,
        "acked": int(flow["acked"].sum()),
        "failed": failed + int(flow[["rejected", "dead_lettered", "expired"]].to_numpy().sum()),
        "failed_share": failed / delivered if delivered else 0.0,
        "dead_lettered": int(flow["dead_lettered"].sum()),
        "lag": int(groups["unsettled"].sum()),
        "ack_p50_ms": None if not len(acked) else int(acked["ack_p50_ms"].max()),
        "ack_p99_ms": None if not len(acked) else int(acked["ack_p99_ms"].max()),
    }


def _labelled(table: pd.DataFrame, topics: Sequence[str]) -> pd.DataFrame:
    """Groups of several topics are told apart by both names."""
    if len(topics) < 2 or not len(table):
        return table
    return table.assign(group=table["topic"] + " · " + table["group"])
