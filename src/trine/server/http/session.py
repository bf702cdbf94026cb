"""The session: who is asking, as the page sees it; login with an API key, and logout.

The answer to a login sets a cookie that scripts cannot read, that browsers send to this server alone and never for a
page of another site. Without keys nobody logs in: whoever is on this machine may do everything.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, get_args

import msgspec
from litestar import Request, Response, delete, get, post
from msgspec import Meta

from trine.model.errors import Unauthenticated
from trine.server.context import Context
from trine.server.http.access import (
    COOKIE,
    Headers,
    authenticate,
    check_own_page,
    key_of,
    refuse_foreign_pages,
    session_of,
)
from trine.server.http.requests import Given, read
from trine.server.keys import MAY, Action, Principal, Role
from trine.server.sessions import AGE_S_MAX, Sessions

PATH = "/v1/session"
ORDER = ("read", "publish", "consume", "admin")
assert set(ORDER) == set(get_args(Action)), "every action is told"


class LoginIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    key: Annotated[str, Meta(min_length=1, max_length=200, examples=["trine_…"])]


class SessionOut(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asking, and what he may do on the topics that his patterns name."""

    keys: bool
    """Whether this server has API keys: without them nobody needs to log in."""
    authenticated: bool
    id: str | None = None
    """Of the key."""
    role: Role | None = None
    topics: list[str] = []
    may: list[Action] = []


@get(PATH, opt={"session": True}, tags=["session"], summary="Who is asking")
async def show_session(
    request: Request[Any, Any, Any], context: Given[Context], sessions: Given[Sessions]
) -> Response[SessionOut]:
    """Needs no key: it says whether one is needed."""
    headers, peer = _asking(request)
    if context.keys.required and key_of(headers) is None and sessions.find(session_of(headers)) is None:
        return _told(SessionOut(keys=True, authenticated=False))
    try:
        principal = authenticate(context, sessions, request.scope, headers, peer)
    except Unauthenticated:
        await asyncio.sleep(context.keys.penalty_s(peer))
        raise
    return _told(_shown(context, principal))


@post(PATH, status_code=200, opt={"session": True, "body": LoginIn}, tags=["session"], summary="Log in")
async def login(
    request: Request[Any, Any, Any], context: Given[Context], sessions: Given[Sessions]
) -> Response[SessionOut]:
    """Shows a key once; from then on the cookie `trine_session` stands for it. For the pages of this server only:
    `X-Trine-Request: dashboard` and an `Origin` of the same host must come with it, and with all that the session
    changes later.
    """
    headers, peer = _asking(request)
    given = await read(request, LoginIn)
    if not context.keys.required:
        refuse_foreign_pages(headers)
        return _told(_shown(context, context.keys.authenticate(None, peer)))
    check_own_page(headers)
    try:
        principal = context.keys.authenticate(given.key, peer)
    except Unauthenticated:
        await asyncio.sleep(context.keys.penalty_s(peer))
        raise
    sessions.end(session_of(headers))
    answer = _told(_shown(context, principal))
    answer.headers["set-cookie"] = _cookie(request, sessions.begin(principal), AGE_S_MAX)
    return answer


@delete(PATH, opt={"session": True}, tags=["session"], summary="Log out")
async def logout(
    request: Request[Any, Any, Any], context: Given[Context], sessions: Given[Sessions]
) -> Response[None]:
    """Ends the session of the cookie, and the streams that it opened."""
    headers, _ = _asking(request)
    if not context.keys.required:
        refuse_foreign_pages(headers)
    elif session_of(headers) is not None:
        check_own_page(headers)
        sessions.end(session_of(headers))
    expired = {"set-cookie": _cookie(request, "", 0), "cache-control": "no-store"}
    return Response(None, status_code=204, headers=expired)


def _asking(request: Request[Any, Any, Any]) -> tuple[Headers, str]:
    client = request.scope.get("client")
    return dict(request.scope["headers"]), client[0] if client else ""


def _shown(context: Context, principal: Principal) -> SessionOut:
    return SessionOut(
        keys=context.keys.required,
        authenticated=True,
        id=principal.id,
        role=principal.role,
        topics=list(principal.topics),
        may=[action for action in ORDER if action in MAY[principal.role]],
    )


def _told(answer: SessionOut) -> Response[SessionOut]:
    return Response(answer, headers={"cache-control": "no-store"})


def _cookie(request: Request[Any, Any, Any], value: str, seconds: int) -> str:
    secure = "; Secure" if request.scope["scheme"] == "https" else ""
    return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


HANDLERS = [show_session, login, logout]
