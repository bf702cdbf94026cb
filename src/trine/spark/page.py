"""A report as one HTML page that needs nothing from elsewhere: tiles on top, pictures, tables below."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Any, Final

from trine.model.duration import format_ms, iso
from trine.spark import charts

if TYPE_CHECKING:
    import pandas as pd

    from trine.spark.report import Report

NOTHING: Final = "\u2013"
ROWS_MAX: Final = 60
"""Windows shown in the table; the newest."""

CAPTIONS: Final = {
    "throughput": ("Throughput", "Messages published each second, by topic"),
    "lag": ("Lag", "Messages a group has yet to settle, at the end of each window"),
    "failures": ("Failures", "Deliveries that came to nothing, by how they ended"),
    "latency": ("Latency", "From publish to ack: p50 as a line, p99 dashed"),
}

STYLE: Final = """
:root{color-scheme:light;--ink:#1f2933;--soft:#52606d;--faint:#7b8794;--rule:#e4e7eb;--paper:#f7f8fa}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 Inter,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1060px;margin:0 auto;padding:40px 24px 64px}
h1{font-size:26px;line-height:1.2;margin:0;letter-spacing:-.015em}
.when{color:var(--faint);margin:6px 0 28px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-bottom:20px}
.tile,section{background:#fff;border:1px solid var(--rule);border-radius:10px}
.tile{padding:14px 16px}
.tile b{display:block;font-size:24px;line-height:1.25;font-weight:650;letter-spacing:-.02em;
font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:13px}
.tile i{display:block;color:var(--faint);font-style:normal;font-size:12px}
.tile.bad b{color:#b3261e}
section{padding:18px 20px 14px;margin-top:16px}
h2{font-size:16px;margin:0}
section>p{color:var(--faint);font-size:13px;margin:2px 0 8px}
img{display:block;width:100%;height:auto}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th{text-align:left;font-weight:600;color:var(--soft);border-bottom:1px solid #cbd2d9;padding:6px 12px 6px 0;
white-space:nowrap}
td{border-bottom:1px solid var(--rule);padding:6px 12px 6px 0}
tr:last-child td{border-bottom:0}
.n{text-align:right}
.none{color:var(--faint);margin:6px 0}
@media print{body{background:#fff}.tile,section{break-inside:avoid}}
"""


def page(report: Report) -> str:
    topics = ", ".join(report.topics)
    title = topics if len(topics) <= 60 else f"{len(report.topics)} topics"
    pictures = "".join(
        f'<section><h2>{CAPTIONS[name][0]}</h2><p>{CAPTIONS[name][1]}</p><img alt="{CAPTIONS[name][0]} over time" '
        f'src="data:image/svg+xml;base64,{base64.b64encode(charts.svg(figure)).decode()}"></section>'
        for name, figure in report.pictures().items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Trine report: {escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{escape(title)}</h1>"
        f'<p class="when">Trine report of {iso(report.made_ms)[:19].replace("T", " ")} UTC'
        f" · windows of {format_ms(report.window_ms)}</p>"
        f'<div class="tiles">{_tiles(report.summary)}</div>{pictures}'
        f"{_groups(report)}{_reasons(report)}{_windows(report)}"
        "</main></body></html>\n"
    )


def _tiles(summary: dict[str, Any]) -> str:
    share = summary["failed_share"]
    tiles = [
        ("messages", number(summary["messages"]), size(summary["bytes"]), False),
        ("messages / s", number(summary["per_second"]), f"peak {number(summary['peak_per_second'])}", False),
        ("acked", number(summary["acked"]), f"of {number(summary['delivered'])} deliveries", False),
        (
            "deliveries failed",
            f"{share:.1%}" if share else "0%",
            f"{number(summary['failed'])} events",
            share > 0.05,
        ),
        ("dead letters", number(summary["dead_lettered"]), "given up on", summary["dead_lettered"] > 0),
        ("lag now", number(summary["lag"]), "not settled, all groups", False),
        ("publish to ack", span(summary["ack_p50_ms"]), f"p50; p99 {span(summary['ack_p99_ms'])}", False),
    ]
    return "".join(
        f'<div class="tile{" bad" if bad else ""}"><span>{what}</span><b>{value}</b><i>{note}</i></div>'
        for what, value, note, bad in tiles
    )


def _groups(report: Report) -> str:
    columns = {
        "topic": "topic", "group": "group", "messages": "messages", "acked": "acked", "unsettled": "not settled",
        "dead_lettered": "dead letters", "delivery_p50_ms": "to delivery p50", "delivery_p99_ms": "p99",
        "ack_p50_ms": "to ack p50", "ack_p95_ms": "p95", "ack_p99_ms": "p99",
    }  # fmt: skip
    return _section(
        "Groups",
        "Over all that the log and the ledgers have",
        report.tables["groups"],
        columns,
        "There are no groups.",
    )


def _reasons(report: Report) -> str:
    columns = {
        "messages": "messages",
        "event": "event",
        "reason": "reason",
        "topic": "topic",
        "group": "group",
    }
    return _section(
        "Why deliveries failed", "Most frequent first", report.tables["reasons"], columns, "None failed."
    )


def _windows(report: Report) -> str:
    flow = report.tables["flow"]
    shown = flow.sort_values(["window", "topic", "group"], ascending=[False, True, True]).head(ROWS_MAX)
    columns = {
        "window": "window", "topic": "topic", "group": "group", "delivered": "delivered", "acked": "acked",
        "nacked": "nacked", "returned": "returned", "rejected": "rejected", "dead_lettered": "dead letters",
        "expired": "expired",
    }  # fmt: skip
    said = "Newest first" if len(flow) <= ROWS_MAX else f"The newest {ROWS_MAX} of {len(flow)} rows"
    return _section("By window", said, shown, columns, "Nothing was delivered yet.")


def _section(title: str, said: str, table: pd.DataFrame, columns: dict[str, str], none: str) -> str:
    if not len(table):
        return f'<section><h2>{title}</h2><p class="none">{none}</p></section>'
    numeric = {name for name in columns if table[name].dtype.kind in "iuf" or name.endswith("_ms")}
    heads = "".join(f"<th{_n(name, numeric)}>{escape(head)}</th>" for name, head in columns.items())
    rows = "".join(
        "<tr>"
        + "".join(f"<td{_n(name, numeric)}>{_cell(name, row[name])}</td>" for name in columns)
        + "</tr>"
        for row in table.to_dict("records")
    )
    return (
        f'<section><h2>{title}</h2><p>{said}</p><div class="wide"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _n(name: str, numeric: set[str]) -> str:
    return ' class="n"' if name in numeric else ""


def _cell(name: str, value: Any) -> str:
    if value is None or value != value:
        return NOTHING
    if name.endswith("_ms"):
        return span(value)
    if name == "window":
        return escape(str(value)[:19])
    if isinstance(value, str):
        return escape(value.replace("dead_lettered", "dead-lettered") if name == "event" else value)
    return f"{value:,}".replace(",", "\u202f")


def number(value: float) -> str:
    """A number for a tile: short."""
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 1e4:
        return f"{value / 1e3:.1f} k"
    return f"{value:,.0f}".replace(",", "\u202f") if value >= 100 or value == int(value) else f"{value:.1f}"


def size(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def span(ms: float | None) -> str:
    if ms is None or ms != ms:
        return NOTHING
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    return format_ms(round(ms / 1000) * 1000)
