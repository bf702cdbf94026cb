"""`trine context`: servers by name."""

from __future__ import annotations

import os
import re
from typing import Annotated

import typer

from trine.cli.contexts import Place, contexts_file, load_contexts, save_contexts
from trine.cli.session import Session
from trine.cli.verb import verb

app = typer.Typer(help="Named servers.", no_args_is_help=True)

KEY_IN_URL = re.compile(r"//[^/@]*@")
"""`trine://KEY@host`: as secret as a key that was given apart."""


def context_names(incomplete: str) -> list[str]:
    return list(load_contexts(contexts_file(os.environ)).contexts)


Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.", autocompletion=context_names)]


@verb(app, "add", talks=False)
def add(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="trine://… or trines://…")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The API key for it.")] = None,
    ca: Annotated[
        str | None, typer.Option("--ca", metavar="FILE", help="Whom to trust for trines://.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="A data directory instead.")
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
) -> None:
    """Add a context, or replace the one of that name. The first one added is used from then on."""
    if (server is None) == (data is None):
        raise typer.BadParameter("give --server or --data: where it is")
    path = contexts_file(os.environ)
    contexts = load_contexts(path)
    where = None if data is None else os.path.abspath(data)
    contexts.add(
        name, Place(server=server, key=key, ca=None if ca is None else os.path.abspath(ca), data=where)
    )
    if use or len(contexts.contexts) == 1:
        contexts.use(name)
    save_contexts(path, contexts)
    session.done(f"{name}: added to {path}", name=name, current=contexts.current == name)


@verb(app, "use", talks=False)
def use(session: Session, name: Name) -> None:
    """Talk to this one from now on."""
    path = contexts_file(os.environ)
    contexts = load_contexts(path)
    contexts.use(name)
    save_contexts(path, contexts)
    session.done(f"{name} is used from now on", current=name)


@verb(app, "list", talks=False)
def list_contexts(session: Session) -> None:
    """List the contexts. Keys are not shown."""
    contexts = load_contexts(contexts_file(os.environ))
    session.listing(
        [
            {
                "name": name,
                "current": name == contexts.current,
                "server": None if place.server is None else KEY_IN_URL.sub("//", place.server),
                "data": place.data,
                "has_key": place.key is not None or KEY_IN_URL.search(place.server or "") is not None,
            }
            for name, place in contexts.contexts.items()
        ],
        {
            "": lambda one: "*" if one["current"] else "",
            "name": lambda one: one["name"],
            "where": lambda one: one["server"] or one["data"],
            "key": lambda one: one["has_key"],
        },
        none="there are no contexts; add one with `trine context add`",
    )


@verb(app, "remove", talks=False)
def remove(session: Session, name: Name) -> None:
    """Forget a context."""
    path = contexts_file(os.environ)
    contexts = load_contexts(path)
    contexts.remove(name)
    save_contexts(path, contexts)
    session.done(f"{name}: removed", removed=name)
