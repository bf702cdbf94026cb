"""Text that has no power over the terminal it is looked at on: what comes from messages, and from servers.

Control characters begin sequences that move the cursor, set the title or answer as if somebody had typed; U+009B does
so by itself. Others turn the direction of a line around. None of them is written as it is.
"""

from __future__ import annotations

import json


def printable(text: str) -> str:
    """One line, with escapes where Python would write them.

    >>> printable("red: \\x1b[31m")
    'red: \\\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode("ascii")
        for letter in text
    )


def safe_json(document: object, indent: int | None = None) -> str:
    """JSON that programs read as what it was, and that people may look at."""
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    if text.isprintable():
        return text
    # JSON has escapes of its own for these, save that the line breaks of an indented document are no text.
    return "".join(
        letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text
    )
