"""Where the broker is, as Spark's options say it and as executors connect to it.

A process has one connection to a place, shared by its tasks and kept between them: Python workers are used again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trine
from trine.client.address import DEFAULT
from trine.model.errors import Closed, InvalidOption

if TYPE_CHECKING:
    from trine.client.sync import Broker

SERVERS: Final = "trine.servers"
DATA: Final = "trine.data"
KEY: Final = "trine.key"
CA: Final = "trine.ca"
TIMEOUT: Final = "trine.timeout"
PREFIX: Final = "trine."
WORDS: Final = (SERVERS, DATA, KEY, CA, TIMEOUT)
CONNECT_WAIT: Final = "30s"
"""How long a task waits for a broker that is away: it may be restarting."""

_shared: dict[tuple[int, Place], Broker] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Place:
    servers: str = DEFAULT
    key: str | None = None
    ca: str | None = None
    timeout: str = CONNECT_WAIT

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Place:
        """The place that options of the data source name: a server, or a data directory whose server is found."""
        given = {name.lower(): value for name, value in options.items()}
        for name in given:
            if name.startswith(PREFIX) and name not in WORDS:
                raise InvalidOption(f"there is no option {name!r}; known are {', '.join(WORDS)}")
        servers, data = given.get(SERVERS), given.get(DATA) or given.get("path")
        if servers and data:
            raise InvalidOption(f"give {SERVERS} or a data directory ({DATA}), not both")
        if data:
            from trine.spark.local import serve_directory

            servers = serve_directory(data)
        if not servers:
            raise InvalidOption(
                f"say where the broker is: option {SERVERS!r}, e.g. {DEFAULT}, or {DATA!r} with a data directory"
            )
        if "," in servers:
            raise InvalidOption(f"{SERVERS} names one server, not several: {servers!r}")
        if "://" not in servers:
            servers = f"trine://{servers}"
        return cls(servers, given.get(KEY), given.get(CA), given.get(TIMEOUT, CONNECT_WAIT))

    def options(self) -> dict[str, str]:
        """For `spark.read.format("trine").options(...)`."""
        found = {SERVERS: self.servers, KEY: self.key, CA: self.ca}
        if self.timeout != CONNECT_WAIT:
            found[TIMEOUT] = self.timeout
        return {name: value for name, value in found.items() if value is not None}

    def connect(self) -> Broker:
        """A connection of its own; the caller closes it."""
        return trine.connect(self.servers, key=self.key, ca=self.ca, timeout=self.timeout, name="trine-spark")

    def shared(self) -> Broker:
        """The connection of this process. A forked child makes its own."""
        with _lock:
            mine = (os.getpid(), self)
            broker = _shared.get(mine)
            if broker is not None:
                try:
                    broker._caller.now_ms()
                    if not broker._link.closed:
                        return broker
                except Closed:
                    pass
            broker = _shared[mine] = self.connect()
            return broker


def close_shared() -> None:
    """Closes the connections of this process; whoever asks for one next gets a new one."""
    with _lock:
        mine = [known for known in _shared if known[0] == os.getpid()]
        brokers = [_shared.pop(known) for known in mine]
    for broker in brokers:
        broker.close()
