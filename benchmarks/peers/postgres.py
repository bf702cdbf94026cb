"""PostgreSQL: a table as a queue, SELECT … FOR UPDATE SKIP LOCKED, with psycopg 3.

It is the queue that pgmq makes: a visibility timeout, and a delete on ack. One table a group, as pgmq has it; a publish
inserts into each of them in one transaction, and notifies, so that a reader need not poll.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import THROUGHPUT, Class, Consumer, Peer, Producer, Received, Topic
from benchmarks.peers.processes import HOST, free_port, output

POLL_S = 0.01
"""How often a reader looks for messages that become due: nobody notifies of those."""


class Postgres(Peer):
    name = "postgres"
    broker = "PostgreSQL"
    client = "psycopg 3 (sync, binary)"
    modules = ("psycopg",)
    packages = ("postgresql",)
    durability: ClassVar[Class] = "synced"
    promise = "fsync on, synchronous_commit on: synced before the ack"
    acks = "DELETE, answered, as durable as a publish; one for each, or for each fetch"
    run_as = "postgres"
    stop_signal = signal.SIGINT  # a fast shutdown: it does not wait for clients
    commit: ClassVar[str] = "on"

    @classmethod
    def executable(cls) -> str | None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        return str(found[-1]) if found else shutil.which("postgres")

    @property
    def _bin(self) -> Path:
        return Path(self.executable() or "/").parent

    def version(self) -> str:
        return "PostgreSQL " + output(self._bin / "postgres", "--version").split()[2]

    def choose_ports(self) -> None:
        self._port = free_port()

    def launch(self) -> None:
        data = self.folder / "data"
        if not data.exists():
            subprocess.run(
                [self._bin / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync"],
                check=True, stdout=subprocess.DEVNULL, cwd=self.folder, **self.identity,
            )  # fmt: skip
        (data / "postmaster.pid").unlink(missing_ok=True)  # of a server that was killed
        self.spawn(
            self._bin / "postgres", "-D", data, "-p", str(self._port), "-h", HOST, "-k", self.folder,
            "-c", f"synchronous_commit={self.commit}", "-c", "shared_buffers=512MB", "-c", "max_wal_size=4GB",
            "-c", "max_connections=1200",
        )  # fmt: skip
        self.await_port(self._port)
        self.await_true(self._admits)

    def _admits(self) -> bool:
        """The port opens before it lets anyone in."""
        import psycopg

        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(
            f"host={HOST} port={self._port} user=postgres dbname=postgres", autocommit=True
        )

    async def reset(self, topic: Topic) -> None:
        with self.connect() as connection:
            for group in topic.groups:
                table = f"q_{topic.name}_{group}"
                rank = " rank smallint NOT NULL DEFAULT 0," if topic.priorities else ""
                connection.execute(
                    f"CREATE TABLE {table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
                    f" read_ct int NOT NULL DEFAULT 0,{rank} enqueued_at timestamptz NOT NULL DEFAULT now(),"
                    " vt timestamptz NOT NULL DEFAULT now(), body bytea)"
                )
                order = "rank DESC, id" if topic.priorities else "vt"
                connection.execute(f"CREATE INDEX ON {table} ({order})")
                if topic.deliveries_max:
                    connection.execute(f"CREATE TABLE {table}_dead (LIKE {table})")

    async def drop(self, topic: Topic) -> None:
        with self.connect() as connection:
            for group in topic.groups:
                connection.execute(f"DROP TABLE q_{topic.name}_{group}")

    async def producer(self, topic: Topic) -> Producer:
        return PostgresProducer(self.connect(), topic)

    async def consumer(self, topic: Topic, group: str) -> Consumer:
        return PostgresConsumer(self.connect(), f"q_{topic.name}_{group}", topic)


class PostgresAsync(Postgres):
    name = "postgres-async"
    durability = "memory"
    promise = "synchronous_commit off: acked before it is written, up to 0.6 s may be lost"
    commit = "off"
    only = THROUGHPUT


class PostgresProducer(Producer):
    def __init__(self, connection: Any, topic: Topic) -> None:
        self._connection = connection
        self._route(topic)

    def _route(self, topic: Topic) -> None:
        self._tables = [f"q_{topic.name}_{group}" for group in topic.groups]
        # %b sends the bytes as they are; %s would send them in hexadecimal.
        self._one = self._statement("(body) VALUES (%(body)b)")
        self._many = self._statement("(body) SELECT unnest(%(body)b::bytea[])")

    def _statement(self, values: str) -> str:
        """A WITH clause for each table: one statement, one transaction, one commit."""
        inserts = ", ".join(f"i{n} AS (INSERT INTO {table} {values})" for n, table in enumerate(self._tables))
        notifies = ", ".join(f"pg_notify('{table}', '')" for table in self._tables)
        return f"WITH {inserts} SELECT {notifies}"

    async def publish(self, payload: bytes) -> None:
        self._connection.execute(self._one, {"body": payload})

    async def publish_batch(self, payloads: list[bytes]) -> None:
        self._connection.execute(self._many, {"body": payloads})

    async def publish_later(self, payloads: list[bytes], delays_ms: list[int]) -> None:
        rows = "unnest(%(body)b::bytea[], %(delay)s::int[]) AS due (body, delay)"
        statement = self._statement(
            f"(body, vt) SELECT body, clock_timestamp() + delay * interval '1 ms' FROM {rows}"
        )
        self._connection.execute(statement, {"body": payloads, "delay": delays_ms})

    async def publish_ranked(self, payloads: list[bytes], high: bool) -> None:
        statement = self._statement("(body, rank) SELECT unnest(%(body)b::bytea[]), %(rank)s")
        self._connection.execute(statement, {"body": payloads, "rank": int(high)})

    async def turn_to(self, topic: Topic) -> None:
        self._route(topic)

    async def close(self) -> None:
        self._connection.close()


class PostgresConsumer(Consumer):
    def __init__(self, connection: Any, table: str, topic: Topic) -> None:
        self._connection = connection
        self._table = table
        self._topic = topic
        connection.execute(f"LISTEN {table}")
        order = "rank DESC, id" if topic.priorities else "vt" if topic.delays else "id"
        self._read = (
            f"WITH next AS (SELECT id FROM {table} WHERE vt <= clock_timestamp()"
            f"  ORDER BY {order} LIMIT %s FOR UPDATE SKIP LOCKED)"
            f" UPDATE {table} q SET vt = clock_timestamp() + interval '60 s', read_ct = read_ct + 1"
            "  FROM next WHERE q.id = next.id RETURNING q.body, q.id"
        )

    async def fetch(self, limit: int, timeout: float) -> list[Received]:
        deadline = time.monotonic() + timeout
        while True:
            rows = self._connection.execute(self._read, (limit,), binary=True).fetchall()
            left = deadline - time.monotonic()
            if rows or left <= 0:
                return list(rows)
            nap = POLL_S if self._topic.delays or self._topic.deliveries_max else left
            for _ in self._connection.notifies(timeout=nap, stop_after=1):
                pass

    async def ack(self, handle: int) -> None:
        self._connection.execute(f"DELETE FROM {self._table} WHERE id = %s", (handle,))

    async def ack_batch(self, handles: list[int]) -> None:
        self._connection.execute(f"DELETE FROM {self._table} WHERE id = ANY(%s)", (handles,))

    async def retry(self, handle: int) -> None:
        """Due again at once, or moved aside: in one transaction, as a queue on tables does it."""
        table, most = self._table, self._topic.deliveries_max
        self._connection.execute(
            f"WITH gone AS (DELETE FROM {table} WHERE id = %s AND read_ct >= %s RETURNING *),"
            f" kept AS (INSERT INTO {table}_dead SELECT * FROM gone)"
            f" UPDATE {table} SET vt = clock_timestamp() WHERE id = %s AND read_ct < %s",
            (handle, most, handle, most),
        )

    async def close(self) -> None:
        self._connection.close()
