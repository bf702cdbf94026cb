"""What a pipeline is: sources, steps and sinks, each with its words, checked one by one and against each other.

    pipeline: NAME           the file's name without its ending, if left out
    set:                     values of ${name}
    sources: NAME: …         topics, or tables
    steps:   NAME: …         SQL or Python over sources and other steps
    sinks:   NAME: …         topics, tables, or the terminal; each is one query with one checkpoint

Only words are looked at here. What SQL and Python mean is for `checking`, with Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

from trine.model.duration import duration_ms
from trine.model.errors import TrineError
from trine.spark.pipelines.reading import Place, Written, read

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Kind = Literal["frame", "pandas", "arrow", "state"]
Mode = Literal["append", "update", "complete"]
MESSAGE_WORDS: Final = (
    "key", "value", "headers", "partition", "priority", "delay", "deliver_at", "ttl", "dedup_id", "producer",
)  # fmt: skip
"""Words of a topic sink that are SQL expressions, each for the column of its name."""


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    name: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: str = "earliest"
    json: str | None = None
    bad: str = "keep"
    text: bool = False
    headers: bool = False
    rate: int | None = None
    table: str | None = None
    format: str = "delta"
    schema: str | None = None
    stream: bool = False
    watermark: Watermark | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_stream(self) -> bool:
        return self.table is None or self.stream


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Of a step that keeps something for each key."""

    key: tuple[str, ...]
    schema: str
    timeout: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    sql: str | None = None
    python: Any = None
    """`function`, `module:function` or `file.py:function`; the function itself in a Python file."""
    inputs: tuple[str, ...] = ()
    """Of SQL they are found in the query."""
    kind: Kind = "frame"
    schema: str | None = None
    state: State | None = None
    mode: Mode = "append"
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    name: str
    source: str
    topic: str | None = None
    message: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    format: str = "delta"
    partition_by: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    console: bool = False
    mode: Mode = "append"
    every_ms: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        if self.topic is not None:
            return f"topic {self.topic}"
        return "the terminal" if self.table is None else f"{self.format} table {self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    name: str
    path: Path
    sources: dict[str, Source]
    steps: dict[str, Step]
    sinks: dict[str, Sink]
    written: Written

    @property
    def names(self) -> list[str]:
        """Of all sources and steps, those with faults too."""
        sections = (self.written.tree.get(one) for one in ("sources", "steps"))
        return [name for nodes in sections if isinstance(nodes, dict) for name in nodes]

    def near(self, path: str) -> str:
        """A path as the file means it: from the file's own folder, unless it is absolute or a URL."""
        return path if "://" in path or Path(path).is_absolute() else str(self.path.resolve().parent / path)


class _Off(Exception):
    """A value is not what its word takes; says what it takes."""


def load(path: str | Path, variables: Mapping[str, str] | None = None) -> Declaration:
    """The pipeline of a file. Its faults so far are in `.written.faults`; `check` finds the others too."""
    written = read(Path(path), variables or {})
    return declare(written)


# --- what a value may be


