"""The views of a topic beside its messages: deliveries, schedule and dead letters, each a table of its own.

A view is asked twice: the driver asks what there is to read (`plan`), each task reads one share of it (`read`).

    view=deliveries     what happened to each message in each group, told by the ledgers
    view=schedule       what waits for its time
    view=dead_letters   what was given up on, with why

Options: `subscribe`, `subscribePattern` or `assign`, as of messages; deliveries and dead_letters take `group` too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from trine.spark.ledger import DeliveriesView
from trine.spark.letters import DeadLettersView
from trine.spark.place import Place
from trine.spark.schedule import ScheduleView


class View(Protocol):
    @property
    def schema(self) -> StructType: ...

    def plan(self, place: Place, options: Mapping[str, str]) -> list[Any]:
        """What there is to read: shares that can be pickled, one a task."""
        ...

    def read(self, place: Place, share: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one share, in batches that match the schema to the letter."""
        ...


VIEWS: Final[dict[str, View]] = {
    "deliveries": DeliveriesView(),
    "schedule": ScheduleView(),
    "dead_letters": DeadLettersView(),
}
