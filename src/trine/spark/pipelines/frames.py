"""From a declaration to Spark's frames: sources are read, steps are applied, sinks are given the columns they write.

The same code builds the frames that run and those that are only looked at: in a check every source is an empty
stream or table of the right columns, so that nothing is read and no broker is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from trine.model.errors import InvalidOption
from trine.spark.columns import NAMES, spark_schema
from trine.spark.pipelines.declaration import Declaration, Sink, Source, Step, Watermark
from trine.spark.pipelines.functions import find_function

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from trine.spark.place import Place

RELATION: Final = re.compile(r"'UnresolvedRelation \[([^\]]+)\]")
CTE: Final = re.compile(r"^\W*'?(?:SubqueryAlias|UnresolvedWith|CTE) \[?([^\]\n]+)\]?", re.MULTILINE)
SHUFFLES: Final = re.compile(
    r"\b(Aggregate|Join|Deduplicate\w*|FlatMapGroups\w*|TransformWithState\w*|Repartition\w*|Distinct|Window"
    r"|Intersect|Except|MapGroups|FlatMapCoGroups\w*)\b"
)
CORRUPT: Final = "_corrupt_record"


def references(spark: SparkSession, query: str) -> list[str]:
    """The names a query reads from, as Spark's parser sees them; names of more than one part are left to Spark."""
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(query).toString()
    own = {name for names in CTE.findall(plan) for name in names.split(", ")}
    found = dict.fromkeys(name for name in RELATION.findall(plan) if ", " not in name)
    return [name for name in found if name not in own]


def columns_of(ddl: str) -> StructType:
    """Columns as SQL writes them: `id BIGINT, at TIMESTAMP`."""
    schema = StructType.fromDDL(ddl)
    if not isinstance(schema, StructType):
        raise InvalidOption(f"{ddl!r} is one type; give columns: name TYPE, name TYPE")
    return schema


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().analyzed().toString())


class Frames:
    """Frames by the name of their source or step, built when they are first asked for."""

    def __init__(self, spark: SparkSession, declared: Declaration, place: Place | None) -> None:
        """Without a place the sources are empty: to look at, not to run."""
        self._spark = spark
        self._declared = declared
        self._place = place
        self._built: dict[str, DataFrame] = {}
        self._views: list[str] = []
        self._inputs: dict[str, tuple[str, ...]] = {}

    @property
    def runs(self) -> bool:
        return self._place is not None

    def inputs(self, step: Step) -> tuple[str, ...]:
        """Sources and steps that a step reads."""
        if step.sql is None:
            return step.inputs
        if step.name not in self._inputs:
            by_case = {name.lower(): name for name in self._declared.names}
            found = [by_case.get(name.lower()) for name in references(self._spark, step.sql)]
            self._inputs[step.name] = tuple(dict.fromkeys(name for name in found if name is not None))
        return self._inputs[step.name]

    def behind(self, name: str) -> list[str]:
        """Everything a step is made of, itself last."""
        order: dict[str, None] = {}

        def add(one: str) -> None:
            step = self._declared.steps.get(one)
            for below in self.inputs(step) if step else ():
                if below not in order:
                    add(below)
            order[one] = None

        add(name)
        return list(order)

    def frame(self, name: str, *, counted: bool = False) -> DataFrame:
        """The frame of a source or step. `counted`: the rows of each are counted while it runs."""
        if name not in self._built:
            if name in self._declared.sources:
                made = self._source(self._declared.sources[name])
                marked = self._declared.sources[name].watermark
            else:
                step = self._declared.steps[name]
                made = self._step(step, counted)
                marked = step.watermark
            made = _marked(made, marked)
            if counted:
                made = made.observe(name, F.count(F.lit(1)).alias("rows"))
            self._built[name] = made
            made.createOrReplaceTempView(name)
            self._views.append(name)
        return self._built[name]

    def forget(self) -> None:
        """The names are given back to the session."""
        for name in self._views:
            self._spark.catalog.dropTempView(name)
        self._views.clear()
        self._built.clear()

    # --- sources

    def _source(self, source: Source) -> DataFrame:
        if source.table is not None:
            return self._table(source)
        columns = tuple(name for name in NAMES if source.headers or name != "headers")
        if self._place is None:
            frame = self._empty(spark_schema(columns), stream=True)
        else:
            options = {
                **self._place.options(),
                "includeHeaders": str(source.headers).lower(),
                **_start(source),
                **source.options,
            }
            if source.topics:
                options["subscribe"] = ",".join(source.topics)
            elif source.pattern is not None:
                options["subscribePattern"] = source.pattern
            if source.rate is not None:
                options["maxOffsetsPerTrigger"] = str(source.rate)
            frame = self._spark.readStream.format("trine").options(**options).load()
        if source.text:
            frame = frame.withColumns(
                {"key": F.col("key").cast("string"), "value": F.col("value").cast("string")}
            )
        return frame if source.json is None else _parsed(frame, source)

    def _table(self, source: Source) -> DataFrame:
        assert source.table is not None
        path = self._declared.near(source.table)
        if source.stream:
            assert source.schema is not None
            if self._place is None:
                return self._empty(columns_of(source.schema), stream=True)
            reader = self._spark.readStream.format(source.format).schema(source.schema)
            return reader.options(**source.options).load(path)
        if source.format == "delta":
            from trine.spark.pipelines.tables import read_delta

            return read_delta(self._spark, path, dict(source.options))
        batch = self._spark.read.format(source.format).options(**source.options)
        return (batch if source.schema is None else batch.schema(source.schema)).load(path)

    def _empty(self, schema: StructType, *, stream: bool) -> DataFrame:
        nothing = self._spark.readStream.format("rate").load() if stream else self._spark.range(0)
        columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
        return nothing.where("false").select(*columns)

    # --- steps

    def _step(self, step: Step, counted: bool) -> DataFrame:
        inputs = [self.frame(name, counted=counted) for name in self.inputs(step)]
        if step.sql is not None:
            return self._spark.sql(step.sql)
        function = find_function(self._declared, step.python)
        if step.kind == "frame":
            made = function(*inputs)
            from pyspark.sql import DataFrame as Frame

            if not isinstance(made, Frame):
                raise InvalidOption(
                    f"the function gave {type(made).__name__}, not a DataFrame; one of rows or batches is of "
                    "kind pandas or arrow"
                )
            return made
        assert step.schema is not None
        [frame] = inputs
        if step.kind == "pandas":
            return frame.mapInPandas(function, step.schema)
        if step.kind == "arrow":
            return frame.mapInArrow(function, step.schema)
        assert step.state is not None
        timeout = {"none": "NoTimeout", "processing": "ProcessingTimeTimeout", "event": "EventTimeTimeout"}
        return frame.groupBy(*step.state.key).applyInPandasWithState(
            function, step.schema, step.state.schema, step.mode, timeout[step.state.timeout]
        )


