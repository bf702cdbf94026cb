"""One Chromium and one busy broker for all tests of the dashboard; each test has a page of its own. Both end
with the last of these tests (`package`): those of other folders have event loops and threads of their own, and
count them.

A page that writes an error to its console, or has one that nobody caught, fails its test: so does whatever its policy
refused to load.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Locator, Page, expect, sync_playwright

from tests.browser.busy import Busy
from tests.integration.serving import Serving

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE_MS = 20_000
"""How long a page may take to become what a test waits for: a loaded machine must not fail it."""
LAPTOP = {"width": 1280, "height": 800}

expect.set_options(timeout=PATIENCE_MS)

NewPage = Callable[..., Page]


def panel(page: Page, title: str) -> Locator:
    """The part of a page under this heading."""
    return page.locator(".panel").filter(has=page.locator("h2", has_text=title))


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.fail(
            f"the tests of the dashboard need Chromium, and there is no {CHROMIUM}: `make {CHROMIUM}` installs "
            "Debian's, or say where yours is: make test CHROMIUM=/path/to/chromium"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("dashboard") / "data") as server:
        yield server


@pytest.fixture(scope="package")
def busy(serving: Serving) -> Iterator[Busy]:
    """The broker has something to show, and is at work."""
    with Busy(serving.url) as busy:
        yield busy


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Serving]:
    """A broker of its own for a test: name it before `new_page`, so that it outlives the pages."""
    with Serving(tmp_path / "data") as server:
        yield server


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[NewPage]:
    """`new_page(url, "topics/orders")`: a page in a context of its own, its errors looked at in the end."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def open_page(url: str, place: str = "", *, errors: tuple[str, ...] = (), **options: Any) -> Page:
        """`errors` are parts of what this page's console may say: a broker that is stopped, for one."""
        context = chromium.new_context(viewport=options.pop("viewport", LAPTOP), **options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()

        def said(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning") and not any(one in message.text for one in errors):
                wrong.append(f"{page.url}: {message.text}")

        def threw(error: Error) -> None:
            wrong.append(f"{page.url}: {error}")

        page.on("console", said)
        page.on("pageerror", threw)
        page.goto(f"{url}/#/{place}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def look(new_page: NewPage, serving: Serving, busy: Busy) -> NewPage:
    """`look("topics/orders")`: a page of the busy broker."""

    def open_page(place: str = "", **options: Any) -> Page:
        return new_page(serving.http_url, place, **options)

    return open_page
