"""The pages of docs/benchmarks: written whole from a record and the texts beside this file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks import machine
from benchmarks.peers.peer import CLASSES
from benchmarks.peers.report import charts, figures, sections, tables, targets
from benchmarks.peers.report.figures import Content

TEXTS: Final = Path(__file__).parent / "texts"
COPY: Final = "results.json"
DISTURBED: Final = 0.3
"""The share of disturbed runs from which the pages warn."""

PLACE: Final = re.compile(r"^\{\{(.+?)\}\}$|\{\{(.+?)\}\}", re.MULTILINE)
TITLES: Final = {
    "throughput-synced": "Throughput, synced",
    "throughput-written": "Throughput, written",
    "throughput-memory": "Throughput, memory",
    "latency-1000": "From publish to acked at 1,000 messages a second",
    "latency-5000": "From publish to acked at 5,000 messages a second",
    "depth": "The cost of a message by the depth of the backlog",
}


def write(record: Path, folder: Path) -> list[Path]:
    """Pages, pictures and a copy of the record; the files that were written."""
    content = _short(json.loads(record.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    drawn = charts.draw(content, folder)
    made = []
    for text in sorted(TEXTS.glob("*.md")):
        page = folder / text.name
        page.write_text(filled(text.read_text(), content, {path.stem for path in drawn}))
        made.append(page)
    copy = folder / COPY
    copy.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return [*made, *drawn, copy]


def _short(value: Any) -> Any:
    """The same without digits that mean nothing: the copy is kept with the sources."""
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_short(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def filled(text: str, content: Content, drawn: set[str]) -> str:
    """A text whose places have what they name: `{{headlines synced}}` is what PARTS has for `headlines`, of synced."""

    def part(found: re.Match[str]) -> str:
        verb, _, of = (found[1] or found[2]).partition(" ")
        if verb == "picture":
            return f"![{TITLES[of]}]({of}.svg)" if of in drawn else ""
        if verb in sections.SECTIONS:
            lines = tables.flat(content, sections.columns(content, verb)) or ["Not measured."]
        else:
            lines = PARTS[verb](content, of)
        return "\n".join(lines).strip()

    whole = PLACE.sub(part, text)
    return re.sub(r"\n{3,}", "\n\n", whole).strip() + "\n"


def _moment(content: Content, of: str) -> list[str]:
    facts = content["machine"]
    memory = f", {facts['memory_gb']:.0f} GB of memory" if "memory_gb" in facts else ""
    ended = f"ended {content['ended']}" if content["ended"] else "not finished"
    lines = [f"Size {content['size']}, begun {content['began']}, {ended}: {machine.caption(facts)}{memory}."]
    share = figures.noisy_share(content)
    if share > DISTURBED:
        lines += [
            "",
            f"**Other programs were at work during {share:.0%} of the runs: these figures say little.**",
        ]
    if content["size"] != "full":
        lines += ["", "**This was not a full run: sizes and times are those of a quick look.**"]
    return lines


def _classes(content: Content, of: str) -> list[str]:
    return [f"- **{name}**: {CLASSES[name]}" for name in figures.ORDER]


def _peers(content: Content, of: str) -> list[str]:
    lines = []
    for name, part in content["peers"].items():
        kind = ", a log" if part["is_log"] else ""
        lines.append(
            f"- **{name}** ({part['durability']}{kind}): {part['version']}, with {part['client']}. "
            f"Publish: {part['promise']}. Acks: {part['acks']}."
        )
    return lines


def _skipped(content: Content, of: str) -> list[str]:
    lines = [f"- {name}: {one['why']}" for name, one in content["skipped"].items()]
    return ["Not measured:", "", *lines] if lines else []


def _audit(content: Content, of: str) -> list[str]:
    """What strace saw."""
    if not content["audit"]:
        return ["Not counted in this run: `make bench-audit` does, with strace."]
    rows = []
    for name, one in content["audit"].items():
        each, hundred = one["single"]["per_ack"], one["batch of 100"]["per_ack"]
        rows.append(
            [name, one["durability"], f"{each:.2f}", f"{hundred:.2f}", "yes" if one["kept"] else "**no**"]
        )
    said = "Sync calls of the server for each ack, counted by strace: of single publishes, and of batches of 100."
    return [said, "", *tables.markdown(["", "class", "one message", "100 messages", "as it says"], rows)]


def _disk(content: Content, of: str) -> list[str]:
    limit = content["limits"].get("fdatasyncs_per_s")
    if not limit:
        return ["Not measured."]
    rate = figures.number(limit["median"])
    return [
        f"Appends of 100 bytes, each with an fdatasync, in a file that has its space already: {rate} a second."
    ]


PARTS: Final[dict[str, Callable[[Content, str], list[str]]]] = {
    "moment": _moment,
    "classes": _classes,
    "headlines": tables.headlines,
    "behind": lambda content, _: tables.behind(content) or ["Nowhere in the tables above."],
    "targets": lambda content, _: targets.table(content),
    "publish": lambda content, _: tables.by_class(content, tables.PUBLISH),
    "drain": lambda content, _: tables.by_class(content, tables.DRAIN),
    "latency": lambda content, _: tables.by_class(content, tables.LATENCY),
    "fanout": lambda content, _: tables.by_class(content, tables.FANOUT),
    "depth": lambda content, _: tables.by_class(content, tables.DEPTH),
    "peers": _peers,
    "skipped": _skipped,
    "audit": _audit,
    "disk": _disk,
}
