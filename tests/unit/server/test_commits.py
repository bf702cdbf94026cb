"""The group commit: one sync for a tick, in the loop while it is fast, in a thread while it is slow."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import pytest

from trine.model.errors import StoreFailed
from trine.server import commits as module
from trine.server.commits import Commits


class FakeStore:
    def __init__(self) -> None:
        self.synced_lsn = 0
        self.end_lsn = 0


class FakeEngine:
    """Syncs all that was appended when the sync began; says who asked, and can be slow or broken."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.threads: list[str] = []
        self.seconds = 0.0
        self.hold: threading.Event | None = None
        self.begun = threading.Event()
        self.error: Exception | None = None

    def append(self) -> int:
        self.store.end_lsn += 10
        return self.store.end_lsn

    def sync(self, lsn: int) -> None:
        self.threads.append(threading.current_thread().name)
        target = self.store.end_lsn
        self.begun.set()
        if self.hold is not None:
            assert self.hold.wait(10)
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        self.store.synced_lsn = target


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def commits(engine: FakeEngine) -> AsyncIterator[Commits]:
    made = Commits(engine, lambda seconds: None)  # type: ignore[arg-type]
    yield made
    made.close()


async def test_what_comes_in_one_tick_shares_one_sync(engine: FakeEngine, commits: Commits) -> None:
    await asyncio.gather(*(commits.durable(engine.append()) for _ in range(100)))
    assert len(engine.threads) == 1
    assert commits.statistics().syncs == 1
    assert commits.statistics().waiting == 0


async def test_what_is_durable_already_is_answered_at_once(engine: FakeEngine, commits: Commits) -> None:
    engine.store.synced_lsn = engine.append()
    answers: list[Exception | None] = []
    commits.when_durable(engine.store.synced_lsn, answers.append)
    assert answers == [None]
    await commits.durable(engine.store.synced_lsn)
    assert engine.threads == []


async def test_answers_come_in_order_and_after_the_sync(engine: FakeEngine, commits: Commits) -> None:
    answered: list[int] = []
    for number in range(5):
        commits.when_durable(engine.append(), lambda error, number=number: answered.append(number))  # type: ignore[misc]
    assert answered == []
    await commits.durable(engine.append())
    assert answered == [0, 1, 2, 3, 4]


async def test_every_sync_is_timed(engine: FakeEngine) -> None:
    times: list[float] = []
    commits = Commits(engine, times.append)  # type: ignore[arg-type]
    engine.seconds = 0.001
    await commits.durable(engine.append())
    assert len(times) == 1
    assert times[0] >= 0.001


async def test_a_slow_sync_is_made_in_a_thread_and_a_fast_one_in_the_loop(
    engine: FakeEngine, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLOW_SECONDS", 0.02)
    await commits.durable(engine.append())
    assert engine.threads[-1] == threading.current_thread().name
    engine.seconds = 0.03
    await commits.durable(engine.append())  # nobody could know that this one is slow
    await commits.durable(engine.append())
    assert engine.threads[-1].startswith("trine-sync")
    engine.seconds = 0.0
    while engine.threads[-1].startswith("trine-sync"):
        await commits.durable(engine.append())
    assert len(engine.threads) < 20


async def test_all_who_come_while_the_thread_is_busy_share_the_next_sync(
    engine: FakeEngine, commits: Commits
) -> None:
    commits._expected = 1.0
    engine.hold = threading.Event()
    first = asyncio.ensure_future(commits.durable(engine.append()))
    await asyncio.get_running_loop().run_in_executor(None, engine.begun.wait)
    others = [asyncio.ensure_future(commits.durable(engine.append())) for _ in range(20)]
    await asyncio.sleep(0)
    assert not first.done()
    engine.hold.set()
    await first
    await asyncio.gather(*others)
    assert len(engine.threads) == 2


@pytest.mark.parametrize("expected", [0.0, 1.0])
async def test_a_sync_that_fails_fails_all_who_wait(
    engine: FakeEngine, commits: Commits, expected: float
) -> None:
    commits._expected = expected
    engine.error = StoreFailed("the disk is gone")
    found = await asyncio.gather(
        *(commits.durable(engine.append()) for _ in range(3)), return_exceptions=True
    )
    assert found == [engine.error] * 3
    engine.error = None
    await commits.durable(engine.append())


async def test_somebody_who_stopped_waiting_harms_nobody(engine: FakeEngine, commits: Commits) -> None:
    gone = asyncio.ensure_future(commits.durable(engine.append()))
    stays = asyncio.ensure_future(commits.durable(engine.append()))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert gone.cancelled() or gone.done()
