"""All peers, Trine first, and which of them are installed here."""

from __future__ import annotations

from typing import Final

from benchmarks.peers.beanstalkd import Beanstalkd, BeanstalkdAlways
from benchmarks.peers.kafka import Kafka, KafkaSynced
from benchmarks.peers.nats import Nats, NatsAlways
from benchmarks.peers.peer import Peer
from benchmarks.peers.postgres import Postgres, PostgresAsync
from benchmarks.peers.rabbitmq import RabbitClassic, RabbitQuorum
from benchmarks.peers.rabbitmq_stream import RabbitStream
from benchmarks.peers.redis import RedisAlways, RedisEverysec
from benchmarks.peers.trine import TrineMemory, TrineSynced, TrineWritten
from benchmarks.peers.trine_http import HttpSynced, HttpWritten

PEERS: Final[dict[str, type[Peer]]] = {
    one.name: one
    for one in (
        TrineSynced, TrineWritten, TrineMemory, HttpSynced, HttpWritten,
        RabbitClassic, RabbitQuorum, RabbitStream,
        Nats, NatsAlways,
        RedisEverysec, RedisAlways,
        Postgres, PostgresAsync,
        Beanstalkd, BeanstalkdAlways,
        Kafka, KafkaSynced,
    )
}  # fmt: skip
