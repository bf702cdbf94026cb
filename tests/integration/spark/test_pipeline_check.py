"""Pipelines: what is wrong with one is told all at once, with its line, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from trine.spark.pipelines import check, load

GOOD = """\
set: {floor: 10}
sources:
  orders:
    topic: orders
    json: id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP
    watermark: {column: at, delay: 1 minute}
steps:
  big:
    sql: SELECT * FROM orders WHERE amount > ${floor}
  totals:
    sql: |
      SELECT customer, window.start AS minute, sum(amount) AS amount
      FROM big GROUP BY customer, window(at, '1 minute')
sinks:
  big: {topic: big, key: customer}
  totals: {table: out/totals, partition_by: customer}
"""


def written(tmp_path: Path, text: str, name: str = "p.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def told(faults, path: Path) -> list[str]:
    return [str(one).removeprefix(f"{path}:") for one in faults]


def test_a_good_one_has_no_faults(spark, tmp_path):
    assert check(spark, written(tmp_path, GOOD)) == []


def test_all_faults_are_told_with_their_lines(spark, tmp_path):
    path = written(
        tmp_path,
        """\
sources:
  orders: {topic: orders, jsn: id BIGINT}
  both: {topic: a, table: b}
  events: {topic: events, json: "id BIGINT, at TIMESTAMP"}
  bad_json: {topic: x, json: "id BOGINT"}
steps:
  typo:
    sql: |
      SELECT id,
        amont
      FROM events
  no_sql: {sql: SELEC 1}
  lost: {python: "gone:there", input: events}
  circle: {sql: SELECT * FROM square}
  square: {sql: SELECT * FROM circle}
  counted: {sql: "SELECT id, count(*) AS n FROM events GROUP BY id"}
  mine: {sql: SELECT * FROM elsewhere}
sinks:
  counted: {topic: counts}
  nowhere: {from: nothing, topic: out}
  twice: {from: events, topic: out, console: true}
snks: {}
""",
    )
    text = told(check(spark, path), path)
    for line, part in [
        ("2", "sources.orders has no word 'jsn'; did you mean 'json'?"),
        ("3", "sources.both needs one of topic, topics, pattern and table"),
        ("5", "sources.bad_json"),
        ("10", "amont"),
        ("12", "steps.no_sql"),
        ("13", "steps.lost: gone cannot be imported"),
        ("14", "circle -> square -> circle"),
        ("17", "elsewhere"),
        ("19", "sinks.counted: Invalid streaming output mode: append"),
        ("20", "there is no source or step 'nothing'"),
        ("21", "sinks.twice needs one of topic, table and console"),
        ("22", "there is no section 'snks'; did you mean 'sinks'?"),
    ]:
        assert any(one.startswith(f"{line}: ") and part in one for one in text), (line, part, text)


def test_variables(spark, tmp_path):
    path = written(tmp_path, GOOD)
    assert load(path, {"floor": "99"}).steps["big"].sql == "SELECT * FROM orders WHERE amount > 99"
    assert "has no 'flor' under `set`" in str(check(spark, path, {"flor": "1"})[0])
    missing = written(tmp_path, GOOD.replace("set: {floor: 10}\n", ""), "m.yaml")
    assert "--set floor=" in str(check(spark, missing)[0])


def test_topics_that_are_not_there(spark, place, tmp_path):
    found = [
        str(one)
        for one in check(spark, written(tmp_path, GOOD.replace("topic: ", "topic: no-")), place=place)
    ]
    assert any("there is no topic 'no-orders'" in one for one in found)
    assert any("trine topic create no-big" in one for one in found)


def test_not_a_pipeline(spark, tmp_path):
    assert "is not YAML" in str(check(spark, written(tmp_path, "a: [1"))[0])
    assert "no such file" in str(check(spark, tmp_path / "none.yaml")[0])
    python = written(tmp_path, "import trine\nx = 1 / 0\n", "p.py")
    assert f"{python}:2: ZeroDivisionError" in str(check(spark, python)[0])
    loop = "sources: {a: {topic: t}}\nsinks: {a: {topic: t}}\n"
    assert "feed themselves through topics" in str(check(spark, written(tmp_path, loop))[0])
