"""The application: all handlers, what they are given, and the gate in front of them."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, Final

import msgspec
from litestar import Litestar, Response, get
from litestar.connection import ASGIConnection
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme, Tag

from trine.model.version import VERSION
from trine.server.context import Context, Host
from trine.server.http import (
    dead_letters,
    group_lists,
    groups,
    live,
    operations,
    page,
    publishing,
    push,
    reading,
    redrives,
    runs,
    schedules,
    search,
    session,
    simple,
    streams,
    topics,
    traces,
    waiting_list,
)
from trine.server.http.access import guard, principal_of
from trine.server.http.delivery import Presence
from trine.server.http.gate import Gate
from trine.server.http.letter_counts import LetterCounts
from trine.server.http.live import Looks
from trine.server.http.problems import answer_problem
from trine.server.http.redrives import Jobs
from trine.server.http.requests import Given
from trine.server.http.sampler import Sampler
from trine.server.http.schema import describe
from trine.server.http.streams import Streams
from trine.server.keys import Principal
from trine.server.sessions import Sessions

TAGS: Final = {
    "simple": "Five calls that are enough for a queue.",
    "topics": "Topics and queues.",
    "publish": "Messages in.",
    "log": "Messages by offset and by time; what is read stays.",
    "groups": "Groups of consumers, and how they are steered.",
    "consume": "Receive and settle.",
    "schedule": "What waits for its time, and what comes again and again.",
    "dead letters": "What was given up on.",
    "traces": "What happened to a message.",
    "runs": "What Spark's commands do with the topics.",
    "streams": "As it happens.",
    "session": "Login of the dashboard.",
    "operations": "For operators.",
}
DESCRIPTION: Final = (
    "A message broker: one topic, three views. Durations are seconds or text such as `30s`; instants are ISO 8601 or "
    "seconds since the epoch. With API keys configured, send `Authorization: Bearer trine_…` (or `X-Api-Key`). "
    "WebSockets: `/v1/stream` (counters) and `/v1/topics/{topic}/groups/{group}/consume` (messages, by credit)."
)
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
"""Of the page at /docs: it needs nothing but its own style."""


class Shared:
    """What the handlers of one server share besides the context."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.presence = Presence()
        self.jobs = Jobs()
        self.streams = Streams()
        self.sessions = Sessions()
        self._sampler: Sampler | None = None
        self._counts: LetterCounts | None = None
        self._looks: Looks | None = None
        self._sampling: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def context(self) -> Context:
        context = self.host.context
        assert context is not None, "the gate lets nobody in before there is one"
        return context

    @property
    def sampler(self) -> Sampler:
        if self._sampler is None:
            self._sampler = Sampler(self.context)
        return self._sampler

    @property
    def looks(self) -> Looks:
        if self._looks is None:
            self._looks = Looks(self.context, self.sampler)
        return self._looks

    @property
    def counts(self) -> LetterCounts:
        if self._counts is None:
            self._counts = LetterCounts(self.context)
        return self._counts

    def begin(self) -> None:
        """The server is ready: what runs by itself begins."""
        self._sampling = asyncio.create_task(self.sampler.run(), name="trine samples")

    def members(self) -> Presence:
        """Who came over HTTP; looking after them begins with the first one."""
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.create_task(self.presence.run(self.context), name="trine http members")
        return self.presence

    def stop(self) -> None:
        self.jobs.stop()
        if self._sampling is not None:
            self._sampling.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()


class App:
    """What is served: the gate, which uvicorn calls, and behind it Litestar."""

    def __init__(self, host: Host) -> None:
        self.shared = Shared(host)
        self.litestar = _litestar(host, self.shared)
        self.gate = Gate(host, self.litestar, self.shared.sessions)

    def stop(self) -> None:
        """Ends what runs by itself; the listener is closed by then."""
        self.shared.stop()


def make_app(host: Host) -> App:
    return App(host)


