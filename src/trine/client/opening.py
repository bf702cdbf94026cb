"""Connecting: an address and a key become a link."""

from __future__ import annotations

import secrets
import ssl

from trine.client.address import parse_address
from trine.client.link import Link
from trine.model.duration import duration_ms
from trine.model.errors import InvalidOption
from trine.model.message import Duration


def make_link(url: str, key: str | None, ca: str | None, timeout: Duration, name: str | None) -> Link:
    """A link that is not open yet. `ca` is the file of the certificates to trust, for TLS."""
    address = parse_address(url)
    if key is not None:
        address = address._replace(key=key)
    if ca is not None and not address.tls:
        raise InvalidOption("ca= is for TLS: write trines:// for trine://, or leave it out")
    tls = None
    if address.tls:
        try:
            tls = ssl.create_default_context(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidOption(f"the certificates of ca={ca!r} cannot be read: {error}") from error
    client = name if name is not None else f"trine-python-{secrets.token_hex(4)}"
    return Link(address, tls=tls, timeout_ms=max(duration_ms(timeout, what="timeout"), 1), client=client)
