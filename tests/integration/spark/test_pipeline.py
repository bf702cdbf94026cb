"""Pipelines run: SQL, Python, windows, joins and state, to topics and tables; killed in the middle, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from deltalake import DeltaTable, write_deltalake

import trine
from trine.model.errors import Conflict, InvalidConfig
from trine.spark.pipelines import run

FUNCTIONS = """
def cents(batches):
    for batch in batches:
        batch["cents"] = (batch["amount"] * 100).astype("int64")
        yield batch[["id", "cents"]]

def seen(key, batches, state):
    import pandas as pd
    before = state.get[0] if state.exists else 0
    now = before + sum(len(one) for one in batches)
    state.update((now,))
    yield pd.DataFrame({"customer": [key[0]], "orders": [now]})
"""


def publish(broker, topic: str, first: int, count: int) -> None:
    broker.topic(topic).publish_many(
        [
            {
                "key": str(n),
                "value": json.dumps(
                    {
                        "id": n,
                        "customer": f"c{n % 3}",
                        "amount": n / 4,
                        "at": f"2026-01-01T00:{n % 60:02}:00Z",
                    }
                ),
            }
            for n in range(first, first + count)
        ]
    )


def values(broker, topic: str) -> list[dict]:
    handle = broker.topic(topic)
    found = []
    for partition in range(len(handle.describe().partitions)):
        at = 0
        while got := handle.read(partition=partition, from_offset=at, max=1000):
            found += [json.loads(one.value) for one in got]
            at = got[-1].offset + 1
    return found


@pytest.fixture
def orders(broker, topic_name):
    broker.create_topic(topic_name, partitions=2)
    publish(broker, topic_name, 0, 60)
    return topic_name


def test_sql_python_join_and_state_in_one_file(spark, place, broker, orders, tmp_path):
    for name in ("big", "cents", "seen"):
        broker.create_topic(f"{orders}.{name}", partitions=2)
    import pyarrow as pa

    write_deltalake(str(tmp_path / "names"), pa.table({"customer": ["c0", "c1"], "name": ["Ada", "Bob"]}))
    (tmp_path / "p.py").write_text(FUNCTIONS)
    file = tmp_path / "p.yaml"
    file.write_text(
        f"""\
sources:
  orders: {{topic: {orders}, json: "id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP"}}
  names: {{table: names}}
steps:
  big: {{sql: "SELECT id, name FROM orders JOIN names USING (customer) WHERE amount >= 10"}}
  cents: {{python: cents, input: orders, kind: pandas, schema: "id BIGINT, cents BIGINT"}}
  seen:
    python: p.py:seen
    input: orders
    state: {{key: customer, schema: n BIGINT}}
    schema: customer STRING, orders BIGINT
    mode: update
  minutes:
    sql: SELECT customer, count(*) AS n FROM orders GROUP BY customer
sinks:
  big: {{topic: {orders}.big, key: id}}
  cents: {{topic: {orders}.cents}}
  seen: {{topic: {orders}.seen, mode: update}}
  minutes: {{table: out/minutes, mode: complete}}
  upserted: {{from: minutes, table: out/upserted, mode: update, keys: customer}}
"""
    )
    done = run(spark, place, file)
    by_name = {one.name: one for one in done.sinks}
    expected = [{"id": n, "name": "Ada" if n % 3 == 0 else "Bob"} for n in range(40, 60) if n % 3 < 2]
    assert sorted(values(broker, f"{orders}.big"), key=lambda one: one["id"]) == expected
    assert by_name["big"].rows_out == len(expected)
    assert (by_name["cents"].rows_in, by_name["cents"].rows_out) == (60, 60)
    assert {one["cents"] for one in values(broker, f"{orders}.cents")} == {n * 25 for n in range(60)}
    assert {(o["customer"], o["orders"]) for o in values(broker, f"{orders}.seen")} == {
        ("c0", 20), ("c1", 20), ("c2", 20)
    }  # fmt: skip

    publish(broker, orders, 60, 3)  # a second run reads only what is new
    again = {one.name: one for one in run(spark, place, file, only=["cents", "seen", "upserted"]).sinks}
    assert list(again) == ["cents", "seen", "upserted"]
    assert (again["cents"].rows_in, again["cents"].rows_out) == (3, 3)
    assert len(values(broker, f"{orders}.cents")) == 63
    assert {(o["customer"], o["orders"]) for o in values(broker, f"{orders}.seen")} >= {
        ("c0", 21),
        ("c2", 21),
    }
    for table, count in (("minutes", 20), ("upserted", 21)):
        rows = DeltaTable(str(tmp_path / "out" / table)).to_pyarrow_table().to_pylist()
        assert sorted((row["customer"], row["n"]) for row in rows) == [(f"c{n}", count) for n in range(3)]


def test_sinks_that_read_each_other_run_in_order(spark, place, broker, orders, tmp_path):
    broker.create_topic(f"{orders}.small", partitions=1)
    file = tmp_path / "chain.yaml"
    file.write_text(f"""\
