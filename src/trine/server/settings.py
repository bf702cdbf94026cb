"""The words of the configuration, and the three places they may stand: a file, the environment, flags.

A word is known by its place, as `("broker", "listeners", "http", "port")`. The name of its variable is TRINE_ and the
place in upper case, joined by `_`; the sections `broker`, `listeners` and `security` may be left out of it:
TRINE_BROKER_LISTENERS_HTTP_PORT and TRINE_HTTP_PORT are the same.

Reading never stops at a fault: it is noted with its place, and the next word is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec

from trine.model.duration import duration_ms, format_ms
from trine.model.errors import TrineError
from trine.model.limits import MIB
from trine.model.options import BackoffConfig, BreakerConfig, GroupConfig, TopicConfig

Place = tuple[str, ...]

FILE_BYTES_MAX: Final = 1 * MIB
"""A configuration file is read whole; a larger one is not a configuration file."""
SIZE_UNITS: Final = {
    "": 1,
    "b": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
}
HOUR_MS: Final = 3600 * 1000


class _Off(Exception):
    """A value is not what its word takes; says what it takes."""


@dataclass(frozen=True, slots=True)
class Fault:
    origin: str
    """Where: `trine.yaml:12`, `TRINE_HTTP_PORT`, `--http-port`."""
    sentence: str
    place: Place = ()
    order: tuple[int, int] = (0, 0)
    """The file's faults first, by line, then those of variables and flags."""

    def __str__(self) -> str:
        return f"{self.origin}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Setting:
    """A word that was given."""

    place: Place
    given: Any
    """As it was written."""
    value: Any
    """As the server takes it: milliseconds, bytes."""
    origin: str
    order: tuple[int, int]

    def fault(self, sentence: str) -> Fault:
        return Fault(self.origin, sentence, self.place, self.order)


@dataclass(frozen=True, slots=True)
class Word:
    read: Callable[[Any], Any]
    """The value as the server takes it; raises a TrineError or _Off."""
    verbatim: bool = False
    """Text: a variable's value is taken as it is, not read as YAML."""
    fields: Place = ()
    """Where it stands in `ServerConfig`, if that is not its place."""


# --- what a value may be


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # `node_id: 1` is as good as "1"
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _Off(f"is {value!r}; it must be text")
    return value


