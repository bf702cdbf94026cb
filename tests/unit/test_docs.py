"""The documentation keeps up with the code: errors and options are named in it, and its links lead somewhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from tests.unit.wire import samples
from trine.broker import schedule
from trine.log import batch, checkpoint, index, journal_format
from trine.model import errors, limits, receipt
from trine.model.options import BackoffConfig, BreakerConfig, GroupConfig, TopicConfig
from trine.queue import rows
from trine.server.calls import CALLS
from trine.trace import timeline
from trine.wire import bodies, calls, frames

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

ERRORS = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, errors.TrineError) and error.__module__ == errors.__name__
]

FORMATS = [batch, checkpoint, index, journal_format, receipt, rows, schedule]
_TABLE_ROW = re.compile(r"^ +\d+ +(?:[ui]\d+|\d+[sx]) .+$", re.MULTILINE)
_FIELD = re.compile(r"`([a-z_]+)`(\??)")
_NAME = re.compile(r"`([A-Z]\w+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def cells(page: str) -> list[list[str]]:
    """The cells of all tables of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_every_error_has_a_row_with_its_code_and_no_row_is_of_another() -> None:
    documented = {row[0]: row[1] for row in cells("errors.md") if row[0].startswith("`")}
    assert documented == {f"`{error.__name__}`": f"`{error.code}`" for error in ERRORS}


def test_codes_are_unique() -> None:
    assert len({error.code for error in ERRORS}) == len(ERRORS)


@pytest.mark.parametrize(("page", "config"), [("topics.md", TopicConfig), ("consuming.md", GroupConfig)])
def test_every_option_has_a_row(page: str, config: type[TopicConfig] | type[GroupConfig]) -> None:
    documented = {row[0] for row in cells(page)}
    options = {f"`{field.removesuffix('_ms')}`" for field in config.__struct_fields__}
    assert options <= documented


@pytest.mark.parametrize("config", [BackoffConfig, BreakerConfig])
def test_options_within_options_are_named_with_their_defaults(
    config: type[BackoffConfig] | type[BreakerConfig],
) -> None:
    text = (DOCS / "consuming.md").read_text(encoding="utf-8")
    made = config()
    for field in config.__struct_fields__:
        assert f"`{field}` ({getattr(made, field)})" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            headings = _HEADING.findall(target.read_text(encoding="utf-8"))
            assert anchor in {_anchor(heading) for heading in headings}, f"{page.name}: {link}"


@pytest.mark.parametrize("module", FORMATS, ids=lambda module: module.__name__)
def test_byte_tables_are_those_of_the_code(module: ModuleType) -> None:
    pages = " ".join(page.read_text(encoding="utf-8") for page in (DOCS / "internals").glob("*.md"))
    shown = " ".join(pages.split())
    table = _TABLE_ROW.findall(module.__doc__ or "")
    assert len(table) >= 3
    for row in table:
        assert " ".join(row.split()) in shown


@pytest.mark.parametrize("module", [frames, bodies], ids=lambda module: module.__name__)
def test_the_protocol_is_that_of_the_code(module: ModuleType) -> None:
    shown = {
        " ".join(line.split()) for line in (DOCS / "protocol.md").read_text(encoding="utf-8").splitlines()
    }
    table = [line for line in (module.__doc__ or "").splitlines() if line.startswith("   ")]
    assert len(table) >= 8
    for row in table:
        assert " ".join(row.split()) in shown


def test_every_command_of_the_protocol_is_in_its_table() -> None:
    documented = {row[0]: row[1] for row in cells("protocol.md") if len(row) == 4 and row[1].isdigit()}
    assert documented == {f"`{command.name}`": str(command.value) for command in frames.Command}


