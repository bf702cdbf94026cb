"""A message's life: drawn, listed, and reachable from every id on every page; and the search for what is stuck."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

import trine
from tests.browser.conftest import NewPage, panel
from tests.integration.serving import Serving


@pytest.fixture(scope="module")
def lived(serving: Serving) -> dict[str, str]:
    """Ids of messages that went through something."""
    with trine.connect(serving.url) as broker:
        topic = broker.create_topic("lives", partitions=1)
        tried = topic.group("tried", max_deliveries=2, backoff={"first": "20ms", "jitter": 0})
        scheduled = topic.publish("later", key="k-later", delay="100ms").schedule_id
        failing = topic.publish('{"fails": true}', key="k-fails").message_id
        fine = topic.publish("fine", key="k-fine").message_id
        left = {failing: 2, fine: 1, "scheduled": 1}
        with tried.consumer("trier-1") as consumer:
            while any(left.values()):
                for message in consumer.receive(wait="10s"):
                    name = message.id if message.id in left else "scheduled"
                    left[name] -= 1
                    if name == failing:
                        message.nack(reason="the bank is closed")
                    else:
                        message.ack()
        broker.redrive("lives").run()
        waiting = topic.publish("tomorrow", delay="1d").schedule_id
        return {"failing": failing, "fine": fine, "scheduled": scheduled, "waiting": waiting}


def test_the_picture_and_the_list(look: NewPage, lived: dict[str, str]) -> None:
    page = look(f"life/{lived['failing']}")
    picture = page.locator(".life svg")
    expect(picture.locator(".life-name")).to_have_text(["Log", "tried"])
    expect(picture.locator("rect.held")).to_have_count(2)
    expect(picture.locator("rect.held.ill")).to_have_count(1)
    expect(picture.locator("rect.held.dead")).to_have_count(1)
    expect(picture.locator("line.wait")).not_to_have_count(0)
    groups = panel(page, "In each group").locator("tbody tr")
    expect(groups).to_have_count(1)
    expect(groups).to_contain_text(re.compile(r"tried.*(dead-lettered|redriven).*2", re.DOTALL))
    events = page.locator(".events tbody tr")
    expect(events.filter(has_text="nacked")).to_contain_text("the bank is closed")
    expect(events.filter(has_text="redelivered")).to_contain_text("trier-1")
    events.filter(has_text="redelivered").hover()
    expect(picture.locator("rect.held.on")).to_have_count(1)  # the one in the list is the one in the picture
    expect(page.locator(".content .json")).to_contain_text("fails")
    page.locator(".links a", has_text="lives/0/").last.click()  # redriven to
    expect(page.locator(".links")).to_contain_text("Redriven from")


def test_a_scheduled_message_by_either_id(look: NewPage, lived: dict[str, str]) -> None:
    page = look(f"life/{lived['scheduled']}")
    expect(page.locator(".events tbody tr", has_text="scheduled")).not_to_have_count(0)
    expect(page.locator(".events tbody tr", has_text="due").first).to_be_visible()
    expect(page.locator("h1")).to_have_text(re.compile(r"^lives/0/\d+$"))
    page = look(f"life/{lived['waiting']}")
    expect(page.locator("h1")).to_have_text(lived["waiting"])
    expect(page.get_by_text("It waits in the schedule")).to_be_visible()


def test_an_id_that_is_none(look: NewPage) -> None:
    page = look("life/orders/0/99999999", errors=("404",))
    expect(page.get_by_text("No such message")).to_be_visible()
    expect(page.locator(".command")).to_have_text("trine trace orders/0/99999999")


def test_find_what_is_stuck(look: NewPage, lived: dict[str, str]) -> None:
    page = look("traces")
    page.get_by_label("Topic").fill("orders")
    page.get_by_label("Group").fill("audit")
    page.get_by_label("State").select_option("unacked")
    expect(page.get_by_role("table", name="Messages found").get_by_role("row").nth(1)).to_contain_text(
        "waiting"
    )
    page = look("traces?topic=lives&key=k-fine")
    found = page.get_by_role("table", name="Messages found").locator(".tbody .tr")
    expect(found).to_have_count(1)
    found.locator(".id").click()
    expect(page.locator("h1")).to_have_text(lived["fine"])
    page = look("traces")
    page.get_by_label("Message id").fill(lived["fine"])
    page.get_by_label("Message id").press("Enter")
    expect(page.locator("h1")).to_have_text(lived["fine"])


@pytest.mark.parametrize(
    "place",
    ["topics/orders", "dead-letters/returns", "schedule", "traces?topic=orders&state=waiting&group=audit"],
)
def test_ids_lead_to_the_life(look: NewPage, place: str) -> None:
    page = look(place)
    link: Any = page.locator(".tbody a.id").first
    href = link.get_attribute("href")
    assert href is not None
    assert href.startswith("#/life/")
    link.click()
    expect(page.locator(".life svg .life-name").first).to_have_text("Log")
