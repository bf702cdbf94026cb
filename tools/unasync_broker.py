"""Writes the sync broker and the sync client, folders named `sync`, from the async ones, `aio` beside them.

    python tools/unasync_broker.py            write it
    python tools/unasync_broker.py --check    fail if what is there is not what would be written

The code is changed token by token by `unasync`: `async` and `await` go, `__aenter__` becomes `__enter__`,
`AsyncIterator` becomes `Iterator`, and so on. On top of that, here:

    AsyncTopic, any name of Async and a capital     Topic
    aio, aio_waits, aio_link                        sync, sync_waits, sync_link
    anext, aiter, aclose                            next, iter, close
    the same words inside strings and comments, so that docstrings and their examples stay true

Waiting itself is not translated: it differs in kind, so it lives in the `*_waits` and `*_link` modules.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import tokenize_rt
import unasync

SOURCE: Final = Path(__file__).resolve().parent.parent / "src" / "trine"
ROOMS: Final = (SOURCE / "broker", SOURCE / "client")
HEADER: Final = "# Generated from aio/{name} by `make generate`. Do not edit.\n"

NAMES: Final = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "aclose": "close",
    "aio": "sync",
    "aio_link": "sync_link",
    "aio_waits": "sync_waits",
    "aiter": "iter",
    "anext": "next",
    "enter_async_context": "enter_context",
}
ASYNC_NAME: Final = re.compile(r"Async([A-Z]\w*)")
PROSE: Final = (
    (re.compile(r"\b([Aa])n(\W+)Async(?=[B-DF-HJ-NP-TV-Z])"), r"\1\2"),  # an AsyncTopic, a Topic
    (re.compile(r"\bAsync(?=[A-Z])"), ""),
    (re.compile(r"\basync (?=(?:def|with|for)\b)"), ""),
    (re.compile(r"\bawait (?=[\w.]+[(\[])"), ""),  # a call; "await it" in a sentence stays
    *((re.compile(rf"\b{name}\b"), sync) for name, sync in NAMES.items()),
)


class CannotGenerate(Exception):
    """The async form is missing, or says something that has no sync form."""


def to_sync(source: str) -> str:
    """The sync form of an async module's source, before layout."""
    tokens = tokenize_rt.src_to_tokens(source)
    names = {token.src for token in tokens if token.name == "NAME"}
    rule = unasync.Rule("", "", additional_replacements=NAMES)
    for name in sorted(names):
        found = ASYNC_NAME.fullmatch(name)
        if found is None or name in rule.token_replacements:
            continue  # unasync's own names are the standard library's: both forms may be in use
        if found[1] in names:
            raise CannotGenerate(
                f"The same file uses both {name} and {found[1]}, which would become one name."
            )
        rule.token_replacements[name] = found[1]
    sync = list(rule._unasync_tokens(tokens))
    return str(tokenize_rt.tokens_to_src([_reword(token) for token in sync]))


def _reword(token: tokenize_rt.Token) -> tokenize_rt.Token:
    if token.name not in ("STRING", "FSTRING_MIDDLE", "COMMENT"):
        return token
    text = token.src
    for pattern, replacement in PROSE:
        text = pattern.sub(replacement, text)
    return token._replace(src=text)


def generate(aio: Path, sync: Path) -> dict[Path, str]:
    """What the files of `sync` should hold, laid out by ruff as if they stood there already."""
    sources = sorted(aio.glob("*.py"))
    if not sources:
        raise CannotGenerate(f"{aio} holds no Python files: there is nothing to generate the sync form from.")
    return {sync / source.name: _generate_file(source, sync / source.name) for source in sources}


def _generate_file(aio: Path, sync: Path) -> str:
    text = HEADER.format(name=aio.name) + to_sync(aio.read_text(encoding="utf-8"))
    try:
        compile(text, str(sync), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise CannotGenerate(f"The sync form of {aio} is not Python: {error.msg}: {line}") from error
    # Renamed modules and merged names leave the imports out of order.
    text = _ruff(["check", "--quiet", "--fix", "--exit-zero", "--select", "I,RUF022"], text, sync)
    return _ruff(["format", "--quiet"], text, sync)


def _ruff(arguments: list[str], text: str, path: Path) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(path), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotGenerate(f"ruff {arguments[0]} refused the sync form of {path}: {done.stderr.strip()}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the sync forms from the async ones.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if sync is out of date")
    parser.add_argument("rooms", type=Path, nargs="*", default=ROOMS, help="folders that hold aio and sync")
    arguments = parser.parse_args()
    try:
        return max(_do_room(room, arguments.check) for room in arguments.rooms)
    except CannotGenerate as error:
        print(error, file=sys.stderr)
        return 2


def _do_room(room: Path, check: bool) -> int:
    sync = room / "sync"
    made = generate(room / "aio", sync)
    there = {path: path.read_text(encoding="utf-8") for path in sync.glob("*.py")}
    if check:
        if there != made:
            print(f"{sync} is not what aio gives: run `make generate` and commit it.", file=sys.stderr)
            return 1
        return 0
    sync.mkdir(exist_ok=True)
    for path in there.keys() - made.keys():
        path.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
