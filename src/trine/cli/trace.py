"""`trine trace ID`, and `trine trace search`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trine.cli.options import FromTime, Limit, TopicName, ToTime
from trine.cli.session import Session
from trine.cli.verb import verb


class ShowUnlessNamed(TyperGroup):
    """`trine trace orders/2/17` is `trine trace show orders/2/17`: an id is never the name of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    help="What happened to a message: `trine trace ID`, or `trine trace search`.",
    cls=ShowUnlessNamed,
    no_args_is_help=True,
)


@verb(app, "show")
def show(
    session: Session,
    message_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="A message id (orders/2/17) or a schedule id (orders@494221-17)."),
    ],
) -> None:
    """Show a message's whole life. `show` may be left out."""
    trace = session.broker.trace(message_id)
    if session.json:
        session.document(trace.to_dict())
    else:
        session.text(str(trace))


@verb(app, "search")
def search(
    session: Session,
    topic: TopicName,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Of this key.")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="As this group sees it.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", help="unacked, waiting, in flight, retrying, acked, rejected, …")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help='Published longer ago, e.g. "5m".')
    ] = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    limit: Limit = 100,
) -> None:
    """Find messages by key, and by their state in a group."""
    found = session.broker.search(
        topic, key=key, group=group, state=state, older_than=older_than, from_time=from_time,
        to_time=to_time, limit=limit,
    )  # fmt: skip
    session.listing(
        [one.to_dict() for one in found],
        {
            "id": lambda one: one["message_id"],
            "key": lambda one: one["key"],
            "published": lambda one: one["at"],
            "state": lambda one: one["state"],
            "group": lambda one: one["group"],
            "attempts": lambda one: one["attempts"],
            "member": lambda one: one["member"],
        },
        none="no message was found",
    )
