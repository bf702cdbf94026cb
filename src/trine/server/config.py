"""The server's configuration: what it may say, what holds when it says nothing, and whether it is sound.

    configure(path, environment, flags)      the file, TRINE_* variables over it, flags over both

Every fault is found before the first one is told, and each is told with its place: a line of the file, a variable, or
a flag. What came through `configure` is sound, so nobody checks again; only sockets, keys and the data directory
itself are looked at later, when the server starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

import msgspec

from trine.model.duration import format_ms
from trine.model.errors import InvalidConfig, TrineError
from trine.model.limits import MIB
from trine.model.options import BackoffConfig, BreakerConfig, GroupConfig, TopicConfig
from trine.server.settings import (
    ALIASES,
    NULLABLE,
    WORDS,
    Fault,
    Place,
    Setting,
    from_environment,
    from_file,
    from_flags,
)

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]
Options = dict[str, Any]
"""A user's words, as `create_topic` and `group` take them."""


class _Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class TlsConfig(_Frozen, frozen=True):
    cert: str
    """A file with the certificate, and those between it and its authority."""
    key: str
    """A file with its private key."""


class ListenerConfig(_Frozen, frozen=True):
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes any free one."""
    tls: TlsConfig | None = None

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


class Listeners(_Frozen, frozen=True):
    binary: ListenerConfig = ListenerConfig(port=5680)
    http: ListenerConfig = ListenerConfig(port=8080)


class BrokerConfig(_Frozen, frozen=True):
    node_id: str = "node-1"
    data_dir: str = "./trine-data"
    listeners: Listeners = Listeners()


class SecurityConfig(_Frozen, frozen=True):
    keys_file: str | None = None
    """With it every connection needs a key; without it only this machine may connect."""


class LimitsConfig(_Frozen, frozen=True):
    connections: int = 10_000
    """Of each listener. A connection costs a file handle and some 10 KiB, more while it is slow."""
    body_bytes: int = 16 * MIB
    """Of an HTTP request: one batch's worth."""
    silence_ms: int = 30_000
    """A binary connection that says nothing for this long is closed; clients ping at a third of it."""
    member_grace_ms: int = 5_000
    """How long a member whose connection broke may take to come back before its leases are returned."""
    shutdown_ms: int = 10_000
    """How long a stopping server waits for requests that are under way."""


class LogConfig(_Frozen, frozen=True):
    level: LogLevel = "info"
    format: LogFormat = "auto"
    """`auto` is `console` on a terminal and `json` elsewhere."""


class ServerConfig(_Frozen, frozen=True):
    broker: BrokerConfig = BrokerConfig()
    defaults: Options = {}
    """Of topics that do not say; `priority.lanes` and `delay.max` are in here too, as lanes and delay_max."""
    delivery: Options = {}
    """Of groups that do not say; `visibility_timeout` is in here as lease."""
    security: SecurityConfig = SecurityConfig()
    limits: LimitsConfig = LimitsConfig()
    log: LogConfig = LogConfig()

    def topic_defaults(self) -> Options:
        """Put a user's own options over these: `create_topic(name, **{**config.topic_defaults(), **options})`."""
        return dict(self.defaults)

    def group_defaults(self) -> Options:
        return dict(self.delivery)

    def queue_defaults(self) -> Options:
        """Of both, for `create_queue`, which has one word each for durability (the topic's) and backoff."""
        of_group = {word: value for word, value in self.delivery.items() if word != "durability"}
        if of_group.get("backoff") is None:
            of_group.pop("backoff", None)
        return {**self.defaults, **of_group}

    @property
    def needs_keys(self) -> bool:
        return self.security.keys_file is not None


