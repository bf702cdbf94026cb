"""A real standalone Spark cluster on this machine: a master and two workers, from the pip package's own scripts.

with Cluster(folder) as cluster:
    spark_session(cluster.url)
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

START_SECONDS = 90.0
MASTER = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
WORKER = "Successfully registered with master"


class Cluster:
    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._launch("master", "deploy.master.Master", "--port", "0", "--webui-port", "0")
            self.url = self._wait("master", MASTER)
            for number in range(self._workers):
                name = f"worker-{number}"
                self._launch(
                    name, "deploy.worker.Worker", "--port", "0", "--webui-port", "0", "--cores", "1",
                    "--memory", "1g", "--work-dir", str(self._folder / name), self.url,
                )  # fmt: skip
            for number in range(self._workers):
                self._wait(f"worker-{number}", re.compile(f"({WORKER})"))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if error is not None:
            error.add_note(self._log("master")[-3000:])

    def ran(self) -> int:
        """Of how many executors the workers have started."""
        return sum(self._log(f"worker-{n}").count("Asked to launch executor") for n in range(self._workers))

    def _launch(self, name: str, what: str, *words: str) -> None:
        home = Path(pyspark.__file__).parent
        command = [
            str(home / "bin" / "spark-class"),
            f"org.apache.spark.{what}",
            "--host",
            "127.0.0.1",
            *words,
        ]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
            )

    def _wait(self, name: str, pattern: re.Pattern[str]) -> str:
        end = time.monotonic() + START_SECONDS
        while (found := pattern.search(self._log(name))) is None:
            assert self._processes[-1].poll() is None, f"{name} ended:\n{self._log(name)}"
            assert time.monotonic() < end, f"{name} was not there in time:\n{self._log(name)}"
            time.sleep(0.05)
        return found[1]

    def _log(self, name: str) -> str:
        file = self._folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def _end(self) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
