"""Who may: login by key, roles that decide what is offered, and nothing from another site."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

import trine
from tests.browser.conftest import NewPage
from tests.integration.serving import Serving
from trine.cli.app import app

ROLES = {
    "root": ("admin", "*"),
    "shop": ("producer", "orders*"),
    "clerk": ("consumer", "orders*"),
    "eye": ("read-only", "*"),
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Keys of all roles by their ids, and under `file` where the broker has them."""
    file = tmp_path_factory.mktemp("keys") / "keys.yaml"
    made = {"file": str(file)}
    for name, (role, topics) in ROLES.items():
        words = ["key", "create", "--keys-file", str(file), "--role", role, "--topics", topics, "--id", name]
        made[name] = CliRunner().invoke(app, words, catch_exceptions=False).stdout.strip().splitlines()[-1]
        assert made[name].startswith(f"trine_{name}_"), made[name]
    return made


@pytest.fixture(scope="module")
def locked(keys: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("locked") / "data", "--keys-file", keys["file"]) as server:
        with trine.connect(server.url, key=keys["root"]) as broker:
            for name in ("orders", "payments"):
                broker.create_topic(name, partitions=1).publish(f"of {name}")
                broker.topic(name).create_group("workers")
        yield server


def enter(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Log in").click()


def test_login_and_logout(locked: Serving, keys: dict[str, str], new_page: NewPage) -> None:
    page = new_page(locked.http_url, errors=("401",))
    enter(page, "trine_root_" + "x" * 43)
    expect(page.get_by_role("alert")).to_be_visible()
    enter(page, keys["root"])
    expect(page.locator(".pill")).to_have_text("Live")
    expect(page.locator(".who")).to_contain_text("root")
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("trine_session", True, "Strict")
    assert keys["root"] not in page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
    )
    page.reload()
    expect(page.locator(".pill")).to_have_text("Live")  # the session lasts
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    page.reload()
    expect(page.get_by_label("API key")).to_be_visible()


OFFERED = {
    "root": {"Publish", "Purge", "Delete"},
    "shop": {"Publish"},
    "clerk": set(),
    "eye": set(),
}


@pytest.mark.parametrize("who", ROLES)
def test_roles_decide_what_is_offered(
    locked: Serving, keys: dict[str, str], new_page: NewPage, who: str
) -> None:
    page = new_page(locked.http_url, "topics", errors=("401",))
    enter(page, keys[who])
    names = ["orders"] if ROLES[who][1] == "orders*" else ["orders", "payments"]
    expect(page.locator(".tbody .tr .name")).to_have_text(names)
    assert page.get_by_role("button", name="Create topic").count() == (who == "root")
    page.get_by_role("link", name="orders", exact=True).click()
    expect(page.locator(".browse .tbody .tr")).to_have_count(1)
    found = {name for name in ("Publish", "Purge", "Delete") if page.get_by_role("button", name=name).count()}
    assert found == OFFERED[who]
    page.goto(f"{locked.http_url}/#/topics/orders/groups/workers")
    expect(page.locator("h1")).to_have_text("workers")
    assert page.get_by_role("button", name="Seek").count() == (who in ("root", "clerk"))
    assert page.get_by_role("button", name="Pause").count() == (who == "root")


def test_a_topic_that_is_not_for_this_key(locked: Serving, keys: dict[str, str], new_page: NewPage) -> None:
    page = new_page(locked.http_url, "topics/payments", errors=("401", "403"))
    enter(page, keys["shop"])
    expect(page.get_by_text("Your key may not see this")).to_be_visible()


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Another site on this machine, whose pages post to the broker in every way that pages can."""

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<!doctype html><title>elsewhere</title>"
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The test says enough."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


POSTS = """async (broker) => {
    const ways = [
        {headers: {"content-type": "text/plain"}},
        {headers: {"content-type": "text/plain"}, credentials: "include", mode: "no-cors"},
        {headers: {"content-type": "application/json", "x-trine-request": "dashboard"}, credentials: "include"},
    ]
    const ended = []
    for (const way of ways) {
        const sent = fetch(broker + "/v1/topics/orders/purge", {method: "POST", body: "{}", ...way})
        ended.push(await sent.then((answer) => answer.status, () => "refused"))
    }
    return ended
}"""


def test_posts_of_another_site_are_refused(
    locked: Serving, keys: dict[str, str], elsewhere: str, new_page: NewPage
) -> None:
    page = new_page(locked.http_url, errors=("401", "403", "CORS", "ERR_FAILED"))
    enter(page, keys["root"])
    expect(page.locator(".pill")).to_have_text("Live")
    page.goto(
        elsewhere
    )  # the same browser, with the session's cookie in it; 127.0.0.1 is the same site to it
    assert page.evaluate(POSTS, locked.http_url) in (
        ["refused", 0, "refused"],
        ["refused", "refused", "refused"],
    )
    with trine.connect(locked.url, key=keys["root"]) as broker:
        assert broker.topic("orders").describe().messages == 1


def test_without_the_page_s_own_word_nothing_is_done(
    locked: Serving, keys: dict[str, str], new_page: NewPage
) -> None:
    page = new_page(locked.http_url, errors=("401", "403"))
    enter(page, keys["root"])
    expect(page.locator(".pill")).to_have_text("Live")
    status = page.evaluate(
        "fetch('/v1/topics/orders/purge', {method: 'POST'}).then((answer) => answer.status)"
    )
    assert status == 403


def test_the_page_is_served_under_its_policy(serving: Serving, new_page: NewPage) -> None:
    page = new_page(serving.http_url)
    expect(page.locator(".pill")).to_have_text("Live")
    answer = page.request.get(f"{serving.http_url}/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in answer.text()  # none inline
    assert page.evaluate(
        "[...document.querySelectorAll('script, link')]"
        ".every((one) => (one.src || one.href).startsWith(location.origin))"
    )


def test_a_deleted_key_ends_the_session(keys: dict[str, str], new_page: NewPage, tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    made = CliRunner().invoke(
        app, ["key", "create", "--keys-file", str(file), "--role", "admin", "--id", "gone"]
    )
    CliRunner().invoke(app, ["key", "create", "--keys-file", str(file), "--role", "admin", "--id", "stays"])
    with Serving(tmp_path / "data", "--keys-file", str(file)) as server:
        page = new_page(server.http_url, errors=("401", "ERR_"))
        enter(page, made.stdout.strip().splitlines()[-1])
        expect(page.locator(".pill")).to_have_text("Live")
        CliRunner().invoke(app, ["key", "delete", "--keys-file", str(file), "gone"], catch_exceptions=False)
        expect(page.get_by_label("API key")).to_be_visible()
        page.context.close()
