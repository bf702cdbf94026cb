"""Options as users give them, in forms that MessagePack has: durations become seconds, structs become maps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import msgspec

from trine.model.errors import InvalidOption


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """A user's keywords in plain values.

    >>> plain({"lease": timedelta(minutes=1), "order": "key"})
    {'lease': 60.0, 'order': 'key'}
    """
    return {str(word): _plain(word, value) for word, value in options.items()}


def _plain(word: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, msgspec.Struct):
        return plain({name: getattr(value, name) for name in value.__struct_fields__})
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(word, one) for one in value]
    raise InvalidOption(f"{word} is a {type(value).__name__}, which no option takes")
