"""`trine version`."""

from __future__ import annotations

import platform
from importlib import metadata

from trine.cli.session import Session


def version(session: Session) -> None:
    """Show the versions of Trine and Python."""
    session.done(
        f"trine {metadata.version('trine')}, Python {platform.python_version()}",
        version=metadata.version("trine"),
        python=platform.python_version(),
    )
