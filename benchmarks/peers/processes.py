"""A peer's server processes: started on free ports, watched, stopped or killed, and no others."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

import psutil

HOST: Final = "127.0.0.1"
START_S: Final = 90.0
STOP_S: Final = 30.0
LOG: Final = "server.log"


def free_port() -> int:
    """A port nobody listens on now; a moment later somebody might, but then the server says so and ends."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def output(*argv: str | Path) -> str:
    """What a command prints that tells its version."""
    done = subprocess.run([str(one) for one in argv], capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Processes:
    run_as: ClassVar[str | None] = "nobody"
    """Whom servers run as when we are root: some refuse to be it. None: whoever we are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.patience_s = START_S
        """How long a start may take; longer where there is much to recover."""
        self._running: list[subprocess.Popen[bytes]] = []

    def __getstate__(self) -> dict[str, Any]:
        """Workers are given the addresses, not the processes."""
        return {**self.__dict__, "_running": []}

    def launch(self) -> None:
        """Starts the servers with `spawn` on what the folder has, and returns when they serve."""
        raise NotImplementedError

    def choose_ports(self) -> None:
        """Takes free ports; they stay the same when the servers are started again on the same folder."""
        raise NotImplementedError

    def start(self) -> None:
        """On an empty folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.own(self.folder)
        self.choose_ports()
        try:
            self.launch()
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Ends the servers and removes what they kept."""
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self) -> None:
        for one in reversed(self._running):
            family = _family(one.pid)
            one.send_signal(self.stop_signal)
            try:
                one.wait(STOP_S)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
            _kill(family)
        self._running.clear()

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def kill(self) -> None:
        """kill -9, all of them at once; what they kept stays."""
        family = [process for one in self._running for process in _family(one.pid)]
        _kill(family)
        for one in self._running:
            one.wait(STOP_S)
        self._running.clear()

    def own(self, path: Path) -> None:
        if os.geteuid() == 0 and self.run_as:
            shutil.chown(path, self.run_as)

    @property
    def identity(self) -> dict[str, Any]:
        """How to become the servers' user, for subprocess."""
        if os.geteuid() != 0 or not self.run_as:
            return {}
        user = pwd.getpwnam(self.run_as)
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def spawn(self, *argv: str | Path, env: dict[str, str] | None = None) -> None:
        with (self.folder / LOG).open("ab") as log:
            self._running.append(
                subprocess.Popen(
                    [str(one) for one in argv],
                    cwd=self.folder,
                    env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **(env or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    **self.identity,
                )
            )

    def await_port(self, port: int) -> None:
        """Until something listens there."""

        def listens() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
                return True
            return False

        self.await_true(listens)

    def await_true(self, ready: Callable[[], object]) -> None:
        deadline = time.monotonic() + self.patience_s
        while time.monotonic() < deadline and all(one.poll() is None for one in self._running):
            if ready():
                return
            time.sleep(0.02)
        said = (self.folder / LOG).read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{type(self).__name__} did not start: {said}")

    def processes(self) -> list[psutil.Process]:
        """The servers and all their descendants."""
        return [process for one in self._running for process in _family(one.pid)]

    def memory_bytes(self) -> int:
        """The proportional set size: shared pages are counted once."""
        total = 0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
                total += process.memory_full_info().pss
        return total

    def disk_bytes(self) -> int:
        """What the folder takes of the disk: blocks, not sizes."""
        total = 0
        for root, _, files in os.walk(self.folder):
            for name in files:
                with contextlib.suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(root, name)).st_blocks * 512
        return total


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(family: list[psutil.Process]) -> None:
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
