"""A pipeline's file as it was written: words with their places, from YAML or from Python, and what is wrong with it.

Reading never stops at a fault: it is noted with its place, and the next word is read. A place is the words that lead
to it, as `("steps", "big", "sql")`; its line is that of the word.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trine.model.errors import InvalidConfig, TrineError
from trine.model.limits import MIB

Place = tuple[str, ...]
FILE_BYTES_MAX: Final = 1 * MIB
"""A declaration is read whole; a larger file is not one."""
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Fault:
    origin: str
    """Where: `orders.yaml:12`, `--set`, `--only`."""
    sentence: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.origin}: {self.sentence}"


@dataclass(slots=True)
class Written:
    """What a file says, and where it says it."""

    path: Path
    tree: dict[str, Any] = field(default_factory=dict)
    lines: dict[Place, int] = field(default_factory=dict)
    text_lines: dict[Place, int] = field(default_factory=dict)
    """Where the text of a value begins, which for a block is below its word."""
    faults: list[Fault] = field(default_factory=list)

    def line(self, place: Place) -> int:
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def fault(self, place: Place, sentence: str, *, line: int | None = None) -> None:
        at = self.line(place) if line is None else line
        self.faults.append(Fault(f"{self.path}:{at}", sentence, at))


def explain(faults: list[Fault]) -> str:
    """All faults as one sentence with a list."""
    many = f"there are {len(faults)} faults in the pipeline" if len(faults) > 1 else "the pipeline is off"
    return f"{many}:\n" + "\n".join(f"  {one}" for one in sorted(faults, key=lambda one: one.line))


def refuse(faults: list[Fault]) -> None:
    if faults:
        raise InvalidConfig(explain(faults))


def read(path: Path, given: Mapping[str, str]) -> Written:
    """The file with `${name}` filled in; `given` goes over what the file sets itself."""
    written = Written(path)
    try:
        size = path.stat().st_size
        if size > FILE_BYTES_MAX:
            raise ValueError(f"has {size} bytes; a pipeline has at most {FILE_BYTES_MAX}")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        written.faults.append(Fault(str(path), "there is no such file"))
        return written
    except (OSError, ValueError) as error:
        written.faults.append(Fault(str(path), f"cannot be read: {error}"))
        return written
    if path.suffix == ".py":
        _read_python(path, written)
    else:
        _read_yaml(text, written)
    _fill_in(written, given)
    return written


# --- YAML


def _read_yaml(text: str, written: Written) -> None:
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                written.fault((), "is empty; see docs/pipelines.md for what a pipeline says")
                return
            tree = _value(loader, node, (), written)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        written.fault((), f"is not YAML: {error.problem or error.context}", line=mark.line + 1 if mark else 1)
        return
    except (yaml.YAMLError, RecursionError) as error:
        written.fault((), f"is not YAML: {error}")
        return
    if isinstance(tree, dict):
        written.tree = tree
    else:
        written.fault((), "must have words with values: sources, steps, sinks")


def _value(loader: Any, node: Any, place: Place, written: Written) -> Any:
    import yaml

    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, below in node.value:
            word = str(key.value)
            inner = (*place, word)
            at = key.start_mark.line + 1
            if word in found:
                first = written.lines[inner]
                written.fault(inner, f"{word!r} stands here twice, the first time in line {first}", line=at)
                continue
            written.lines[inner] = at
            block = isinstance(below, yaml.ScalarNode) and below.style in ("|", ">")
            written.text_lines[inner] = below.start_mark.line + (2 if block else 1)
            found[word] = _value(loader, below, inner, written)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, one, (*place, str(number)), written) for number, one in enumerate(node.value)]
    return loader.construct_object(node, deep=True)


# --- Python


def module_of(path: Path) -> Any:
    """The Python file as a module, run once; its functions travel to the executors with their code."""
    from pyspark import cloudpickle

    name = f"trine_pipeline_{re.sub(r'[^A-Za-z0-9_]', '_', str(path.resolve()))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with beside(path):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


class beside:
    """Modules in the folder of a file can be imported while it is read."""

    def __init__(self, path: Path) -> None:
        self._folder = str(path.resolve().parent)

    def __enter__(self) -> None:
        sys.path.insert(0, self._folder)

    def __exit__(self, *_: object) -> None:
        sys.path.remove(self._folder)


def _read_python(path: Path, written: Written) -> None:
    from trine.spark.pipelines.declaring import Pipeline

    try:
        module = module_of(path)
    except TrineError as error:
        written.fault((), str(error), line=_line_in(path, error))
        return
    except Exception as error:
        written.fault((), f"{type(error).__name__}: {error}", line=_line_in(path, error))
        return
    found = [one for one in vars(module).values() if isinstance(one, Pipeline)]
    if len(set(map(id, found))) != 1:
        written.fault(
            (), f"has {len(found)} pipelines; make one: pipeline = trine.spark.pipelines.Pipeline()"
        )
        return
    written.tree = found[0].tree()
    written.lines = dict(found[0].lines)


def _line_in(path: Path, error: BaseException) -> int:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return error.lineno
    line, trace = 1, error.__traceback__
    while trace is not None:
        if Path(
            trace.tb_frame.f_code.co_filename
        ) == path.resolve() or trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


# --- ${name}


def _fill_in(written: Written, given: Mapping[str, str]) -> None:
    own = written.tree.pop("set", None) or {}
    if not isinstance(own, dict):
        written.fault(("set",), "set must have names with values: floor: 100")
        own = {}
    for name in given:
        if name not in own:
            known = f"it sets {', '.join(own)}" if own else "it sets nothing"
            written.faults.append(Fault("--set", f"{written.path} has no {name!r} under `set`; {known}"))
    values = {**own, **given}
    used: set[str] = set()

    def fill(value: Any, place: Place) -> Any:
        if isinstance(value, dict):
            return {word: fill(below, (*place, word)) for word, below in value.items()}
        if isinstance(value, list):
            return [fill(one, (*place, str(number))) for number, one in enumerate(value)]
        if not isinstance(value, str):
            return value

        def put(match: re.Match[str]) -> str:
            used.add(match[1])
            if values.get(match[1]) is None:
                written.fault(
                    place, f"${{{match[1]}}} has no value: put it under `set`, or give --set {match[1]}=…"
                )
                return ""
            return str(values[match[1]])

        return VARIABLE.sub(put, value)

    written.tree = fill(written.tree, ())