def _maybe(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _count(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _Off(f"is {value!r}; it must be a whole number, {least} to {most}")
        return value

    return read


def _span(least_ms: int, most_ms: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        ms = duration_ms(value)
        if not least_ms <= ms <= most_ms:
            raise _Off(f"is {value!r}; it must be {format_ms(least_ms)} to {format_ms(most_ms)}")
        return ms

    return read


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            close = get_close_matches(str(value), words, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise _Off(f"is {value!r}; it must be one of {', '.join(words)}{hint}")
        return str(value)

    return read


def size_bytes(value: Any) -> int:
    """A number of bytes, or text such as "64MiB".

    >>> size_bytes("16MiB"), size_bytes(4096)
    (16777216, 4096)
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]{0,3})", str(value).strip().lower())
    if isinstance(value, bool) or found is None or found[2] not in SIZE_UNITS:
        raise _Off(f'is {value!r}; give bytes as a number, or text such as "64MiB"')
    return int(found[1]) * SIZE_UNITS[found[2]]


def _size(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        size = size_bytes(value)
        if not least <= size <= most:
            raise _Off(f"is {value!r}; it must be {least} to {most} bytes")
        return size

    return read


def _replication(value: Any) -> int:
    if value != 1 or isinstance(value, bool):
        raise _Off(
            f"is {value!r}; replication is not built yet, so each topic is kept once: leave it out, or set it to 1"
        )
    return 1


def _option(kind: type[TopicConfig] | type[GroupConfig], place: Place) -> Word:
    """A word of topics or groups: they know themselves what they take."""
    *sections, word = place
    is_size = "_bytes" in word

    def read(value: Any) -> Any:
        if is_size and value is not None:
            value = size_bytes(value)
        kind.make({sections[0]: {word: value}} if sections else {word: value})
        return value

    return Word(read)


def _options(
    section: str, kind: type[TopicConfig] | type[GroupConfig], leave_out: Iterable[str]
) -> Iterator[tuple[Place, Word]]:
    nested: dict[str, type[msgspec.Struct]] = {"backoff": BackoffConfig, "breaker": BreakerConfig}
    for field in kind.__struct_fields__:
        word = field.removesuffix("_ms")
        if word in leave_out:
            continue
        if word in nested:
            for inner in nested[word].__struct_fields__:
                place = (word, inner.removesuffix("_ms"))
                yield (section, *place), _option(kind, place)
        else:
            yield (section, word), _option(kind, (word,))


def _listener(name: str) -> Iterator[tuple[Place, Word]]:
    section = ("broker", "listeners", name)
    yield (*section, "host"), Word(_text, verbatim=True)
    yield (*section, "port"), Word(_count(0, 65_535))
    yield (*section, "tls", "cert"), Word(_text, verbatim=True)
    yield (*section, "tls", "key"), Word(_text, verbatim=True)


WORDS: Final[dict[Place, Word]] = {
    ("broker", "node_id"): Word(_text, verbatim=True),
    ("broker", "data_dir"): Word(_text, verbatim=True),
    **dict(_listener("binary")),
    **dict(_listener("http")),
    ("defaults", "replication"): Word(_replication),
    **dict(_options("defaults", TopicConfig, leave_out=("kind",))),
    ("delivery", "visibility_timeout"): _option(GroupConfig, ("lease",)),
    **dict(_options("delivery", GroupConfig, leave_out=())),
    ("delay", "max"): _option(TopicConfig, ("delay_max",)),
    ("priority", "lanes"): _option(TopicConfig, ("lanes",)),
    ("security", "keys_file"): Word(_maybe(_text), verbatim=True),
    ("limits", "connections"): Word(_count(1, 1_000_000)),
    ("limits", "body_bytes"): Word(_size(1024, 256 * MIB)),
    ("limits", "silence"): Word(_span(1_000, HOUR_MS), fields=("limits", "silence_ms")),
    ("limits", "member_grace"): Word(_span(0, HOUR_MS), fields=("limits", "member_grace_ms")),
    ("limits", "shutdown"): Word(_span(0, HOUR_MS), fields=("limits", "shutdown_ms")),
    ("log", "level"): Word(_one_of("debug", "info", "warning", "error")),
    ("log", "format"): Word(_one_of("auto", "json", "console")),
}

ALIASES: Final[dict[Place, Place]] = {
    ("delivery", "visibility_timeout"): ("delivery", "lease"),
    ("delay", "max"): ("defaults", "delay_max"),
    ("priority", "lanes"): ("defaults", "lanes"),
}
"""Second names, for people who come from SQS or read the file by subject."""

SECTIONS: Final = {place[:depth] for place in WORDS for depth in range(len(place))}
NULLABLE: Final = {("delivery", "backoff"), ("delivery", "breaker"), ("broker", "listeners", "binary", "tls"),
                   ("broker", "listeners", "http", "tls")}  # fmt: skip
"""Sections that may be switched off as a whole: `breaker: null`."""

FLAGS: Final[dict[str, tuple[Place, ...]]] = {
    "--data-dir": (("broker", "data_dir"),),
    "--host": (("broker", "listeners", "binary", "host"), ("broker", "listeners", "http", "host")),
    "--binary-port": (("broker", "listeners", "binary", "port"),),
    "--http-port": (("broker", "listeners", "http", "port"),),
    "--keys-file": (("security", "keys_file"),),
    "--log-level": (("log", "level"),),
    "--log-format": (("log", "format"),),
}

LEFT_OUT: Final = ("broker", "listeners", "security")
"""Sections that a variable's name need not have."""
NOT_SETTINGS: Final = frozenset({"TRINE_CONFIG", "TRINE_SERVER", "TRINE_KEY", "TRINE_DATA", "TRINE_CONTEXT"})
"""Variables of the command line, not of the server."""


def read_word(
    place: Place, value: Any, origin: str, order: tuple[int, int], faults: list[Fault]
) -> Setting | None:
    name = ".".join(place)
    try:
        if value is None and place in NULLABLE:
            return Setting(place, None, None, origin, order)
        return Setting(place, value, WORDS[place].read(value), origin, order)
    except _Off as error:
        faults.append(Fault(origin, f"{name} {error}", place, order))
    except TrineError as error:
        tail = ".".join(place[1:])
        sentence = f"{place[0]}.{error}" if str(error).startswith(f"{tail} is ") else f"{name}: {error}"
        faults.append(Fault(origin, sentence, place, order))
    return None


def unknown_word(place: Place) -> str:
    """The sentence for a word that there is not: what was meant, or what there is."""
    section = place[:-1]
    siblings = list(dict.fromkeys(known[len(section)] for known in WORDS if known[: len(section)] == section))
    where = f"{'.'.join(section)} has no word" if section else "there is no section"
    close = get_close_matches(place[-1].removesuffix("_ms"), siblings, 1, 0.7)
    if close:
        return f"{where} {place[-1]!r}; did you mean {close[0]!r}?"
    elsewhere = sorted(".".join(known) for known in WORDS if known[-1] == place[-1])
    if elsewhere:
        return f"{where} {place[-1]!r}; it stands in {' or '.join(elsewhere)}"
    return f"{where} {place[-1]!r}; there are: {', '.join(siblings)}"


# --- the file


def from_file(path: str, faults: list[Fault]) -> dict[Place, Setting]:
    import yaml  # only who reads a file waits for it

    try:
        size = Path(path).stat().st_size
        if size > FILE_BYTES_MAX:
            raise _Off(f"has {size} bytes; a configuration has at most {FILE_BYTES_MAX}")
        text = Path(path).read_text(encoding="utf-8")
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            found: dict[Place, Setting] = {}
            if node is not None:
                _read_node(loader, node, (), path, found, faults)
            return found
        finally:
            loader.dispose()
    except FileNotFoundError:
        faults.append(Fault(path, "there is no such file"))
    except (OSError, UnicodeDecodeError) as error:
        faults.append(Fault(path, f"cannot be read: {error}"))
    except _Off as error:
        faults.append(Fault(path, str(error)))
    except RecursionError:
        faults.append(Fault(path, "is nested too deeply to be a configuration"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        faults.append(
            Fault(f"{path}:{line}", f"is not YAML: {error.problem or error.context}", (), (1, line))
        )
    except yaml.YAMLError as error:
        faults.append(Fault(path, f"is not YAML: {error}"))
    return {}


def _read_node(
    loader: Any, node: Any, place: Place, path: str, found: dict[Place, Setting], faults: list[Fault]
) -> None:
    import yaml

    line = node.start_mark.line + 1
    origin, order = f"{path}:{line}", (1, line)
    if place in WORDS:
        try:
            value = loader.construct_object(node, deep=True)
        except yaml.MarkedYAMLError as error:
            faults.append(Fault(origin, f"{'.'.join(place)} cannot be read: {error.problem}", place, order))
            return
        setting = read_word(place, value, origin, order, faults)
        if setting is not None:
            found[place] = setting
        return
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        if place in NULLABLE:
            found[place] = Setting(place, None, None, origin, order)
        return  # an empty section says nothing
    name = ".".join(place) or "the file"
    if not isinstance(node, yaml.MappingNode):
        words = sorted({known[len(place)] for known in WORDS if known[: len(place)] == place})
        faults.append(Fault(origin, f"{name} must have words with values: {', '.join(words)}", place, order))
        return
    seen: dict[str, int] = {}
    for key, below in node.value:
        at = key.start_mark.line + 1
        word = str(key.value)
        if word in seen:
            first = f"the first time in line {seen[word]}"
            faults.append(
                Fault(f"{path}:{at}", f"{word!r} stands here twice, {first}", (*place, word), (1, at))
            )
            continue
        seen[word] = at
        inner = (*place, word)
        if inner in WORDS or inner in SECTIONS:
            _read_node(loader, below, inner, path, found, faults)
        else:
            faults.append(Fault(f"{path}:{at}", unknown_word(inner), inner, (1, at)))


# --- the environment


def variables(place: Place) -> list[str]:
    """The names a word has in the environment, the shortest first."""
    short = [part for part in place if part not in LEFT_OUT]
    names = ["_".join(short), "_".join(part for part in place if part != "broker"), "_".join(place)]
    return list(dict.fromkeys(f"TRINE_{name.upper()}" for name in names))


def from_environment(environment: Mapping[str, str], faults: list[Fault]) -> dict[Place, Setting]:
    places = {name: place for place in (*WORDS, *NULLABLE) for name in variables(place)}
    found: dict[Place, Setting] = {}
    for name in sorted(environment):
        if not name.startswith("TRINE_") or name in NOT_SETTINGS or _is_kubernetes(name, environment[name]):
            continue
        order = (2, 0)
        place = places.get(name)
        if place is None:
            close = get_close_matches(name, places, 1)
            hint = f"; did you mean {close[0]}?" if close else "; `trine config show` lists the words"
            faults.append(Fault(name, f"there is no such setting{hint}", (), order))
            continue
        if place in found:
            other = found[place].origin
            faults.append(
                Fault(name, f"sets {'.'.join(place)}, as {other} does: keep one of them", place, order)
            )
            continue
        try:
            value = _value(place, environment[name])
        except _Off as error:
            faults.append(Fault(name, f"{'.'.join(place)} {error}", place, order))
            continue
        setting = read_word(place, value, name, order, faults) if place in WORDS else None
        if place not in WORDS:
            if value is None:
                setting = Setting(place, None, None, name, order)
            else:
                inner = [known[-1].upper() for known in WORDS if known[: len(place)] == place]
                faults.append(
                    Fault(name, f"can only be null; or set {name}_{inner[0]} and its like", place, order)
                )
        if setting is not None:
            found[place] = setting
    return found


def _value(place: Place, text: str) -> Any:
    if place in WORDS and WORDS[place].verbatim:
        return text
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise _Off(f"is {text[:60]!r}, which is not YAML: {str(error).splitlines()[0]}") from error


def _is_kubernetes(name: str, value: str) -> bool:
    """Beside a service named trine Kubernetes sets TRINE_SERVICE_HOST, TRINE_PORT=tcp://… in each container."""
    return value.startswith(("tcp://", "udp://")) or bool(
        re.search(r"_SERVICE_(HOST|PORT)(_|$)|_PORT_[0-9]+_(TCP|UDP)", name)
    )


# --- flags


def from_flags(flags: Mapping[str, Any], faults: list[Fault]) -> dict[Place, Setting]:
    """By the flag's name; what is None was not given."""
    found: dict[Place, Setting] = {}
    for flag, value in flags.items():
        if value is None:
            continue
        noted = len(faults)
        for place in FLAGS[flag]:
            if len(faults) > noted:
                break  # one fault, though the flag sets several words
            setting = read_word(place, value, flag, (3, 0), faults)
            if setting is not None:
                found[place] = setting
    return found
