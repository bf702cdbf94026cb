"""What views share: the topics an option names, and columns that are Spark's and Arrow's at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trine.client.sync import Broker
from trine.model.errors import InvalidOption
from trine.spark.columns import HEADERS_ARROW, HEADERS_SPARK, TIME_ARROW
from trine.spark.offsets import _subscription

SOURCE_WORDS: Final = frozenset({"assign", "failondataloss", "path", "subscribe", "subscribepattern", "view"})

_TYPES: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "string": (StringType(), pa.string()),
    "binary": (BinaryType(), pa.binary()),
    "int": (IntegerType(), pa.int32()),
    "bigint": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), TIME_ARROW),
    "headers": (HEADERS_SPARK, HEADERS_ARROW),
}


def schemas(columns: Mapping[str, str]) -> tuple[StructType, pa.Schema]:
    """Names and words for their types as both schemas, which must match to the letter."""
    spark = StructType([StructField(name, _TYPES[word][0]) for name, word in columns.items()])
    return spark, pa.schema([pa.field(name, _TYPES[word][1]) for name, word in columns.items()])


def chosen_topics(
    broker: Broker, options: Mapping[str, str], view: str, *more: str
) -> tuple[dict[str, list[int]], dict[str, str]]:
    """The topics and partitions that the options name, and the options in lower case; unknown ones are refused."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in SOURCE_WORDS and name not in more and not name.startswith("trine."):
            known = ", ".join(("subscribe", "subscribePattern", "assign", *more))
            raise InvalidOption(f"view {view!r} has no option {name!r}; it has {known}")
    return _subscription(given).partitions(broker), given
