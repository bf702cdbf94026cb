"""Pipelines written in Python: the words of the YAML form as calls, with functions beside them.

pipeline = Pipeline()
pipeline.source("orders", topic="orders", json="id BIGINT, amount DOUBLE")

@pipeline.step(input="orders", kind="pandas", schema="id BIGINT, cents BIGINT")
def cents(batches): ...

pipeline.sink("cents", topic="orders.cents")
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from trine.model.errors import InvalidOption

Function = TypeVar("Function", bound=Callable[..., Any])


class Pipeline:
    """What a Python file declares; nothing runs before `trine pipeline run`."""

    def __init__(self, name: str | None = None) -> None:
        self._sections: dict[str, dict[str, Any]] = {"set": {}, "sources": {}, "steps": {}, "sinks": {}}
        self._name = name
        self.lines: dict[tuple[str, ...], int] = {}

    def variable(self, name: str, default: Any = None) -> None:
        """A value for `${name}`, which `--set name=value` goes over."""
        self._put("set", name, default)

    def source(self, name: str, **words: Any) -> None:
        """Messages of topics, or a table; the words are those of `sources` in YAML."""
        self._put("sources", name, words)

    def sql(self, name: str, query: str, **words: Any) -> None:
        """A step in SQL over sources and other steps by name."""
        self._put("steps", name, {"sql": query, **words})

    def step(self, function: Function | None = None, /, **words: Any) -> Any:
        """A step in Python: a decorator; the step's name is the function's, unless `name=` says another."""
        line = sys._getframe(1).f_lineno

        def declare(made: Function) -> Function:
            name = words.pop("name", made.__name__)
            self._put("steps", name, {"python": made, **words}, line)
            return made

        return declare if function is None else declare(function)

    def sink(self, name: str, **words: Any) -> None:
        """Where a step's rows go; `source=` names the step, by default the one of the sink's name."""
        words["from"] = words.pop("source", name)
        self._put("sinks", name, words)

    def tree(self) -> dict[str, Any]:
        found: dict[str, Any] = {section: dict(words) for section, words in self._sections.items() if words}
        return found if self._name is None else {"pipeline": self._name, **found}

    def _put(self, section: str, name: str, words: Any, line: int | None = None) -> None:
        if name in self._sections[section]:
            raise InvalidOption(f"{section} has {name!r} already: give it another name")
        self._sections[section][name] = words
        at = sys._getframe(2).f_lineno if line is None else line
        self.lines[(section, name)] = at