def _litestar(host: Host, shared: Shared) -> Litestar:
    # Each asks for the one before it: Litestar resolves what is independent in tasks of their own, which cost more
    # than all that is given here.

    def give_context() -> Context:
        return shared.context

    def give_principal(request: ASGIConnection[Any, Any, Any, Any], context: Given[Any]) -> Principal:
        return principal_of(request)

    def give_presence(principal: Given[Any]) -> Presence:
        return shared.members()

    def give_jobs(principal: Given[Any]) -> Jobs:
        return shared.jobs

    def give_sampler(principal: Given[Any]) -> Sampler:
        return shared.sampler

    def give_counts(principal: Given[Any]) -> LetterCounts:
        return shared.counts

    def give_looks(sampler: Given[Any]) -> Looks:
        return shared.looks

    def give_sessions(context: Given[Any]) -> Sessions:
        return shared.sessions

    def give_streams(sampler: Given[Any]) -> Streams:
        return shared.streams

    app = Litestar(
        route_handlers=HANDLERS,
        logging_config=None,  # logs are set up by the process, once
        dependencies={
            "context": Provide(give_context, sync_to_thread=False),
            "principal": Provide(give_principal, sync_to_thread=False),
            "presence": Provide(give_presence, sync_to_thread=False),
            "jobs": Provide(give_jobs, sync_to_thread=False),
            "sampler": Provide(give_sampler, sync_to_thread=False),
            "counts": Provide(give_counts, sync_to_thread=False),
            "looks": Provide(give_looks, sync_to_thread=False),
            "sessions": Provide(give_sessions, sync_to_thread=False),
            "streams": Provide(give_streams, sync_to_thread=False),
        },
        guards=[guard],
        exception_handlers={Exception: answer_problem},
        request_max_body_size=host.config.limits.body_bytes,
        openapi_config=None,  # its pages would be served without a key, and load scripts from elsewhere
        debug=False,
        pdb_on_exception=False,
    )
    app.state.host = host
    return app


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document: the same for every server of this version."""

    def stand_in() -> Provide:
        """For what handlers are given, which is no parameter of theirs."""
        return Provide(lambda: None, sync_to_thread=False)

    names = ("context", "principal", "presence", "jobs", "counts", "sampler", "looks", "sessions", "streams")
    return describe(
        Litestar(
            route_handlers=HANDLERS,
            logging_config=None,  # logs are set up by the process, once
            dependencies={name: stand_in() for name in names},
            openapi_config=OpenAPIConfig(
                title="Trine",
                version=VERSION,
                description=DESCRIPTION,
                use_handler_docstrings=True,
                render_plugins=[JsonRenderPlugin()],
                tags=[Tag(name=name, description=told) for name, told in TAGS.items()],
                security=[{"key": []}, {"header": []}, {}],
                components=Components(
                    security_schemes={
                        "key": SecurityScheme(
                            type="http", scheme="bearer", description="An API key: `trine_…`."
                        ),
                        "header": SecurityScheme(
                            type="apiKey", name="X-Api-Key", security_scheme_in="header"
                        ),
                    }
                ),
            ),
        )
    )


@cache
def _openapi() -> bytes:
    return msgspec.json.encode(document())


@cache
def _page() -> bytes:
    return page.render(document())


@get("/openapi.json", include_in_schema=False)
async def openapi() -> Response[bytes]:
    return Response(_openapi(), media_type="application/json")


@get("/docs", include_in_schema=False)
async def docs() -> Response[bytes]:
    headers = {"content-security-policy": POLICY, "x-content-type-options": "nosniff"}
    return Response(_page(), media_type="text/html", headers=headers)


HANDLERS: Final[list[Any]] = [
    *topics.HANDLERS, publishing.publish, *reading.HANDLERS, *search.HANDLERS, *groups.HANDLERS,
    *group_lists.HANDLERS, *waiting_list.HANDLERS, *schedules.HANDLERS, *dead_letters.HANDLERS, *redrives.HANDLERS,
    *traces.HANDLERS, *runs.HANDLERS, *simple.HANDLERS, *streams.HANDLERS, *live.HANDLERS, *push.HANDLERS,
    *session.HANDLERS, *operations.HANDLERS, openapi, docs,
]  # fmt: skip
