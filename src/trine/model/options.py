"""What can be configured of a topic and of a group, with the defaults and the checks.

Users give durations in any form `duration_ms` takes; here they are milliseconds already. A struct that came
through `check()` is sound, so no other room checks again.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import msgspec

from trine.model import limits
from trine.model.duration import duration_ms
from trine.model.errors import InvalidOption, UnknownLane

Order = Literal["none", "key", "partition"]
Kind = Literal["topic", "queue", "dead_letters"]
Durability = Literal["memory", "written", "synced"]
Start = Literal["earliest", "latest"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

HOUR_MS = 3600 * 1000
DEFAULT_LANES = ("high", "normal", "low")


class _Checked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    @classmethod
    def make(cls, given: dict[str, Any]) -> Self:
        """From a user's keywords: `lease="30s"` for lease_ms, unknown words refused with the list of known ones."""
        return cls()._changed(given)

    def altered(self, given: dict[str, Any]) -> Self:
        return self._changed(given)

    def _changed(self, given: dict[str, Any]) -> Self:
        fields = {field.name: field for field in msgspec.structs.fields(type(self))}
        values: dict[str, Any] = msgspec.structs.asdict(self)
        for word, value in given.items():
            if word in fields:
                values[word] = _plain(word, value)
            elif f"{word}_ms" in fields:
                values[f"{word}_ms"] = None if value is None else duration_ms(value, what=word)
            else:
                known = ", ".join(sorted(name.removesuffix("_ms") for name in fields))
                raise InvalidOption(f"there is no option {word!r}; the options are: {known}")
        try:
            made = msgspec.convert(values, type(self))
        except msgspec.ValidationError as error:
            raise InvalidOption(_explained(error, given)) from error
        made.check()
        return made

    def check(self) -> None:
        raise NotImplementedError


class BreakerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    share: float = 0.9
    window_ms: int = 60_000
    least: int = 50


class BackoffConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    first_ms: int = 1_000
    factor: float = 2.0
    cap_ms: int = 5 * 60_000
    jitter: float = 0.2


class TopicConfig(_Checked, frozen=True):
    kind: Kind = "topic"
    partitions: int = 6
    lanes: tuple[str, ...] = DEFAULT_LANES
    retention_ms: int | None = 7 * 24 * HOUR_MS
    retention_bytes: int | None = None
    retention_waits_for_groups: bool = True
    """What a group has not settled is not deleted; False deletes by age and size alone, as Kafka does."""
    compact: bool = False
    tombstone_ms: int = 24 * HOUR_MS
    segment_bytes: int = 64 * limits.MIB
    segment_ms: int = 7 * 24 * HOUR_MS
    compression: Compression = "none"
    durability: Durability = "synced"
    message_bytes_max: int = limits.VALUE_BYTES_MAX
    depth_max: int = limits.DEPTH_MAX
    delay_max_ms: int = limits.DELAY_MS_MAX
    ttl_ms: int | None = None
    dead_letter_expired: bool = False
    dedup_window_ms: int = 5 * 60 * 1000
    dedup_by_content: bool = False
    backoff: BackoffConfig = BackoffConfig()
    """Of all its groups that have none of their own."""
    retained: bool = False
    """A new subscriber is first given the last message of each key."""
    archive: str | None = None
    """Where Spark keeps what retention deletes here: nothing goes that is not there yet."""

    @property
    def default_lane(self) -> int:
        return self.lanes.index("normal") if "normal" in self.lanes else len(self.lanes) // 2

    def lane_number(self, name: str | None) -> int:
        if name is None:
            return self.default_lane
        try:
            return self.lanes.index(name)
        except ValueError:
            raise UnknownLane(f"there is no lane {name!r}; this topic has: {', '.join(self.lanes)}") from None

    def check(self) -> None:
        _between("partitions", self.partitions, 1, limits.PARTITIONS_MAX)
        if not 1 <= len(self.lanes) <= limits.LANES_MAX or len(set(self.lanes)) != len(self.lanes):
            raise InvalidOption(f"lanes are 1 to {limits.LANES_MAX} different names, highest first")
        if not all(isinstance(lane, str) and lane for lane in self.lanes):
            raise InvalidOption("a lane's name is a non-empty string")
        _between("segment_bytes", self.segment_bytes, 4096, 2**31 - 1)
        _between("message_bytes_max", self.message_bytes_max, 1, limits.VALUE_BYTES_MAX)
        _between("depth_max", self.depth_max, 1, 2**62)
        _between("delay_max", self.delay_max_ms, 1, limits.DELAY_MS_CEILING)
        _between("dedup_window", self.dedup_window_ms, 1, 24 * HOUR_MS)
        _between("tombstone", self.tombstone_ms, 0, 10 * 366 * 24 * HOUR_MS)
        _between("segment", self.segment_ms, 1, 10 * 366 * 24 * HOUR_MS)
        if self.retention_ms is not None:
            _between("retention", self.retention_ms, 1, 1000 * 366 * 24 * HOUR_MS)
        if self.ttl_ms is not None:
            _between("ttl", self.ttl_ms, 1, 10 * 366 * 24 * HOUR_MS)
        if self.archive is not None and not 1 <= len(self.archive) <= limits.PATH_CHARS_MAX:
            raise InvalidOption(f"archive is a path of 1 to {limits.PATH_CHARS_MAX} characters, or none")
        _check_backoff(self.backoff)
        if self.retention_bytes is not None:
            _between("retention_bytes", self.retention_bytes, 0, 2**62)


