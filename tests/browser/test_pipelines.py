"""Archive and runs: how far archives are, how runs ended, a report in pictures; told as Spark's commands tell them."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import trine
from tests.browser.conftest import NewPage, panel
from tests.integration.serving import Serving

BEGAN_MS = 1_790_000_000_000
REPORT = {
    "window_ms": 60_000,
    "made_ms": BEGAN_MS,
    "topics": ["lake"],
    "summary": {"messages": 1_234, "failed_share": 0.025, "ack_p99_ms": 1_500},
    "published": [[BEGAN_MS + n * 60_000, 10 * n, 1_000 * n] for n in range(30)],
    "flow": [[BEGAN_MS + n * 60_000, 9 * n, 8 * n, n] for n in range(30)],
    "lag": [[BEGAN_MS + n * 60_000, n] for n in range(30)],
    "groups": [{"topic": "lake", "group": "fishers", "messages": 1_200, "acked": 1_170}],
    "reasons": [
        {"topic": "lake", "group": "fishers", "event": "NACKED", "reason": "<b>no fish</b>", "messages": 30}
    ],
}


@pytest.fixture(scope="module")
def ran(serving: Serving) -> dict[str, str]:
    """Runs by how they went; and a topic of which half is archived."""
    with trine.connect(serving.url) as broker:
        lake = broker.create_topic("lake", partitions=2, archive="/data/lake")
        lake.publish_many([{"value": f"fish {n}", "partition": n % 2} for n in range(20)])
        lake.set_archived({0: 10, 1: 4})
        going = broker.begin_run("replay", "lake since Monday", ["lake"])
        broker.tell_run(going, 500)
        failed = broker.begin_run("pipeline", "fish-soup.yaml", ["lake"])
        broker.end_run(failed, error="column 'fish' cannot be resolved")
        report = broker.begin_run("report", "lake of June", ["lake"])
        broker.end_run(report, rows=1_234, summary=REPORT["summary"], report=REPORT)
        return {"going": going, "failed": failed, "report": report}


def test_how_far_the_archives_are(look: NewPage, ran: dict[str, str]) -> None:
    page = look("pipelines")
    row = panel(page, "Archive").locator("tbody tr", has_text="lake")
    expect(row).to_contain_text("70%")
    expect(row).to_contain_text("/data/lake")
    expect(row.locator("td").nth(3)).to_have_text("6")


def test_runs_and_how_they_ended(look: NewPage, ran: dict[str, str]) -> None:
    page = look("pipelines")
    runs = panel(page, "Runs").locator(".tbody .tr")
    expect(runs.filter(has_text="lake since Monday")).to_contain_text("running")
    expect(runs.filter(has_text="fish-soup.yaml")).to_contain_text("failed")
    expect(runs.filter(has_text="lake of June")).to_contain_text("1,234")
    page.get_by_role("button", name="Pipelines", exact=True).click()
    expect(runs).to_have_count(1)
    runs.click()
    expect(page.locator(".note.bad")).to_have_text("column 'fish' cannot be resolved")
    page.get_by_role("link", name="All runs").click()
    expect(page.locator("h1")).to_have_text("Pipelines and archive")


def test_a_report_is_drawn(look: NewPage, ran: dict[str, str]) -> None:
    page = look(f"pipelines/{ran['report']}")
    expect(page.locator(".chart canvas")).to_have_count(3)
    result = panel(page, "Result")
    expect(result).to_contain_text("1,234")
    expect(result).to_contain_text("2.5%")
    expect(result).to_contain_text("1.5 s")
    expect(panel(page, "By group")).to_contain_text("fishers")
    expect(panel(page, "Why messages failed")).to_contain_text("<b>no fish</b>")


def test_a_run_that_is_none(look: NewPage) -> None:
    page = look("pipelines/run-99999", errors=("404",))
    expect(page.get_by_role("alert")).to_contain_text("There is no such thing")
