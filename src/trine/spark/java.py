"""The Java process behind a Spark session: how it is started, and what it says on stderr.

Nothing tells Java to leave its warnings at the start out, nor Spark to be silent before its logging is set up. So Java
is given a pipe for its stderr. What comes through it is passed on line by line, save what says nothing about the work.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Mapping
from typing import Final

from trine.model.errors import SparkFailed
from trine.spark.classes import class_options

CHATTER: Final = re.compile(
    rb"WARNING: |Picked up |Setting default log level to |To adjust logging level |Using Spark's default log4j profile"
    rb"|\s+at |\s*\.\.\. \d+ more|\s*$"
)
"""Said at every start, and the lines below an exception's own."""
_REASON: Final = re.compile(
    r"^(?:Exception in thread \S+ )?(?:[\w.$]+(?:Exception|Error): |Error: )(.+)", re.MULTILINE
)
OPTIONS: Final = "spark.driver.extraJavaOptions"
READ_BYTES: Final = 64 * 1024
LAST_WORDS_S: Final = 2.0
"""How long the last words of a Java that did not start are waited for."""


class Said:
    """Reads Java's stderr to its end; until `pass_on` it keeps what it reads."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._kept: list[bytes] | None = []
        self._hushed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="java-stderr", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with os.fdopen(self._source, "rb", buffering=READ_BYTES) as lines:
            for line in lines:
                if CHATTER.match(line) is None:
                    self._take(line)

    def _take(self, line: bytes) -> None:
        with self._lock:
            if self._kept is not None:
                self._kept.append(line)
                return
            if self._hushed:
                return
        with contextlib.suppress(OSError):
            os.write(2, line)

    def pass_on(self) -> None:
        """It has started: what it says from now on, and has said so far, is for whoever looks at stderr."""
        with self._lock:
            kept, self._kept = self._kept or [], None
        for line in kept:
            self._take(line)

    def hush(self) -> None:
        """It was told to end: how its workers take it is no news."""
        with self._lock:
            self._hushed = True

    def last_words(self) -> str:
        """Why it did not start, in one line."""
        self._thread.join(LAST_WORDS_S)
        with self._lock:
            text = b"".join(self._kept or []).decode(errors="replace").strip()
        found = _REASON.search(text)
        return found[1] if found else text.splitlines()[-1] if text else "Java ended without a word"


_said: list[Said] = []
"""Of the one process that PySpark has."""


def hush_java() -> None:
    for one in _said:
        one.hush()


def start_java(words: Mapping[str, str]) -> None:
    """Starts the process that PySpark will use, with these settings; not if it has one already."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    for name, value in words.items():
        conf.set(name, value)
    conf.set(OPTIONS, f"{words.get(OPTIONS, '')} {class_options()}".strip())
    source, sink = os.pipe()
    said = Said(source)
    try:
        gateway = launch_gateway(conf, {"stderr": sink})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        os.close(sink)
        raise SparkFailed(f"Spark did not start: {said.last_words()}") from None
    os.close(sink)
    said.pass_on()
    _said[:] = [said]
    SparkContext._ensure_initialized(gateway=gateway)
