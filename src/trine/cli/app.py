"""All verbs under one roof, and the one place where errors become exit codes.

A verb's module is imported when it is asked for: `trine produce` does not wait for the others to be built.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_group

from trine.cli.exits import PIPE_CLOSED, exit_code, hush, tell
from trine.cli.interrupts import Interrupted
from trine.cli.verb import Ca, Context, Data, Json, Server, given_of, verb
from trine.model.errors import TrineError

EPILOG: Final = (
    "Exit codes: 0 done, 1 the broker said no, 2 wrong usage, 3 not found, 4 unreachable, 5 denied, "
    "130 interrupted, 141 the reader of the pipe has gone."
)

Mount = Callable[[typer.Typer, Any], object]


def _verbs_of(name: str) -> Mount:
    return lambda holder, module: holder.add_typer(module.app, name=name)


VERBS: Final[dict[str, Mount]] = {
    "serve": lambda holder, module: holder.command("serve")(module.serve),
    "topic": _verbs_of("topic"),
    "produce": lambda holder, module: verb(holder, "produce")(module.produce),
    "consume": lambda holder, module: verb(holder, "consume")(module.consume),
    "group": _verbs_of("group"),
    "trace": _verbs_of("trace"),
    "dlq": _verbs_of("dlq"),
    "schedule": _verbs_of("schedule"),
    "archive": _verbs_of("archive"),
    "replay": lambda holder, module: verb(holder, "replay")(module.replay),
    "traces": lambda holder, module: verb(holder, "traces")(module.traces),
    "report": lambda holder, module: verb(holder, "report")(module.report),
    "sql": lambda holder, module: verb(holder, "sql")(module.sql),
    "pipeline": _verbs_of("pipeline"),
    "redrive": lambda holder, module: verb(holder, "redrive")(module.redrive),
    "bench": _verbs_of("bench"),
    "config": _verbs_of("config"),
    "key": _verbs_of("key"),
    "context": _verbs_of("context"),
    "version": lambda holder, module: verb(holder, "version", talks=False)(module.version),
}
"""Every verb, and how the module of its name is mounted; listed from starting a server to looking after it."""


class Root(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            self.commands = {name: self.get_command(ctx, name) for name in VERBS}  # to suggest one of them
        elif cmd_name not in self.commands:
            holder = typer.Typer(add_completion=False)
            VERBS[cmd_name](holder, importlib.import_module(f"trine.cli.{cmd_name}"))
            self.commands[cmd_name] = get_group(holder).commands[cmd_name]
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except TrineError as error:
            _flush_before_an_error()
            tell(error, given_of(ctx).json)
            raise typer.Exit(exit_code(error)) from None
        except BrokenPipeError:
            hush()
            raise typer.Exit(PIPE_CLOSED) from None
        except Interrupted:
            hush()
            raise
        return result


def _flush_before_an_error() -> None:
    """What was shown before an error comes before its sentence."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        hush()


app = typer.Typer(
    cls=Root,
    help="Trine, a message broker: one topic is a log, a queue and a table.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they would print what variables hold, keys among them
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def common(
    ctx: typer.Context,
    server: Server = None,
    data: Data = None,
    context: Context = None,
    api_key: Annotated[
        str | None,
        typer.Option("--key", "--api-key", metavar="KEY", help="The API key; better in TRINE_KEY."),
    ] = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    given_of(ctx).add(server=server, data=data, context=context, key=api_key, ca=ca, json=as_json)
