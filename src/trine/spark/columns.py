"""The columns of a topic as a table: Spark's schema of the messages, and Arrow's, which must match it to the letter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trine.model.errors import InvalidOption

HEADERS_SPARK: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
HEADERS_ARROW: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIME_ARROW: Final = pa.timestamp("us", "UTC")

_COLUMNS: Final[tuple[tuple[str, DataType, pa.DataType], ...]] = (
    ("key", BinaryType(), pa.binary()),
    ("value", BinaryType(), pa.binary()),
    ("topic", StringType(), pa.string()),
    ("partition", IntegerType(), pa.int32()),
    ("offset", LongType(), pa.int64()),
    ("timestamp", TimestampType(), TIME_ARROW),
    ("headers", HEADERS_SPARK, HEADERS_ARROW),
    ("priority", StringType(), pa.string()),
    ("producer", StringType(), pa.string()),
    ("ttl", LongType(), pa.int64()),
    ("message_id", StringType(), pa.string()),
    ("dedup_id", StringType(), pa.string()),
    ("schedule_id", StringType(), pa.string()),
)
NAMES: Final = tuple(name for name, _, _ in _COLUMNS)
_SPARK: Final = {name: spark for name, spark, _ in _COLUMNS}
_ARROW: Final = {name: arrow for name, _, arrow in _COLUMNS}

MESSAGES: Final = StructType([StructField(name, spark) for name, spark, _ in _COLUMNS])
"""A message a row. `ttl` is in milliseconds from `timestamp`; `headers` are the user's own."""


def chosen(columns: str | None, *, headers: bool) -> tuple[str, ...]:
    """The columns that options ask for, in the order of the table.

    >>> chosen("value, offset", headers=False)
    ('value', 'offset')
    """
    if columns is None:
        return tuple(name for name in NAMES if headers or name != "headers")
    wanted = {word.strip() for word in columns.split(",")}
    unknown = wanted - set(NAMES)
    if unknown:
        raise InvalidOption(f"there is no column {sorted(unknown)[0]!r}; known are {', '.join(NAMES)}")
    return tuple(name for name in NAMES if name in wanted)


def spark_schema(columns: Iterable[str] = NAMES) -> StructType:
    return StructType([StructField(name, _SPARK[name]) for name in columns])


def messages_schema(columns: Iterable[str] = NAMES) -> pa.Schema:
    """Arrow's schema of these columns."""
    return pa.schema([pa.field(name, _ARROW[name]) for name in columns])
