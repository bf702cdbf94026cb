"""User pipelines: from topics, through SQL and Python functions, to topics or tables, declared in a file.

load(path)                  what a file declares
check(spark, path)          all that is wrong with it, before anything runs
run(spark, place, path)     runs it: once, or for as long as it is wanted
"""

from __future__ import annotations

from trine.spark.pipelines.checking import check
from trine.spark.pipelines.declaration import Declaration, load
from trine.spark.pipelines.declaring import Pipeline
from trine.spark.pipelines.reading import Fault, explain
from trine.spark.pipelines.running import RunSummary, SinkSummary, run

__all__ = ["Declaration", "Fault", "Pipeline", "RunSummary", "SinkSummary", "check", "explain", "load", "run"]
