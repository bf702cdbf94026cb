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


# --- letters named by id when the job begins


def test_letters_named_by_id_are_moved_and_no_others(broker):
    topic = bury(broker, 20)
    letters = topic.dead_letters()
    ids = [one.id for one in letters if int(one.value) % 4 == 0]
    gone = ids[0]
    assert topic.purge_dead_letters(ids=[gone]) == 1
    job = broker.redrive("orders", ids=[*ids, *ids])
    assert [one.id for one in job.preview()] == sorted(
        ids[1:], key=lambda id: tuple(map(int, id.split("/")[1:]))
    )
    assert job.step(2) == 2
    again = broker.resume_redrive(job.id)
    done = again.run()
    told = (done["state"], done["moved"], done["passed_over"], done["looked_at"], done["of"])
    assert told == ("done", 4, 1, 5, 5)
    assert sorted(int(one.value) for one in topic.dead_letters()) == [n for n in range(20) if n % 4]
    back = topic.group("billing").consumer("worker").receive(max=50)
    assert {f"{int(one.value)}" for one in back} == {one.key.decode() for one in back}
    assert len(back) == 4


def test_a_job_of_named_letters_goes_on_after_a_restart(open_broker, tmp_path, clock):
    with open_broker(str(tmp_path / "data"), clock=clock) as broker:
        topic = bury(broker, 10)
        job = broker.redrive("orders", ids=[one.id for one in topic.dead_letters()])
        job.step(3)
    with open_broker(str(tmp_path / "data"), clock=clock) as broker:
        done = broker.resume_redrive(job.id).run()
        assert (done["moved"], done["of"]) == (10, 10)
        assert broker.topic("orders").dead_letters() == []


def test_what_cannot_be_named_is_refused(broker):
    topic = bury(broker, 2)
    (first, *_) = topic.dead_letters()
    with pytest.raises(errors.InvalidOption, match="does not go together"):
        broker.redrive("orders", ids=[first.id], reason="x")
    with pytest.raises(errors.InvalidOption, match="does not go together"):
        topic.purge_dead_letters(ids=[first.id], group="g")
    with pytest.raises(errors.InvalidOption, match="do not go together"):
        broker.redrive("orders", ids=[first.id], edit=lambda letter: None)
    for wrong in ("orders/0/0", "other.dlq/0/0", "orders.dlq/9/0", "nonsense"):
        with pytest.raises(errors.UnknownMessage):
            broker.redrive("orders", ids=[wrong])
        with pytest.raises(errors.UnknownMessage):
            topic.purge_dead_letters(ids=[wrong])
    for wrong_count in ([], [f"orders.dlq/0/{n}" for n in range(1001)]):
        with pytest.raises(errors.InvalidOption, match="1 to 1000"):
            broker.redrive("orders", ids=wrong_count)


def test_a_purge_takes_what_its_filters_fit_however_many_steps_it_takes(broker, monkeypatch):
    monkeypatch.setattr("trine.broker.operations.PURGE_STEP", 3)
    topic = bury(broker, 20)
    for message in topic.group("other").consumer("worker").receive(max=20):
        message.reject("late")
    assert topic.purge_dead_letters(group="other", key="7") == 1
    assert topic.purge_dead_letters(reason="late") == 19
    assert len(topic.dead_letters()) == 20
    assert topic.purge_dead_letters() == 20
    assert topic.purge_dead_letters() == 0
