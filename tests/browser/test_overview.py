"""The overview: what it shows, that it moves by itself, and that it comes back after the broker was gone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import trine
from tests.browser.conftest import NewPage, panel
from tests.integration.serving import Serving

TILES = [
    "Published",
    "Delivered",
    "Pending",
    "In flight",
    "Acked",
    "Failed",
    "Dead letters",
    "Scheduled",
    "Lag",
]
STOPPED = (
    "ERR_CONNECTION_REFUSED",
    "ERR_INCOMPLETE_CHUNKED",
    "ERR_CONNECTION_RESET",
    "ERR_EMPTY_RESPONSE",
    "ERR_NETWORK",
)
"""What a browser says of a broker that is gone."""


def test_one_glance(look: NewPage) -> None:
    page = look()
    expect(page.locator(".tile-label")).to_have_text(TILES)
    expect(page.locator(".tile").first.locator(".tile-value")).to_have_text(re.compile(r"^[1-9][\d.,k]*/s$"))
    expect(page.locator(".health")).to_contain_text("Group audit of orders is paused")
    expect(panel(page, "Busiest topics").locator("tbody tr").first).to_contain_text("clicks")
    behind = panel(page, "Lag by group")
    expect(behind.locator("tr", has_text="audit")).to_contain_text("paused")
    expect(panel(page, "Broker")).to_contain_text("ready")
    expect(page.locator(".chart canvas")).to_have_count(4)
    expect(page.locator(".pill")).to_have_text("Live")
    page.locator(".health li", has_text="audit").get_by_role("link", name="Look").click()
    expect(page.locator("h1")).to_contain_text("audit")


def test_the_numbers_move_by_themselves(look: NewPage) -> None:
    page = look()
    acked = page.locator(".tile", has_text="Acked").locator(".tile-value")
    expect(acked).to_have_text(re.compile(r"\d"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    before = acked.inner_text()
    expect(acked).not_to_have_text(before)
    assert not asked, "the overview polls"


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_a_lost_connection_recovers(fresh: Serving, new_page: NewPage, how: str) -> None:
    with trine.connect(fresh.url) as broker:
        broker.create_topic("before")
    page = new_page(fresh.http_url, errors=(*STOPPED, "503"))
    busiest = panel(page, "Busiest topics")
    expect(page.locator(".pill")).to_have_text("Live")
    expect(busiest).to_contain_text("before")
    getattr(fresh, how)()
    expect(page.locator(".banner")).to_contain_text("Connection lost, trying again")
    expect(busiest).to_contain_text("before")  # as it was
    fresh.start()
    with trine.connect(fresh.url) as broker:
        broker.create_topic("after")
    expect(page.locator(".banner")).to_have_count(0)
    expect(page.locator(".pill")).to_have_text("Live")
    expect(busiest).to_contain_text("after")


def test_a_broker_that_is_empty_says_what_to_do(fresh: Serving, new_page: NewPage) -> None:
    page = new_page(fresh.http_url)
    expect(page.locator(".health")).to_contain_text("All is well")
    expect(page.get_by_text("trine topic create orders --partitions 3")).to_be_visible()
    for place, command in {
        "topics": "trine topic create",
        "groups": "trine consume orders --group billing",
        "dead-letters": "trine dlq",
        "schedule": "trine produce orders --delay 5m",
        "pipelines": "trine archive orders",
    }.items():
        page.goto(f"{fresh.http_url}/#/{place}")
        expect(page.locator(".command", has_text=command)).to_be_visible()
