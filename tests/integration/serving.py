"""A real server in a process of its own, as `trine serve` starts it: for tests that use it, kill it or restart it.

    with Serving(tmp_path / "data") as server:
        trine.connect(server.url)

Its log is kept, and is shown with the error when a test fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

START_SECONDS = 30.0
STOP_SECONDS = 30.0
"""Generous: a loaded machine must not fail a test. What a test measures it measures itself."""

Address = tuple[str, int]


class Serving:
    """Started by `start()` or `with`; always stopped at the end, by its pid."""

    def __init__(self, data: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        """`data` is the data directory; the ports file and the log are kept beside it. `arguments` are more flags."""
        self.data = data
        self._arguments = arguments
        self._environment = environment or {}
        self._ports_file = data.with_name(f"{data.name}.ports.json")
        self._log_file = data.with_name(f"{data.name}.log")
        self._process: subprocess.Popen[bytes] | None = None
        self.binary: Address = ("127.0.0.1", 0)
        self.http: Address = ("127.0.0.1", 0)

    @property
    def url(self) -> str:
        """For `trine.connect`."""
        return f"trine://{self.binary[0]}:{self.binary[1]}"

    @property
    def http_url(self) -> str:
        return f"http://{self.http[0]}:{self.http[1]}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def logs(self) -> str:
        """All it wrote to its standard output and error, over all its starts."""
        return self._log_file.read_text(encoding="utf-8", errors="replace") if self._log_file.exists() else ""

    def start(self) -> Self:
        """Returns when it is ready. On the ports it had before, if it was started before."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Starts the process and does not wait: to watch it recover, or to see it refuse."""
        assert not self.running, "the server is running already"
        self.data.parent.mkdir(parents=True, exist_ok=True)
        self._ports_file.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "trine.cli", "serve"),
            *("--data-dir", str(self.data)),
            *("--binary-port", str(self.binary[1])),
            *("--http-port", str(self.http[1])),
            *("--ports-file", str(self._ports_file)),
            *self._arguments,
        ]
        # What the developer has set for a server of his own is not for this one.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRINE_")}
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**inherited, "PYTHONUNBUFFERED": "1", **self._environment},
            )

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Until the ports file is there: it is written when the server is ready, in one piece."""
        assert self._process is not None, "the server was not started"
        end = time.monotonic() + seconds
        while not self._ports_file.exists():
            try:
                code = self._process.wait(0.02)
            except subprocess.TimeoutExpired:
                code = None
            if code is not None:
                raise AssertionError(f"the server ended with {code} instead of being ready:\n{self.logs}")
            if time.monotonic() > end:
                self.kill()
                raise AssertionError(f"the server was not ready within {seconds:g} s:\n{self.logs}")
        ports = json.loads(self._ports_file.read_bytes())
        assert ports["pid"] == self.pid, "the ports file is of another process"
        self.binary = (ports["binary"][0], ports["binary"][1])
        self.http = (ports["http"][0], ports["http"][1])

    def kill(self) -> None:
        """SIGKILL: no time for anything."""
        self._end(signal.SIGKILL, STOP_SECONDS)

    def terminate(self, seconds: float = STOP_SECONDS) -> int:
        """SIGTERM; the exit code when it has ended. Too slow is a failure, and then it is killed."""
        return self._end(signal.SIGTERM, seconds)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """The exit code of a server that ends by itself."""
        assert self._process is not None, "the server was not started"
        return self._process.wait(seconds)

    def restart(self) -> None:
        """Again, on the same data and the same ports; terminates it first if it is running."""
        if self.running:
            assert self.terminate() == 0, self.logs
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self.terminate()
        if error is not None:
            error.add_note(f"the server's log:\n{self.logs}")

    def _end(self, by: signal.Signals, seconds: float) -> int:
        process = self._process
        assert process is not None, "the server was not started"
        process.send_signal(by)  # to its pid, and to nobody if it has ended
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the server did not end within {seconds:g} s:\n{self.logs}") from None
