"""A redrive with `where`: its caller names the letters, the job moves exactly those, each once."""

from __future__ import annotations

import pytest

from trine import errors


def bury(broker, count: int):
    topic = broker.create_topic("orders", partitions=2)
    topic.publish_many([{"value": str(number), "key": str(number)} for number in range(count)])
    for message in topic.group("billing").consumer("worker").receive(max=count):
        message.reject("no such customer")
    return topic


def places(letters):
    return sorted((letter.partition, letter.offset) for letter in letters)


def test_exactly_the_named_letters_are_moved(broker):
    topic = bury(broker, 20)
    chosen = places([one for one in topic.dead_letters() if int(one.value) % 3 == 0])
    left = {one.value for one in topic.dead_letters() if int(one.value) % 3}
    job = broker.redrive("orders", where="value % 3 = 0")
    assert job.where == "value % 3 = 0"
    assert job.move(chosen[:4]) == 4
    assert job.move(chosen, last=True) == len(chosen)  # the first four again: they are passed over
    progress = job.progress
    assert (progress["moved"], progress["passed_over"], progress["state"]) == (len(chosen), 4, "done")
    assert {one.value for one in topic.dead_letters()} == left
    again = [one.value for one in topic.group("billing").consumer("worker").receive(max=50)]
    assert sorted(map(int, again)) == [0, 3, 6, 9, 12, 15, 18]


def test_letters_that_came_after_the_job_are_not_part_of_it(broker):
    topic = bury(broker, 2)
    job = broker.redrive("orders", where="true")
    topic.publish_many([{"value": "late", "key": str(number)} for number in range(6)])
    for message in topic.group("billing").consumer("worker").receive(max=10):
        message.reject("again")
    named = places(topic.dead_letters())
    assert job.move(named, last=True) == len(named)
    assert [one.value for one in topic.dead_letters()] == [b"late"] * 6


def test_the_rate_is_kept(broker):
    topic = bury(broker, 10)
    job = broker.redrive("orders", where="true", rate=0.001)
    assert job.move(places(topic.dead_letters()), last=True) == 0
    assert job.progress["state"] == "running"


def test_a_job_with_a_condition_does_not_run_without_who_evaluates_it(broker):
    bury(broker, 2)
    job = broker.redrive("orders", where="true")
    with pytest.raises(errors.InvalidOption, match=f"trine redrive --resume {job.id}"):
        job.run()
    with pytest.raises(errors.InvalidOption, match="finds its letters itself"):
        broker.redrive("orders").move([(0, 0)])
    with pytest.raises(errors.InvalidOption, match="rising order"):
        job.move([(0, 1), (0, 0)])
    with pytest.raises(errors.UnknownPartition):
        job.move([(7, 0)])
    with pytest.raises(errors.InvalidOption, match="do not go together"):
        broker.redrive("orders", where="true", edit=lambda letter: None)
