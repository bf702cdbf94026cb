"""A Spark session as Trine's pipelines want it: local by default, any master by configuration, quiet."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trine.model.errors import InvalidOption, Unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = "TRINE_SPARK_MASTER"
LOCAL: Final = "local[*]"
DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
"""Whatever the user configures wins over these."""
LOCAL_DEFAULTS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
}
"""For masters on this machine: nothing listens to the outside, few tasks."""
STANDALONE: Final = "spark://"
MASTER_WAIT_S: Final = 5.0
JAVA: Final = "-XX:+UseParallelGC -Darrow.enable_unsafe_memory_access=true"
"""Arrow's own switch: without a check of bounds at each look at a value, rows of many columns cost a fifth less."""
LOGGING: Final = Path(__file__).with_name("log4j2.properties")


def spark_session(
    master: str | None = None, *, conf: Mapping[str, str] | None = None, app: str = "trine"
) -> SparkSession:
    """The session there is, or a new one, with the data source `trine` registered.

    `master` is Spark's word for where to run (`local[*]`, `spark://…`, `yarn`, `k8s://…`); without it
    TRINE_SPARK_MASTER, then this machine.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise InvalidOption(f"{error.name} is missing: pip install 'trine[spark]'") from None
    from trine.spark.java import OPTIONS
    from trine.spark.source import register

    # It prints what is raised anyway, as a page of JSON.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    chosen = master or os.environ.get(MASTER) or LOCAL
    if SparkSession.getActiveSession() is None:
        _check_java()
        _check_master(chosen)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    words = {"spark.master": chosen, "spark.app.name": app, **DEFAULTS}
    if chosen.startswith(("local", "spark://127.0.0.1", "spark://localhost")):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        words |= LOCAL_DEFAULTS
    words[OPTIONS] = f"-Dlog4j2.configurationFile={LOGGING} {JAVA}"
    words["spark.executor.extraJavaOptions"] = JAVA
    words |= conf or {}
    builder = SparkSession.builder
    for name, value in words.items():
        builder = builder.config(name, value)
    from trine.spark.errors import plain
    from trine.spark.java import start_java

    with plain():
        start_java(words)
        spark = builder.getOrCreate()
    register(spark)
    return spark


def _check_master(master: str) -> None:
    """Spark itself tries for a minute, and then says something else."""
    if not master.startswith(STANDALONE):
        return
    for place in master.removeprefix(STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_WAIT_S).close()
        except ValueError:
            raise InvalidOption(f"{master!r} is not a Spark master: write it as spark://HOST:PORT") from None
        except OSError:
            continue
        return
    raise Unreachable(f"no Spark master answers at {master}: is it running, and is this its address?")


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if (home and Path(home, "bin", "java").exists()) or shutil.which("java"):
        return
    raise InvalidOption("Spark needs Java 17 or newer: install it, or set JAVA_HOME to where it is")
