"""One sentence instead of a page of Java: errors on their way through Spark, and back out of it.

Inside Spark's Python workers `edge` lets an error of ours be told without its traceback. Outside, `explained` finds
that sentence in whatever Spark raised, and `plain` raises it as the error it was.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from trine.model import errors
from trine.model.errors import InvalidInput, SparkFailed, StoreFailed, TrineError

P = ParamSpec("P")
T = TypeVar("T")

HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""What PySpark's workers look at when they tell an error."""
_OURS: Final = re.compile(r"trine\.model\.errors\.(\w+): ([^\n]+)")
_CLASS: Final = re.compile(r"^\[([A-Z_.0-9]+)\]\s*")
_PYTHON: Final = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt)): ([^\n]+)$", re.MULTILINE)
_CALL: Final = "An error occurred while calling "
"""py4j's first line; the second has the exception."""
_JAVA: Final = re.compile(r"^: (?:[\w.$]+(?:Exception|Error): )?(?:\[[A-Z_.0-9]+\]\s*)?")
_DRAWN: Final = re.compile(r"\x1b\[[0-9;]*m|↳")
_PYTHON_CLASSES: Final = ("PYTHON_DATA_SOURCE_ERROR", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR")


@contextlib.contextmanager
def told() -> Iterator[None]:
    """What is raised inside and is ours needs no traceback; everything else does."""
    os.environ.pop(HIDE, None)
    try:
        yield
    except TrineError as error:
        os.environ[HIDE] = "1"
        error.__cause__ = error.__context__ = None
        raise


def edge(function: Callable[P, T]) -> Callable[P, T]:
    """A method that Spark calls."""

    @wraps(function)
    def run(*words: P.args, **named: P.kwargs) -> T:
        with told():
            return function(*words, **named)

    return run


def explained(error: BaseException) -> TrineError | None:
    """The error of ours inside one of Spark's; None if there is none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, TrineError):
            return seen
        found = _OURS.search(str(seen))
        if found is not None:
            kind = getattr(errors, found[1], TrineError)
            sentence = re.sub(r" \([a-z_]+\)$", "", found[2].strip())
            return kind(sentence) if isinstance(kind, type) and issubclass(kind, TrineError) else None
        seen = seen.__cause__ or seen.__context__
    return None


def sentence_of(error: BaseException) -> str:
    """Spark's own error in one line: its message without plan, traces and classes."""
    text = str(error)
    python = _PYTHON.findall(text)
    if python and ("Traceback" in text or any(name in text for name in _PYTHON_CLASSES)):
        kind, said = python[-1]
        return f"{kind}: {said}"
    message = text.split("\n\n")[0].split("\nJVM stacktrace")[0]
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith(_CALL):
        lines = [_JAVA.sub("", lines[1])]
    first = lines[0] if lines else type(error).__name__
    return _CLASS.sub("", first).split(" SQLSTATE:")[0].rstrip(" ;,")


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Spark's errors come out as ours: with our sentence if there is one inside, else with Spark's first line."""
    from deltalake.exceptions import DeltaError
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except TrineError:
        raise
    except BrokenPipeError:
        raise  # whoever read the output has gone
    except (DeltaError, OSError) as error:
        # deltalake draws a tree of causes, in colours.
        causes = [line.strip() for line in _DRAWN.sub("", str(error)).splitlines() if line.strip()]
        raise StoreFailed(f"a table or file could not be read or written: {': '.join(causes)}") from error
    except (PySparkException, Py4JError) as error:
        ours = explained(error)
        if ours is not None:
            raise ours from None
        kind: Any = InvalidInput if isinstance(error, AnalysisException | ParseException) else SparkFailed
        raise kind(f"Spark says: {sentence_of(error)}") from error
