"""Where a server is: `trine://host:port`, with the key before an `@` if there is one; `trines://` is TLS."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from trine.model.errors import InvalidInput

PORT: Final = 5680
DEFAULT: Final = f"trine://127.0.0.1:{PORT}"
_FORM: Final = "an address looks like trine://127.0.0.1:5680, or trines://KEY@broker.example:5680 with TLS"


class Address(NamedTuple):
    host: str
    port: int
    tls: bool
    key: str | None

    def __str__(self) -> str:
        """Without the key: it is shown in errors."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"trine{'s' if self.tls else ''}://{host}:{self.port}"


def parse_address(url: str) -> Address:
    """Takes a URL apart.

    >>> parse_address("trines://k1@broker.example").port
    5680
    """
    if not isinstance(url, str):
        raise InvalidInput(f"an address is a string, not {type(url).__name__}; {_FORM}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"{error}; {_FORM}") from error
    if parts.scheme not in ("trine", "trines") or not parts.hostname:
        # The address itself is not shown: it may hold a key.
        raise InvalidInput(f"this is not a server's address; {_FORM}")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.password is not None:
        raise InvalidInput(f"an address ends after its port, and has no password; {_FORM}")
    key = unquote(parts.username) if parts.username else None
    return Address(parts.hostname, PORT if port is None else port, parts.scheme == "trines", key)
