"""Dead letters: by reason and over time, looked at, edited, redriven one, many or by filter, cancelled, purged."""

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

REASONS = ("card declined", "address unknown")


@pytest.fixture
def buried(serving: Serving, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Ten dead letters of a topic of its own, of two reasons by turns."""
    name = f"buried-{request.node.originalname.removeprefix('test_').replace('_', '-')}"[:60]
    with trine.connect(serving.url) as broker:
        topic = broker.create_topic(name, partitions=1)
        topic.publish_many([{"value": f'{{"n": {n}}}', "key": f"k{n}"} for n in range(10)])
        with topic.group("workers").consumer("one") as consumer:
            for message in consumer.receive(max=10, wait="10s"):
                message.reject(REASONS[message.offset % 2])
        yield SimpleNamespace(broker=broker, topic=topic, name=name)


def letters(page: Page) -> Locator:
    return page.locator(".browse .tbody .tr")


def test_by_topic_and_reason_and_over_time(look: NewPage) -> None:
    page = look("dead-letters")
    reasons = panel(page, "By topic and reason").locator(".tbody .tr")
    returns = reasons.filter(has_text="returns").filter(has_text="card declined")
    expect(returns).to_contain_text("6")
    expect(page.locator(".bars-told")).to_contain_text("dead letters")
    expect(page.locator(".bars .bar rect + rect")).to_have_count(48)
    returns.click()
    expect(page.locator("h1")).to_have_text("Dead letters of returns")
    expect(page.get_by_label("Filter by reason")).to_have_value("card declined")
    expect(letters(page)).to_have_count(6)
    letters(page).first.locator(".line").click()
    one = page.locator("aside.one")
    expect(one.locator(".facts")).to_contain_text("card declined")
    expect(one.locator(".facts a[href^='#/life/returns/']")).to_be_visible()
    expect(one.locator(".json")).to_contain_text("return")


def test_redrive_one_many_and_by_filter(look: NewPage, buried: Any) -> None:
    page = look(f"dead-letters/{buried.name}")
    expect(letters(page)).to_have_count(10)
    letters(page).first.locator(".line").click()
    page.locator("aside.one").get_by_role("button", name="Redrive", exact=True).click()
    expect(page.locator("[data-preview]")).to_have_text("1 letter would be sent back.")
    assert len(buried.topic.dead_letters()) == 10  # a dry run
    page.get_by_role("dialog").get_by_role("button", name="Redrive", exact=True).click()
    toast(page, "Redriving 1 letter")
    expect(letters(page)).to_have_count(9)

    for row in (0, 1, 2):
        letters(page).nth(row).get_by_role("checkbox").check()
    expect(page.locator(".selection")).to_contain_text("3 letters chosen")
    page.locator(".selection").get_by_role("button", name="Redrive").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive", exact=True).click()
    toast(page, "Redriving 3 letters")
    expect(letters(page)).to_have_count(6)

    page.get_by_label("Filter by reason").fill("card")
    expect(page.get_by_role("button", name="Redrive these")).to_be_visible()
    left = len(buried.topic.dead_letters(reason="card"))
    expect(letters(page)).to_have_count(left)
    page.get_by_role("button", name="Redrive these").click()
    expect(page.locator("[data-preview]")).to_have_text(f"{left} letters would be sent back.")
    page.get_by_role("dialog").get_by_role("button", name="Redrive", exact=True).click()
    expect(page.get_by_text("No dead letter is like that")).to_be_visible()
    expect(panel(page, "Redrives").locator(".job").first).to_contain_text("done")
    assert {letter.reason for letter in buried.topic.dead_letters()} == {"address unknown"}


def test_a_slow_redrive_shows_how_far_it_is_and_is_cancelled(look: NewPage, buried: Any) -> None:
    page = look(f"dead-letters/{buried.name}")
    page.get_by_role("button", name="Redrive all").click()
    page.get_by_role("dialog").get_by_label("Rate").fill("0.2")
    page.get_by_role("dialog").get_by_role("button", name="Redrive", exact=True).click()
    job = panel(page, "Redrives").locator(".job").first
    expect(job).to_contain_text("running")
    expect(job.get_by_role("progressbar")).to_be_visible()
    job.get_by_role("button", name="Cancel").click()
    toast(page, "stays moved")
    expect(job).to_contain_text("cancelled")
    assert len(buried.topic.dead_letters()) > 0


def test_edit_and_redrive(look: NewPage, buried: Any) -> None:
    page = look(f"dead-letters/{buried.name}?key=k3")
    letters(page).first.locator(".line").click()
    page.get_by_role("button", name="Edit and redrive").click()
    content = page.get_by_label("Content", exact=True)
    expect(content).to_have_value('{"n": 3}')
    content.fill('{"n": 3, "mended": true}')
    page.get_by_role("button", name="Redrive edited").click()
    toast(page, "Edited and redriven")
    newest = buried.topic.last(1)[0]
    assert (newest.value, newest.key) == (b'{"n": 3, "mended": true}', b"k3")
    assert len(buried.topic.dead_letters()) == 9


def test_purge_by_filter_and_all(look: NewPage, buried: Any) -> None:
    page = look(f"dead-letters/{buried.name}?reason=address")
    page.get_by_role("button", name="Purge these").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("[data-preview]")).to_have_text("5 letters would be purged.")
    expect(dialog.get_by_role("button", name="Purge", exact=True)).to_be_disabled()
    dialog.get_by_label(f"Type {buried.name} to confirm").fill(buried.name)
    dialog.get_by_role("button", name="Purge", exact=True).click()
    toast(page, "Purged 5 dead letters")
    assert {letter.reason for letter in buried.topic.dead_letters()} == {"card declined"}
    page.get_by_label("Filter by reason").fill("")
    expect(letters(page)).to_have_count(5)
    page.get_by_role("button", name="Purge all").click()
    dialog.get_by_label(f"Type {buried.name} to confirm").fill(buried.name)
    dialog.get_by_role("button", name="Purge", exact=True).click()
    expect(page.get_by_text(f"No dead letters of {buried.name}")).to_be_visible()
    assert buried.topic.dead_letters() == []
