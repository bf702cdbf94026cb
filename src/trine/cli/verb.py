"""A verb: a function of a session that becomes a command, with the options that every command has.

    @verb(app, "list")
    def list_topics(session: Session) -> None: ...

The common options are written once, here, and may stand before the verb (`trine --json topic list`) or after it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import typer

from trine.cli.session import Session
from trine.cli.target import Given

Function = TypeVar("Function", bound=Callable[..., None])

PANEL: Final = "Where, and how it is shown"

Server = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", help="The server, e.g. trine://127.0.0.1:5680.", rich_help_panel=PANEL
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DIR", help="A data directory instead of a server.", rich_help_panel=PANEL
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context", metavar="NAME", help="A named server (see `trine context`).", rich_help_panel=PANEL
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", metavar="KEY", help="The API key; better in TRINE_KEY.", rich_help_panel=PANEL),
]
Ca = Annotated[
    str | None,
    typer.Option("--ca", metavar="FILE", help="Whom to trust for trines://, as PEM.", rich_help_panel=PANEL),
]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.", rich_help_panel=PANEL)]

COMMON: Final[dict[str, Any]] = {
    "server": Server,
    "data": Data,
    "context": Context,
    "api_key": ApiKey,
    "ca": Ca,
}


def verb(
    app: typer.Typer, name: str, *, talks: bool = True, makes: bool = False
) -> Callable[[Function], Function]:
    """Adds a command. `talks`: it has a broker; `makes`: it may make the data directory."""

    def add(function: Function) -> Function:
        def run(ctx: typer.Context, **words: Any) -> None:
            given = given_of(ctx)
            common = {word: words.pop(word) for word in COMMON} if talks else dict.fromkeys(COMMON)
            given.add(
                server=common["server"],
                data=common["data"],
                context=common["context"],
                key=common["api_key"],
                ca=common["ca"],
                json=words.pop("as_json"),
            )
            with Session(given, makes=makes) as session:
                function(session, **words)

        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        options = {**COMMON, "as_json": Json} if talks else {"as_json": Json}
        parameters = [
            _parameter("ctx", typer.Context, inspect.Parameter.empty),
            *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own),
            *(_parameter(word, hint, False if word == "as_json" else None) for word, hint in options.items()),
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__doc__ = function.__doc__
        app.command(name)(run)
        return function

    return add


def given_of(ctx: typer.Context) -> Given:
    root = ctx.find_root()
    if not isinstance(root.obj, Given):
        root.obj = Given()
    return root.obj


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
