"""The archive's table: Delta Lake through `deltalake`, with one commit a round of archiving.

How far the archive of a partition has come is in the table itself, as Delta's application transactions. They are part
of the table's state, so that checkpoints keep them and reading them costs nothing:

    trine-archive                        the number of the round
    trine-archive/<topic>/<partition>    the next offset that is not archived
    trine-archive-time/<topic>/<partition>   the time of the last one that is, in ms

Each commit also says in its own words (commitInfo) which offsets it holds, as `trine.offsets`:
`{"orders": {"0": [first, next]}}`, and as `trine.gaps` which ones the log had lost.

A commit is made on the version of the table that was looked at, or not at all. So of two archivers one is refused,
and nothing is ever in the table twice.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake._internal import RemoveAction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Schema
from deltalake.transaction import AddAction

from trine.model.errors import Conflict, InvalidInput, InvalidOption, NotFound, StoreFailed
from trine.spark.columns import NAMES, messages_schema

APP: Final = "trine-archive"
OFFSETS: Final = "trine.offsets"
GAPS: Final = "trine.gaps"
PARTITIONED: Final = ("topic", "date")
DERIVED: Final = "message_id"
"""Made of topic, partition and offset when the table is read: it need not be kept."""
KEPT: Final = tuple(name for name in NAMES if name != DERIVED)
STORED: Final = tuple(name for name in KEPT if name not in PARTITIONED)
"""Columns of the files; the others are in their paths."""
TABLE_SCHEMA: Final = messages_schema(KEPT).append(pa.field("date", pa.date32()))
FILE_SCHEMA: Final = messages_schema(STORED)
COMMITS_MAX: Final = 20
"""Attempts at one commit while others commit too: each is followed by a new look at the table."""
CHECKPOINT_COMMITS: Final = 20

Offsets = dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class File:
    """A data file of the table."""

    path: str
    """Relative to the table."""
    size: int
    topic: str
    date: date
    rows: int
    first_partition: int
    last_partition: int
    first_offset: int
    last_offset: int
    first_ms: int
    last_ms: int

    def add(self, *, new: bool) -> AddAction:
        least = {
            "partition": self.first_partition,
            "offset": self.first_offset,
            "timestamp": _text(self.first_ms),
        }
        most = {
            "partition": self.last_partition,
            "offset": self.last_offset,
            "timestamp": _text(self.last_ms),
        }
        stats = {
            "numRecords": self.rows,
            "minValues": least,
            "maxValues": most,
            "nullCount": dict.fromkeys(least, 0),
        }
        return AddAction(
            self.path, self.size, self._values(), int(time.time() * 1000), new, json.dumps(stats)
        )

    def remove(self) -> RemoveAction:
        return RemoveAction(self.path, False, int(time.time() * 1000), self.size, dict(self._values()))

    def _values(self) -> dict[str, str | None]:
        return {"topic": self.topic, "date": self.date.isoformat()}


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def absolute(path: str) -> str:
    """A path of this machine in full; addresses of object stores as they are."""
    if not path:
        raise InvalidInput("the archive's path is empty: say where it is, e.g. /var/lib/trine/archive")
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    return path if "://" in path else str(Path(path).expanduser().absolute())


def is_local(path: str) -> bool:
    return "://" not in path


def make_directory(path: str) -> None:
    """Where a table shall be, if that is on this machine."""
    if not is_local(path):
        return
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidOption(f"{path} is not a directory, and a table is one: choose another path") from None
    except OSError as error:
        raise StoreFailed(f"{path} cannot be made: {error.strerror}; choose another path") from None


class Table:
    """One version of an archive, until `refresh`."""

    def __init__(self, path: str, table: DeltaTable) -> None:
        self.path = path
        self.delta = table

    @classmethod
    def open(cls, path: str, version: int | None = None) -> Table:
        path = absolute(path)
        try:
            return cls(path, DeltaTable(path, version=version))
        except TableNotFoundError:
            raise NotFound(f"there is no archive at {path}; `trine archive --to` makes one") from None
        except DeltaError as error:
            raise NotFound(f"the archive at {path} cannot be read: {error}") from error

    @classmethod
    def open_or_make(cls, path: str) -> Table:
        path = absolute(path)
        make_directory(path)
        if not DeltaTable.is_deltatable(path):
            DeltaTable.create(
                path,
                schema=Schema.from_arrow(TABLE_SCHEMA),
                mode="ignore",  # another archiver may be making it
                partition_by=list(PARTITIONED),
                name="trine-archive",
                configuration={"delta.checkpointInterval": str(CHECKPOINT_COMMITS)},
            )
        table = cls.open(path)
        if set(TABLE_SCHEMA.names) - {field.name for field in table.delta.schema().fields}:
            raise InvalidInput(f"the table at {path} is no archive of Trine: choose another path")
        return table

    @property
    def version(self) -> int:
        return self.delta.version()

    def refresh(self) -> None:
        self.delta.update_incremental()

    # --- how far it has come

    def offset(self, topic: str, partition: int) -> int:
        """The next offset that is not archived."""
        return self.delta.transaction_version(f"{APP}/{topic}/{partition}") or 0

    def offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        return {number: self.offset(topic, number) for number in partitions}

    def last_ms(self, topic: str, partition: int) -> int | None:
        """The time of the last message that is archived."""
        return self.delta.transaction_version(f"{APP}-time/{topic}/{partition}")

    @property
    def rounds(self) -> int:
        return self.delta.transaction_version(APP) or 0

    def gaps(self, topic: str) -> dict[int, list[tuple[int, int]]]:
        """What the log had lost before it was archived, as far back as the table's history goes."""
        found: dict[int, list[tuple[int, int]]] = {}
        for info in self.delta.history():
            for number, (start, end) in json.loads(info.get(GAPS, "{}")).get(topic, {}).items():
                found.setdefault(int(number), []).append((start, end))
        return found

    # --- its files

    def files(self, topics: Sequence[str] | None = None) -> list[File]:
        rows = pa.table(self.delta.get_add_actions(flatten=True)).to_pylist()
        found = [_file(row) for row in rows]
        return [one for one in found if topics is None or one.topic in topics]

    def uri(self, file: File) -> str:
        return f"{self.path.rstrip('/')}/{file.path}"

    # --- commits

    def commit(
        self,
        files: Sequence[File],
        start: Mapping[str, Mapping[int, int]],
        end: Mapping[str, Mapping[int, int]],
        times: Mapping[tuple[str, int], int],
        gaps: Mapping[str, Mapping[int, tuple[int, int]]],
    ) -> int:
        """Adds the files of a round that goes from `start` to `end`; the new version.

        Refused if the archive is no longer where the round began: somebody else went on from there.
        """
        moved = [
            (topic, number, start[topic][number], until)
            for topic, some in end.items()
            for number, until in some.items()
            if until != start[topic][number]
        ]

        def still() -> None:
            for topic, number, since, _ in moved:
                if self.offset(topic, number) != since:
                    raise Conflict(
                        f"another archiver has written {topic}/{number} up to {self.offset(topic, number)} meanwhile; "
                        "nothing was added. Run one archiver for each topic"
                    )

        spans: dict[str, dict[str, list[int]]] = {}
        marks = [Transaction(APP, self.rounds + 1)]
        for topic, number, since, until in moved:
            spans.setdefault(topic, {})[str(number)] = [since, until]
            marks.append(Transaction(f"{APP}/{topic}/{number}", until))
            if (topic, number) in times:
                marks.append(Transaction(f"{APP}-time/{topic}/{number}", times[topic, number]))
        said = {OFFSETS: json.dumps(spans)}
        if gaps:
            said[GAPS] = json.dumps(gaps)
        return self._commit([file.add(new=True) for file in files], said, marks, still)

    def replace(self, old: Sequence[File], new: Sequence[File]) -> int:
        """Puts the same rows into other files, in one step."""

        def still() -> None:
            there = {file.path for file in self.files()}
            gone = [file.path for file in old if file.path not in there]
            if gone:
                raise Conflict(f"{gone[0]} was rewritten by somebody else meanwhile; nothing was changed")

        actions = [*(file.add(new=False) for file in new), *(file.remove() for file in old)]
        return self._commit(actions, {"trine.upkeep": "compact"}, [], still)

    def _commit(self, actions: list[Any], said: dict[str, str], marks: list[Transaction], still: Any) -> int:
        for _ in range(COMMITS_MAX):
            self.refresh()
            still()
            try:
                self.delta.create_write_transaction(
                    actions,
                    "append",
                    self.delta.schema(),
                    list(PARTITIONED),
                    commit_properties=CommitProperties(
                        custom_metadata=said, max_commit_retries=0, app_transactions=marks
                    ),
                )
            except CommitFailedError:
                continue  # somebody else's commit came first: look at what it did
            self.refresh()
            self._sync()
            return self.version
        raise Conflict(
            f"the archive at {self.path} was changed by others {COMMITS_MAX} times in a row; try again"
        )

    def _sync(self) -> None:
        """What retention may rely on is on the disk, not only in the hands of the operating system."""
        if not is_local(self.path):
            return
        log = Path(self.path, "_delta_log")
        for path in (log / f"{self.version:020d}.json", log):
            if path.exists():
                number = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(number)
                finally:
                    os.close(number)


def _file(row: Mapping[str, Any]) -> File:
    def ms(name: str) -> int:
        seconds: float = row[f"{name}.timestamp"].timestamp()
        return round(seconds * 1000)

    return File(
        path=row["path"],
        size=row["size_bytes"],
        topic=row["partition.topic"],
        date=row["partition.date"],
        rows=row["num_records"],
        first_partition=row["min.partition"],
        last_partition=row["max.partition"],
        first_offset=row["min.offset"],
        last_offset=row["max.offset"],
        first_ms=ms("min"),
        last_ms=ms("max"),
    )
