"""The peers' servers, from Debian's packages.

Their services are kept from starting: every peer runs a server of its own, on a free port, while it is measured.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.peers.roster import PEERS

POLICY = Path("/usr/sbin/policy-rc.d")
"""Debian asks it whether a service may start; 101 is no."""
TOOLS = ("strace",)


def lacking() -> list[str]:
    """Packages of servers that are not here, and of the tools."""
    wanted = {package for kind in PEERS.values() if kind.executable() is None for package in kind.packages}
    return sorted(wanted | {tool for tool in TOOLS if shutil.which(tool) is None})


def install(console: Console) -> int:
    """What can be installed is; what cannot is named and left out of the measurement."""
    names = lacking()
    if not names:
        return 0
    if shutil.which("apt-get") is None:
        console.print(f"not installed, for want of apt-get: {', '.join(names)}")
        return 0
    root = [] if os.geteuid() == 0 else ["sudo"]
    console.print(f"installing {', '.join(names)}")
    subprocess.run([*root, "apt-get", "--quiet", "update"], check=False)
    with _no_services(root):
        done = subprocess.run(
            [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--quiet",
             "--no-install-recommends", *names],
            check=False,
        )  # fmt: skip
    if done.returncode:
        console.print(
            f"[yellow]apt-get failed; peers without a server are skipped: {', '.join(lacking())}[/yellow]"
        )
    return 0


@contextlib.contextmanager
def _no_services(root: list[str]) -> Iterator[None]:
    if POLICY.exists():  # the machine has a policy of its own
        yield
        return
    subprocess.run(
        [*root, "sh", "-c", f"printf '#!/bin/sh\\nexit 101\\n' > {POLICY} && chmod 755 {POLICY}"], check=True
    )
    try:
        yield
    finally:
        subprocess.run([*root, "rm", "-f", str(POLICY)], check=True)
