"""Takes the pictures in docs/images/dashboard: every page, light and dark, of a broker at work. `make screenshots`.

*-light.png, *-dark.png    laptop, 1280 wide
phone-*.png                375 wide
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

import trine
from tests.browser.busy import Busy
from tests.browser.conftest import NewPage
from tests.browser.test_overview import STOPPED
from tests.integration.serving import Serving

pytestmark = [pytest.mark.screenshots, pytest.mark.filterwarnings("default")]

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images" / "dashboard"
BYTES_MAX = 150_000
COLOURS = 256
HISTORY_SAMPLES = 75
"""So many seconds of load before the first picture: the charts have something to show."""
SPARK_SECONDS = 300
LAPTOP = {"width": 1280, "height": 800}
PHONE = {"width": 375, "height": 812}


@pytest.fixture(scope="module")
def scene() -> Iterator[Serving]:
    """A busy broker with a history, an archive, and runs of pipelines."""
    with (
        tempfile.TemporaryDirectory(prefix="trine-") as name,
        Serving(Path(name) / "data") as server,
        Busy(server.url),
    ):
        folder = Path(name)  # the pictures show it
        for words in (
            ["archive", "returns", "sensors", "--to", str(folder / "lake"), "--server", server.url],
            ["report", "orders", "--out", str(folder / "report.html"), "--server", server.url],
        ):
            command = [sys.executable, "-m", "trine.cli", *words]
            subprocess.run(command, check=True, capture_output=True, timeout=SPARK_SECONDS)
        while len(asked(server, "/v1/history")["samples"]) < HISTORY_SAMPLES:
            pass_the_time(server)
        yield server


def asked(server: Serving, path: str) -> Any:
    with urllib.request.urlopen(server.http_url + path) as answer:
        return json.load(answer)


def pass_the_time(server: Serving) -> None:
    """One event of the live stream: a second."""
    with urllib.request.urlopen(f"{server.http_url}/v1/live") as stream:
        stream.readline()


def given_up(server: Serving) -> str:
    """A message that was tried twice and given up: its life is worth a picture."""
    found = asked(server, "/v1/traces?topic=orders&group=shipping&state=dead-lettered&limit=1")["found"]
    return str(found[0]["message_id"])


def click(*names: str) -> Callable[[Page], None]:
    def do(page: Page) -> None:
        for name in names:
            page.get_by_role("button", name=name).first.click()

    return do


def first_row(page: Page) -> None:
    page.locator(".browse .tbody .tr").nth(1).locator(".line").click()


def seek(page: Page) -> None:
    click("Seek", "The beginning")(page)
    expect(page.locator("[data-preview]")).to_be_visible()


def redrive(page: Page) -> None:
    click("Redrive all")(page)
    expect(page.locator("[data-preview]")).to_be_visible()


def one_run(page: Page) -> None:
    page.locator(".tr", has_text="report").first.click()
    expect(page.get_by_text("All runs")).to_be_visible()


def nothing(_: Page) -> None:
    """The page as it opens."""


PAGES: dict[str, tuple[str, Callable[[Page], None]]] = {
    "overview": ("", nothing),
    "topics": ("topics", nothing),
    "messages": ("topics/orders", first_row),
    "partitions": ("topics/orders/partitions", nothing),
    "topic-groups": ("topics/orders/groups", nothing),
    "settings": ("topics/orders/settings", nothing),
    "publish": ("topics/orders", click("Publish")),
    "life": ("life/{given_up}", nothing),
    "trace": ("traces?topic=orders&group=audit&state=waiting", nothing),
    "groups": ("groups", nothing),
    "group": ("topics/orders/groups/billing", nothing),
    "seek": ("topics/orders/groups/billing", seek),
    "dead-letters": ("dead-letters?window=1h", nothing),
    "letters": ("dead-letters/returns?window=1h", first_row),
    "redrive": ("dead-letters/returns", redrive),
    "schedule": ("schedule", nothing),
    "pipelines": ("pipelines", nothing),
    "run": ("pipelines", one_run),
}
ON_A_PHONE = ("overview", "messages", "life")


TWO_SAMPLES = """() => new Promise((done) => {
    const stream = new EventSource("/v1/live")
    let seen = 0
    stream.addEventListener("live", () => {
        seen += 1
        if (seen === 2) { stream.close(); done() }
    })
})"""
"""By then charts and rates are drawn."""


def settle(page: Page) -> None:
    """Until the page is all there: numbers came, nothing loads, and fonts and charts are drawn."""
    expect(page.locator(".pill")).to_have_class("pill up")
    expect(page.locator(".state.loading, .spinner")).to_have_count(0)
    page.evaluate("document.fonts.ready")
    page.evaluate(
        "new Promise((done) => setTimeout(done, 1200))"
    )  # one more sample: charts and rates are there


def take(page: Page, name: str) -> None:
    """256 colours are enough for a page, and a third of the bytes."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with Image.open(io.BytesIO(page.screenshot())) as shot:
        few = shot.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(FOLDER / f"{name}.png", optimize=True)
    assert (FOLDER / f"{name}.png").stat().st_size < BYTES_MAX


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_take_a_page(scene: Serving, new_page: NewPage, name: str, scheme: str) -> None:
    place, act = PAGES[name]
    place = place.format(given_up=given_up(scene)) if "{" in place else place
    page = new_page(scene.http_url, place, color_scheme=scheme, viewport=LAPTOP)
    settle(page)
    act(page)
    settle(page)
    take(page, f"{name}-{scheme}")


@pytest.mark.parametrize("name", ON_A_PHONE)
def test_take_a_phone(scene: Serving, new_page: NewPage, name: str) -> None:
    place = PAGES[name][0]
    place = place.format(given_up=given_up(scene)) if "{" in place else place
    page = new_page(scene.http_url, place, color_scheme="light", viewport=PHONE)
    settle(page)
    take(page, f"phone-{name}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_take_the_login(tmp_path: Path, new_page: NewPage, scheme: str) -> None:
    file = tmp_path / "keys.yaml"
    command = [
        sys.executable,
        "-m",
        "trine.cli",
        "key",
        "create",
        "--keys-file",
        str(file),
        "--role",
        "admin",
        "--id",
        "me",
    ]
    subprocess.run(command, check=True, capture_output=True)
    with Serving(tmp_path / "data", "--keys-file", str(file)) as server:
        page = new_page(server.http_url, color_scheme=scheme, viewport=LAPTOP, errors=STOPPED)
        expect(page.get_by_label("API key")).to_be_visible()
        page.evaluate("document.fonts.ready")
        take(page, f"login-{scheme}")
        page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_take_a_lost_connection(tmp_path: Path, new_page: NewPage, scheme: str) -> None:
    server = Serving(tmp_path / "data").start()
    with trine.connect(server.url) as broker:
        broker.create_topic("orders").publish("hello")
    page = new_page(server.http_url, color_scheme=scheme, viewport=LAPTOP, errors=STOPPED)
    settle(page)
    server.kill()
    expect(page.locator(".banner")).to_be_visible()
    take(page, f"lost-{scheme}")
