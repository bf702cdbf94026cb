"""The bytes of every kind of frame, kept: who changes them breaks every client there is, and needs a new version."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.wire import samples

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", samples.frames())
def test_a_frame_is_what_it_always_was(name: str) -> None:
    assert (GOLDEN / f"{name}.hex").read_text(encoding="ascii").strip() == samples.frames()[name].hex()


def test_every_golden_frame_is_still_made() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(samples.frames())
