"""Python functions that steps name, found and made to travel to executors with their code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trine.model.errors import InvalidOption
from trine.spark.pipelines.declaration import Declaration
from trine.spark.pipelines.reading import beside, module_of


def find_function(declared: Declaration, named: Any) -> Callable[..., Any]:
    """`module:function`, `file.py:function`, or `function` in the Python file of the same name beside the YAML."""
    if callable(named):
        return named  # type: ignore[no-any-return]
    where, _, function = str(named).rpartition(":")
    if not where:
        where = f"{declared.path.stem}.py"
    try:
        module = _module(declared, where)
    except InvalidOption:
        raise
    except Exception as error:
        raise InvalidOption(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
    found = module
    for part in function.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise InvalidOption(f"{where} has no function {function!r}")
    if not callable(found):
        raise InvalidOption(f"{function!r} of {where} is not a function")
    return found  # type: ignore[no-any-return]


def _module(declared: Declaration, where: str) -> Any:
    folder = declared.path.resolve().parent
    if where.endswith(".py"):
        file = folder / where
        if not file.is_file():
            raise InvalidOption(f"there is no file {file}")
        return module_of(file)
    with beside(declared.path):
        module = importlib.import_module(where)
    home = getattr(module, "__file__", None)
    if home is not None and Path(home).resolve().is_relative_to(folder) and "site-packages" not in home:
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[module.__name__])  # type: ignore[no-untyped-call]
    return module
