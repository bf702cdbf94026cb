"""What holds for every test: which examples the property tests try, and that those with Spark share one session, and
those with a browser one browser."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("wandering", deadline=None, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    """The default suite tries the same examples in each run; `make test-slow` looks for new ones."""
    slow = config.getoption("markexpr") in ("slow", "soak")
    settings.load_profile("wandering" if slow else "steady")
    # For every JVM that tests start, in commands too: in their few seconds, compiling well costs more than it gives.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n`, whatever starts a JVM is in one process: its tests share a session, and do not starve each other."""
    for item in items:
        if "/spark/" in item.nodeid or "archive_kill" in item.nodeid or "tour_of_the_server" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif "/browser/" in item.nodeid:  # one browser and one busy broker for all of them
            item.add_marker(pytest.mark.xdist_group("browser"))
