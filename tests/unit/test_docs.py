"""The documentation keeps up with the code: errors and options are named in it, and its links lead somewhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from trine.broker import schedule
from trine.log import batch, checkpoint, index, journal_format
from trine.model import errors, receipt
from trine.model.options import BackoffConfig, BreakerConfig, GroupConfig, TopicConfig
from trine.queue import rows

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
