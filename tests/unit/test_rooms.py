"""Only the log opens files: the part of that rule that imports do not show.

The import contracts in pyproject.toml keep `os`, `mmap` and their like out of the other rooms; `open` is a
builtin and a `Path` can be passed in, so those calls are looked for here.
"""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "trine"
ROOMS_WITHOUT_FILES = ("model", "queue", "trace", "broker", "wire", "client")

PATH_VERB = re.compile(r"(read|write)_(bytes|text)|mkdir|rmdir|unlink|iterdir|rglob")
FILE_MODE = re.compile(r"[rwxa][bt+]*")


def file_calls(source: str) -> list[str]:
    """The calls in `source` that touch files, as `line: code`."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [f"{call.lineno}: {ast.unparse(call)}" for call in calls if touches_files(call)]


def touches_files(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id="open"):
            return True
        case ast.Attribute(attr="open"):
            # Log.open(directory) asks the log; path.open("rb") does not.
            modes = [argument.value for argument in call.args[:1] if isinstance(argument, ast.Constant)]
            return any(isinstance(mode, str) and FILE_MODE.fullmatch(mode) for mode in modes)
        case ast.Attribute(attr=verb):
            return PATH_VERB.fullmatch(verb) is not None
    return False


@pytest.mark.parametrize("room", ROOMS_WITHOUT_FILES)
def test_room_does_not_touch_files(room: str) -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{call}"
        for path in sorted((SOURCE / room).rglob("*.py"))
        for call in file_calls(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("code", ["open(name)", "path.open('rb')", "Path(name).read_text()", "dir.mkdir()"])
def test_a_file_call_is_found(code: str) -> None:
    assert file_calls(code) == [f"1: {code}"]


@pytest.mark.parametrize("code", ["Log.open(folder)", "broker.open()", "Topic.open('orders')", "log.read(5)"])
def test_a_call_to_the_log_is_not_a_file_call(code: str) -> None:
    assert file_calls(code) == []
