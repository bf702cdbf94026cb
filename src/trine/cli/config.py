"""`trine config`: is a configuration sound, and what holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.exits import USAGE
from trine.cli.session import Session
from trine.cli.verb import verb

if TYPE_CHECKING:
    from trine.server.config import Shown

app = typer.Typer(help="Check and show a server's configuration.", no_args_is_help=True)

File = Annotated[
    str | None, typer.Argument(metavar="FILE", help="The configuration, as YAML (or TRINE_CONFIG).")
]


@verb(app, "check", talks=False)
def check(session: Session, file: File = None) -> None:
    """Tell all faults of a configuration (the file and TRINE_* variables) at once, each with its place."""
    from trine.server import config

    faults = config.check(file).faults
    if session.json:
        told = [{"place": fault.origin, "fault": fault.sentence} for fault in faults]
        session.document({"sound": not faults, "faults": told})
    elif faults:
        for line in f"trine: {config.explain(faults)}".splitlines():
            session.note(line)
    else:
        session.line("the configuration is sound")
    if faults:
        raise typer.Exit(USAGE)


@verb(app, "show", talks=False)
def show(session: Session, file: File = None) -> None:
    """Show the configuration that holds, and where each value comes from."""
    from trine.model.errors import InvalidConfig
    from trine.server import config

    found = config.check(file)
    if found.faults:
        raise InvalidConfig(config.explain(found.faults))
    rows = found.shown()
    if session.json:
        session.document({row.path: {"value": row.value, "from": row.origin} for row in rows})
        return
    for line in as_yaml(rows):
        session.line(line)


def as_yaml(rows: list[Shown]) -> list[str]:
    """A file that says all of it; where a value comes from stands beside it."""
    lines: list[str] = []
    opened: list[str] = []
    for row in rows:
        *sections, word = row.path.split(".")
        shared = 0
        while shared < min(len(sections), len(opened)) and sections[shared] == opened[shared]:
            shared += 1
        lines += ["  " * depth + f"{sections[depth]}:" for depth in range(shared, len(sections))]
        opened = sections
        # JSON is YAML, on one line and with the quotes that are needed.
        said = "  " * len(sections) + f"{word}: {json.dumps(row.value, ensure_ascii=False)}"
        lines.append(f"{said:<48}  # {row.origin}")
    return lines
