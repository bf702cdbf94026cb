"""What holds for every test: which examples the property tests try."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("wandering", deadline=None, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    """The default suite tries the same examples in each run; `make test-slow` looks for new ones."""
    slow = config.getoption("markexpr") in ("slow", "soak")
    settings.load_profile("wandering" if slow else "steady")
