"""What Spark gives, as cells of a table and as JSON."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any


def shown(value: Any) -> Any:
    """A cell: text for people and for CSV."""
    if value is None or isinstance(value, int | float | str | bool):
        return value
    found = plain(value)
    return found if isinstance(found, str) else str(found)


def plain(value: Any) -> Any:
    """What JSON has a form for."""
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return "0x" + bytes(value).hex()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, date | Decimal):
        return str(value)
    if hasattr(value, "asDict"):
        return {name: plain(one) for name, one in value.asDict().items()}
    if isinstance(value, dict):
        return {str(plain(name)): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value
