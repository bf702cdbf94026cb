"""Roles in processes of their own, that start at one shot; and what the CPU was spent on while they ran.

A role connects, says that it is ready, waits for the shot, does its work, and sends back what it counted. All times
are CLOCK_MONOTONIC, which the processes of a machine share.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

import psutil
import uvloop

from benchmarks.peers.peer import Cannot, Peer, Topic

Figures = dict[str, Any]
Ready = Callable[[], Awaitable[None]]
Role = Callable[..., Awaitable[Figures]]

SPAWN: Final = multiprocessing.get_context("spawn")
READY_S: Final = 180.0
RUN_S: Final = 240.0
"""A role that takes longer hangs: the cell fails, and the next one goes on."""

_numbers = itertools.count()


def fresh_topic(**shape: Any) -> Topic:
    """A topic whose name was never used before."""
    return Topic(name=f"t{os.getpid()}x{next(_numbers)}", **shape)


def percentile(ordered: list[float], share: float) -> float:
    """What that share of an ordered list does not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(frozen=True)
class Failed:
    """What went wrong in a role's process, as it comes over the pipe."""

    said: str
    cannot: bool


def race(peer: Peer, *roles: tuple[Role, Figures]) -> tuple[list[Figures], Figures]:
    """Runs the roles at once: what each counted, and how the CPU was spent."""
    links, workers = [], []
    for role, arguments in roles:
        here, there = SPAWN.Pipe()
        worker = SPAWN.Process(target=_work, args=(there, role, peer, arguments))
        worker.start()
        there.close()
        links.append(here)
        workers.append(worker)
    try:
        for link in links:
            _heard(peer, link, READY_S)
        broker, busy, began = _cpu_seconds(peer), _busy_seconds(), time.monotonic()
        for link in links:
            link.send("go")
        results = [_heard(peer, link, RUN_S) for link in links]
        wall = time.monotonic() - began
        broker, busy = _cpu_seconds(peer) - broker, _busy_seconds() - busy
    finally:
        for worker in workers:
            worker.join(5)
            if worker.is_alive():
                worker.kill()
                worker.join()
    clients = sum(result["cpu_s"] for result in results)
    return results, {
        "server_cpu_s": broker,
        "client_cpu_s": clients,
        "others_cores": max(0.0, busy - broker - clients) / wall,
    }


def _heard(peer: Peer, link: Connection, seconds: float) -> Any:
    if not link.poll(seconds):
        raise RuntimeError(f"{peer.name}: nothing was heard of a client for {seconds:.0f} s")
    try:
        heard = link.recv()
    except EOFError:
        raise RuntimeError(f"{peer.name}: a client ended without a word") from None
    if isinstance(heard, Failed):
        raise (Cannot if heard.cannot else RuntimeError)(heard.said)
    return heard


def _work(link: Connection, role: Role, peer: Peer, arguments: Figures) -> None:
    async def ready() -> None:
        nonlocal before
        link.send("ready")
        link.recv()
        before = _own_cpu_s()

    before = _own_cpu_s()
    try:
        figures = uvloop.run(role(peer, ready, **arguments))
        link.send({**figures, "cpu_s": _own_cpu_s() - before})
    except Cannot as error:
        link.send(Failed(str(error), cannot=True))
    except Exception as error:
        link.send(Failed(f"{type(error).__name__}: {error}", cannot=False))
        raise


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _cpu_seconds(peer: Peer) -> float:
    """Of the servers that live, and of their children that ended."""
    total = 0.0
    for process in peer.processes():
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


def _busy_seconds() -> float:
    """What all processes of the machine used. Interrupts are left out: loopback's own work is in them."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)
