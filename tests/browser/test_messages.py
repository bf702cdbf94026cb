"""Messages: found, followed, shown harmlessly whatever they have in them, published by hand, edited and sent again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import trine
from tests.browser.conftest import NewPage
from tests.browser.test_topics import toast
from tests.integration.serving import Serving

HOSTILE = '<script>document.title="gone"</script><img src=x onerror="document.title=\'gone\'"><b>bold</b>'
BIG = 1_000_000
LARGE_NUMBER = "12345678901234567890"


@pytest.fixture
def topic(serving: Serving, request: pytest.FixtureRequest) -> Any:
    """A topic of its own for a test, by the name of the test."""
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:60]
    with trine.connect(serving.url) as broker:
        yield broker.create_topic(name, partitions=2)


def rows(page: Page) -> Any:
    return page.locator(".browse .tbody .tr")


def told(page: Page) -> Any:
    """The line below the list: how many, and whether that is all."""
    return page.locator(".browse .panel > .progress")


def test_browse_by_place_time_key_header_and_text(look: NewPage, topic: Any) -> None:
    topic.publish_many(
        [
            {
                "value": json.dumps({"n": n}),
                "key": f"k{n % 3}",
                "partition": 0,
                "headers": {"odd": str(n % 2)},
            }
            for n in range(30)
        ]
    )
    page = look(f"topics/{topic.name}")
    expect(told(page)).to_contain_text("30 messages shown; that is all")
    expect(rows(page).first).to_contain_text('{"n": 29}')  # the newest first
    page.get_by_role("button", name="From offset").click()
    page.get_by_label("Offset").fill("27")
    page.get_by_label("Offset").press("Enter")
    expect(rows(page)).to_have_count(3)
    expect(rows(page).first).to_contain_text('{"n": 27}')
    page.get_by_role("button", name="Newest").click()
    page.get_by_label("Key", exact=True).fill("k1")
    page.get_by_label("Key", exact=True).press("Enter")
    expect(rows(page)).to_have_count(10)
    page.get_by_role("button", name="Header…").click()
    page.get_by_label("Header", exact=True).fill("odd:1")
    page.get_by_label("Header", exact=True).press("Enter")
    expect(rows(page)).to_have_count(5)
    page.keyboard.press("Tab")
    page.get_by_label("Search the values").fill('"n": 25')
    expect(rows(page)).to_have_count(1)
    expect(told(page)).to_contain_text("1 message found in")
    page.reload()  # where one looks stands in the address
    expect(rows(page)).to_have_count(1)
    page.goto(page.url.split("?")[0] + "?mode=time&from=2030-01-01T00:00:00")
    expect(page.get_by_text("Nothing found")).to_be_visible()
    page.goto(page.url.split("?")[0] + "?mode=time&from=2020-01-01T00:00:00")
    expect(told(page)).to_contain_text("30 messages shown")


def test_a_long_log_is_loaded_as_it_is_scrolled(look: NewPage, topic: Any) -> None:
    topic.publish_many([f"number {n}" for n in range(2_500)])
    page = look(f"topics/{topic.name}")
    for pages in (1, 2, 3, 4):
        expect(told(page)).to_contain_text(f"{pages}00 messages shown")
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert rows(page).count() < 80
    page.get_by_label("Search the values").fill("number 17")
    page.get_by_role("button", name="Look further").click()
    expect(told(page)).to_contain_text("111 messages found in 2,500 looked at; that is all")


def test_follow_the_tail(look: NewPage, topic: Any) -> None:
    page = look(f"topics/{topic.name}/messages?mode=follow")
    expect(page.get_by_text("Waiting for messages")).to_be_visible()
    expect(told(page)).to_contain_text("Following")
    topic.publish("first of all")
    expect(rows(page).first).to_contain_text("first of all")
    topic.publish("and another")
    expect(rows(page).first).to_contain_text("and another")
    page.get_by_role("button", name="Hold").click()
    topic.publish("not shown")
    expect(told(page)).to_contain_text("Held")
    expect(rows(page)).to_have_count(2)


def test_hostile_contents_are_shown_and_never_run(look: NewPage, topic: Any) -> None:
    topic.publish(HOSTILE, key=HOSTILE, headers={"x": HOSTILE})
    topic.publish(json.dumps({HOSTILE: [HOSTILE]}), key="json")
    page = look(f"topics/{topic.name}")
    expect(rows(page)).to_have_count(2)
    expect(rows(page).nth(1)).to_contain_text("<script>")
    rows(page).nth(1).locator(".line").click()
    one = page.get_by_label(f"Message {topic.name}", exact=False)
    expect(one.locator(".content-body")).to_have_text(HOSTILE)
    expect(one.locator(".headers")).to_contain_text(HOSTILE)
    one.get_by_role("button", name="Hex").click()
    expect(one.locator(".hex")).to_contain_text("3c 73 63 72 69 70 74 3e  64 6f 63 75 6d 65 6e 74")
    rows(page).first.locator(".line").click()
    one.get_by_role("button", name="JSON").click()  # the form that was chosen stays
    expect(one.locator(".json")).to_contain_text("<script>")
    one.get_by_role("button", name="Edit and resend").click()
    expect(page.get_by_label("Content", exact=True)).to_have_value(json.dumps({HOSTILE: [HOSTILE]}))
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(one).to_have_count(0)
    assert "gone" not in page.title()
    assert page.locator("main script, main img, main b:text-is('bold')").count() == 0


def test_a_megabyte_and_bytes(look: NewPage, topic: Any) -> None:
    topic.publish(bytes(range(256)) * 8, key=b"\xff\x00")
    topic.publish("x" * BIG + "the end")
    page = look(f"topics/{topic.name}")
    expect(rows(page)).to_have_count(2)
    rows(page).first.locator(".line").click()
    one = page.locator("aside.one")
    expect(one.locator(".content-head")).to_contain_text("1 MB")
    assert len(one.locator(".content-body").inner_text()) < 1_000  # a part, until all is asked for
    one.get_by_role("button", name="Load all 1 MB").click()
    expect(one.locator(".progress")).to_contain_text("The first 100 kB are shown")
    one.get_by_role("button", name="Hex").click()
    one.locator(".content-body").evaluate("(box) => { box.scrollTop = box.scrollHeight }")
    expect(one.locator(".hex")).to_contain_text("the end")
    assert one.locator(".hex > div").count() < 100
    one.get_by_role("button", name="Text").click()
    one.get_by_role("button", name="Show all").click()
    expect(one.locator(".content-body")).to_contain_text("the end")
    rows(page).nth(1).locator(".line").click()
    expect(one.locator(".hex")).to_contain_text("fc fd fe ff")
    expect(one.locator(".facts")).to_contain_text("0xff00")


def test_publish_by_hand_with_every_option(look: NewPage, topic: Any) -> None:
    page = look(f"topics/{topic.name}")
    page.get_by_role("button", name="Publish the first one").click()
    content = page.get_by_label("Content", exact=True)
    content.fill("{not json")
    expect(page.locator("dialog .bad")).to_contain_text("This is not JSON")
    expect(page.get_by_role("dialog").get_by_role("button", name="Publish", exact=True)).to_be_disabled()
    content.fill(f'{{"id": {LARGE_NUMBER}}}')
    page.get_by_role("dialog").get_by_label("Key").fill("customer-7")
    page.get_by_label("Priority").select_option("high")
    page.get_by_role("button", name="Add").click()
    page.get_by_label("Name of header 1").fill("kind")
    page.get_by_label("Value of header 1").fill("test")
    page.get_by_label("Time to live").fill("1h")
    page.get_by_label("Deduplication id").fill("once")
    page.get_by_role("dialog").get_by_role("button", name="Publish", exact=True).click()
    toast(page, f"Published {topic.name}/")
    (message,) = topic.read()
    assert message.value == f'{{"id": {LARGE_NUMBER}}}'.encode()
    assert (message.key, message.priority, dict(message.headers)["kind"]) == (b"customer-7", "high", b"test")
    assert message.dedup_id == "once"
    assert message.expires_ms is not None

    page.get_by_role("button", name="Refresh").click()
    rows(page).first.locator(".line").click()
    expect(page.locator("aside .json .number")).to_have_text(LARGE_NUMBER)  # to the last digit
    page.get_by_role("button", name="Publish").first.click()
    page.get_by_label("When").select_option("delay")
    page.get_by_label("Delay").fill("2h")
    page.get_by_role("dialog").get_by_role("button", name="Schedule").click()
    toast(page, f"Scheduled {topic.name}@")
    (scheduled,) = topic.schedules()
    assert abs(scheduled.due_ms - scheduled.published_ms - 7_200_000) < 1_000


def test_edit_and_resend(look: NewPage, topic: Any) -> None:
    topic.publish(
        f'{{"id": {LARGE_NUMBER}, "ok": false}}', key="k", headers={"a": "1", "b": b"\xff"}, priority="low"
    )
    page = look(f"topics/{topic.name}")
    rows(page).first.locator(".line").click()
    page.get_by_role("button", name="Edit and resend").click()
    content = page.get_by_label("Content", exact=True)
    content.fill(content.input_value().replace("false", "true"))
    page.get_by_role("dialog").get_by_role("button", name="Publish", exact=True).click()
    toast(page, "Published")
    first, second = sorted(topic.read(), key=lambda message: message.timestamp_ms)
    assert second.value == f'{{"id": {LARGE_NUMBER}, "ok": true}}'.encode()
    assert (second.key, second.priority, dict(second.headers)) == (first.key, "low", dict(first.headers))
    page.locator(".toast a").click()
    expect(page.locator("h1")).to_have_text(f"{topic.name}/{second.partition}/{second.offset}")
