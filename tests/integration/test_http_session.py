"""The page's files, and sessions: the cookie, what may be done with it, and what a page of somebody else may not."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.integration.http_server import Http, config, serving
from trine.server.http import site
from trine.server.http.site import POLICY
from trine.server.keys import create_key, delete_key

pytestmark = pytest.mark.asyncio(loop_scope="module")

COOKIE = "trine_session"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Http, Path]]:
    file = tmp_path_factory.mktemp("keys") / "keys.yaml"
    create_key(str(file), role="admin", id="root")
    async with serving(config(keys_file=str(file))) as http:
        yield http, file


def own(http: Http) -> dict[str, str]:
    """What the dashboard's page sends with what changes something; browsers add the origin."""
    return {"x-trine-request": "dashboard", "origin": str(http.client.base_url).rstrip("/")}


async def log_in(http: Http, key: str) -> httpx.AsyncClient:
    """A browser of its own, logged in."""
    browser = httpx.AsyncClient(base_url=http.client.base_url, headers=own(http), timeout=20)
    answer = await browser.post("/v1/session", json={"key": key})
    assert answer.status_code == 200, answer.text
    return browser


async def eventually(ask: Any, wanted: int) -> httpx.Response:
    """The keys file is looked at once a second."""
    async with asyncio.timeout(20):
        while (answer := await ask()).status_code != wanted:
            await asyncio.sleep(0.05)
    return answer


