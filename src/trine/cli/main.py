"""The way in: what the shell calls."""

from __future__ import annotations

import sys

from trine.cli.exits import REFUSED
from trine.cli.interrupts import interrupts

NEEDED = frozenset({"rich", "typer", "yaml"})
"""What `trine[cli]` installs."""


def main() -> None:
    interrupts.listen()
    try:
        from trine.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        print(f"trine: {error.name} is missing: pip install 'trine[cli]'", file=sys.stderr)
        raise SystemExit(REFUSED) from None
    app(prog_name="trine")
