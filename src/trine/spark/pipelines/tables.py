"""Tables that pipelines write and read: Delta through `deltalake`, a commit a batch, each batch once.

Tasks write Parquet files into the table's folder; a file is part of the table when the driver has committed it. The
commit carries (application, batch): a batch that comes again after a failure finds its number there and is skipped.
What a crashed batch left behind is no part of the table, and a vacuum removes it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from trine.model.errors import InvalidOption, NotFound
from trine.spark.pipelines.declaration import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ADDED: Final = "path string, size bigint, rows bigint"


def open_delta(path: str, options: dict[str, str]) -> DeltaTable | None:
    try:
        return DeltaTable(path, storage_options=options or None)
    except TableNotFoundError:
        return None


def read_delta(spark: SparkSession, path: str, options: dict[str, str]) -> DataFrame:
    """A table as it is now, by Spark's own Parquet reader over the files of its last version."""
    from pyspark.sql.pandas.types import from_arrow_schema

    table = open_delta(path, options)
    if table is None:
        raise NotFound(f"there is no Delta table at {path}")
    arrow = pa.schema(table.schema().to_arrow())
    schema = from_arrow_schema(arrow)
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", path).parquet(*files)


def delta_writer(sink: Sink, path: str, application: str) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch`: writes a batch, unless the table has it already."""
    options = dict(sink.options)

    def write(frame: DataFrame, batch: int) -> None:
        table = open_delta(path, options)
        if table is not None:
            done = table.transaction_version(application)
            if done is not None and done >= batch:
                return
        once = CommitProperties(app_transactions=[Transaction(application, batch, int(time.time() * 1000))])
        if sink.mode == "update":
            _upsert(frame, table, sink, path, once, options)
            return
        files = _write_files(frame, path, sink.partition_by, options)
        mode = "overwrite" if sink.mode == "complete" else "append"
        schema = _table_schema(frame)
        by = list(sink.partition_by) or None
        if table is None:
            create_table_with_add_actions(
                path, schema, files, mode="error", partition_by=by, storage_options=options or None,
                commit_properties=once,
            )  # fmt: skip
        elif files or mode == "overwrite":
            table.create_write_transaction([*files], mode, schema, partition_by=by, commit_properties=once)

    return write


def _table_schema(frame: DataFrame) -> Any:
    from deltalake import Schema
    from pyspark.sql.pandas.types import to_arrow_schema

    return Schema.from_arrow(to_arrow_schema(frame.schema, timezone="UTC"))


def _upsert(
    frame: DataFrame,
    table: DeltaTable | None,
    sink: Sink,
    path: str,
    once: CommitProperties,
    options: dict[str, str],
) -> None:
    """Rows go over those of the same keys. The changed rows of one batch pass through the driver."""
    rows = frame.toArrow()
    if table is None:
        table = DeltaTable.create(
            path,
            _table_schema(frame),
            partition_by=list(sink.partition_by) or None,
            storage_options=options or None,
        )
    same = " AND ".join(f"old.`{key}` = new.`{key}`" for key in sink.keys)
    merge = table.merge(rows, same, source_alias="new", target_alias="old", commit_properties=once)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _write_files(
    frame: DataFrame, path: str, partition_by: tuple[str, ...], options: dict[str, str]
) -> list[AddAction]:
    unknown = [name for name in partition_by if name not in frame.columns]
    if unknown:
        raise InvalidOption(
            f"partition_by names {unknown[0]!r}, but the columns are {', '.join(frame.columns)}"
        )
    if "://" in path and options:
        raise InvalidOption(
            "files in an object store are written with the credentials of the executors' environment; "
            f"take the options away from the sink to {path}"
        )
    made = frame.mapInArrow(_file_writer(path, partition_by), ADDED + ", parts string").collect()
    now = int(time.time() * 1000)
    return [
        AddAction(one.path, one.size, json.loads(one.parts), now, True, json.dumps({"numRecords": one.rows}))
        for one in made
    ]


def _file_writer(
    path: str, partition_by: tuple[str, ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files, root = fs.FileSystem.from_uri(path if "://" in path else f"file://{path}")
        held = [one for one in batches if one.num_rows]
        if not held:
            return
        table = pa.Table.from_batches(held)
        groups: list[tuple[dict[str, Any], pa.Table]] = [({}, table)]
        for name in partition_by:
            groups = [
                ({**parts, name: value}, rows.filter(_same(rows[name], value)))
                for parts, rows in groups
                for value in rows[name].unique().to_pylist()
            ]
        for parts, rows in groups:
            texts = {name: None if value is None else str(value) for name, value in parts.items()}
            folder = "/".join(
                f"{name}={'__HIVE_DEFAULT_PARTITION__' if v is None else v}" for name, v in texts.items()
            )
            name = f"{folder}/part-{uuid.uuid4()}.parquet".lstrip("/")
            files.create_dir(f"{root}/{folder}".rstrip("/"), recursive=True)
            rows = rows.drop_columns(list(partition_by))
            pq.write_table(rows, f"{root}/{name}", filesystem=files)
            size = files.get_file_info(f"{root}/{name}").size
            yield pa.RecordBatch.from_pydict(
                {"path": [name], "size": [size], "rows": [rows.num_rows], "parts": [json.dumps(texts)]}
            )

    return write


def _same(column: pa.ChunkedArray, value: Any) -> Any:
    import pyarrow.compute as pc

    return pc.is_null(column) if value is None else pc.equal(column, value)
