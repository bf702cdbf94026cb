"""A server in a thread of the test's own process, and a client of it that may run on simulated time.

For tests that run against the embedded library and against a server alike. What needs a process of its own (signals,
kill -9, memory) is started by `serving`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

import trine
from trine import SimulatedClock
from trine.client import sync as client
from trine.client.opening import make_link
from trine.client.sync_link import Caller
from trine.model.clock import Clock
from trine.server.config import ServerConfig, configure
from trine.server.server import Server

T = TypeVar("T")


def configuration(
    data_dir: str = ":memory:", limits: dict[str, Any] | None = None, **words: Any
) -> ServerConfig:
    """Free ports of 127.0.0.1; words are flags, such as `keys_file=...`, limits those of `LimitsConfig`."""
    flags: dict[str, Any] = {
        "--data-dir": data_dir,
        "--binary-port": 0,
        "--http-port": 0,
        **{f"--{word.replace('_', '-')}": value for word, value in words.items()},
    }
    config = configure(environment={}, flags=flags)
    return msgspec.structs.replace(config, limits=msgspec.structs.replace(config.limits, **(limits or {})))


class Nothing:
    """A listener that is none."""

    address = ("127.0.0.1", 0)

    def begin(self) -> None: ...
    def close(self) -> None: ...
    async def wait_closed(self) -> None: ...
    def abort(self) -> None: ...


class BinaryServer(Server):
    """A server without its HTTP listener, which takes as long to start as all the rest."""

    async def _listen_http(self) -> Nothing:
        return Nothing()


class Host:
    """A running server: started by `with`, in a thread with a loop of its own."""

    def __init__(self, config: ServerConfig, clock: Clock | None = None) -> None:
        self.server = BinaryServer(config, clock=clock)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="trine-test-server")

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self.server.start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self.server.stop())
        finally:
            self._end()

    @property
    def url(self) -> str:
        host, port = self.server.binary_address
        return f"trine://{host}:{port}"

    @property
    def port(self) -> int:
        return self.server.binary_address[1]

    def cut(self) -> None:
        """Every connection breaks, as when a network does; the server stays."""
        self.do(lambda server: [one.abort() for one in tuple(server._binary.connections)])  # type: ignore[union-attr]

    def do(self, work: Callable[[Server], T]) -> T:
        """Something inside the server, in its loop."""

        async def done() -> T:
            return work(self.server)

        return self._run(done())

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class SimulatedCaller(Caller):
    """A client's way to a server on simulated time: who waits there lets the time pass, here nobody waits."""

    def __init__(self, link: Any, clock: SimulatedClock) -> None:
        super().__init__(link)
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def poll(self, ask: Callable[[int], T], wait_ms: int) -> T:
        return ask(wait_ms)

    def sleep(self, ms: int) -> None:
        self._clock.advance(ms / 1000)


@contextmanager
def hosted(data_dir: str, clock: Clock | None) -> Iterator[client.Broker]:
    """What `trine.open(data_dir, clock=clock)` gives, from a server."""
    with Host(configuration(data_dir), clock) as host:
        if isinstance(clock, SimulatedClock):
            link = make_link(host.url, None, None, "10s", None)
            broker = client.Broker(link, SimulatedCaller(link, clock))
        else:
            broker = trine.connect(host.url)
        with broker:
            yield broker