def test_every_call_is_documented_with_its_fields_and_its_reply() -> None:
    rows = {
        row[0].strip("`"): row[1:] for row in cells("protocol.md") if len(row) == 4 and row[0].startswith("`")
    }
    for kind, reply in calls.REPLIES.items():
        may, fields, answer = rows[str(kind.__struct_config__.tag)]
        assert may == (CALLS[kind][0] or ""), kind
        assert described(fields) == described_by(kind), kind
        if kind not in (calls.GetTrace, calls.Search):  # structs of their own, as bytes
            assert set(_NAME.findall(answer)) == structs_of(msgspec.inspect.type_info(reply)), kind
            assert (answer == "nil") == (reply is None), kind


def test_every_type_of_the_calls_is_documented_with_its_fields() -> None:
    rows = {row[0].strip("`"): row[1] for row in cells("protocol.md") if len(row) == 2}
    wanted: list[type[msgspec.Struct]] = [timeline.Trace, timeline.Found]
    for kind, reply in calls.REPLIES.items():
        wanted += structs_named(kind, reply)
    done: set[type[msgspec.Struct]] = {TopicConfig, GroupConfig}
    while wanted:
        one = wanted.pop()
        if one not in done:
            done.add(one)
            assert described(rows[one.__name__]) == described_by(one), one
            wanted += structs_named(one)


def test_limits_of_the_protocol_are_those_of_the_code() -> None:
    rows = {row[0].strip("`"): row[1] for row in cells("protocol.md") if row[0].endswith("_MAX`")}
    assert len(rows) >= 6
    assert rows == {name: str(getattr(limits, name)) for name in rows}


def test_the_example_of_the_protocol_is_what_the_codec_makes() -> None:
    _, _, example = (DOCS / "protocol.md").read_text(encoding="utf-8").partition("## An example")
    shown: dict[str, str] = {}
    name = ""
    for line in example.splitlines():
        if re.fullmatch(r"    \w+", line):
            name = line.strip()
            shown[name] = ""
        elif name and line.strip() and not line.strip().startswith(";"):
            shown[name] += line.strip().partition("   ")[0].replace(" ", "")
    assert len(shown) >= 10
    made = samples.frames()
    assert shown == {name: made[name].hex() for name in shown}


def described(cell: str) -> dict[str, bool]:
    """The fields a cell names: whether each may be left out (`name`? of a type)."""
    return {name: optional == "?" for name, optional in _FIELD.findall(cell)}


def described_by(kind: type[msgspec.Struct]) -> dict[str, bool]:
    return {field.name: not field.required for field in msgspec.structs.fields(kind)}


def structs_of(kind: object) -> set[str]:
    """The names of the structs a type is made of, not those within them."""
    return {one.__name__ for one in _structs(kind)}


def structs_named(*kinds: object) -> list[type[msgspec.Struct]]:
    """The structs these types are made of; of a struct, those its fields are made of."""
    found: list[type[msgspec.Struct]] = []
    for kind in kinds:
        info = msgspec.inspect.type_info(kind)
        if isinstance(info, msgspec.inspect.StructType) and issubclass(info.cls, calls.Call):
            found += [one for field in info.fields for one in _structs(field.type)]
        elif isinstance(info, msgspec.inspect.StructType):
            found += [info.cls, *(one for field in info.fields for one in _structs(field.type))]
        else:
            found += _structs(info)
    return found


def _structs(kind: object) -> list[type[msgspec.Struct]]:
    match kind:
        case msgspec.inspect.StructType(cls=cls):
            return [cls]
        case msgspec.inspect.UnionType(types=several) | msgspec.inspect.TupleType(item_types=several):
            return [one for inner in several for one in _structs(inner)]
        case msgspec.inspect.ListType(item_type=inner) | msgspec.inspect.VarTupleType(item_type=inner):
            return _structs(inner)
        case msgspec.inspect.DictType(value_type=inner):
            return _structs(inner)
    return []


def test_every_page_is_in_the_index() -> None:
    contents = (DOCS / "README.md").read_text(encoding="utf-8")
    decisions = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        if page.name != "README.md":
            name = page.relative_to(DOCS).as_posix()
            assert f"]({name})" in contents or f"]({page.name})" in decisions, name


def _anchor(heading: str) -> str:
    """As GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")
