"""The table view: topics read, written, archived and replayed by Spark through PySpark. Needs `trine[spark]`.

    import trine.spark
    trine.spark.register(spark)
    spark.read.format("trine").option("trine.servers", "trine://127.0.0.1:5680").option("subscribe", "orders").load()

What this room refuses to do: keep messages or positions of its own. Data lives in the broker's log, in the archive's
table and in Spark's checkpoints.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trine.spark.place import Place
    from trine.spark.session import spark_session
    from trine.spark.source import PushingTrineDataSource, TrineDataSource, register

_HOME_OF: Final = {
    "Place": "trine.spark.place",
    "PushingTrineDataSource": "trine.spark.source",
    "TrineDataSource": "trine.spark.source",
    "register": "trine.spark.source",
    "spark_session": "trine.spark.session",
}
"""Where each public name lives; fetched when it is asked for, so that `trine --help` does not wait for PySpark."""


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"trine.spark has no {name!r}")
    found = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


__all__ = ["Place", "PushingTrineDataSource", "TrineDataSource", "register", "spark_session"]
