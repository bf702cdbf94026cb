"""A topic to which everything has happened: acked, nacked and delivered again, rejected, waiting, scheduled."""

from __future__ import annotations

import trine

ACKED = 6
TAKEN = 8
MESSAGES = 10
SCHEDULED = 3


def live(broker: trine.Broker, name: str) -> None:
    """Ten messages in one partition; the group `work` acks 0 to 5, after 1 was nacked once, and rejects 6; 7 is in
    flight, 8 and 9 wait. The group `audit` acks all in one run. Three more wait for their time.
    """
    topic = broker.create_topic(name, partitions=1)
    messages = [{"value": f'{{"n": {n}}}', "key": f"k{n % 3}"} for n in range(MESSAGES)]
    topic.publish_many(messages[:TAKEN], producer="shop")
    topic.publish_many(["later"] * SCHEDULED, delay="1h", key="later")
    work = topic.create_group("work", backoff={"first_ms": 1, "factor": 1.0, "cap_ms": 1, "jitter": 0.0})
    with work.consumer("w-1") as consumer:
        first = consumer.receive(max=TAKEN, wait="5s")
        while len(first) < TAKEN:
            first += consumer.receive(max=TAKEN - len(first), wait="5s")
        by_offset = {one.offset: one for one in first}
        consumer.nack(by_offset[1], reason="not now")
        while not (again := consumer.receive(max=1, wait="5s")):
            pass
        by_offset[1] = again[0]
        topic.publish_many(messages[TAKEN:], producer="shop")  # not earlier: they would be taken in its place
        for offset in range(ACKED):
            consumer.ack(by_offset[offset])
        consumer.reject(by_offset[6], reason="broken order")
        audit = topic.create_group("audit")
        with audit.consumer("a-1") as reader:
            seen = 0
            while seen < MESSAGES:
                some = reader.receive(max=100, wait="5s")
                reader.ack(some)
                seen += len(some)
