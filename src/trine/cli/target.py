"""Where a command talks to, and the broker it finds there.

Flags win over the environment, the environment over the current context, and without any of them it is the server of
this machine. A key belongs to the place it was given with: the key of a context is not shown to another server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from trine.cli.contexts import Place, contexts_file, load_contexts
from trine.client.address import DEFAULT
from trine.model.errors import InvalidOption, NotFound

if TYPE_CHECKING:
    from trine import Broker

CONNECT_WAIT: Final = "5s"
"""How long a command waits for a connection. Programs wait longer: people are there to try again."""


@dataclasses.dataclass(slots=True)
class Given:
    """What the flags said, before the verb and after it; what stands nearer to the verb wins."""

    server: str | None = None
    key: str | None = None
    ca: str | None = None
    data: str | None = None
    context: str | None = None
    json: bool = False

    def add(
        self,
        *,
        server: str | None = None,
        key: str | None = None,
        ca: str | None = None,
        data: str | None = None,
        context: str | None = None,
        json: bool = False,
    ) -> None:
        if server or data or context:
            if sum(map(bool, (server, data, context))) > 1:
                raise InvalidOption("give one of --server, --data and --context: each says where to talk to")
            self.server, self.data, self.context = server, data, context
        self.key = key or self.key
        self.ca = ca or self.ca
        self.json = json or self.json


def find_place(given: Given, environ: Mapping[str, str]) -> Place:
    key = given.key or environ.get("TRINE_KEY") or None
    if given.data:
        return Place(data=given.data)
    if given.server:
        return Place(server=given.server, key=key, ca=given.ca)
    place = _placed(given.context, environ)
    return Place(
        server=place.server,
        key=key or place.key,
        ca=given.ca or place.ca,
        data=place.data,
    )


def _placed(context: str | None, environ: Mapping[str, str]) -> Place:
    named = context or environ.get("TRINE_CONTEXT")
    if named:
        return load_contexts(contexts_file(environ)).place(named)
    if server := environ.get("TRINE_SERVER"):
        return Place(server=server)
    known = load_contexts(contexts_file(environ))
    return Place(server=DEFAULT) if known.current is None else known.place(known.current)


def open_place(place: Place, *, makes: bool = False, wait: str = CONNECT_WAIT) -> Broker:
    """The broker at a place. A data directory is made only for verbs that put something into it."""
    import trine

    if place.data is not None:
        if not makes and not Path(place.data).is_dir():
            raise NotFound(
                f"there is no data directory {place.data!r}; `trine topic create` makes one with its first topic"
            )
        return trine.open(place.data)
    assert place.server is not None
    return cast("Broker", trine.connect(place.server, key=place.key, ca=place.ca, timeout=wait))