# --- the page's files


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text(
        "<!doctype html><script type=module src=/ui/assets/app-1.js></script>"
    )
    (tmp_path / "assets" / "app-1.js").write_text("console.log(1);" * 500)
    (tmp_path / "icon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    monkeypatch.setattr(site.Site.__init__, "__defaults__", (tmp_path,))
    return tmp_path


async def test_the_page_is_served_without_a_key_and_with_a_policy(built: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    create_key(str(keys), role="admin", id="root")
    async with serving(config(keys_file=str(keys))) as http:
        page = await http.client.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["content-security-policy"] == POLICY
        assert "unsafe" not in POLICY
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-cache"
        script = await http.client.get("/ui/assets/app-1.js", headers={"accept-encoding": "gzip"})
        assert script.headers["content-encoding"] == "gzip"
        assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        assert int(script.headers["content-length"]) < 500
        assert script.text == "console.log(1);" * 500
        plain = await http.client.get("/ui/assets/app-1.js", headers={"accept-encoding": "gzip;q=0"})
        assert "content-encoding" not in plain.headers
        assert plain.text == script.text
        assert (await http.client.get("/ui/icon.svg")).headers["content-type"] == "image/svg+xml"
        head = await http.client.head("/")
        assert (head.status_code, head.content) == (200, b"")


async def test_a_page_that_did_not_change_is_not_sent_again(built: Path) -> None:
    async with serving() as http:
        tag = (await http.client.get("/")).headers["etag"]
        again = await http.client.get("/", headers={"if-none-match": tag})
        assert (again.status_code, again.content) == (304, b"")
        (built / "index.html").write_text("<!doctype html>newer, and of another length")
        os.utime(built / "index.html", ns=(1, 1))
        newer = await http.client.get("/", headers={"if-none-match": tag})
        assert newer.status_code == 200
        assert "newer" in newer.text


async def test_only_files_of_the_page_are_served(built: Path) -> None:
    (built.parent / "secret.txt").write_text("secret")
    async with serving() as http:
        for path in ("/ui/", "/ui/none.js", "/ui/assets", "/ui/../secret.txt", "/ui/%2e%2e/secret.txt"):
            assert (await http.client.get(path)).status_code == 404, path
        assert (await http.client.post("/")).headers["allow"] == "GET, HEAD"


async def test_a_page_that_was_not_built_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.Site.__init__, "__defaults__", (tmp_path / "none",))
    async with serving() as http:
        assert "make dashboard" in (await http.client.get("/")).text


async def test_a_compressed_file_is_the_file(built: Path) -> None:
    made = site.Site(built)
    await asyncio.to_thread(made._look)
    script = made._files["/ui/assets/app-1.js"]
    assert script.zipped is not None
    assert gzip.decompress(script.zipped) == script.body


# --- login and logout


async def test_without_keys_everybody_here_is_logged_in() -> None:
    async with serving() as http:
        told = await http.get("/v1/session")
        assert told == {
            "keys": False, "authenticated": True, "id": "anonymous", "role": "admin", "topics": ["*"],
            "may": ["read", "publish", "consume", "admin"],
        }  # fmt: skip
        assert await http.post("/v1/session", {"key": "any"}) == told
        assert (await http.client.delete("/v1/session")).status_code == 204
        for foreign in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
            for method, path in (
                ("GET", "/v1/session"),
                ("POST", "/v1/session"),
                ("GET", "/consume?topic=a&group=b"),
            ):
                answer = await http.client.request(
                    method, path, headers=foreign, json={"key": "x"} if method == "POST" else None
                )
                assert answer.status_code == 403, (foreign, path)


async def test_a_session_stands_for_its_key(keyed: tuple[Http, Path]) -> None:
    http, file = keyed
    key = create_key(str(file), role="producer", topics=["orders*"], id="shop")
    assert await http.get("/v1/session") == {
        "keys": True, "authenticated": False, "id": None, "role": None, "topics": [], "may": [],
    }  # fmt: skip
    browser = httpx.AsyncClient(base_url=http.client.base_url, headers=own(http))
    async with browser:
        answer = await eventually(lambda: browser.post("/v1/session", json={"key": key}), 200)
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie  # there is no TLS here
        assert key not in cookie
        told = (await browser.get("/v1/session")).json()
        assert told == answer.json()
        assert (told["id"], told["role"], told["topics"]) == ("shop", "producer", ["orders*"])
        assert told["may"] == ["read", "publish"]
        assert (await browser.get("/v1/topics")).json() == {"topics": []}
        refused = await browser.post("/v1/topics", json={"name": "orders"})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert (await browser.delete("/v1/session")).status_code == 204
        assert (await browser.get("/v1/topics")).status_code == 401
        browser.cookies.set(COOKIE, cookie.partition("=")[2].partition(";")[0])
        assert (await browser.get("/v1/topics")).status_code == 401, "an ended session stays ended"


async def test_a_session_ends_with_its_key_and_so_do_its_streams(keyed: tuple[Http, Path]) -> None:
    http, file = keyed
    key = create_key(str(file), role="admin", id="leaver")
    browser = httpx.AsyncClient(base_url=http.client.base_url, headers=own(http), timeout=20)
    async with browser:
        await eventually(lambda: browser.post("/v1/session", json={"key": key}), 200)
        async with browser.stream("GET", "/v1/events") as events:
            lines = events.aiter_lines()
            assert await anext(lines) == "event: counters"
            delete_key(str(file), "leaver")
            async with asyncio.timeout(20):
                async for line in lines:
                    if line == "event: error":
                        assert "log in again" in await anext(lines)
                        break
        answer = await eventually(lambda: browser.get("/v1/topics"), 401)
        assert answer.json()["code"] == "unauthenticated"
        assert (await browser.get("/v1/session")).json()["authenticated"] is False


async def test_wrong_keys_are_refused_and_slowed(
    keyed: tuple[Http, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    http, _ = keyed
    waited: list[float] = []
    asked = http.context.keys.penalty_s
    monkeypatch.setattr(http.context.keys, "penalty_s", lambda peer: waited.append(asked(peer)) or 0.0)
    for text in ("trine_root_wrong", "trine_nobody_x", "no key", *["trine_root_wrong"] * 5):
        await http.post("/v1/session", {"key": text}, 401, headers=own(http))
    assert max(waited) > 0
    assert waited == sorted(waited)


# --- pages of other sites


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-trine-request": "dashboard"},
        {"x-trine-request": "dashboard", "origin": "http://evil.example"},
        {"x-trine-request": "dashboard", "origin": "null"},
        {"x-trine-request": "dashboard", "origin": "http://127.0.0.1:1"},
        {"x-trine-request": "other", "origin": "same"},
        {"origin": "same"},
        {"x-trine-request": "dashboard", "origin": "same", "sec-fetch-site": "cross-site"},
        {"x-trine-request": "dashboard", "origin": "same", "sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics", {"name": "stolen"}),
        ("POST", "/v1/topics/stolen/publish", {"value": 1}),
        ("POST", "/produce", {"topic": "stolen", "value": 1}),
        ("DELETE", "/v1/topics/stolen", None),
        ("POST", "/v1/session", {"key": "trine_root_x"}),
        ("DELETE", "/v1/session", None),
    ],
)
async def test_what_a_foreign_page_sends_is_refused(
    keyed: tuple[Http, Path], root: str, headers: dict[str, str], method: str, path: str, body: Any
) -> None:
    http, _ = keyed
    same = str(http.client.base_url).rstrip("/")
    given = {name: same if value == "same" else value for name, value in headers.items()}
    problem = await http.ask(method, path, 403, json=body, headers={**given, "cookie": f"{COOKIE}={root}"})
    assert problem["code"] == "forbidden"
    told = await http.get("/v1/session", headers={"cookie": f"{COOKIE}={root}"})
    assert told["authenticated"], "a refused logout ends nothing"


async def test_a_get_with_a_session_does_nothing(keyed: tuple[Http, Path], root: str) -> None:
    http, _ = keyed
    cookie = {"cookie": f"{COOKIE}={root}"}
    assert (
        "POST" in (await http.get("/consume?topic=a&group=b", 403, headers={**cookie, **own(http)}))["detail"]
    )
    await http.get("/v1/topics", 403, headers={**cookie, "sec-fetch-site": "cross-site"})
    await http.get("/v1/topics", headers={**cookie, "sec-fetch-site": "same-origin"})


@pytest.fixture
def root(keyed: tuple[Http, Path]) -> str:
    """The id of a session of the root key."""
    http, _ = keyed
    sessions = http.server._http.app.shared.sessions  # type: ignore[union-attr]
    return str(sessions.begin(http.context.keys._keys["root"][1]))


async def test_who_asks_is_looked_at_anew_on_a_connection_that_stays_open(
    keyed: tuple[Http, Path], root: str
) -> None:
    """Publishes on one connection are answered without the gate while they show the same key: a cookie is not one."""
    http, file = keyed
    key = create_key(str(file), role="admin", id="direct")
    guest = create_key(str(file), role="read-only", id="guest")
    async with httpx.AsyncClient(
        base_url=http.client.base_url, limits=httpx.Limits(max_connections=1)
    ) as one:
        await eventually(lambda: one.get("/v1/topics", headers={"x-api-key": guest}), 200)
        made = await one.post("/v1/topics", json={"name": "open"}, headers={"x-api-key": key})
        assert made.status_code == 201
        session = http.server._http.app.shared.sessions.begin(  # type: ignore[union-attr]
            http.context.keys._keys["guest"][1]
        )
        for headers, status in (
            ({"x-api-key": key}, 200),
            ({"x-api-key": key}, 200),
            ({**own(http), "cookie": f"{COOKIE}={session}"}, 403),
            ({**own(http), "cookie": f"{COOKIE}={root}"}, 200),
            ({"cookie": f"{COOKIE}={root}"}, 403),
            ({}, 401),
            ({"x-api-key": key}, 200),
            ({"x-api-key": guest}, 403),
            ({"x-api-key": guest, "cookie": f"{COOKIE}={root}"}, 403),
        ):
            answer = await one.post("/v1/topics/open/publish", json={"value": 1}, headers=headers)
            assert answer.status_code == status, (headers, answer.text)
