"""The schedule: the picture of the coming hours, search, move and cancel; and what recurs."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

import trine
from tests.browser.conftest import NewPage, panel
from tests.browser.test_topics import toast
from tests.integration.serving import Serving


@pytest.fixture
def waiting(serving: Serving, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Three messages that wait, in a topic of its own."""
    name = f"waiting-{request.node.originalname.removeprefix('test_').replace('_', '-')}"[:60]
    with trine.connect(serving.url) as broker:
        topic = broker.create_topic(name, partitions=1)
        for hours in (3, 5, 30):
            topic.publish(f"in {hours} hours", key=f"k{hours}", delay=f"{hours}h")
        yield SimpleNamespace(broker=broker, topic=topic, name=name)


def rows(page: Page) -> Locator:
    return page.locator(".browse .tbody .tr")


def test_the_coming_hours_and_what_a_bar_has(look: NewPage, waiting: Any) -> None:
    page = look(f"schedule?topic={waiting.name}")
    expect(page.locator(".under")).to_have_text("3 messages wait for their time")
    expect(panel(page, "The coming hours")).to_contain_text("1 later than that")
    expect(rows(page)).to_have_count(3)
    bars = page.locator(".bars .bar[tabindex='0']")
    expect(bars).to_have_count(2)
    bars.first.click()
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("in 3 hours")
    bars.first.click()
    expect(rows(page)).to_have_count(3)
    page.get_by_role("button", name="7 days").click()
    expect(bars).to_have_count(3)
    page.get_by_label("Key", exact=True).fill("k5")
    page.get_by_label("Key", exact=True).press("Enter")
    expect(rows(page)).to_have_count(1)
    rows(page).locator(".line").click()
    expect(page.locator("aside.one .content-body")).to_have_text("in 5 hours")
    page.keyboard.press("Escape")
    expect(page.locator("aside.one")).to_have_count(0)


def test_move_and_cancel(look: NewPage, waiting: Any) -> None:
    page = look(f"schedule?topic={waiting.name}")
    first = waiting.topic.schedules()[0]
    page.get_by_label(f"Move {first.id}").click()
    page.get_by_role("button", name="From now").click()
    page.get_by_role("dialog").get_by_label("Due in").fill("40h")
    expect(page.get_by_role("dialog").locator(".note")).to_contain_text("will be due 40h from now")
    page.get_by_role("dialog").get_by_role("button", name="Move", exact=True).click()
    toast(page, f"Moved {first.id}")
    assert waiting.topic.schedules()[-1].id == first.id
    expect(rows(page).last).to_contain_text("in 3 hours")
    page.get_by_label(f"Cancel {first.id}").click()
    page.get_by_role("button", name="Cancel the message").click()
    toast(page, f"Cancelled {first.id}")
    expect(rows(page)).to_have_count(2)
    assert first.id not in [one.id for one in waiting.topic.schedules()]


def test_recurring_messages(look: NewPage, waiting: Any) -> None:
    page = look("schedule", errors=("400",))
    recurring = panel(page, "Again and again").locator("tbody")
    expect(recurring).to_contain_text("0 3 * * *")
    page.get_by_role("button", name="New recurring message").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").first.fill("hourly-report")
    dialog.get_by_label("Topic").fill(waiting.name)
    dialog.get_by_label("Expression").fill("every never")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.locator(".note.bad")).to_be_visible()
    dialog.get_by_label("Expression").fill("@hourly")
    dialog.get_by_role("button", name="Create").click()
    toast(page, "hourly-report is published next")
    row = recurring.locator("tr", has_text="hourly-report")
    expect(row).to_contain_text("@hourly")
    row.get_by_label("End hourly-report").click()
    dialog.get_by_role("button", name="End it").click()
    toast(page, "hourly-report is ended")
    expect(row).to_have_count(0)
    assert "hourly-report" not in [cron.name for cron in waiting.broker.crons()]