@dataclass(frozen=True, slots=True)
class Shown:
    """A word, what holds for it, and where that comes from ("default" when nobody said anything)."""

    path: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """What `check` found: a configuration, or the faults that keep it from being one."""

    config: ServerConfig | None
    faults: list[Fault]
    settings: dict[Place, Setting]

    def shown(self) -> list[Shown]:
        """Every word there is, with what holds for it."""
        rows: dict[Place, Shown] = {}
        for place in WORDS:
            if place in ALIASES and place not in self.settings:
                continue
            if any(ALIASES.get(other) == place for other in self.settings):
                continue
            section = next((off for off in NULLABLE if place[: len(off)] == off), None)
            if section is not None and self._is_off(section):
                place = section
            setting = self.settings.get(place)
            value, origin = (setting.given, setting.origin) if setting else (default_of(place), "default")
            rows[place] = Shown(".".join(place), value, origin)
        return list(rows.values())

    def _is_off(self, section: Place) -> bool:
        if any(place != section and place[: len(section)] == section for place in self.settings):
            return False
        return section in self.settings or default_of(section) is None


def configure(
    path: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> ServerConfig:
    """The configuration, or InvalidConfig with all faults.

    >>> configure(environment={"TRINE_HTTP_PORT": "9999"}).broker.listeners.http.port
    9999
    """
    found = check(path, environment=environment, flags=flags)
    if found.config is None:
        raise InvalidConfig(explain(found.faults))
    return found.config


def explain(faults: list[Fault]) -> str:
    many = (
        f"there are {len(faults)} faults in the configuration"
        if len(faults) > 1
        else "the configuration is off"
    )
    return f"{many}:\n" + "\n".join(f"  {fault}" for fault in faults)


def check(
    path: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Configured:
    """Like `configure`, for those who want to see more than the outcome. Flags are by name: `{"--http-port": 0}`."""
    environment = os.environ if environment is None else environment
    path = path or environment.get("TRINE_CONFIG") or None
    faults: list[Fault] = []
    given: dict[Place, Setting] = {}
    if path is not None:
        given.update(from_file(path, faults))
    for over in (from_environment(environment, faults), from_flags(flags or {}, faults)):
        for place, setting in over.items():
            _forget_below(given, place)
            given[place] = setting
    config = _build(given, faults)
    faults.sort(key=lambda fault: fault.order)
    return Configured(config=None if faults else config, faults=faults, settings=given)


def _forget_below(given: dict[Place, Setting], place: Place) -> None:
    """`breaker: null` and `breaker.share: 0.5` exclude each other: the later source wins."""
    for other in list(given):
        if other != place and (other[: len(place)] == place or place[: len(other)] == other):
            del given[other]


def _build(given: dict[Place, Setting], faults: list[Fault]) -> ServerConfig | None:
    _check_twins(given, faults)
    _check_tls(given, faults)
    _check_keys(given, faults)
    tree: dict[str, Any] = {}
    topic: Options = {}
    group: Options = {}
    for place, setting in given.items():
        place = ALIASES.get(place, place)
        if place[0] == "defaults":
            if place[1] != "replication":
                _put(topic, place[1:], setting.value)
        elif place[0] == "delivery":
            _put(group, place[1:], setting.value)
        else:
            _put(tree, WORDS[place].fields or place if place in WORDS else place, setting.value)
    _check_options("defaults", TopicConfig, topic, given, faults)
    _check_options("delivery", GroupConfig, group, given, faults)
    for name in ("binary", "http"):  # a listener's own port is a default of the whole, not of every listener
        listener = tree.get("broker", {}).get("listeners", {}).get(name)
        if listener is not None:
            listener.setdefault("port", getattr(Listeners(), name).port)
    if faults:
        return None
    return msgspec.convert({**tree, "defaults": topic, "delivery": group}, ServerConfig)


def _put(tree: dict[str, Any], place: Place, value: Any) -> None:
    *sections, word = place
    for section in sections:
        below = tree.get(section)
        if not isinstance(below, dict):
            below = tree[section] = {}
        tree = below
    tree[word] = value


def _check_twins(given: dict[Place, Setting], faults: list[Fault]) -> None:
    for alias, place in ALIASES.items():
        if alias in given and place in given:
            setting = given[alias]
            other = given[place]
            faults.append(
                setting.fault(
                    f"{'.'.join(alias)} and {'.'.join(place)} ({other.origin}) are the same: say it once"
                )
            )


def _check_options(
    section: str,
    kind: type[TopicConfig] | type[GroupConfig],
    options: Options,
    given: dict[Place, Setting],
    faults: list[Fault],
) -> None:
    """Each word was checked alone; some only show their fault together."""
    if any(fault.place[:1] == (section,) for fault in faults) or not options:
        return
    try:
        kind.make(options)
    except TrineError as error:
        first = next(setting for place, setting in given.items() if ALIASES.get(place, place)[0] == section)
        faults.append(first.fault(f"{section}: {error}"))


def _check_tls(given: dict[Place, Setting], faults: list[Fault]) -> None:
    for name in ("binary", "http"):
        section: Place = ("broker", "listeners", name, "tls")
        cert, key = given.get((*section, "cert")), given.get((*section, "key"))
        for setting, other in ((cert, "key"), (key, "cert")):
            if setting is None:
                continue
            if (*section, other) not in given:
                faults.append(
                    setting.fault(f"{'.'.join(section)} needs both cert and key; {other} is missing")
                )
            if isinstance(setting.value, str) and (why := _unreadable(setting.value)):
                faults.append(setting.fault(f"{'.'.join(setting.place)}: {setting.value} {why}"))


def _check_keys(given: dict[Place, Setting], faults: list[Fault]) -> None:
    setting = given.get(("security", "keys_file"))
    if setting is not None and setting.value is not None:
        file: str = setting.value
        if why := _unreadable(file):
            faults.append(
                setting.fault(
                    f"security.keys_file: {file} {why}; make the first key with: "
                    f"trine key create --keys-file {file} --role admin"
                )
            )
        return
    for name in ("binary", "http"):
        host = given.get(("broker", "listeners", name, "host"))
        if host is None or is_loopback(host.value):
            continue
        sentence = (
            f"broker.listeners.{name}.host is {host.value}, which others can reach, but there are no API keys: make "
            "one (trine key create --keys-file keys.yaml --role admin) and set security.keys_file, or listen on "
            "127.0.0.1"
        )
        if not any(fault.origin == host.origin == "--host" for fault in faults):  # one flag, one fault
            faults.append(host.fault(sentence))


def _unreadable(file: str) -> str | None:
    if not Path(file).is_file():
        return "does not exist" if not Path(file).exists() else "is not a file"
    return None if os.access(file, os.R_OK) else "cannot be read by this user"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)  # ::ffff:127.0.0.1, as an IPv6 socket sees an IPv4 peer
    return (mapped or address).is_loopback


def default_of(place: Place) -> Any:
    """What holds for a word that nobody set, as people would write it."""
    section, *rest = ALIASES.get(place, place)
    if tuple(rest) == ("replication",):
        return 1
    if section == "delivery" and len(rest) == 2 and rest[0] == "backoff":
        return _default(BackoffConfig(), rest[1:])  # the group's own, once it has one
    if section in ("defaults", "delivery"):
        options = TopicConfig() if section == "defaults" else GroupConfig()
        return _default(options, rest)
    return _default(getattr(ServerConfig(), section), rest)


def _default(struct: Any, rest: list[str]) -> Any:
    for word in rest:
        if struct is None:
            return None
        if hasattr(struct, f"{word}_ms"):
            ms = getattr(struct, f"{word}_ms")
            return None if ms is None else format_ms(ms).replace(" ", "")
        struct = getattr(struct, word)
    if isinstance(struct, (BackoffConfig, BreakerConfig)):
        return msgspec.to_builtins(struct)
    return list(struct) if isinstance(struct, tuple) else struct
