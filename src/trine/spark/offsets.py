"""Which topics, and from where to where: the options of Spark's Kafka source, read for Trine.

one of      subscribe ("a,b") · subscribePattern (a regular expression) · assign ({"a": [0, 1]})
starts      startingTimestamp (ms) over startingOffsetsByTimestamp ({"a": {"0": ms}}) over startingOffsets
ends        endingTimestamp over endingOffsetsByTimestamp over endingOffsets; of batches only
offsets     "earliest", "latest", or {"a": {"0": 23, "1": -2}} with -2 earliest and -1 latest
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from trine.model.errors import InvalidOption, OffsetOutOfRange, UnknownPartition, UnknownTopic
from trine.spark.fetch import Range, lost
from trine.wire.calls import FindOffsets

if TYPE_CHECKING:
    from trine.client.sync import Broker

EARLIEST: Final = -2
LATEST: Final = -1
WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
Offsets = dict[str, dict[int, int]]
"""By topic and partition."""
KNOWN: Final = frozenset(
    {
        "assign", "columns", "endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp", "failondataloss",
        "includeheaders", "maxoffsetspertrigger", "minpartitions", "path", "startingoffsets",
        "startingoffsetsbytimestamp", "startingtimestamp", "subscribe", "subscribepattern", "view",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to begin or to end."""

    option: str
    offset: int | None = None
    """EARLIEST or LATEST, for all partitions."""
    offsets: Offsets | None = None
    time_ms: int | None = None
    times_ms: Offsets | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def partitions(self, broker: Broker) -> dict[str, list[int]]:
        """The topics as they are now, with their partitions."""
        if self.pattern is not None:
            match = re.compile(self.pattern).fullmatch
            found = {one.name: list(range(len(one.partitions))) for one in broker.topics() if match(one.name)}
            return dict(sorted(found.items()))
        wanted = dict(self.assigned) if self.assigned else dict.fromkeys(self.names)
        chosen = {}
        for name, some in wanted.items():
            count = broker._known(name).config.partitions
            for number in some or ():
                if not 0 <= number < count:
                    raise UnknownPartition(f"topic {name!r} has partitions 0 to {count - 1}, not {number}")
            chosen[name] = list(some) if some else list(range(count))
        return chosen


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything the options say of a read."""

    subscription: Subscription
    start: Bound
    end: Bound
    whole: bool
    max_offsets: int | None
    min_partitions: int | None

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool) -> Reading:
        given = {name.lower(): value for name, value in options.items()}
        for name in given:
            if name not in KNOWN and not name.startswith("trine."):
                raise InvalidOption(f"there is no option {name!r} of the source 'trine'")
        if streaming:
            for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
                if name.lower() in given:
                    raise InvalidOption(f"{name} is for batch reads; a stream has no end")
        start = _bound(given, "starting", LATEST if streaming else EARLIEST)
        end = _bound(given, "ending", LATEST)
        if not streaming and start.offset == LATEST:
            raise InvalidOption("startingOffsets 'latest' is for streams: a batch would read nothing")
        if end.offset == EARLIEST:
            raise InvalidOption("endingOffsets cannot be 'earliest': nothing comes before it")
        return cls(
            _subscription(given),
            start,
            end,
            _truth(given, "failOnDataLoss", True),
            _number(given, "maxOffsetsPerTrigger"),
            _number(given, "minPartitions"),
        )


def _subscription(given: Mapping[str, str]) -> Subscription:
    words = ("subscribe", "subscribePattern", "assign")
    named = [word for word in words if given.get(word.lower())]
    if len(named) != 1:
        raise InvalidOption(f"give exactly one of {', '.join(words)}: it says which topics to read")
    value = given[named[0].lower()]
    if named[0] == "subscribe":
        names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        return Subscription(names=names)
    if named[0] == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise InvalidOption(f"subscribePattern {value!r} is no regular expression: {error}") from error
        return Subscription(pattern=value)
    parsed = _json(value, "assign", '{"orders": [0, 1]}')
    try:
        assigned = tuple((str(name), tuple(int(one) for one in some)) for name, some in parsed.items())
    except (TypeError, ValueError) as error:
        raise InvalidOption(
            f'assign is topics with partitions, e.g. {{"orders": [0, 1]}}: {value!r}'
        ) from error
    if not assigned or not all(some for _, some in assigned):
        raise InvalidOption("assign names no partition")
    return Subscription(assigned=assigned)


def _bound(given: Mapping[str, str], word: str, default: int) -> Bound:
    if (time := given.get(f"{word}timestamp")) is not None:
        return Bound(f"{word}Timestamp", time_ms=_whole(time, f"{word}Timestamp"))
    option = f"{word}OffsetsByTimestamp"
    if (times := given.get(option.lower())) is not None:
        return Bound(option, times_ms=read_offsets(times, option))
    option = f"{word}Offsets"
    text = given.get(option.lower())
    if text is None:
        return Bound(option, offset=default)
    if text.strip().lower() in WORDS:
        return Bound(option, offset=WORDS[text.strip().lower()])
    return Bound(option, offsets=read_offsets(text, option))


def read_offsets(text: str, option: str) -> Offsets:
    """`{"orders": {"0": 23}}` with numbers as numbers."""
    example = '{"orders": {"0": 23, "1": -2}}'
    parsed = _json(text, option, example)
    try:
        return {
            str(name): {int(number): int(offset) for number, offset in some.items()}
            for name, some in parsed.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidOption(f"{option} is 'earliest', 'latest' or e.g. {example}, not {text!r}") from error


def write_offsets(offsets: Offsets) -> dict[str, dict[str, int]]:
    """As a checkpoint keeps them."""
    return {
        name: {str(number): offset for number, offset in sorted(some.items())}
        for name, some in sorted(offsets.items())
    }


def ends_of(broker: Broker, topics: Mapping[str, list[int]]) -> dict[str, dict[int, tuple[int, int]]]:
    """First and next offset of every partition."""
    found = {}
    for name, numbers in topics.items():
        known = broker.topic(name).offsets()
        found[name] = {number: known[number] for number in numbers if number in known}
    return found


def resolve(
    broker: Broker, bound: Bound, spans: Mapping[str, Mapping[int, tuple[int, int]]], *, whole: bool
) -> Offsets:
    """A bound as an offset of every partition."""
    for given in (bound.offsets, bound.times_ms):
        if given is not None:
            _check_named(bound.option, given, spans)
    found: Offsets = {}
    for name, some in spans.items():
        places: dict[int, int] = {}
        if bound.time_ms is not None:
            places = broker._call(FindOffsets(topic=name, time_ms=bound.time_ms))
        for number, (first, following) in some.items():
            if bound.time_ms is not None:
                offset = places[number]
            elif bound.times_ms is not None:
                time_ms = bound.times_ms[name][number]
                offset = broker._call(FindOffsets(topic=name, time_ms=time_ms, partition=number))[number]
            elif bound.offsets is not None:
                offset = bound.offsets[name][number]
                if offset >= 0 and not first <= offset <= following:
                    if whole:
                        raise OffsetOutOfRange(
                            f"{bound.option} says {offset} for {name}/{number}, which has {first} to {following}; "
                            "say another, or set failOnDataLoss to false to take what is there"
                        )
                    offset = min(max(offset, first), following)
            else:
                assert bound.offset is not None
                offset = bound.offset
            offset = first if offset == EARLIEST else following if offset == LATEST else offset
            found.setdefault(name, {})[number] = offset
    return found


def _check_named(option: str, given: Offsets, spans: Mapping[str, Mapping[int, Any]]) -> None:
    for name in given:
        if name not in spans:
            raise UnknownTopic(f"{option} names topic {name!r}, which is not subscribed to")
    for name, some in spans.items():
        missing = sorted(set(some) - set(given.get(name, {})))
        if missing:
            raise InvalidOption(f"{option} says nothing of {name}/{missing[0]}: name every partition")


def ranges(start: Offsets, end: Offsets, whole: bool, min_partitions: int | None = None) -> list[Range]:
    """What is to be read, a range a partition; more of them if `minPartitions` asks for it."""
    found = []
    for name, some in end.items():
        for number, until in some.items():
            since = start.get(name, {}).get(number, 0)
            if since > until:
                if whole:
                    raise OffsetOutOfRange(lost(name, number, until, since))
                continue
            if since < until:
                found.append(Range(name, number, since, until, whole))
    if min_partitions is None or not found or len(found) >= min_partitions:
        return found
    total = sum(one.end - one.start for one in found)
    split = []
    for one in found:
        count = one.end - one.start
        parts = min(max(round(min_partitions * count / total), 1), count)
        cuts = [one.start + count * step // parts for step in range(parts + 1)]
        split += [Range(one.topic, one.partition, a, b, whole) for a, b in pairwise(cuts)]
    return split


def limited(start: Offsets, end: Offsets, most: int) -> Offsets:
    """At most so many rows from `start`, taken of each partition in proportion to what waits there."""
    waiting = {
        (name, number): max(until - start.get(name, {}).get(number, 0), 0)
        for name, some in end.items()
        for number, until in some.items()
    }
    total = sum(waiting.values())
    if total <= most:
        return end
    shares = {place: most * count // total for place, count in waiting.items()}
    left = most - sum(shares.values())
    for place in sorted(waiting, key=lambda one: -(most * waiting[one] % total)):
        if left and shares[place] < waiting[place]:
            shares[place] += 1
            left -= 1
    found: Offsets = {}
    for (name, number), share in shares.items():
        found.setdefault(name, {})[number] = start.get(name, {}).get(number, 0) + share
    return found


def _json(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise InvalidOption(f"{option} is no JSON ({error}); write it like {example}") from error
    if not isinstance(parsed, dict):
        raise InvalidOption(f"{option} is an object by topic, like {example}, not {text!r}")
    return parsed


def _number(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower())
    if text is None:
        return None
    number = _whole(text, option)
    if number < 1:
        raise InvalidOption(f"{option} is 1 or more, not {text}")
    return number


def _whole(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidOption(f"{option} is a whole number, not {text!r}") from error


def _truth(given: Mapping[str, str], option: str, default: bool) -> bool:
    text = given.get(option.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise InvalidOption(f"{option} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def wants_headers(options: Mapping[str, str]) -> bool:
    return _truth({name.lower(): value for name, value in options.items()}, "includeHeaders", False)