def _text(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise _Off(f"is {value!r}; it must be text")
    return value.strip()


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Off(f"is {value!r}; it must be true or false")
    return value


def _count(value: Any) -> int:
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _Off(f"is {value!r}; it must be a whole number above 0")
    return value


def _list(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if not isinstance(value, list | tuple) or not value:
        raise _Off(f"is {value!r}; it must be a name or a list of names")
    return tuple(map(_text, value))


def _one_of(*words: str) -> Callable[[Any], str]:
    def take(value: Any) -> str:
        if value not in words:
            raise _Off(f"is {value!r}; it must be one of {', '.join(words)}")
        return str(value)

    return take


def _words(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _Off(f"is {value!r}; it must have names with values")
    return {name: str(one).lower() if isinstance(one, bool) else str(one) for name, one in value.items()}


def _struct(kind: Callable[..., Any], **takes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if not isinstance(value, dict) or set(value) - set(takes):
            raise _Off(f"is {value!r}; it has the words {', '.join(takes)}")
        try:
            return kind(**{word: takes[word](one) for word, one in value.items()})
        except TypeError:
            raise _Off(f"needs the words {', '.join(takes)}") from None

    return take


def _function(value: Any) -> Any:
    return value if callable(value) else _text(value)


def _span(value: Any) -> int:
    return duration_ms(value)


_WATERMARK: Final = _struct(Watermark, column=_text, delay=_text)
_STATE: Final = _struct(State, key=_list, schema=_text, timeout=_one_of("none", "processing", "event"))
_MODE: Final = _one_of("append", "update", "complete")
Take = tuple[str, Callable[[Any], Any]]
SOURCE: Final[dict[str, Take]] = {
    "topic": ("topics", lambda value: (_text(value),)),
    "topics": ("topics", _list),
    "pattern": ("pattern", _text),
    "from": ("start", _text),
    "json": ("json", _text),
    "bad": ("bad", _one_of("keep", "drop", "fail")),
    "text": ("text", _flag),
    "headers": ("headers", _flag),
    "rate": ("rate", _count),
    "table": ("table", _text),
    "format": ("format", _one_of("delta", "parquet", "json", "csv")),
    "schema": ("schema", _text),
    "stream": ("stream", _flag),
    "watermark": ("watermark", _WATERMARK),
    "options": ("options", _words),
}
STEP: Final[dict[str, Take]] = {
    "sql": ("sql", _text),
    "python": ("python", _function),
    "input": ("inputs", _list),
    "inputs": ("inputs", _list),
    "kind": ("kind", _one_of("frame", "pandas", "arrow", "state")),
    "schema": ("schema", _text),
    "state": ("state", _STATE),
    "mode": ("mode", _MODE),
    "watermark": ("watermark", _WATERMARK),
}
SINK: Final[dict[str, Take]] = {
    "from": ("source", _text),
    "topic": ("topic", _text),
    **{word: (f"message.{word}", _text) for word in MESSAGE_WORDS},
    "table": ("table", _text),
    "format": ("format", _one_of("delta", "parquet")),
    "partition_by": ("partition_by", _list),
    "keys": ("keys", _list),
    "console": ("console", _flag),
    "mode": ("mode", _MODE),
    "every": ("every_ms", _span),
    "options": ("options", _words),
}
SECTIONS: Final = {"sources": SOURCE, "steps": STEP, "sinks": SINK}


# --- from words to a declaration


def declare(written: Written) -> Declaration:
    """Sources, steps and sinks; whatever is off is noted in `written` and left out."""
    found: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for section, below in written.tree.items():
        if section == "pipeline":
            continue
        if section not in SECTIONS:
            written.fault(
                (section,), _unknown(section, ["pipeline", "set", *SECTIONS], "there is no section")
            )
        elif below is not None and not isinstance(below, dict):
            written.fault((section,), f"{section} must have names, each with its words")
        else:
            for name, words in (below or {}).items():
                found[section][name] = _node(written, section, name, words)
    _check_names(written, found)
    if not written.faults and not found["sinks"]:
        written.fault((), "there are no sinks: nothing would come out of it")
    name = written.tree.get("pipeline")
    return Declaration(
        name=str(name) if name else written.path.stem,
        path=written.path,
        sources={name: Source(name=name, **one) for name, one in found["sources"].items() if one},
        steps={name: Step(name=name, **one) for name, one in found["steps"].items() if one},
        sinks={name: Sink(name=name, **one) for name, one in found["sinks"].items() if one},
        written=written,
    )


def _unknown(word: str, known: list[str], what: str) -> str:
    close = get_close_matches(word, known, 1)
    return f"{what} {word!r}; " + (
        f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
    )


def _node(written: Written, section: str, name: str, words: Any) -> dict[str, Any] | None:
    place = (section, name)
    before = len(written.faults)
    takes = SECTIONS[section]
    one: dict[str, Any] = {"message": {}} if section == "sinks" else {}
    if not isinstance(words, dict):
        written.fault(place, f"{section}.{name} must have words with values: {', '.join(takes)}")
        return None
    for word, value in words.items():
        if word not in takes:
            written.fault((*place, word), _unknown(word, list(takes), f"{section}.{name} has no word"))
            continue
        target, take = takes[word]
        try:
            taken = take(value)
        except (_Off, TrineError) as error:
            written.fault((*place, word), f"{section}.{name}.{word} {error}")
            continue
        if target.startswith("message."):
            one["message"][word] = taken
        elif target in one:
            written.fault((*place, word), f"{section}.{name} has {word} twice, by two names: say it once")
        else:
            one[target] = taken
    _RULES[section](written, place, one)
    return one if len(written.faults) == before else None


def _source_rules(written: Written, place: Place, one: dict[str, Any]) -> None:
    ways = [word for word in ("topics", "pattern", "table") if word in one]
    if len(ways) != 1:
        written.fault(place, f"{'.'.join(place)} needs one of topic, topics, pattern and table")
        return
    for_topics: list[str] = [word for word in ("json", "bad", "text", "headers", "rate") if word in one]
    if "start" in one:
        for_topics.append("from")
    if ways == ["table"] and for_topics:
        written.fault(
            (*place, for_topics[0]), f"{'.'.join(place)}: {for_topics[0]} is for topics, not for tables"
        )
    if one.get("stream") and (one.get("format", "delta") == "delta" or "schema" not in one):
        written.fault(
            (*place, "stream"),
            f"{'.'.join(place)}: only files are read as a stream (format parquet, json or csv, and a schema)",
        )
    if "bad" in one and "json" not in one:
        written.fault(
            (*place, "bad"), f"{'.'.join(place)}: bad says what happens to bad JSON, but there is no json"
        )


def _step_rules(written: Written, place: Place, one: dict[str, Any]) -> None:
    name = ".".join(place)
    if ("sql" in one) == ("python" in one):
        written.fault(place, f"{name} needs one of sql and python")
        return
    if "sql" in one:
        for word in ("kind", "schema", "state", "inputs"):
            if word in one:
                written.fault((*place, word), f"{name}: {word} is for python; SQL says it itself")
        return
    kind = one.get("kind", "state" if "state" in one else "frame")
    one["kind"] = kind
    if not one.get("inputs"):
        written.fault(place, f"{name} needs input: the name of a source or a step")
    if kind != "frame" and len(one.get("inputs", ())) > 1:
        written.fault(place, f"{name}: a function of kind {kind} has one input; join them in SQL before")
    if kind != "frame" and "schema" not in one:
        written.fault(place, f"{name}: a function of kind {kind} needs schema: the columns it gives")
    if (kind == "state") != ("state" in one):
        written.fault(place, f"{name}: kind state and the words of state belong together")


def _sink_rules(written: Written, place: Place, one: dict[str, Any]) -> None:
    name = ".".join(place)
    one.setdefault("source", place[-1])
    ways = [word for word in ("topic", "table", "console") if one.get(word)]
    if len(ways) != 1:
        written.fault(place, f"{name} needs one of topic, table and console")
        return
    if one["message"] and ways != ["topic"]:
        word = next(iter(one["message"]))
        written.fault((*place, word), f"{name}: {word} is for topics")
    for word in ("partition_by", "keys", "format"):
        if word in one and ways != ["table"]:
            written.fault((*place, word), f"{name}: {word} is for tables")
    mode = one.get("mode", "append")
    if ways == ["topic"] and mode == "complete":
        written.fault((*place, "mode"), f"{name}: a topic takes append or update; complete is for tables")
    if ways == ["table"] and (mode == "update") != bool(one.get("keys")):
        written.fault(
            place, f"{name}: mode update and keys belong together: rows go over those of the same keys"
        )
    if one.get("format") == "parquet" and mode != "append":
        written.fault((*place, "mode"), f"{name}: a Parquet table is appended to; {mode} needs format delta")


_RULES: Final = {"sources": _source_rules, "steps": _step_rules, "sinks": _sink_rules}


def _check_names(written: Written, found: Mapping[str, Mapping[str, Any]]) -> None:
    for section, nodes in found.items():
        for name in nodes:
            if not NAME.fullmatch(name):
                written.fault((section, name), f"{name!r} is no name: letters, digits and _, no digit first")
    for name in found["steps"]:
        if name in found["sources"]:
            written.fault(("steps", name), f"{name!r} is a source already: give the step another name")
    known = [*found["sources"], *found["steps"]]
    for name, step in found["steps"].items():
        for one in (step or {}).get("inputs", ()):
            if one not in known:
                written.fault(
                    ("steps", name), _unknown(one, known, f"steps.{name}: there is no source or step")
                )
    for name, sink in found["sinks"].items():
        if sink and sink["source"] not in known:
            written.fault(
                ("sinks", name), _unknown(sink["source"], known, f"sinks.{name}: there is no source or step")
            )