class GroupConfig(_Checked, frozen=True):
    order: Order = "none"
    start: Start = "earliest"
    lease_ms: int = 30_000
    max_deliveries: int = 5
    backoff: BackoffConfig | None = None
    """None takes the topic's."""
    breaker: BreakerConfig | None = BreakerConfig()
    lane_weights: tuple[int, ...] | None = None
    auto_ack: bool = False
    durability: Durability = "synced"
    """Of settlements: what an answered ack promises."""
    in_flight_max: int = limits.IN_FLIGHT_MAX
    member_timeout_ms: int = 30_000
    move_wait_ms: int = 1_000
    """How long a partition that moves to another member waits for its old owner (order = partition)."""
    headers: dict[str, str] | None = None
    """Only messages that carry these headers are delivered; the others are settled as filtered."""
    ephemeral: bool = False
    dead_letters: bool = True
    """False drops what a dead letter would be made of, and traces it as rejected."""

    def check(self) -> None:
        _between("lease", self.lease_ms, 1, 7 * 24 * HOUR_MS)
        _between("max_deliveries", self.max_deliveries, 1, limits.ATTEMPTS_MAX - 1)
        _between("in_flight_max", self.in_flight_max, 1, 10 * limits.IN_FLIGHT_MAX)
        _between("member_timeout", self.member_timeout_ms, 1, 24 * HOUR_MS)
        _between("move_wait", self.move_wait_ms, 0, HOUR_MS)
        if self.backoff is not None:
            _check_backoff(self.backoff)
        breaker = self.breaker
        if breaker is not None:
            if not 0.0 < breaker.share <= 1.0:
                raise InvalidOption(f"breaker.share is {breaker.share}; it must be above 0 and at most 1")
            _between("breaker.window_ms", breaker.window_ms, 100, 24 * HOUR_MS)
            _between("breaker.least", breaker.least, 1, 1_000_000)
        if self.lane_weights is not None and any(weight < 1 for weight in self.lane_weights):
            raise InvalidOption("lane_weights are whole numbers from 1, one for each lane")


def _check_backoff(backoff: BackoffConfig) -> None:
    _between("backoff.first_ms", backoff.first_ms, 0, 24 * HOUR_MS)
    _between("backoff.cap_ms", backoff.cap_ms, backoff.first_ms, 7 * 24 * HOUR_MS)
    if not 1.0 <= backoff.factor <= 100.0:
        raise InvalidOption(f"backoff.factor is {backoff.factor}; it must be 1 to 100")
    if not 0.0 <= backoff.jitter <= 1.0:
        raise InvalidOption(f"backoff.jitter is {backoff.jitter}; it must be 0 to 1")


def _plain(word: str, value: Any) -> Any:
    """A keyword's value as the struct takes it: lists for tuples, milliseconds within backoff and breaker."""
    if isinstance(value, tuple):
        return list(value)
    if word in _NESTED and isinstance(value, dict):
        fields = {field.name for field in msgspec.structs.fields(_NESTED[word])}
        return {
            (f"{name}_ms" if f"{name}_ms" in fields else name): (
                duration_ms(given, what=f"{word}.{name}") if f"{name}_ms" in fields else given
            )
            for name, given in value.items()
        }
    return value


_NESTED: dict[str, type[msgspec.Struct]] = {"backoff": BackoffConfig, "breaker": BreakerConfig}


def _explained(error: msgspec.ValidationError, given: dict[str, Any]) -> str:
    """The library's sentence, with the option's name where it has a path, and what was given for it."""
    what, _, path = str(error).partition(" - at `$.")
    option = path.rstrip("`") or "an option"
    value = given.get(option.partition(".")[0], given.get(option.removesuffix("_ms")))
    return f"{option} is off: {what.replace('`', '')}; it was given as {value!r}"


def _between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidOption(f"{name} is {value}; it must be {least} to {most}")
