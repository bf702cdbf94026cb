"""The frame of the page: navigation, the keyboard, light and dark, a phone, and what an unknown address says."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewPage

PHONE = {"width": 375, "height": 812}
STICKS_OUT = """() => [...document.querySelectorAll("main *")]
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
    .filter((one) => !one.closest(".td, .panel-body.flush:not(:has(> .table)), .life-scroll, .tabs, .content-body"))
    .filter((one) => !one.closest(".segments"))
    .map((one) => one.className || one.tagName)"""
"""What reaches beyond the right edge, save what scrolls or is cut within its own place."""
PLACES = {
    "overview": "Overview",
    "topics": "Topics",
    "groups": "Groups",
    "dead-letters": "Dead letters",
    "schedule": "Schedule",
    "traces": "Trace",
    "pipelines": "Pipelines and archive",
}


def test_the_navigation_leads_everywhere_and_says_where_one_is(look: NewPage) -> None:
    page = look()
    for place, title in PLACES.items():
        page.locator(f"nav a[href='#/{place}']").click()
        expect(page.locator("h1")).to_have_text(title)
        expect(page.locator("nav [aria-current=page]")).to_have_attribute("href", f"#/{place}")
    page.go_back()
    expect(page.locator("h1")).to_have_text("Trace")
    page.goto(page.url.split("#")[0] + "#/nowhere")
    expect(page.get_by_text("There is no such page")).to_be_visible()


def test_slash_searches_and_the_keyboard_leads_on(look: NewPage) -> None:
    page = look()
    expect(page.locator(".pill")).to_have_text("Live")
    page.keyboard.press("/")
    expect(page.get_by_label("Topic, group or message id")).to_be_focused()
    page.keyboard.type("bill")
    expect(page.locator(".jump li a", has_text="group of orders")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("billing")
    page.keyboard.press("Control+k")
    page.keyboard.type("orders/0/0")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("orders/0/0")
    page.keyboard.press("Control+k")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


def test_a_dialog_by_keyboard(look: NewPage) -> None:
    page = look("topics")
    page.get_by_role("button", name="Create topic").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("never-made")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Create topic")).to_be_focused()  # back where one was
    page.keyboard.press("Shift+Tab")
    ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid", "what has the focus shows it"


def background(page: Page) -> str:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_light_and_dark_as_the_system_or_as_chosen(look: NewPage) -> None:
    page = look(color_scheme="light")
    light = background(page)
    page.emulate_media(color_scheme="dark")
    dark = background(page)
    assert light != dark
    page.get_by_role("button", name="Light", exact=True).click()
    assert background(page) == light
    page.reload()
    expect(page.get_by_role("button", name="Light", exact=True)).to_have_attribute("aria-pressed", "true")
    assert background(page) == light
    page.get_by_role("button", name="As the system").click()
    assert background(page) == dark


@pytest.mark.parametrize(
    "place",
    [
        *PLACES,
        "topics/orders",
        "topics/orders/partitions",
        "topics/orders/groups/audit",
        "dead-letters/returns",
        "life/orders/0/0",
    ],
)
def test_on_a_phone_nothing_sticks_out(look: NewPage, place: str) -> None:
    page = look(place, viewport=PHONE)
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator(".state.loading")).to_have_count(0)
    out = page.evaluate(STICKS_OUT)
    assert out == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [768, 1024, 1280, 1440])
def test_in_no_window_anything_sticks_out(look: NewPage, width: int) -> None:
    page = look(viewport={"width": width, "height": 800})
    for place in (*PLACES, "topics/orders", "topics/orders/partitions", "topics/orders/groups/billing"):
        page.goto(f"{page.url.split('#')[0]}#/{place}")
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator(".state.loading")).to_have_count(0)
        assert page.evaluate(STICKS_OUT) == [], place


def test_the_menu_of_a_phone(look: NewPage) -> None:
    page = look(viewport=PHONE)
    link = page.locator("nav a[href='#/topics']")
    expect(link).not_to_be_in_viewport()
    page.get_by_role("button", name="Menu").click()
    expect(link).to_be_in_viewport()
    link.click()
    expect(page.locator("h1")).to_have_text("Topics")
    expect(link).not_to_be_in_viewport()
    page.get_by_role("button", name="Menu").click()
    page.keyboard.press("Escape")
    expect(link).not_to_be_in_viewport()
