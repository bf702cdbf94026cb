"""Which Trine this is: the package's version, for whoever has to say it."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
