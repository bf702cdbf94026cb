"""The first frame of each side, and how an error looks: MessagePack maps."""

from __future__ import annotations

import msgspec

from trine.model import errors
from trine.model.errors import TrineError
from trine.wire.frames import VERSION, WireError


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The client's: which versions it speaks, who it is, and its API key if it has one."""

    least: int
    most: int
    client: str
    key: str | None = None

    def __repr__(self) -> str:
        """Without the key: this may be logged."""
        return f"Hello(least={self.least}, most={self.most}, client={self.client!r})"


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
    """By code; a class without a code of its own is told as the one above it."""
    found = {root.code: root}
    for one in root.__subclasses__():
        found = _classes(one) | found
    return found


BY_CODE = _classes(TrineError)
_HELLO = msgspec.msgpack.Decoder(Hello)
_WELCOME = msgspec.msgpack.Decoder(Welcome)
_FAILURE = msgspec.msgpack.Decoder(Failure)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def write_hello(hello: Hello) -> bytes:
    return msgspec.msgpack.encode(hello)


def read_hello(body: memoryview) -> Hello:
    try:
        return _HELLO.decode(body)
    except _UNREADABLE as error:
        raise WireError(f"a HELLO is not what it should be: {error}") from error


def agree(hello: Hello) -> int:
    """The version to speak: the highest that both sides do."""
    if not hello.least <= VERSION <= hello.most:
        raise WireError(
            f"this server speaks version {VERSION} of the protocol, the client {hello.least} to {hello.most}: "
            "use a client of this server's release"
        )
    return VERSION


def write_welcome(welcome: Welcome) -> bytes:
    return msgspec.msgpack.encode(welcome)


def read_welcome(body: memoryview) -> Welcome:
    try:
        return _WELCOME.decode(body)
    except _UNREADABLE as error:
        raise WireError(f"a WELCOME is not what it should be: {error}") from error


def write_failure(error: TrineError) -> bytes:
    details: dict[str, str | int] | None = None
    if isinstance(error, errors.Corrupt):
        details = {"path": error.path, "position": error.position, "what": error.what, "to_do": error.to_do}
    return msgspec.msgpack.encode(Failure(error.code, error.message, details))


def read_failure(body: memoryview) -> TrineError:
    """The error the other side raised, as the class it is of."""
    try:
        failure = _FAILURE.decode(body)
    except _UNREADABLE as error:
        raise WireError(f"an error came that cannot be read: {error}") from error
    kind = BY_CODE.get(failure.code)
    if kind is None:
        return TrineError(f"{failure.message} (code {failure.code})")  # the other side is newer
    if kind is errors.Corrupt:
        return _corrupt(failure)
    return kind(failure.message)


def _corrupt(failure: Failure) -> errors.StoreError:
    match failure.details:
        case {"path": str(path), "position": int(position), "what": str(what), "to_do": str(to_do)}:
            return errors.Corrupt(path, position, what, to_do)
    return errors.StoreError(failure.message)
