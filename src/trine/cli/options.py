"""Arguments and options that several verbs share, and how their words are read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any, Final

import typer

from trine.cli.completion import group_names, topic_names
from trine.cli.interrupts import interrupts

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=topic_names)]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=group_names)]
Key = Annotated[str | None, typer.Option("--key", "-k", help="The message's key.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many at most.")]
FromTime = Annotated[
    str | None, typer.Option("--from-time", metavar="TIME", help="At or after, e.g. 2026-01-14T15:00:00Z.")
]
ToTime = Annotated[str | None, typer.Option("--to-time", metavar="TIME", help="Before this time.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="WORD=VALUE", help="Any other option; values as JSON or text. Repeatable."),
]

ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
"""What a shell cannot easily type, in separators."""


def pairs(given: Iterable[str] | None, what: str) -> dict[str, str]:
    """`name=value` words as a mapping."""
    found = {}
    for word in given or ():
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{word!r} is not a {what}: write it as name=value")
        found[name] = value
    return found


def settings(given: Iterable[str] | None, **named: Any) -> dict[str, Any]:
    """Options of a topic or a group: those with a flag of their own that were given, and those of `--set`."""
    found = {word: value for word, value in named.items() if value is not None}
    for name, value in pairs(given, "setting").items():
        word = name.replace("-", "_")
        if word in found:
            raise typer.BadParameter(f"{word!r} is given twice: with --set, and with a flag of its own")
        try:
            found[word] = json.loads(value)
        except ValueError:
            found[word] = value
    return found


def names_list(given: str | None) -> list[str] | None:
    """`high,normal,low` as a list."""
    return None if given is None else [name.strip() for name in given.split(",")]


def delimiter_bytes(given: str) -> bytes:
    r"""A separator as bytes; `\n`, `\t`, `\r`, `\0` and `\\` may be written out."""
    text, rest = "", given
    while rest:
        known = ESCAPES.get(rest[:2])
        text += known if known is not None else rest[0]
        rest = rest[2:] if known is not None else rest[1:]
    return text.encode()


def confirm_name(name: str, sentence: str, yes: bool) -> None:
    """Asks for the name of what is about to be lost."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{sentence} Nobody is here to be asked: say --yes.")
    with interrupts.waiting():
        answer = typer.prompt(f"{sentence} Type its name to go on", err=True, default="", show_default=False)
    if answer != name:
        raise typer.BadParameter(f"that is not {name!r}; nothing was changed")
