"""A server in the test's own loop, and an HTTP client of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx

from trine import SimulatedClock
from trine.server.config import ServerConfig, configure
from trine.server.context import Context
from trine.server.server import Server


class Http:
    """A server with the client that talks to it."""

    def __init__(self, server: Server, client: httpx.AsyncClient) -> None:
        self.server = server
        self.client = client

    @property
    def context(self) -> Context:
        assert self.server.context is not None
        return self.server.context

    @property
    def address(self) -> tuple[str, int]:
        return self.server.http_address

    async def ask(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        """The answer's JSON; fails with the whole answer when the status is another."""
        answer = await self.client.request(method, path, **more)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        if status >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            problem = answer.json()
            assert problem["status"] == status
            assert problem["instance"] == httpx.URL(path).path
            assert problem["type"] == f"/docs#{problem['code']}"
            return problem
        return answer.json() if answer.content else None

    async def get(self, path: str, status: int = 200, **more: Any) -> Any:
        return await self.ask("GET", path, status, **more)

    async def post(self, path: str, body: Any = None, status: int = 200, **more: Any) -> Any:
        given = {} if body is None else {"json": body}
        return await self.ask("POST", path, status, **given, **more)


def config(**flags: Any) -> ServerConfig:
    given = {"--data-dir": ":memory:", "--http-port": 0, "--binary-port": 0}
    given.update({f"--{name.replace('_', '-')}": value for name, value in flags.items()})
    return configure(environment={}, flags=given)


@contextlib.asynccontextmanager
async def serving(
    given: ServerConfig | None = None, *, clock: SimulatedClock | None = None, **client: Any
) -> AsyncIterator[Http]:
    async with Server(given or config(), clock=clock) as server:
        base = "http://{}:{}".format(*server.http_address)
        async with httpx.AsyncClient(base_url=base, timeout=20, **client) as made:
            yield Http(server, made)
