"""A server as a process of its own: signals, limits of the system, and the file that tells where it listens.

SIGTERM, SIGINT    stop: drain, sync, exit 0; the second one exits at once (the store survives that)
SIGHUP             read certificates and keys again
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Final

import uvloop

from trine.server.config import ServerConfig
from trine.server.server import Server

CLOSE_S: Final = 10.0
"""How long closing the store may take after the drain; then the process ends without a last checkpoint, which only
makes the next start longer: everything that was answered is in the journal."""
IDLE_LOOK_S: Final = 0.5
ADDRESS_FILE: Final = "server.json"
"""In the data directory, while it is served: where to find who has it open."""
TO_STOP: Final = (signal.SIGTERM, signal.SIGINT)


def run(
    config: ServerConfig,
    *,
    ports_file: str | None = None,
    on_ready: Callable[[Server], None] | None = None,
    idle_s: float | None = None,
) -> None:
    """Serves until a signal comes. Errors of the start are raised."""
    raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, ports_file, on_ready, idle_s))


async def _serve(
    config: ServerConfig,
    ports_file: str | None,
    on_ready: Callable[[Server], None] | None,
    idle_s: float | None,
) -> None:
    loop = asyncio.get_running_loop()
    server = Server(config)
    asked = asyncio.Event()

    def stop(number: int) -> None:
        if asked.is_set():
            server.log.warning("a second signal: leaving at once", signal=signal.Signals(number).name)
            _leave_at_once(128 + number)
        server.log.info("asked to stop", signal=signal.Signals(number).name)
        asked.set()

    for number in TO_STOP:
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    if ports_file is not None:
        _remove(ports_file)
    told = os.path.join(config.broker.data_dir, ADDRESS_FILE)
    starting = loop.create_task(server.start())
    asking = loop.create_task(asked.wait())
    await asyncio.wait((starting, asking), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        server.log.info("stopped while recovering; the next start begins anew")
        _leave_at_once(
            0
        )  # recovery is a thread that cannot be interrupted, and it changes nothing that is promised
    try:
        starting.result()
        # A look at all that was imported and opened stops everything for 50 ms and more, and finds nothing.
        gc.freeze()
        if ports_file is not None:
            write_ports(ports_file, server)
        write_ports(told, server)
        if on_ready is not None:
            on_ready(server)
        if idle_s is None:
            await asked.wait()
        else:
            await _asked_or_idle(server, asked, idle_s)
        write_ports(told, server, stopping=True)
    finally:
        asking.cancel()
        if ports_file is not None:
            _remove(ports_file)
    stopping = loop.create_task(server.stop())
    _, late = await asyncio.wait((stopping,), timeout=config.limits.shutdown_ms / 1000 + CLOSE_S)
    if late:
        server.log.warning("the store takes long to close; the next start replays the journal")
        _leave_at_once(0)
    _remove_own(told)
    stopping.result()


async def _asked_or_idle(server: Server, asked: asyncio.Event, idle_s: float) -> None:
    """Until somebody asks for the end, or nobody has been connected for so long."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    known = 0
    while not asked.is_set():
        now, ever = server.connected()
        if now or ever != known:
            since, known = loop.time(), ever
        elif loop.time() - since >= idle_s:
            server.log.info("nobody is connected: stopping", idle_seconds=idle_s)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), min(idle_s, IDLE_LOOK_S))


def _leave_at_once(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def write_ports(path: str, server: Server, *, stopping: bool = False) -> None:
    """Where it listens, as JSON, all at once: whoever finds the file can connect, unless it says `stopping`."""
    content = {
        "binary": list(server.binary_address),
        "http": list(server.http_address),
        "tls": server.config.broker.listeners.binary.tls is not None,
        "pid": os.getpid(),
    }
    if stopping:
        content["stopping"] = True
    part = f"{path}.{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(content, file)
        file.write("\n")
    os.replace(part, path)


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


def _remove_own(path: str) -> None:
    """The store is closed by now: the next server may have put its own file there already."""
    try:
        with open(path, encoding="utf-8") as file:
            own = json.load(file)["pid"] == os.getpid()
    except FileNotFoundError:
        return
    if own:
        os.unlink(path)


def raise_file_limit() -> None:
    """Each connection and log takes a file handle; many systems allow 1,024 until asked for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems name a limit that they do not allow
            return
