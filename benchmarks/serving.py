"""A server in a process of its own, on free ports and a real disk, for what is measured over loopback."""

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

READY_S = 60.0
STOP_S = 30.0


class Serving:
    def __init__(self, folder: Path) -> None:
        ports = folder / "ports.json"
        self._log = (folder / "server.log").open("w")
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "trine.cli", "serve", "--data-dir", str(folder / "data"),
                "--binary-port", "0", "--http-port", "0", "--ports-file", str(ports), "--log-level", "warning",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        deadline = time.monotonic() + READY_S
        while not ports.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError(f"the server did not start: {(folder / 'server.log').read_text()}")
            time.sleep(0.02)
        found = json.loads(ports.read_text())
        self.address = "trine://{}:{}".format(*found["binary"])
        self.http = tuple(found["http"])
        self.pid: int = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("this system does not say how much memory a process uses")
