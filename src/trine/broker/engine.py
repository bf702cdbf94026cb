"""The engine: one store, its topics, and the one lock under which everything is decided.

    decide (pure) ─▶ Entry ─▶ commit: journal, then effects ─▶ answer when the journal is as durable as asked

Nothing here waits, except for the lock. Whoever must wait for a disk or a message does so outside, with the lsn or
the condition the engine gave. Recovery loads the last checkpoint and replays the journal through the same effects.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import msgspec

from trine.broker.dead_letters import dlq_config, dlq_name
from trine.broker.decoded import Decoded
from trine.broker.entry import Entry
from trine.broker.group import GroupState
from trine.broker.group_part import GroupPart
from trine.broker.metadata import (
    META_LOG,
    PACK,
    RECORD,
    AnyRecord,
    ArchiveMoved,
    BucketCreated,
    BucketDropped,
    CronDeleted,
    CronSet,
    GroupAltered,
    GroupCreated,
    GroupDeleted,
    GroupMeta,
    JobForgotten,
    JobSet,
    LogStarted,
    Metadata,
    ProducerMeta,
    ProducerRegistered,
    ProducersForgotten,
    ReaderMoved,
    RunForgotten,
    RunSet,
    StoreCreated,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicMeta,
)
from trine.broker.partition import Partition, SavedPartition
from trine.broker.runs import Runs
from trine.broker.schedule import Bucket
from trine.broker.topic import TopicState
from trine.log.store import Progress, Store
from trine.model import limits
from trine.model.clock import Clock
from trine.model.durability import Level
from trine.model.errors import (
    Closed,
    Corrupt,
    DiskFull,
    GroupExists,
    InvalidOption,
    ProducerFenced,
    StoreFailed,
    TooMany,
    TopicExists,
    UnknownGroup,
    UnknownTopic,
)
from trine.model.ids import check_name
from trine.model.options import GroupConfig, TopicConfig
from trine.queue.ledger import Ledger, SavedLedger

LEDGER_SEGMENT_BYTES = 4 * limits.MIB
BUCKET_SEGMENT_BYTES = 2**31 - 1


class EngineState(msgspec.Struct, array_like=True):
    """What a checkpoint keeps besides the logs."""

    meta: Metadata
    partitions: dict[str, list[SavedPartition]]
    ledgers: dict[str, dict[str, list[SavedLedger]]]
    scheduled: dict[str, dict[int, int]]
    dedup: dict[str, list[tuple[str, int, str]]]


STATE = msgspec.msgpack.Decoder(EngineState, strict=False)


class Engine:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        rng: random.Random,
        *,
        in_memory: bool,
        member_grace_ms: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.store = store
        self.clock = clock
        self.rng = rng
        self.in_memory = in_memory
        self.topics: dict[str, TopicState] = {}
        self.meta = Metadata(secret=b"")
        self.decoded = Decoded()
        self.background_level = Level.WRITTEN
        self.version = 0
        """Rises whenever a log grows: how readers of the log know that there is something new."""
        self.readers_waiting = 0
        self.readers = threading.Condition(self.lock)
        self.reader_listeners: set[Callable[[], None]] = set()
        self.nearer: Callable[[], None] | None = None
        """Told when something was scheduled: the housekeeper may have to wake earlier."""
        self._appliers: dict[int, Callable[[memoryview], None]] = {META_LOG: self._replay_meta}
        self.checkpointing = threading.Lock()
        """Held during a checkpoint, and by whoever must not have one happen meanwhile. Taken before the lock."""
        self._next_log = 1
        self.closed = False
        self.failure: BaseException | None = None
        """Why the housekeeper stopped; nothing is accepted after it."""
        self._recover(member_grace_ms, progress)
        self.runs = Runs(self)

    # --- recovery

    def _recover(self, member_grace_ms: int | None, progress: Progress | None) -> None:
        now = self.clock.now_ms()
        if self.store.state is not None:
            self._load(STATE.decode(self.store.state), now)
        for _, parts in self.store.replay(progress):
            for log_id, payload in parts:
                applier = self._appliers.get(log_id)
                if applier is not None:
                    applier(payload)
        if not self.meta.secret:
            entry = Entry()
            entry.meta(StoreCreated(self.rng.randbytes(32)), self.apply_meta)
            self.store.sync(self.commit(entry, Level.SYNCED))
            self.checkpoint()  # so that there is one to overwrite when the disk is full
        topics = list(self.topics.values())  # a message given up now may create the dead letters' topic
        for done, topic in enumerate(topics):
            if progress is not None:
                progress("topics", done, len(topics))
            since = now - topic.config.dedup_window_ms
            if topic.config.kind != "dead_letters":
                for partition in topic.partitions:
                    partition.rebuild_dedup(since)
            for group in list(topic.groups.values()):
                for part in group.parts:
                    part.selection.rewind()
                group.recovered(now, member_grace_ms)
                if group.config.ephemeral and member_grace_ms is None:
                    self.delete_group(topic, group.name)

    def _load(self, state: EngineState, now: int) -> None:
        self.meta = state.meta
        self._next_log = state.meta.next_log
        for name, meta in self.meta.topics.items():
            topic = self._open_topic(name, meta, now)
            for partition, saved in zip(topic.partitions, state.partitions[name], strict=True):
                partition.restore(saved)
            for hour, live in state.scheduled.get(name, {}).items():
                topic.schedule.buckets[hour].live = live
            for dedup_id, at, place in state.dedup.get(name, []):
                topic.dedup.note(dedup_id, at, place)
            for group_name, group_meta in meta.groups.items():
                ledgers = [Ledger.restore(saved_ledger) for saved_ledger in state.ledgers[name][group_name]]
                self._open_group(topic, group_name, group_meta, ledgers)

    def _open_topic(self, name: str, meta: TopicMeta, now: int) -> TopicState:
        topic = self.topics[name] = TopicState(self, name, meta, now)
        for log_id in meta.logs:
            self._open_partition(topic, log_id)
        for hour, log_id in meta.buckets.items():
            self._open_bucket(topic, hour, log_id)
        return topic

    def _open_partition(self, topic: TopicState, log_id: int) -> Partition:
        number = len(topic.partitions)
        log = self.store.create_log(
            log_id, f"topics/{topic.name}/{number}-{log_id}", segment_bytes=topic.config.segment_bytes
        )
        partition = Partition(topic, number, log_id, log, self.decoded)
        topic.partitions.append(partition)
        self._appliers[log_id] = partition.replay
        return partition

    def _open_bucket(self, topic: TopicState, hour: int, log_id: int) -> None:
        log = self.store.create_log(
            log_id,
            f"topics/{topic.name}/schedule/{hour}-{log_id}",
            segment_bytes=BUCKET_SEGMENT_BYTES,
            rolls=False,
        )
        bucket = topic.schedule.buckets[hour] = Bucket(hour, log_id, log)
        self._appliers[log_id] = lambda payload: topic.schedule.replay(bucket, payload)

    def _open_group(self, topic: TopicState, name: str, meta: GroupMeta, ledgers: list[Ledger]) -> GroupState:
        parts = [
            self._open_part(topic, name, number, log_id, ledger)
            for number, (log_id, ledger) in enumerate(zip(meta.logs, ledgers, strict=True))
        ]
        group = topic.groups[name] = GroupState(topic, name, meta, parts)
        topic.forget_room()
        return group

    def _open_part(self, topic: TopicState, name: str, number: int, log_id: int, ledger: Ledger) -> GroupPart:
        log = self.store.create_log(
            log_id, f"topics/{topic.name}/groups/{name}/{number}-{log_id}", segment_bytes=LEDGER_SEGMENT_BYTES
        )
        part = GroupPart(topic.partitions[number], log_id, log, ledger)
        self._appliers[log_id] = part.replay
        return part

    def _drop_log(self, log_id: int) -> None:
        self.store.drop_log(log_id)
        self.decoded.forget(log_id)
        self._appliers.pop(log_id, None)

    # --- commit

    def check_open(self) -> None:
        if self.failure is None and not self.closed:
            return
        if self.closed:
            raise Closed("this broker is closed; open it again with trine.open")
        if isinstance(self.failure, Corrupt):
            raise self.failure
        if self.failure is not None:
            raise StoreFailed(
                f"the broker's own work failed, close it and open it again: {self.failure}"
            ) from self.failure

    def commit(self, entry: Entry, level: Level, *, reserve: bool = False) -> int:
        """Writes an entry to the journal and lets it take effect. Answers the lsn that must become durable."""
        self.check_open()
        entry.seal()
        if not entry.parts:
            return self.store.end_lsn
        lsn = self.store.commit(entry.parts, level, reserve=reserve)
        for effect, arguments in entry.effects:
            effect(*arguments)
        return lsn

    def sync(self, lsn: int) -> None:
        """Returns when all below `lsn` survives a power cut. From any thread, without the lock."""
        store = self.store
        if store.written_lsn < lsn:  # some of it was to stay in memory, until now
            with self.lock:
                store.flush_journal()
        store.sync(lsn)

    def durability(self, level: Level) -> str:
        return "memory" if self.in_memory else level.name.lower()

    def new_log_id(self) -> int:
        log_id = self._next_log
        self._next_log += 1
        return log_id

    def scheduled(self) -> None:
        if self.nearer is not None:
            self.nearer()

    def wake_after(self, entry: Entry, topic: TopicState) -> None:
        entry.effects.append((topic.wake, ()))

    def wake_readers(self) -> None:
        self.readers.notify_all()
        for listener in tuple(self.reader_listeners):
            listener()

    # --- metadata: decide

    def topic(self, name: str) -> TopicState:
        topic = self.topics.get(name)
        if topic is None:
            check_name(name, "topic")
            raise UnknownTopic(f"there is no topic {name!r}; create it with create_topic({name!r})")
        return topic

    def group(self, topic: TopicState, name: str) -> GroupState:
        group = topic.groups.get(name)
        if group is None:
            check_name(name, "group")
            raise UnknownGroup(
                f"topic {topic.name!r} has no group {name!r}; its first consumer creates it, or create_group({name!r})"
            )
        return group

    def create_topic(self, name: str, config: TopicConfig) -> TopicState:
        check_name(name, "topic")
        if name in self.topics:
            raise TopicExists(f"topic {name!r} exists already; alter it, or choose another name")
        if len(self.topics) >= limits.TOPICS_MAX:
            raise TooMany(f"there are {limits.TOPICS_MAX} topics, the most there may be; delete some first")
        entry = Entry()
        logs = [self.new_log_id() for _ in range(config.partitions)]
        entry.meta(TopicCreated(name, config, logs, self.clock.now_ms()), self.apply_meta)
        self.commit(entry, Level.SYNCED)
        return self.topics[name]

    def alter_topic(self, topic: TopicState, config: TopicConfig) -> int:
        old = topic.config
        if config.partitions < old.partitions:
            raise InvalidOption(
                f"a topic cannot have fewer partitions than it has ({old.partitions}): offsets would vanish"
            )
        if config.lanes[: len(old.lanes)] != old.lanes:
            raise InvalidOption(
                f"lanes can be added at the end, not changed; this topic has {', '.join(old.lanes)}"
            )
        if config.kind != old.kind:
            raise InvalidOption(f"a topic's kind cannot be altered; this is a {old.kind}")
        entry = Entry()
        added = config.partitions - old.partitions
        logs = [self.new_log_id() for _ in range(added)]
        ledgers = {name: [self.new_log_id() for _ in range(added)] for name in topic.groups}
        entry.meta(TopicAltered(topic.name, config, logs, ledgers), self.apply_meta)
        return self.commit(entry, Level.SYNCED)

    def delete_topic(self, topic: TopicState) -> int:
        entry = Entry()
        for cron in [cron for cron in self.meta.crons.values() if cron.topic == topic.name]:
            entry.meta(CronDeleted(cron.name), self.apply_meta)
        entry.meta(TopicDeleted(topic.name), self.apply_meta)
        return self.commit(entry, Level.SYNCED, reserve=True)

    def dead_letter_topic(self, topic: TopicState) -> TopicState:
        """The topic's dead letters, created with the first one."""
        name = dlq_name(topic.name)
        found = self.topics.get(name)
        return found if found is not None else self.create_topic(name, dlq_config(topic.config))

    def create_group(self, topic: TopicState, name: str, config: GroupConfig) -> GroupState:
        check_name(name, "group")
        if name in topic.groups:
            raise GroupExists(f"group {name!r} of topic {topic.name!r} exists already; alter it instead")
        if len(topic.groups) >= limits.GROUPS_MAX:
            raise TooMany(f"topic {topic.name!r} has {limits.GROUPS_MAX} groups, the most there may be")
        weights = config.lane_weights
        if weights is not None and len(weights) != len(topic.config.lanes):
            raise InvalidOption(
                f"lane_weights needs one for each lane of the topic: {', '.join(topic.config.lanes)}"
            )
        entry = Entry()
        logs = [self.new_log_id() for _ in topic.partitions]
        latest = config.start == "latest"
        starts = [one.log.next_offset if latest else one.log.start_offset for one in topic.partitions]
        record = GroupCreated(topic.name, name, config, logs, starts, self.clock.now_ms())
        entry.meta(record, self.apply_meta)
        self.commit(entry, Level.SYNCED)
        return topic.groups[name]

    def delete_group(self, topic: TopicState, name: str) -> int:
        entry = Entry()
        entry.meta(GroupDeleted(topic.name, name), self.apply_meta)
        return self.commit(entry, Level.SYNCED, reserve=True)

    def register_producer(self, name: str) -> tuple[ProducerMeta, int]:
        """A producer's id stays; its epoch rises, which puts an older one of the same name out of use."""
        check_name(name, "producer")
        known = self.meta.producers.get(name)
        if known is None and len(self.meta.producers) >= limits.PRODUCERS_MAX:
            raise TooMany(f"there are {limits.PRODUCERS_MAX} named producers, the most there may be")
        producer_id = known.id if known is not None else self.meta.next_producer
        epoch = known.epoch + 1 if known is not None else 0
        if epoch > 32_767:  # the batch header keeps an epoch in 16 bits: a new id begins at 0
            producer_id, epoch = self.meta.next_producer, 0
        entry = Entry()
        entry.meta(ProducerRegistered(name, producer_id, epoch), self.apply_meta)
        lsn = self.commit(entry, Level.SYNCED)
        return ProducerMeta(producer_id, epoch), lsn

    def forget_producers(self, prefix: str) -> tuple[int, int]:
        """Names that nobody will publish under again make room for others; what they published stays."""
        if not prefix:
            raise InvalidOption("say which producers to forget: how their names begin")
        count = sum(name.startswith(prefix) for name in self.meta.producers)
        entry = Entry()
        if count:
            entry.meta(ProducersForgotten(prefix), self.apply_meta)
        return count, self.commit(entry, Level.SYNCED) if count else self.store.end_lsn

    def check_producer(self, producer_id: int, epoch: int) -> None:
        for name, known in self.meta.producers.items():
            if known.id == producer_id and known.epoch > epoch:
                raise ProducerFenced(f"a newer producer {name!r} has taken over; this one is out of use")

    def forget_finished_job(self) -> bool:
        """Makes room for another redrive; whether there was a finished one to forget."""
        for job in self.meta.jobs.values():
            if job.state != "running":
                entry = Entry()
                entry.meta(JobForgotten(job.id), self.apply_meta)
                self.commit(entry, Level.SYNCED)
                return True
        return False

    def move_reader(self, topic: TopicState, reader: str, positions: dict[int, int]) -> int:
        entry = Entry()
        entry.meta(ReaderMoved(topic.name, reader, dict(positions)), self.apply_meta)
        return self.commit(entry, Level.SYNCED)

    def start_log_at(self, starts: list[tuple[Partition, int]], level: Level = Level.SYNCED) -> int:
        entry = Entry()
        for partition, start in starts:
            entry.meta(LogStarted(partition.topic.name, partition.number, start), self.apply_meta)
        return self.commit(entry, level, reserve=True)

    # --- metadata: apply

    def _replay_meta(self, payload: memoryview) -> None:
        self.apply_meta(RECORD.decode(payload))

    def apply_meta(self, record: AnyRecord) -> None:
        match record:
            case StoreCreated(secret=secret):
                self.meta.secret = secret
            case TopicCreated():
                meta = TopicMeta(record.config, list(record.logs), record.at)
                self.meta.topics[record.name] = meta
                self._used_logs(record.logs)
                self._open_topic(record.name, meta, self.clock.now_ms())
            case TopicAltered():
                self._apply_altered(record)
            case TopicDeleted(name=name):
                self._apply_deleted(self.topics.pop(name))
                del self.meta.topics[name]
            case GroupCreated():
                self._apply_group(record)
            case GroupAltered():
                group = self.topics[record.topic].groups[record.name]
                group.meta.paused = record.paused
                if record.config != group.config:
                    group.configure(record.config)
            case GroupDeleted(topic=name, name=group_name):
                topic = self.topics[name]
                self._close_group(topic.groups.pop(group_name))
                del topic.meta.groups[group_name]
                topic.forget_room()
            case LogStarted():
                self._apply_started(record)
            case BucketCreated(topic=name, hour=hour, log=log):
                self._used_logs([log])
                self.topics[name].meta.buckets[hour] = log
                self._open_bucket(self.topics[name], hour, log)
            case BucketDropped(topic=name, hour=hour):
                topic = self.topics[name]
                self._drop_log(topic.meta.buckets.pop(hour))
                topic.schedule.drop(hour)
            case CronSet(cron=cron):
                self.meta.crons[cron.name] = cron
            case CronDeleted(name=name):
                self.meta.crons.pop(name, None)
            case ReaderMoved(topic=name, reader=reader, positions=positions):
                self.topics[name].meta.readers.setdefault(reader, {}).update(positions)
            case ArchiveMoved(topic=name, positions=positions, at=at):
                self.topics[name].meta.archived_ms = at
                known = self.topics[name].meta.archived
                known.update({number: max(at, known.get(number, 0)) for number, at in positions.items()})
            case ProducerRegistered(name=name, id=producer_id, epoch=epoch):
                self.meta.producers[name] = ProducerMeta(producer_id, epoch)
                self.meta.next_producer = max(self.meta.next_producer, producer_id + 1)
            case ProducersForgotten(prefix=prefix):
                for name in [name for name in self.meta.producers if name.startswith(prefix)]:
                    del self.meta.producers[name]
            case JobForgotten(id=job_id):
                self.meta.jobs.pop(job_id, None)
            case RunSet(run=run):
                self.meta.runs[run.id] = run
                self.meta.next_run = max(self.meta.next_run, int(run.id.rpartition("-")[2]) + 1)
            case RunForgotten(id=run_id):
                self.meta.runs.pop(run_id, None)
            case JobSet(job=job):
                self.meta.jobs[job.id] = job
                self.meta.next_job = max(self.meta.next_job, int(job.id.rpartition("-")[2]) + 1)

    def _used_logs(self, log_ids: list[int]) -> None:
        for log_id in log_ids:
            self.meta.next_log = max(self.meta.next_log, log_id + 1)
        self._next_log = max(self._next_log, self.meta.next_log)

    def _apply_group(self, record: GroupCreated) -> None:
        topic = self.topics[record.topic]
        meta = GroupMeta(record.config, list(record.logs), record.at)
        topic.meta.groups[record.name] = meta
        self._used_logs(record.logs)
        self._open_group(topic, record.name, meta, [Ledger(start) for start in record.starts])

    def _apply_altered(self, record: TopicAltered) -> None:
        topic = self.topics[record.name]
        backoff_changed = topic.config.backoff != record.config.backoff
        if topic.config.archive is not None and record.config.archive != topic.config.archive:
            topic.meta.archived.clear()  # another archive has none of it yet
        topic.meta.config = topic.config = record.config
        self._used_logs([*record.new_logs, *(log for logs in record.new_ledgers.values() for log in logs)])
        topic.dedup.window_ms = record.config.dedup_window_ms
        topic.forget_room()
        for log_id in record.new_logs:
            topic.meta.logs.append(log_id)
            self._open_partition(topic, log_id)
        for partition in topic.partitions:
            partition.lanes.grow(len(record.config.lanes))
            partition.origin = partition.origin._replace(lanes=record.config.lanes)
        for name, logs in record.new_ledgers.items():
            group = topic.groups[name]
            for log_id in logs:
                group.meta.logs.append(log_id)
                group.add_part(self._open_part(topic, name, len(group.parts), log_id, Ledger(0)))
        for group in topic.groups.values():
            group.grow_lanes(len(record.config.lanes))
            if backoff_changed:
                group.configure(group.config)

    def _apply_deleted(self, topic: TopicState) -> None:
        for group in topic.groups.values():
            self._close_group(group)
        for log_id in [*topic.meta.logs, *topic.meta.buckets.values()]:
            self._drop_log(log_id)

    def _close_group(self, group: GroupState) -> None:
        group.deleted = True
        for log_id in group.meta.logs:
            self._drop_log(log_id)
        group.wake()

    def _apply_started(self, record: LogStarted) -> None:
        topic = self.topics[record.topic]
        partition = topic.partitions[record.partition]
        partition.start_at(record.start)
        for group in topic.groups.values():
            group.parts[record.partition].ledger.raise_floor(record.start)
        topic.forget_room()

    # --- checkpoints

    def groups(self) -> Iterator[GroupState]:
        for topic in self.topics.values():
            yield from topic.groups.values()

    def state(self) -> bytes:
        topics = self.topics
        return PACK.encode(
            EngineState(
                self.meta,
                {name: [one.save() for one in topic.partitions] for name, topic in topics.items()},
                {
                    name: {
                        group.name: [part.ledger.save() for part in group.parts]
                        for group in topic.groups.values()
                    }
                    for name, topic in topics.items()
                },
                {
                    name: {hour: one.live for hour, one in topic.schedule.buckets.items()}
                    for name, topic in topics.items()
                },
                {name: topic.dedup.scheduled() for name, topic in topics.items()},
            )
        )

    def checkpoint(self) -> None:
        """Makes the logs durable and cuts the journal. Only its first and last moments hold the lock."""
        with self.checkpointing:
            with self.lock:
                self.check_open()
                for group in self.groups():
                    for part in group.parts:
                        part.ledger.close_block()
                        part.store_blocks()
                begun = self.store.begin_checkpoint(self.state())
            self.store.finish_checkpoint(begun)
            with self.lock:
                self.store.complete_checkpoint(begun)

    def verify(self) -> int:
        """Reads and checks every batch of every log; the lock is held for one file at a time only."""
        total = 0
        with self.lock:
            self.check_open()
            self.store.flush_tails(force=True)
            walks = [log.verify() for log in self.store.logs()]
        for walk in walks:
            while True:
                with self.lock:
                    step = next(walk, None)
                if step is None:
                    break
                total += step[1]
        return total

    def statistics(self) -> dict[str, object]:
        return {
            "topics": {name: topic.counts() for name, topic in self.topics.items()},
            "groups": {
                f"{group.topic.name}/{group.name}": {
                    "lag": group.lag(), "in_flight": group.in_flight(), "retrying": group.retrying(),
                    "paused": group.paused,
                }
                for group in self.groups()
            },
            "store": self.store.statistics(),
        }  # fmt: skip

    def close(self) -> None:
        """Also of a store that failed or is full: what was answered as synced is in the journal."""
        if self.closed:
            return
        try:
            self.checkpoint()
        except DiskFull:
            pass
        finally:
            self._let_go()

    def _let_go(self) -> None:
        with self.checkpointing, self.lock:
            self.closed = True
            for topic in self.topics.values():
                topic.room.notify_all()
                for group in topic.groups.values():
                    group.wake()
            self.wake_readers()
            self.store.close()
