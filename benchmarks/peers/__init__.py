"""The same workloads against Trine and against the brokers people would pick instead.

    peer.py       what is asked of a broker: Peer, Producer, Consumer, Topic
    <broker>.py   how each of them does it, with the Python client its users use
    roster.py     all of them, and which are installed here
    race.py       processes that start at one shot, and what the CPU did meanwhile
    <workload>.py what is measured
    plan.py       which cells there are, how large, how long each takes
    run.py        measures them, and keeps what it has when it is interrupted
    audit.py      counts a server's syncs, to see whether it does what its ack promises
    report/       tables, charts and pages from what was measured

A peer is one broker in one configuration: Redis with appendfsync always and Redis with everysec are two. No workload
knows a broker by name. To add one: subclass `Peer`, `Producer` and `Consumer`, say what an ack promises, put the class
into the roster, and let `python -m benchmarks.peers audit --peers NAME` see whether the promise is kept.
"""