def _start(source: Source) -> dict[str, str]:
    if source.start in ("earliest", "latest") or source.start.startswith("{"):
        return {"startingOffsets": source.start}
    return {"startingTimestamp": source.start}


def _marked(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)


def _parsed(frame: DataFrame, source: Source) -> DataFrame:
    """The fields of the JSON as columns. A column of the message that has the name of a field is `message_<name>`."""
    assert source.json is not None
    schema = columns_of(source.json)
    fields = schema.fieldNames()
    mode = "FAILFAST" if source.bad == "fail" else "PERMISSIVE"
    if source.bad == "drop":
        schema = schema.add(CORRUPT, "string")
    options = {"mode": mode, "columnNameOfCorruptRecord": CORRUPT}
    parsed = F.from_json(F.col("value").cast("string"), schema, options)
    frame = frame.withColumn("_json", parsed)
    if source.bad == "drop":
        frame = frame.where(f"_json IS NOT NULL AND _json.{CORRUPT} IS NULL")
    own = [
        F.col(name).alias(f"message_{name}" if name in fields else name)
        for name in frame.columns
        if name != "_json"
    ]
    return frame.select(*(F.col(f"_json.`{name}`").alias(name) for name in fields), *own)


# --- sinks


def messages_of(frame: DataFrame, sink: Sink) -> DataFrame:
    """The columns of messages: the sink's expressions, else the columns of these names; all of a row as JSON if it has
    no value."""
    columns: dict[str, Any] = {word: F.expr(said) for word, said in sink.message.items()}
    if "value" not in columns:
        if frame.columns == ["key", "value"] or frame.columns == ["value"]:
            columns["value"] = F.col("value")
        else:
            columns["value"] = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
        if "key" in frame.columns and "key" not in columns:
            columns["key"] = F.col("key")
    for word in ("key", "value"):
        if word in columns:
            columns[word] = _as_bytes(frame, columns[word])
    made = frame.select(*(column.alias(word) for word, column in columns.items()))
    if made.isStreaming and SHUFFLES.search(plan_of(made)):
        # Rows come out of a shuffle in any order, and the sink goes on by counting them: the order is made the same.
        made = made.mapInArrow(in_order, made.schema)
    return made


def _as_bytes(frame: DataFrame, column: Any) -> Any:
    kind = frame.select(column).schema.fields[0].dataType.typeName()
    return column if kind in ("binary", "string") else column.cast("string")


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of a task, in an order that depends on nothing but the rows."""
    import pyarrow as pa

    table = pa.Table.from_batches(list(batches)) if (batches := list(batches)) else None
    if table is None:
        return
    plain = [
        (field.name, "ascending")
        for field in table.schema
        if not (pa.types.is_nested(field.type) or pa.types.is_null(field.type))
    ]
    yield from table.sort_by(plain).combine_chunks().to_batches(max_chunksize=10_000)


@contextmanager
def framed(spark: SparkSession, declared: Declaration, place: Place | None) -> Iterator[Frames]:
    frames = Frames(spark, declared, place)
    try:
        yield frames
    finally:
        frames.forget()
