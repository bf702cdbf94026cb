"""A data directory on this machine, read by many processes at once: through the one server that has it open.

Spark's tasks are processes of their own, and one process at a time may have a directory open. So the server that has it
is looked for, in the file it leaves in the directory, and if there is none one is started. It ends by itself when
nobody has been connected for a while.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from trine.model.errors import Locked, NotFound, Unreachable
from trine.wire.frames import VERSION, Command, write_frame
from trine.wire.hello import Hello, write_hello

ADDRESS_FILE: Final = "server.json"
IDLE: Final = "10s"
"""Long enough for the pause between planning a job and its first task."""
START_S: Final = 60.0
LOOK_S: Final = 0.05
ANSWER_S: Final = 5.0
_servers: list[subprocess.Popen[bytes]] = []
"""Started here and left to themselves; those that have ended are taken off when the next one is started."""


def serve_directory(path: str) -> str:
    """The address of the server that has this directory open; one is started if there is none."""
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise NotFound(f"there is no data directory {path!r}; on a cluster, name a server instead")
    with _turn(folder):
        return _found(folder) or _started(folder)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One process at a time looks and starts; the lock is not in the directory, which is the broker's own."""
    stat = folder.stat()
    name = f"trine-{os.getuid()}-{stat.st_dev}-{stat.st_ino}.lock"
    with open(Path(tempfile.gettempdir(), name), "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _found(folder: Path) -> str | None:
    """The address of a server that is there to stay: one that is stopping is waited for until it has let go."""
    deadline = time.monotonic() + START_S
    while (told := _told(folder)) is not None and told.get("stopping"):
        if time.monotonic() >= deadline:
            raise Locked(
                f"the server of {str(folder)!r} has been stopping for {START_S:g} s; end it yourself"
            )
        time.sleep(LOOK_S)
    if told is None:
        return None
    host, port = told["binary"]
    scheme = "trines" if told.get("tls") else "trine"
    address = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    # Whoever has answered stays for as long as IDLE, unless it had made up its mind before: the file says so.
    return address if _answers(host, int(port)) and _told(folder) == told else _found_again(folder, told)


def _found_again(folder: Path, told: dict[str, Any]) -> str | None:
    """What the file says now, if that is something else."""
    return None if _told(folder) in (None, told) else _found(folder)


def _told(folder: Path) -> dict[str, Any] | None:
    """What a server left in the directory; None if none did, or if its process is gone."""
    try:
        told: dict[str, Any] = json.loads((folder / ADDRESS_FILE).read_bytes())
        pid = int(told["pid"])
    except (OSError, ValueError, KeyError):
        return None
    try:
        os.kill(pid, 0)
    except PermissionError:
        return told  # another user's, and alive
    except OSError:
        return None
    return told


def _answers(host: str, port: int) -> bool:
    """Whether somebody says something when greeted: that is more than a connection, which the system itself takes."""
    greeting = write_hello(Hello(least=VERSION, most=VERSION, client="trine.spark"))
    try:
        with socket.create_connection((host, port), timeout=ANSWER_S) as connection:
            connection.sendall(write_frame(Command.HELLO, 0, 1, greeting))
            connection.recv(1)  # a welcome, a refusal, or with TLS the end
    except ConnectionResetError:
        return True
    except OSError:
        return False
    return True


def _started(folder: Path) -> str:
    command = [
        *(sys.executable, "-m", "trine.cli", "serve", "--data-dir", str(folder), "--host", "127.0.0.1"),
        *("--binary-port", "0", "--http-port", "0", "--idle-exit", IDLE, "--log-format", "console"),
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRINE_")}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=kept, start_new_session=True
        )
        _servers[:] = [process, *(one for one in _servers if one.poll() is None)]
        deadline = time.monotonic() + START_S
        while True:
            address = _found(folder)
            if address is not None:
                return address
            try:
                process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                process.kill()
                raise Unreachable(
                    f"the server of {str(folder)!r} was not ready within {START_S:g} s; start `trine serve` yourself"
                ) from None
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
            last = said[-1] if said else "it said nothing"
            kind = Locked if "locked" in last else Unreachable
            raise kind(f"no server could be started on {str(folder)!r}: {last}")