sources:
  orders: {{topic: {orders}, json: "id BIGINT, customer STRING"}}
  small: {{topic: {orders}.small, json: "id BIGINT, customer STRING"}}
steps:
  less: {{sql: "SELECT id, customer FROM orders WHERE id < 10"}}
sinks:
  table: {{from: small, table: out, partition_by: customer}}
  shown: {{from: less, console: true}}
  less: {{topic: {orders}.small}}
""")
    seen = []
    done = run(spark, place, file, show=lambda name, columns, rows: seen.extend(rows))
    assert [one.name for one in done.sinks] == ["shown", "less", "table"]
    assert len(seen) == 10
    table = DeltaTable(str(tmp_path / "out")).to_pyarrow_table()
    assert sorted(table["id"].to_pylist()) == list(range(10))


def test_a_changed_query_does_not_go_on_from_an_old_checkpoint(spark, place, broker, orders, tmp_path):
    text = f"""\
sources: {{orders: {{topic: {orders}, json: "id BIGINT, customer STRING"}}}}
steps: {{counts: {{sql: "SELECT customer, count(*) AS n FROM orders WHERE id > 0 GROUP BY customer"}}}}
sinks: {{counts: {{table: out, mode: complete}}}}
"""
    file = tmp_path / "p.yaml"
    file.write_text(text)
    run(spark, place, file)
    file.write_text(text.replace("id > 0", "id > 1"))  # a filter may change
    run(spark, place, file)
    file.write_text(text.replace("count(*) AS n", "max(id) AS n"))
    with pytest.raises(Conflict, match="what it groups or joins.*begin anew by removing"):
        run(spark, place, file)
    file.write_text(text.replace("SELECT", "SELEC"))
    with pytest.raises(InvalidConfig, match="p.yaml:2"):
        run(spark, place, file)


@pytest.mark.slow
def test_killed_in_the_middle_and_resumed(server, broker, orders, tmp_path):
    """kill -9 of the whole job, twice, at different times; then each row is in the topic and in the table once."""
    out = f"{orders}.out"
    broker.create_topic(out, partitions=2)
    publish(broker, orders, 60, 3000)
    file = tmp_path / "p.yaml"
    file.write_text(f"""\
sources: {{orders: {{topic: {orders}, json: "id BIGINT, customer STRING", rate: 250}}}}
steps:
  kept: {{sql: "SELECT id, customer FROM orders"}}
  shuffled: {{sql: "SELECT /*+ REPARTITION(2) */ id, customer FROM orders"}}
sinks:
  kept: {{table: out}}
  shuffled: {{topic: {out}}}
""")
    command = [sys.executable, "-m", "trine.cli", "pipeline", "run", str(file), "--server", server.url, "--json",
               "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2"]  # fmt: skip
    for least in (500, 1500):
        job = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        deadline = time.monotonic() + 120
        while _count(broker, out) < least and job.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert {one["name"] for one in json.loads(done.stdout)["sinks"]} == {"kept", "shuffled"}
    assert sorted(one["id"] for one in values(broker, out)) == list(range(3060))
    table = DeltaTable(str(tmp_path / "out")).to_pyarrow_table()
    assert sorted(table["id"].to_pylist()) == list(range(3060))


def _count(broker: trine.Broker, topic: str) -> int:
    return len(values(broker, topic))


def test_the_examples_run(spark, place, broker, tmp_path):
    """What examples/pipelines has is run as it stands."""
    examples = Path(__file__).parents[3] / "examples" / "pipelines"
    for name in ("orders", "orders.big", "orders.seen"):
        if name not in {one.name for one in broker.topics()}:
            broker.create_topic(name, partitions=2)
    publish(broker, "orders", 0, 30)
    for file in sorted(examples.glob("*.*")):
        copied = tmp_path / file.name
        copied.write_text(file.read_text())
    done = run(spark, place, tmp_path / "orders.yaml")
    assert {one.name: one.rows_in for one in done.sinks}["big"] == 30
    python = run(spark, place, tmp_path / "customers.py", {"floor": "2"})
    assert python.sinks[0].rows_out > 0
