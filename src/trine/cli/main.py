"""The way in: what the shell calls."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

from trine.cli.exits import INTERRUPTED, REFUSED, TERMINATED

NEEDED = frozenset({"rich", "typer", "yaml"})
"""What `trine[cli]` installs."""


def main() -> None:
    try:
        from trine.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        print(f"trine: {error.name} is missing: pip install 'trine[cli]'", file=sys.stderr)
        raise SystemExit(REFUSED) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    signal.signal(signal.SIGTERM, _end)
    app(prog_name="trine")


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """As an exception, so that consumers leave their groups and stores are closed on the way out."""
    raise SystemExit(TERMINATED)
