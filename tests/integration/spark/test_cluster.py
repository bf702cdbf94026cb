"""The same commands on a real standalone Spark cluster: a master and two workers on loopback."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from deltalake import DeltaTable

from tests.integration.spark.cluster import Cluster

pytestmark = pytest.mark.slow  # three more JVMs, and one a command: well over a minute on two cores

ROWS = 500


def command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "trine.cli", *words], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_on_a_cluster(server, broker, topic_name, tmp_path):
    topic = broker.create_topic(topic_name, partitions=2)
    topic.publish_many([{"key": str(n), "value": json.dumps({"id": n})} for n in range(ROWS)])
    out = broker.create_topic(f"{topic_name}.out", partitions=2)
    file = tmp_path / "p.yaml"
    file.write_text(f"""\
sources: {{rows: {{topic: {topic_name}, json: id BIGINT}}}}
steps: {{even: {{sql: "SELECT id FROM rows WHERE id % 2 = 0"}}}}
sinks:
  even: {{topic: {out.name}}}
  table: {{from: even, table: even}}
""")
    with Cluster(tmp_path / "cluster") as cluster:
        there = ["--server", server.url, "--master", cluster.url, "--conf", "spark.executor.memory=512m"]
        summary = json.loads(command("pipeline", "run", str(file), "--json", *there))
        assert [one["rows_out"] for one in summary["sinks"]] == [ROWS // 2, ROWS // 2]
        archive = str(tmp_path / "archive")
        command("archive", "run", topic_name, "--to", archive, "--json", *there)
        counted = command("sql", f"SELECT count(*) AS n FROM `{out.name}`", "-o", "json", *there)
        assert json.loads(counted)["n"] == ROWS // 2
        assert cluster.ran() >= 3
    table = DeltaTable(str(tmp_path / "even")).to_pyarrow_table()
    assert sorted(table["id"].to_pylist()) == list(range(0, ROWS, 2))
    assert DeltaTable(archive).to_pyarrow_table().num_rows == ROWS
