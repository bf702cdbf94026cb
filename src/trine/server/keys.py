"""API keys: who may do what, on which topics.

A key is `trine_<id>_<secret>`. The server keeps the id, the role, the topics and a hash of the secret, in a file of
its own:

    keys:
      - id: billing
        role: consumer
        topics: [orders, invoices*]
        created: 2026-01-14T15:00:00.000Z
        salt: 16 bytes, in hex
        hash: BLAKE2b of the secret with this salt, 32 bytes, in hex

The secret is 32 random bytes, so it cannot be guessed from its hash however fast the hash is; a slow one, made for
passwords, would let anybody who connects keep the server busy. The salt makes equal secrets look different, and a
table made for one file of no use for another.

This module decides and remembers; it does not wait. A listener that refuses somebody waits for `penalty_s` first.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import hmac
import os
import re
import secrets
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from trine.broker.operations import REDRIVE_GROUP
from trine.model.duration import iso
from trine.model.errors import Conflict, Forbidden, InvalidConfig, InvalidOption, NotFound, Unauthenticated
from trine.model.ids import DLQ_SUFFIX
from trine.model.limits import MIB, NAME_CHARS_MAX
from trine.server.config import is_loopback

Role = Literal["admin", "producer", "consumer", "read-only"]
Action = Literal["admin", "publish", "consume", "read"]
"""read: describe, list, read the log, trace, lag, metrics."""
Why = Literal["missing", "malformed", "unknown", "wrong", "not_local", "deleted", "forbidden"]
"""Why somebody was refused: the label of a metric, so there are few."""

MAY: Final[dict[Role, frozenset[Action]]] = {
    "admin": frozenset(get_args(Action)),
    "producer": frozenset({"publish", "read"}),
    "consumer": frozenset({"consume", "read"}),
    "read-only": frozenset({"read"}),
}

VERBS: Final[dict[Action, str]] = {
    "admin": "administer",
    "publish": "publish to",
    "consume": "consume",
    "read": "read",
}
"""How an action is told of a topic."""

NAME_MAX: Final = NAME_CHARS_MAX + len(DLQ_SUFFIX)
"""The longest name a topic has. A client may ask for any: a longer one is neither remembered nor told back."""

PREFIX: Final = "trine"
SECRET_BYTES: Final = 32
SALT_BYTES: Final = 16
PERSON: Final = b"trine api key"
KEYS_MAX: Final = 10_000
GLOBS_MAX: Final = 100
"""Of one key: each is tried for each new topic name."""
FILE_BYTES_MAX: Final = 16 * MIB
PEERS_MAX: Final = 1_024
"""Addresses whose refused attempts are counted; the one that was silent longest is forgotten first."""
FREE_ATTEMPTS: Final = 5
PENALTY_S: Final = 0.05
PENALTY_S_MAX: Final = 2.0
FORGIVEN_S: Final = 60.0

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,63}")
_GLOB: Final = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,200}")


@dataclass(slots=True, eq=False)
class _Standing:
    """What a key's principals share with the keys they came from: whether it still holds, and whom to tell."""

    deleted: bool = False
    refused: Callable[[Why, str, str], None] | None = None
    of_session: bool = False
    sessions: set[_Standing] = field(default_factory=set)
    """What was lent of this key: it ends with it."""

    def end(self) -> None:
        self.deleted = True
        for one in self.sessions:
            one.deleted = True
        self.sessions.clear()


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking."""

    id: str
    role: Role
    topics: tuple[str, ...]
    _standing: _Standing = field(default_factory=_Standing, compare=False, repr=False)

    @property
    def holds(self) -> bool:
        """False once the key was deleted or changed, or the session is over."""
        return not self._standing.deleted

    def lend(self) -> Principal:
        """The same rights for a session, which ends with the key or before it."""
        lent = _Standing(refused=self._standing.refused, of_session=True)
        self._standing.sessions.add(lent)
        return Principal(self.id, self.role, self.topics, lent)

    def take_back(self, lent: Principal) -> None:
        lent._standing.end()
        self._standing.sessions.discard(lent._standing)

    def may(self, action: Action, topic: str | None) -> bool:
        """Whether `check` would pass: for lists, which show only what may be read."""
        if self._standing.deleted or action not in MAY[self.role]:
            return False
        if topic is None:
            return action != "admin" or "*" in self.topics
        if len(topic) > NAME_MAX:  # no topic has it, and what is asked for is remembered
            return "*" in self.topics
        return matches(self.topics, topic)

    def check(self, action: Action, topic: str | None) -> None:
        """Passes, or raises Forbidden. Without a topic it is about the whole server."""
        if self.may(action, topic):
            return
        if self._standing.deleted:
            self._tell("deleted", action)
            if self._standing.of_session:
                raise Unauthenticated(
                    f"the session of the API key {self.id!r} is over, or the key was deleted or changed; log in again"
                )
            raise Unauthenticated(
                f"the API key {self.id!r} was deleted or changed; connect again with a valid one"
            )
        self._tell("forbidden", action)
        if topic is not None and len(topic) > NAME_MAX:
            topic = topic[:NAME_MAX] + "…"
        if action not in MAY[self.role]:
            roles = " or ".join(role for role, allowed in MAY.items() if action in allowed)
            where = f" {VERBS[action]} topic {topic!r}" if topic is not None else f" {action}"
            raise Forbidden(
                f"the API key {self.id!r} has the role {self.role}, which may not{where}; "
                f"use a key with the role {roles}"
            )
        globs = ", ".join(self.topics) or "nothing"
        if topic is None:
            raise Forbidden(
                f"the API key {self.id!r} is for {globs}, and this is about the whole server; "
                "use an admin key for all topics (*)"
            )
        raise Forbidden(
            f"the API key {self.id!r} is for {globs}, not for topic {topic!r}; use a key whose topics match it"
        )

    def may_everywhere(self, action: Action) -> bool:
        """Whether `check_everywhere` would pass."""
        return "*" in self.topics and self.may(action, None)

    def check_everywhere(self, action: Action) -> None:
        """For what names all topics: it needs a key for all of them."""
        self.check(action, None)
        if not self.may_everywhere(action):
            self._tell("forbidden", action)
            raise Forbidden(
                f"the API key {self.id!r} is for {', '.join(self.topics)}, and this names all topics; "
                "use a key for all topics (*)"
            )

    def _tell(self, why: Why, action: Action) -> None:
        if self._standing.refused is not None:
            self._standing.refused(why, self.id, action)


ANONYMOUS: Final = Principal("anonymous", "admin", ("*",))
"""Everybody, when no keys are configured: this machine only."""


@functools.lru_cache(maxsize=8_192)
def matches(globs: tuple[str, ...], topic: str) -> bool:
    """Whether a topic is among these. Dead letters belong to whoever has the topic they came from.

    >>> matches(("orders*",), "orders-eu"), matches(("orders",), "orders.dlq"), matches(("orders",), "invoices")
    (True, True, False)
    """
    names = (topic, topic.removesuffix(DLQ_SUFFIX))
    return any(glob == "*" or fnmatchcase(name, glob) for glob in globs for name in names)


def check_group(name: object) -> None:
    """The broker keeps account of dead letters in a group of its own. To settle or move there is to purge them or to
    bring them back, which is for admins, by the calls made for it: so nobody consumes or steers that group.
    """
    if name == REDRIVE_GROUP:
        raise Forbidden(
            f"group {REDRIVE_GROUP!r} is the broker's own account of dead letters; list, redrive or purge them instead"
        )


# --- the file


class StoredKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    role: Role
    topics: tuple[str, ...]
    created: str
    salt: str
    hash: str

    def proves(self, secret: str) -> bool:
        """In the same time for every wrong secret."""
        return hmac.compare_digest(_hashed(secret, bytes.fromhex(self.salt)), bytes.fromhex(self.hash))


class KeysFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keys: list[StoredKey]
    """Must be there: a file that an editor has emptied for a moment does not say that there are none."""


def _hashed(secret: str, salt: bytes) -> bytes:
    return hashlib.blake2b(secret.encode(), digest_size=32, salt=salt, person=PERSON).digest()


def read_keys(path: str) -> dict[str, StoredKey]:
    """The keys of a file, by id."""
    raw = b""
    try:
        with open(path, "rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            raise InvalidConfig(f"{path} is larger than {FILE_BYTES_MAX} bytes: that is no file of keys")
        found = msgspec.convert(_parsed(raw), KeysFile, strict=False)
    except FileNotFoundError:
        raise InvalidConfig(
            f"there is no file {path}; trine key create --keys-file {path} makes it"
        ) from None
    except OSError as error:
        raise InvalidConfig(f"the keys file {path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"the keys file {path} is off: {error}") from error
    keys: dict[str, StoredKey] = {}
    for key in found.keys:
        if key.id in keys:
            raise InvalidConfig(f"the keys file {path} has the id {key.id!r} twice")
        _check(key.id, key.role, key.topics)
        try:
            sound = len(bytes.fromhex(key.salt)) == SALT_BYTES and len(bytes.fromhex(key.hash)) == 32
        except ValueError:
            sound = False
        if not sound:
            raise InvalidConfig(f"the keys file {path}: the salt or hash of key {key.id!r} is damaged")
        keys[key.id] = key
    return keys


def _parsed(raw: bytes) -> Any:
    if raw.lstrip().startswith(b"{"):
        return msgspec.json.decode(raw)
    import yaml

    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {error}") from error


def write_keys(path: str, keys: Iterable[StoredKey]) -> None:
    """All of the file or nothing of it, readable by its owner alone."""
    content = msgspec.to_builtins(KeysFile(keys=list(keys)))
    if path.endswith(".json"):
        data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    else:
        import yaml

        head = "# API keys of a Trine server. Secrets are not in here, only their hashes: see docs/security.md.\n"
        data = (head + yaml.safe_dump(content, sort_keys=False)).encode()
    folder = os.path.dirname(path) or "."
    part = os.path.join(folder, f".{os.path.basename(path)}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """One change at a time: two commands must not lose each other's key."""
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def create_key(path: str, *, role: str, topics: Iterable[str] = ("*",), id: str | None = None) -> str:
    """Adds a key to the file, which is made if there is none; answers the whole key, which is shown this once."""
    globs = tuple(topics)
    with _alone(path):
        keys = read_keys(path) if os.path.exists(path) and os.path.getsize(path) else {}
        name = id if id is not None else secrets.token_hex(4)
        _check(name, role, globs)
        if name in keys:
            raise Conflict(f"there is a key {name!r} already; delete it first, or choose another id")
        if len(keys) >= KEYS_MAX:
            raise InvalidOption(f"there are {KEYS_MAX} keys, the most there may be; delete some first")
        secret = secrets.token_urlsafe(SECRET_BYTES)
        salt = secrets.token_bytes(SALT_BYTES)
        keys[name] = StoredKey(
            id=name,
            role=role,  # type: ignore[arg-type]
            topics=globs,
            created=iso(time.time_ns() // 1_000_000),
            salt=salt.hex(),
            hash=_hashed(secret, salt).hex(),
        )
        write_keys(path, keys.values())
    return f"{PREFIX}_{name}_{secret}"


def delete_key(path: str, id: str) -> None:
    with _alone(path):
        keys = read_keys(path)
        if id not in keys:
            known = ", ".join(sorted(keys)[:10]) or "none"
            raise NotFound(f"there is no key {id!r} in {path}; there are: {known}")
        del keys[id]
        write_keys(path, keys.values())


def _check(id: str, role: str, topics: tuple[str, ...]) -> None:
    if not _ID.fullmatch(id):
        raise InvalidOption(f"a key's id has 1 to 64 letters, digits, '.' and '-', and {id!r} has not")
    if role not in MAY:
        raise InvalidOption(f"there is no role {role!r}; the roles are: {', '.join(MAY)}")
    if not 1 <= len(topics) <= GLOBS_MAX:
        raise InvalidOption(f"a key is for 1 to {GLOBS_MAX} topics or patterns; '*' is all of them")
    for glob in topics:
        if not _GLOB.fullmatch(glob):
            raise InvalidOption(
                f"{glob!r} matches no topic's name; patterns are such as orders, orders* or *"
            )


# --- the keys of a running server


class Keys:
    """Who may come in. Without a file everybody on this machine is an admin, and nobody else is let in."""

    def __init__(
        self,
        path: str | None = None,
        *,
        log: Any = None,
        refused: Callable[[Why], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._log = log
        self._count = refused
        self._clock = clock
        self._keys: dict[str, tuple[StoredKey, Principal]] = {}
        self._seen: tuple[int, int, int] | None = None
        self._refusals: OrderedDict[str, tuple[int, float]] = OrderedDict()
        if path is not None:
            self._seen = _fingerprint(path)
            self._take(read_keys(path))

    @property
    def required(self) -> bool:
        return self._path is not None

    def __len__(self) -> int:
        return len(self._keys)

    def authenticate(self, text: str | None, peer: str) -> Principal:
        """Who shows this key; `peer` is an address without a port. Raises Unauthenticated."""
        if self._path is None:
            if is_loopback(peer):
                return ANONYMOUS
            raise self._refuse(
                peer, "not_local", None, "this server has no API keys, so only its own machine may connect"
            )
        if not text:
            raise self._refuse(peer, "missing", None, "an API key is needed: trine_<id>_<secret>")
        prefix, _, rest = text.strip().partition("_")
        name, _, secret = rest.partition("_")
        if prefix != PREFIX or not secret or not _ID.fullmatch(name):
            raise self._refuse(
                peer, "malformed", None, "this is not an API key: they look like trine_<id>_<secret>"
            )
        stored, principal = self._keys.get(name, (NOBODY, ANONYMOUS))
        proven = stored.proves(secret)  # also for an unknown id, so that both take the same time
        if stored is NOBODY:
            raise self._refuse(
                peer, "unknown", name, "this API key is not known; trine key list shows those that are"
            )
        if not proven:
            raise self._refuse(
                peer, "wrong", name, "this API key is not known; trine key list shows those that are"
            )
        return principal

    def penalty_s(self, peer: str) -> float:
        """How long to wait before this peer is told that it was refused: 0, until it has failed often."""
        count, at = self._refusals.get(peer, (0, 0.0))
        if count <= FREE_ATTEMPTS or self._clock() - at > FORGIVEN_S:
            return 0.0
        return float(min(PENALTY_S * 2 ** min(count - FREE_ATTEMPTS - 1, 10), PENALTY_S_MAX))

    def refresh(self) -> bool:
        """Looks whether the file has changed, and takes it; a file that is off changes nothing."""
        if self._path is None:
            return False
        seen = _fingerprint(self._path)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self._take(read_keys(self._path))
        except (InvalidConfig, InvalidOption) as error:
            if self._log is not None:
                self._log.error("the keys file is off, the keys before it hold", why=str(error))
            return False
        if self._log is not None:
            self._log.info("keys read again", keys=len(self._keys))
        return True

    def _take(self, stored: dict[str, StoredKey]) -> None:
        taken = {}
        for name, key in stored.items():
            known = self._keys.get(name)
            if known is not None and known[0] == key:
                taken[name] = known
            else:
                standing = _Standing(refused=self._forbidden)
                taken[name] = (key, Principal(key.id, key.role, key.topics, standing))
        for name, (_, principal) in self._keys.items():
            if name not in taken or taken[name][1] is not principal:
                principal._standing.end()
        self._keys = taken

    def _refuse(self, peer: str, why: Why, name: str | None, sentence: str) -> Unauthenticated:
        """Counts and logs; never the key itself, and an id only if it looks like one."""
        count = self._note(peer)
        if self._count is not None:
            self._count(why)
        if self._log is not None and _is_told(count):
            self._log.warning("refused", peer=peer, why=why, key=name, attempts=count)
        return Unauthenticated(sentence)

    def _forbidden(self, why: Why, name: str, action: str) -> None:
        count = self._note(f"key {name}")
        if self._count is not None:
            self._count(why)
        if self._log is not None and _is_told(count):
            self._log.warning("refused", why=why, key=name, action=action, attempts=count)

    def _note(self, who: str) -> int:
        """How often this one was refused of late."""
        now = self._clock()
        count, at = self._refusals.pop(who, (0, now))
        count = 1 if now - at > FORGIVEN_S else count + 1
        self._refusals[who] = (count, now)
        if len(self._refusals) > PEERS_MAX:
            self._refusals.popitem(last=False)
        return count


def _is_told(count: int) -> bool:
    """A flood of attempts must not become a flood of lines: the 1st to 10th, then each power of two."""
    return count <= 10 or count & (count - 1) == 0


NOBODY: Final = StoredKey(
    id="", role="read-only", topics=(), created="", salt="00" * SALT_BYTES, hash="00" * 32
)


def _fingerprint(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def is_exposed(path: str) -> bool:
    """Whether others than its owner may change the file."""
    try:
        return bool(Path(path).stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    except OSError:
        return False
