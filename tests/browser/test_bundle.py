"""What is sent to a browser: how large it is, and how soon it shows something. The sizes are of the built page."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from playwright.sync_api import expect

import trine
from tests.browser.conftest import NewPage

STATIC = Path(trine.__file__).parent / "dashboard" / "static"
SCRIPT_BYTES_MAX = 120_000
"""Of all scripts, gzipped; the dashboard's limit is 250,000."""
FIRST_BYTES_MAX = 70_000
"""Of the scripts that the first view waits for."""


def zipped(files: list[Path]) -> int:
    return sum(len(gzip.compress(file.read_bytes())) for file in files)


@pytest.fixture(scope="module")
def scripts() -> list[Path]:
    found = sorted(STATIC.rglob("*.js"))
    assert found, "the page was not built: make dashboard"
    return found


def test_all_scripts_are_small(scripts: list[Path]) -> None:
    assert zipped(scripts) < SCRIPT_BYTES_MAX


def test_the_first_view_waits_for_little(scripts: list[Path]) -> None:
    index = (STATIC / "index.html").read_text(encoding="utf-8")
    first = [file for file in scripts if file.name in index]
    assert first
    assert zipped(first) < FIRST_BYTES_MAX


def test_nothing_is_fetched_from_elsewhere(look: NewPage) -> None:
    page = look("about:blank")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    expect(page.locator(".pill")).to_have_text("Live")
    origin = page.url.split("#")[0]
    assert asked
    assert all(url.startswith((origin, "data:")) for url in asked), asked
