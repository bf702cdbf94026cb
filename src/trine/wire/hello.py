"""The first frame of each side, and how an error looks: MessagePack maps."""

from __future__ import annotations

import msgspec

from trine.model import errors
from trine.model.errors import TrineError
from trine.wire.frames import WireError


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The client's: which versions it speaks, who it is, and its API key if it has one."""

    least: int
    most: int
    client: str
    key: str | None = None


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The server's answer."""

    version: int
    """The highest that both speak."""
    server: str
    now_ms: int
    frame_bytes_max: int
    silence_ms: int
    """A side that hears nothing for this long closes the connection: send PING when there is nothing else to say."""
    role: str


class Failure(msgspec.Struct, frozen=True):
    """The body of a frame with the ERROR flag, and of a GOODBYE."""

    code: str
    message: str
    details: dict[str, str | int] | None = None
    """Of `corrupt`: path, position, what, to_do."""


def _classes(root: type[TrineError]) -> dict[str, type[TrineError]]:
    found = {root.code: root}
    for one in root.__subclasses__():
        found.update(_classes(one))
    return found


BY_CODE = _classes(TrineError)
_FAILURE = msgspec.msgpack.Decoder(Failure)


def write_failure(error: TrineError) -> bytes:
    details: dict[str, str | int] | None = None
    if isinstance(error, errors.Corrupt):
        details = {"path": error.path, "position": error.position, "what": error.what, "to_do": error.to_do}
    return msgspec.msgpack.encode(Failure(error.code, error.message, details))


def read_failure(body: memoryview) -> TrineError:
    """The error the other side raised, as the class it is of."""
    try:
        failure = _FAILURE.decode(body)
    except msgspec.DecodeError as error:
        raise WireError(f"an error came that cannot be read: {error}") from error
    if failure.code == errors.Corrupt.code and failure.details is not None:
        return errors.Corrupt(**failure.details)  # type: ignore[arg-type]
    made = BY_CODE.get(failure.code, TrineError)(failure.message)
    return made
