"""Names for the shell to complete: asked from the broker, briefly; silence when it does not answer."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from trine.cli.target import Given, find_place, open_place

if TYPE_CHECKING:
    from trine import Broker

WAIT_S: Final = 1.0
"""A shell that waits longer than this for a name feels broken."""


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    return _asked(ctx, lambda broker: [topic.name for topic in broker.topics()])


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    topic = ctx.params.get("topic")
    if not topic:
        return []
    return _asked(ctx, lambda broker: [group.name for group in broker.topic(topic).groups()])


def _asked(ctx: typer.Context, names: Callable[[Broker], list[str]]) -> list[str]:
    """The names, from another thread: what takes too long is left behind, not waited for."""
    place = None
    with contextlib.suppress(Exception):
        place = find_place(_given(ctx), os.environ)
    if place is None or (place.data is not None and not Path(place.data).is_dir()):
        return []
    found: list[str] = []

    def ask() -> None:
        # Whatever is wrong, the next command will say; a shell that completes is not the place.
        with contextlib.suppress(Exception), open_place(place, wait=f"{WAIT_S}s") as broker:
            found.extend(names(broker))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(WAIT_S)
    return list(found)


def _given(ctx: typer.Context) -> Given:
    given = Given()
    words: list[dict[str, Any]] = []
    at: Any = ctx
    while at is not None:
        words.insert(0, at.params)
        at = at.parent
    for known in words:
        given.add(
            server=known.get("server"),
            data=known.get("data"),
            context=known.get("context"),
            key=known.get("api_key"),
            ca=known.get("ca"),
        )
    return given
