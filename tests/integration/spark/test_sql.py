"""SQL over topics, in the library and on the command line."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import trine
from tests.integration.serving import Serving
from tests.integration.spark.lives import MESSAGES, SCHEDULED, live
from trine.model.errors import InvalidInput, NotFound, UnknownTopic
from trine.spark.errors import plain
from trine.spark.place import Place
from trine.spark.sql import quoted, sql, table_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_names_are_quoted_and_strings_are_not() -> None:
    assert quoted("select 'x$schedule' from a-b$schedule -- y$schedule") == (
        "select 'x$schedule' from `a-b$schedule` -- y$schedule"
    )
    assert quoted("from `a.b$archive`, c.d$archive") == "from `a.b$archive`, `c.d$archive`"


def test_topics_and_ledgers_are_tables(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str
) -> None:
    live(broker, topic_name)
    name = f"`{topic_name}`"
    assert {topic_name, f"{topic_name}$deliveries", f"{topic_name}.dlq"} <= set(table_names(place))
    (found,) = sql(
        spark,
        place,
        f"with x as (select * from {name} where get_json_object(value, '$.n') = 5) select key, offset from x",
    ).collect()
    assert (found.key, found.offset) == ("k2", 5)
    joined = sql(
        spark,
        place,
        f"select m.value, d.reason from {name} m join {topic_name}$deliveries d using (offset) "
        "where d.event = 'dead_lettered';",
    ).collect()
    assert [tuple(row) for row in joined] == [('{"n": 6}', "broken order")]
    assert sql(spark, place, f"select * from {topic_name}$schedule").count() == SCHEDULED
    assert (
        sql(spark, place, f"select origin from {topic_name}$dead_letters").first()[0] == f"{topic_name}/0/6"
    )
    assert (
        sql(spark, place, f"select value from {name} limit 1", binary=True).schema[0].dataType.typeName()
        == "binary"
    )
    with pytest.raises(NotFound, match="has no archive"):
        sql(spark, place, f"select * from {topic_name}$archive")


def test_errors_are_one_sentence(
    spark: SparkSession, broker: trine.Broker, place: Place, topic_name: str
) -> None:
    broker.create_topic(topic_name)
    with pytest.raises(UnknownTopic, match=f"there is no table '{topic_name}x'; did you mean .*{topic_name}"):
        sql(spark, place, f"select * from `{topic_name}x`")
    with pytest.raises(InvalidInput, match="cannot be resolved") as caught:
        sql(spark, place, f"select nothing_such from `{topic_name}`")
    assert "\n" not in caught.value.message
    with pytest.raises(InvalidInput, match="Syntax error"):
        sql(spark, place, "selec 1")
    for writing in (
        "drop table x",
        "create table x as select 1",
        "with a as (select 1) insert into x select * from a",
    ):
        with pytest.raises(InvalidInput, match="only reads"):
            sql(spark, place, writing)
    with pytest.raises(InvalidInput, match="in backquotes"), plain():
        broker.create_topic(f"{topic_name}.b")
        sql(spark, place, f"select * from `{topic_name}`.b")


def test_the_command(server: Serving, broker: trine.Broker, topic_name: str) -> None:
    """One start of Spark; what goes wrong is tried with the session that is there."""
    live(broker, topic_name)
    env = {**os.environ, "TRINE_SERVER": server.url, "TRINE_SPARK_MASTER": "local[1]"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trine.cli", "sql", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)

    ran = run(f"select offset, value from `{topic_name}` order by offset", "-o", "csv", "--limit", "9")
    assert ran.returncode == 0, ran.stderr
    rows = list(csv.DictReader(io.StringIO(ran.stdout)))
    assert [int(row["offset"]) for row in rows] == list(range(MESSAGES - 1))
    assert rows[3]["value"] == '{"n": 3}'
    assert "more rows than these 9" in ran.stderr
    listed = run("--json")
    assert {"table": topic_name} in json.loads(listed.stdout)
