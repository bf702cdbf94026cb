"""The archive's files, as tasks write them: Parquet, straight from the broker's batches, without a row of Python.

A file holds one date of one partition's range. It has a name nobody else uses and is not part of the table until it is
committed; what a killed task leaves behind is swept away by `trine archive vacuum`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trine.model.limits import MIB
from trine.spark.delta import FILE_SCHEMA, STORED, File, is_local
from trine.spark.fetch import Range, read_range
from trine.spark.place import Place

GROUP_ROWS: Final = 250_000
GROUP_BYTES: Final = 32 * MIB
"""Of a row group: large enough to be read fast, small enough to be held in memory by each open file."""
FILES_OPEN: Final = 16
"""Dates that one range writes at a time; the one that got no rows for longest is closed for another."""
DAY_MS: Final = 86_400_000
EPOCH: Final = date(1970, 1, 1)


class FileWriter:
    """One file of the table on its way to the disk."""

    def __init__(self, table: str, topic: str, day: date) -> None:
        self.topic = topic
        self.day = day
        self.path = f"topic={topic}/date={day.isoformat()}/part-{uuid4().hex}.parquet"
        self._held: list[pa.RecordBatch] = []
        self._rows_held = self._bytes_held = 0
        self.rows = 0
        self._bounds: dict[str, tuple[int, int]] = {}
        self._local = is_local(table)
        uri = f"{table.rstrip('/')}/{self.path}"
        if self._local:
            Path(uri).parent.mkdir(parents=True, exist_ok=True)
            self._uri = uri
            self._sink = pa.OSFile(uri, "wb")
        else:
            from pyarrow import fs

            system, self._uri = fs.FileSystem.from_uri(uri)
            self._sink = system.open_output_stream(self._uri)
            self._system = system
        self._writer = pq.ParquetWriter(
            self._sink,
            FILE_SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=["partition", "priority", "producer"],
            write_statistics=["partition", "offset", "timestamp"],
            store_schema=False,
        )

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows of this topic and date, with the columns of `FILE_SCHEMA`."""
        self._held.append(rows)
        self._rows_held += rows.num_rows
        self._bytes_held += rows.get_total_buffer_size()
        if self._rows_held >= GROUP_ROWS or self._bytes_held >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        rows = pa.Table.from_batches(self._held, FILE_SCHEMA)
        self._held, self._rows_held, self._bytes_held = [], 0, 0
        for name in ("partition", "offset", "timestamp"):
            low, high = _bounds(rows.column(name))
            known = self._bounds.get(name, (low, high))
            self._bounds[name] = min(low, known[0]), max(high, known[1])
        self.rows += rows.num_rows
        self._writer.write_table(rows, row_group_size=rows.num_rows)

    def close(self) -> File:
        self._flush()
        self._writer.close()
        self._sink.close()
        if self._local:
            _sync(self._uri)
            size = os.path.getsize(self._uri)
        else:
            size = self._system.get_file_info(self._uri).size
        partition, offset, stamp = (self._bounds[name] for name in ("partition", "offset", "timestamp"))
        return File(
            self.path,
            size,
            self.topic,
            self.day,
            self.rows,
            *partition,
            *offset,
            stamp[0] // 1000,
            stamp[1] // 1000,
        )


def _bounds(column: pa.ChunkedArray) -> tuple[int, int]:
    values = _numbers(column)
    return int(values.min()), int(values.max())


def _numbers(column: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    return column.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def _sync(path: str) -> None:
    for one in (path, os.path.dirname(path)):
        number = os.open(one, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def write_range(place: Place, table: str, wanted: Range) -> Iterator[File]:
    """Reads a range and writes its files, one a date."""
    writers: dict[int, FileWriter] = {}
    for rows in read_range(place, wanted, STORED):
        for day, some in by_day(rows):
            writer = writers.pop(day, None)
            if writer is None:
                if len(writers) >= FILES_OPEN:
                    yield writers.pop(next(iter(writers))).close()
                writer = FileWriter(table, wanted.topic, EPOCH + timedelta(days=day))
            writers[day] = writer
            writer.add(some)
    for writer in writers.values():
        yield writer.close()


def by_day(rows: pa.RecordBatch) -> Iterable[tuple[int, pa.RecordBatch]]:
    """Rows by the day of their time, as days since 1970; almost always one."""
    days = _numbers(rows.column("timestamp")) // (DAY_MS * 1000)
    if not len(days):
        return
    if days[0] == days[-1] and (days == days[0]).all():
        yield int(days[0]), rows
        return
    for day in np.unique(days):
        yield int(day), rows.filter(pa.array(days == day))


def merge(table: str, files: list[File]) -> File:
    """The rows of several files of one topic and date in one file, in the order of the files."""
    writer = FileWriter(table, files[0].topic, files[0].date)
    for file in files:
        uri = f"{table.rstrip('/')}/{file.path}"
        for rows in _read(uri):
            writer.add(rows)
    return writer.close()


def _read(uri: str) -> Iterator[pa.RecordBatch]:
    if is_local(uri):
        source: Any = pa.memory_map(uri)
    else:
        from pyarrow import fs

        system, path = fs.FileSystem.from_uri(uri)
        source = system.open_input_file(path)
    with source, pq.ParquetFile(source) as file:
        for rows in file.iter_batches(batch_size=50_000, columns=list(STORED)):
            yield rows.cast(FILE_SCHEMA)
