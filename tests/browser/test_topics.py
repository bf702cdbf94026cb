"""Topics: the list, and create, alter, purge and delete, each by its dialog."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

import trine
from tests.browser.conftest import NewPage
from tests.integration.serving import Serving

MANY_TOPICS = 1_000
MANY_PARTITIONS = 10


def toast(page: Page, text: str) -> None:
    expect(page.locator(".toast", has_text=text)).to_be_visible()


def test_the_list_is_live_sorted_and_filtered(look: NewPage) -> None:
    page = look("topics")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="orders", exact=True))
    expect(row.get_by_role("cell").nth(1)).to_have_text(re.compile(r"^[1-9]\d*/s$"))
    messages = row.get_by_role("cell").nth(8)
    before = messages.inner_text()
    expect(messages).not_to_have_text(before)  # without a reload
    page.get_by_role("button", name="In", exact=True).click()
    expect(page.locator(".tbody .tr").first).to_contain_text("clicks")
    page.keyboard.press("/")
    page.keyboard.type("pay")
    expect(page.locator(".tbody .tr")).to_have_count(1)
    expect(page.locator(".tbody .tr")).to_contain_text("queue")
    page.keyboard.press("Escape")
    expect(page.locator(".tbody .tr").nth(3)).to_be_visible()


def test_create_alter_purge_delete(look: NewPage, serving: Serving) -> None:
    page = look("topics", errors=("400",))
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill("no spaces please")
    page.get_by_role("dialog").get_by_role("button", name="Create topic").click()
    expect(page.locator("dialog .note.bad")).to_contain_text(
        "name"
    )  # the broker says what is wrong, and one goes on
    page.get_by_label("Name").fill("made-by-hand")
    page.get_by_label("Partitions").fill("3")
    page.get_by_label("Retention", exact=False).first.fill("2d")
    page.get_by_role("dialog").get_by_role("button", name="Create topic").click()
    toast(page, "Created topic made-by-hand")
    expect(page.locator("h1")).to_contain_text("made-by-hand")
    expect(page.get_by_text("made-by-hand has no messages")).to_be_visible()

    with trine.connect(serving.url) as broker:
        topic = broker.topic("made-by-hand")
        assert len(topic.describe().partitions) == 3
        topic.publish_many([f"message {n}" for n in range(7)])

        page.get_by_role("link", name="Settings").click()
        expect(page.locator(".facts div", has_text="Retention").first).to_contain_text("2d")
        page.get_by_role("button", name="Alter").click()
        page.get_by_label("Retention", exact=False).first.fill("3d")
        expect(page.locator("dialog .note")).to_have_text("Will change: retention from 2d to 3d")
        page.get_by_role("dialog").get_by_role("button", name="Alter").click()
        toast(page, "Altered")
        expect(page.locator(".facts div", has_text="Retention").first).to_contain_text("3d")

        page.get_by_role("button", name="Purge").click()
        purge = page.get_by_role("dialog").get_by_role("button", name="Purge")
        expect(page.get_by_role("dialog")).to_contain_text("7 messages")
        expect(purge).to_be_disabled()
        page.get_by_label("Type made-by-hand to confirm").fill("made-by-hand")
        purge.click()
        toast(page, "Purged 7 messages")
        assert topic.describe().messages == 0

        page.get_by_role("button", name="Delete").click()
        delete = page.get_by_role("dialog").get_by_role("button", name="Delete topic")
        page.get_by_label("Type made-by-hand to confirm").fill("made-by-han")
        expect(delete).to_be_disabled()
        page.get_by_label("Type made-by-hand to confirm").fill("made-by-hand")
        delete.click()
        toast(page, "Deleted made-by-hand")
        expect(page.locator("h1")).to_have_text("Topics")
        assert "made-by-hand" not in [one.name for one in broker.topics()]


def test_partitions_and_groups_of_a_topic(look: NewPage) -> None:
    page = look("topics/orders/partitions")
    table = page.get_by_role("table", name="Partitions of orders")
    expect(table.get_by_role("row")).to_have_count(7)
    expect(table).to_contain_text(re.compile(r"high \d"))
    table.get_by_role("row").nth(3).click()
    expect(page.get_by_label("Partition", exact=True)).to_have_value("2")
    page.get_by_role("link", name="Groups 3").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("tr", has_text="audit")).to_contain_text("paused")


def test_a_thousand_topics_and_ten_thousand_partitions(fresh: Serving, new_page: NewPage) -> None:
    """Only what is on view is in the page, and what is scrolled to is loaded."""
    with trine.connect(fresh.url) as broker:
        for number in range(MANY_TOPICS):
            broker.create_topic(f"topic-{number:04}", partitions=MANY_PARTITIONS, durability="memory")
        broker.create_topic("wide", partitions=1_000)
    page = new_page(fresh.http_url, "topics")
    expect(page.locator(".under")).to_have_text("1,001 topics")
    rows = page.locator(".tbody .tr")
    expect(rows.first).to_contain_text("topic-0000")
    assert rows.count() < 60
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.get_by_role("link", name="wide")).to_be_visible()
    assert rows.count() < 60
    page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
    expect(page.get_by_role("link", name=re.compile("topic-04[89]"))).not_to_have_count(0)
    page.goto(f"{fresh.http_url}/#/topics/wide/partitions")
    expect(page.get_by_role("link", name="Partitions 1000")).to_be_visible()
    expect(rows.first).to_be_visible()
    assert rows.count() < 60
    page.goto(f"{fresh.http_url}/#/overview")
    expect(page.locator(".pill")).to_have_text("Live")
