"""Names for the shell to complete: asked from the broker, briefly; silence when it does not answer."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from trine.cli.contexts import Place
from trine.cli.target import Given, find_place, open_place
from trine.model.duration import duration_ms
from trine.model.errors import InvalidDuration

if TYPE_CHECKING:
    from trine import Broker

WAIT: Final = "1s"
"""A shell that waits longer than this for a name feels broken; TRINE_COMPLETION_WAIT says otherwise."""


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
    wait = os.environ.get("TRINE_COMPLETION_WAIT", WAIT)
    with contextlib.suppress(InvalidDuration):
        seconds = duration_ms(wait, what="TRINE_COMPLETION_WAIT") / 1000
        return _briefly(place, wait, seconds, names)
    return []


def _briefly(place: Place, wait: str, seconds: float, names: Callable[[Broker], list[str]]) -> list[str]:
    found: list[str] = []

    def ask() -> None:
        # Whatever is wrong, the next command will say; a shell that completes is not the place.
        with contextlib.suppress(Exception), open_place(place, wait=wait) as broker:
            found.extend(names(broker))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
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
