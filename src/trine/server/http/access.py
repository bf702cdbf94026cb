"""Who asks, and whether they may.

Every handler says what it does with `opt={"may": …}`; the guard asks the key that the gate found. The topic is the
one of the path. A handler whose topic stands elsewhere (a body, an id) says so with `opt={"topic": "later"}` and asks
by itself.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler

from trine.model.errors import Forbidden
from trine.server.context import Context
from trine.server.http.problems import BadRequest
from trine.server.keys import ANONYMOUS, Principal, check_group

OPEN: Final = frozenset({"/health", "/ready", "/version", "/openapi.json", "/docs"})
"""What needs no key: it tells nothing of what is stored."""
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

NUMBERS: Final = ("partition", "from_offset", "to_offset")
"""Parameters that may be left out: Litestar takes the word null for that too."""

Headers = dict[bytes, bytes]


def authenticate(context: Context, headers: Headers, peer: str) -> Principal:
    """The principal of a request; Unauthenticated if it has no key that is known."""
    principal = context.keys.authenticate(key_of(headers), peer)
    if principal is ANONYMOUS:
        refuse_foreign_pages(headers)
    return principal


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
