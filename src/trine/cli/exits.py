"""Exit codes, and how an error becomes one: the one table of this edge.

0    done
1    the broker said no: the state, a limit or the store refused it
2    wrong usage: a word, an option or a value is off; nothing was changed
3    not found: no such topic, group, message, schedule or job
4    unreachable: no server answers, or the connection was lost
5    denied: the key is missing, unknown, or does not allow this
130  interrupted with Ctrl-C
141  whoever read the output closed the pipe
143  ended with SIGTERM
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Final

from trine.cli.safe import printable
from trine.model.errors import Denied, InvalidInput, NotFound, TrineError, Unreachable

REFUSED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
UNREACHABLE: Final = 4
DENIED: Final = 5
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
TERMINATED: Final = 143

FAMILIES: Final[tuple[tuple[type[TrineError], int], ...]] = (
    (InvalidInput, USAGE),
    (NotFound, NOT_FOUND),
    (Unreachable, UNREACHABLE),
    (Denied, DENIED),
    (TrineError, REFUSED),
)


def exit_code(error: TrineError) -> int:
    return next(code for family, code in FAMILIES if isinstance(error, family))


def tell(error: TrineError, as_json: bool) -> None:
    """The sentence on stderr, with the code that programs compare."""
    if as_json:
        print(json.dumps({"error": error.code, "message": error.message}), file=sys.stderr)
    else:
        for line in f"trine: {error.message} ({error.code})".split("\n"):
            print(printable(line), file=sys.stderr)


def hush() -> None:
    """Sends what is still to be written nowhere: nobody reads it, and flushing it at the end would fail again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
