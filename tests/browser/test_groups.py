"""Groups: what is shown of them, and what steers them: tried first, then done, and the broker did just that."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import trine
from tests.browser.conftest import NewPage, panel
from tests.browser.test_topics import toast
from tests.integration.serving import Serving


@pytest.fixture
def steered(serving: Serving, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A group that has settled seven of ten messages, and given one of the seven up."""
    name = f"steered-{request.node.originalname.removeprefix('test_').replace('_', '-')}"[:60]
    with trine.connect(serving.url) as broker:
        topic = broker.create_topic(name, partitions=1)
        topic.publish_many([{"value": f"message {n}", "key": f"k{n}"} for n in range(10)])
        group = topic.group("workers")
        with group.consumer("one") as consumer:
            for message in consumer.receive(max=7, wait="10s"):
                if message.offset == 3:
                    message.reject("not wanted")
                else:
                    message.ack()
        yield SimpleNamespace(topic=topic, group=group)


def open_group(look: NewPage, steered: Any) -> Page:
    page = look(f"topics/{steered.topic.name}/groups/workers")
    expect(page.locator("h1")).to_contain_text("workers")
    return page


def fact(page: Page, name: str) -> Any:
    return page.locator(".facts div").filter(has=page.get_by_text(name, exact=True)).locator("dd").first


def test_all_groups(look: NewPage) -> None:
    page = look("groups")
    expect(page.locator(".tbody .tr").first).to_contain_text("audit")  # the most behind is the first
    page.get_by_label("Filter groups").fill("billing")
    expect(page.locator(".tbody .tr")).to_have_count(1)
    page.locator(".tbody .tr").click()
    members = panel(page, "Members")
    expect(members.locator("tbody tr")).to_have_count(2)
    expect(members.locator("tbody")).to_contain_text("worker-1")
    expect(members.locator(".cell")).to_have_count(6)
    expect(panel(page, "Rebalances")).to_contain_text("worker-2 joined")
    expect(page.get_by_role("table", name="Partitions of billing").get_by_role("row")).to_have_count(7)


def test_seek_shows_what_would_happen_and_does_it(look: NewPage, steered: Any) -> None:
    page = open_group(look, steered)
    expect(fact(page, "Lag")).to_have_text("3")
    page.get_by_role("button", name="Seek").click()
    page.get_by_role("button", name="The beginning").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("[data-preview]")).to_contain_text("7 settled messages would come again")
    expect(dialog.locator("tbody tr td")).to_have_text(["0", "7", "0", "7", "0"])
    page.get_by_role("button", name="The end").click()
    expect(dialog.locator("tbody tr td")).to_have_text(["0", "7", "10", "0", "3"])
    page.get_by_role("button", name="An offset").click()
    expect(dialog).to_contain_text("Say where to")
    dialog.get_by_label("Offset").fill("2")
    dialog.get_by_label("Partition").select_option("0")
    expect(dialog.locator("tbody tr td")).to_have_text(["0", "7", "2", "5", "0"])
    assert steered.group.lag().count == 3  # nothing happened so far
    dialog.get_by_role("button", name="Move the group").click()
    toast(page, "was moved")
    assert steered.group.lag().count == 8
    expect(fact(page, "Lag")).to_have_text("8")


def test_replay_what_failed(look: NewPage, steered: Any) -> None:
    page = open_group(look, steered)
    page.get_by_role("button", name="Replay").click()
    expect(page.locator("[data-preview]")).to_contain_text("1 ")
    page.get_by_role("button", name="Deliver again").click()
    toast(page, "1 message will be delivered again")
    assert steered.group.lag().count == 4


def test_pause_and_resume(look: NewPage, steered: Any) -> None:
    page = open_group(look, steered)
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("Why").fill("the bank is closed")
    expect(page.locator("[data-preview]")).not_to_be_empty()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    toast(page, "is paused")
    expect(page.locator(".note.warn")).to_contain_text("the bank is closed")
    assert steered.group.describe().paused == "the bank is closed"
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    toast(page, "goes on")
    assert steered.group.describe().paused is None


def test_create_alter_and_delete_a_group(look: NewPage, steered: Any) -> None:
    page = look(f"topics/{steered.topic.name}/groups")
    page.get_by_role("button", name="Create group").click()
    page.get_by_role("dialog").get_by_label("Name").fill("archivers")
    page.get_by_role("dialog").get_by_label("Order").select_option("key")
    page.get_by_role("dialog").get_by_role("button", name="Create group").click()
    toast(page, "Created group archivers")
    page.get_by_role("link", name="archivers", exact=True).first.click()
    expect(fact(page, "Order")).to_have_text("key")
    page.get_by_role("button", name="Alter").click()
    page.get_by_role("dialog").get_by_label("Lease").fill("45s")
    expect(page.get_by_role("dialog").locator(".note")).to_contain_text("lease from 30s to 45s")
    page.get_by_role("dialog").get_by_role("button", name="Alter").click()
    toast(page, "Altered")
    expect(fact(page, "Lease")).to_have_text("45s")
    page.get_by_role("button", name="Delete").click()
    page.get_by_label("Type archivers to confirm").fill("archivers")
    page.get_by_role("button", name="Delete group").click()
    toast(page, "Deleted group archivers")
    assert [group.name for group in steered.topic.groups()] == ["workers"]
