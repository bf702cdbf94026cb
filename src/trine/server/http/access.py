"""Who asks, and whether they may.

Every handler says what it does with `opt={"may": …}`; the guard asks the key that the gate found. The topic is the
one of the path. A handler whose topic stands elsewhere (a body, an id) says so with `opt={"topic": "later"}` and asks
by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler

from trine.model.errors import Forbidden, Unauthenticated
from trine.server.context import Context
from trine.server.http.problems import BadRequest
from trine.server.keys import ANONYMOUS, Principal, check_group
from trine.server.sessions import Sessions

OPEN: Final = frozenset({"/health", "/ready", "/version", "/openapi.json", "/docs", "/v1/session"})
"""What needs no key: it tells nothing of what is stored. Of the session it is asked by the handlers themselves."""
COOKIE: Final = "trine_session"
MARK: Final = b"dashboard"
"""What the dashboard's own requests say in `X-Trine-Request`: no page elsewhere can make a browser send this header."""
SAME: Final = (b"same-origin", b"none")
"""`Sec-Fetch-Site` of requests of our own pages, and of addresses that somebody typed."""
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

NUMBERS: Final = ("partition", "from_offset", "to_offset")
"""Parameters that may be left out: Litestar takes the word null for that too."""

Headers = dict[bytes, bytes]


def authenticate(
    context: Context, sessions: Sessions, scope: Mapping[str, Any], headers: Headers, peer: str
) -> Principal:
    """The principal of a request; Unauthenticated if it has no key and no session that is known."""
    if by_session(context, headers):
        principal = sessions.find(session_of(headers))
        if principal is None:
            raise Unauthenticated("the session is over; log in again")
        _check_session_request(scope, headers)
        return principal
    principal = context.keys.authenticate(key_of(headers), peer)
    if principal is ANONYMOUS:
        refuse_foreign_pages(headers)
    return principal


def by_session(context: Context, headers: Headers) -> bool:
    """Whether it is a cookie that says who asks. A key says it better; without keys everybody is known."""
    return context.keys.required and key_of(headers) is None and session_of(headers) is not None


def session_of(headers: Headers) -> str | None:
    for pair in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE and value:
            return value
    return None


def _check_session_request(scope: Mapping[str, Any], headers: Headers) -> None:
    """A browser adds the cookie to whatever a page asks for: what changes something must be our own page's wish."""
    if scope["type"] == "websocket":
        check_same_origin(headers)
    elif scope["method"] not in ("GET", "HEAD"):
        check_own_page(headers)
    else:
        _refuse_other_sites(headers)
        if scope["path"] == "/consume":
            raise Forbidden(
                "/consume leases messages, and no GET does something with a session: use a key, or POST "
                "/v1/topics/{topic}/groups/{group}/receive"
            )


def check_own_page(headers: Headers) -> None:
    """A request that changes something comes from a page of this server, and says so."""
    if headers.get(b"x-trine-request") != MARK:
        raise Forbidden(
            "a request of a session must say that it is the dashboard's own (X-Trine-Request: dashboard); "
            "programs use a key"
        )
    check_same_origin(headers)


def check_same_origin(headers: Headers) -> None:
    _refuse_other_sites(headers)
    origin, host = headers.get(b"origin"), headers.get(b"host")
    if origin is None or origin.partition(b"://")[2] != host:
        told = "no page" if origin is None else repr(origin.decode("latin-1"))
        raise Forbidden(
            f"with a session only pages of this server may do this, and the request is of {told}; programs use a key"
        )


def _refuse_other_sites(headers: Headers) -> None:
    site = headers.get(b"sec-fetch-site")
    if site is not None and site not in SAME:
        raise Forbidden(
            "a page of another site may not use this server; open the address of the server itself"
        )


def key_of(headers: Headers) -> str | None:
    given = headers.get(b"authorization")
    if given is not None:
        scheme, _, text = given.decode("latin-1").partition(" ")
        if scheme.lower() == "bearer":
            return text.strip()
        return given.decode("latin-1")
    key = headers.get(b"x-api-key")
    return None if key is None else key.decode("latin-1")


def refuse_foreign_pages(headers: Headers) -> None:
    """Without keys everybody on this machine is trusted, and so is their browser: pages of other sites are not.

    A page can make a browser send requests to this machine. It then says where the page is from (Origin), or the page's
    own name was made to lead here (Host).
    """
    host = headers.get(b"host", b"localhost").decode("latin-1")
    if not _is_local(host):
        raise Forbidden(
            f"the host {host!r} is not this machine: without API keys only requests to localhost or a loopback address "
            "are taken"
        )
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
        raise Forbidden(
            f"a page of {origin.decode('latin-1')!r} may not use this server: without API keys only its own pages may"
        )
    _refuse_other_sites(headers)  # pictures and links of a page have no Origin


def _is_local(host: str) -> bool:
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name in LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    for name in NUMBERS:
        if connection.query_params.get(name, "").lower() == "null":
            raise BadRequest(400, f"{name} is a whole number, and null is none; leave it out")
    action = handler.opt.get("may")
    if action is not None and handler.opt.get("topic") != "later":
        principal_of(connection).check(action, connection.path_params.get("topic"))
        if action != "read":
            check_group(connection.path_params.get("group"))


def principal_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Principal:
    found = connection.scope["state"]["principal"]
    assert isinstance(found, Principal)
    return found
