"""`trine redrive`: dead letters found by SQL on Spark, moved by the broker, each once."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from trine.model.errors import InvalidInput, UnknownTopic
from trine.spark import redrive as redrives
from trine.spark.redrive import letters, redrive


@pytest.fixture
def buried(broker, topic_name):
    topic = broker.create_topic(topic_name, partitions=2)
    topic.publish_many([{"key": str(n), "value": json.dumps({"n": n})} for n in range(200)])
    consumer = topic.group("billing").consumer("worker")
    while got := consumer.receive(max=200):
        for message in got:
            message.reject("late" if json.loads(message.value)["n"] % 2 else "no such customer")
    consumer.close()
    return topic


WHERE = "reason = 'late' AND get_json_object(CAST(value AS STRING), '$.n') >= 100"


def left(topic):
    return {json.loads(one.value)["n"] for one in topic.dead_letters(limit=1000)}


def test_by_a_condition(spark, place, broker, buried):
    dry = redrive(spark, place, buried.name, WHERE, dry_run=True)
    assert (dry.matched, dry.moved, dry.job) == (50, 0, None)
    assert len(left(buried)) == 200
    done = redrive(spark, place, buried.name, WHERE)
    assert (done.matched, done.moved, done.passed_over) == (50, 50, 0)
    assert left(buried) == {n for n in range(200) if not (n % 2 and n >= 100)}
    assert redrive(spark, place, buried.name, WHERE).matched == 0
    back: list[int] = []
    buried.group("billing").resume()  # the breaker had paused it: everything failed
    with buried.group("billing").consumer("w2") as consumer:
        while len(back) < 50 and (got := consumer.receive(max=200, wait="10s")):
            back += [json.loads(one.value)["n"] for one in got]
    assert sorted(back) == list(range(101, 200, 2))


def test_killed_in_the_middle_and_resumed(spark, place, broker, buried, monkeypatch):
    """The caller dies between two steps; the job is resumed by its id and by nothing else it knew."""
    monkeypatch.setattr(redrives, "MOVE_MAX", 20)

    def die(what, done, total):
        if done >= 40:
            raise KeyboardInterrupt

    target = broker.create_topic(f"{buried.name}.to", partitions=1)
    with pytest.raises(KeyboardInterrupt):
        redrive(spark, place, buried.name, "reason = 'late'", to=target.name, progress=die)
    [job] = [one for one in broker.redrives() if one.progress["topic"] == f"{buried.name}.dlq"]
    assert job.progress["moved"] == 40
    done = redrive(spark, place, resume=job.id)
    assert (done.moved, done.passed_over) == (100, 0)
    moved = [json.loads(one.value)["n"] for one in target.read(partition=0, from_offset=0, max=1000)]
    assert sorted(moved) == list(range(1, 200, 2))


def test_bad_conditions_are_told_before_a_job_is_begun(spark, place, broker, buried):
    before = len(broker.redrives())
    with pytest.raises(InvalidInput, match="reasn"):
        redrive(spark, place, buried.name, "reasn = 'late'")
    broker.create_topic(f"{buried.name}-clean")
    with pytest.raises(UnknownTopic, match="no dead letters"):
        redrive(spark, place, f"{buried.name}-clean", "true")
    assert len(broker.redrives()) == before
    assert letters(spark, place, buried.name, "true").count() == 200
