"""TLS for listeners: a context from a certificate and a key, which can be read anew while the server runs.

TLS 1.2 and later. A new certificate holds for connections made after it; those that are open keep theirs.
"""

from __future__ import annotations

import ssl

from trine.model.errors import InvalidConfig
from trine.server.config import TlsConfig


def make_context(config: TlsConfig, *, alpn: list[str] | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION
    if alpn:
        context.set_alpn_protocols(alpn)
    _load(context, config)
    return context


def reload(context: ssl.SSLContext, config: TlsConfig) -> None:
    """Takes the files as they are now. If they are off, InvalidConfig, and what was before holds."""
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), config)  # a trial: half of a pair must not be taken
    _load(context, config)


def _load(context: ssl.SSLContext, config: TlsConfig) -> None:
    try:
        # An encrypted key would make the server wait for somebody to type a password.
        context.load_cert_chain(config.cert, config.key, password=_no_password)
    except OSError as error:  # ssl.SSLError is one too
        raise InvalidConfig(
            f"the certificate {config.cert} and key {config.key} cannot be used together: {error}"
        ) from error


def _no_password() -> str:
    raise InvalidConfig("the private key is encrypted; give the server one without a password")
