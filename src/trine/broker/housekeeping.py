"""What happens by itself: due messages, ended leases, silent members, retention, compaction, checkpoints.

`step` does all that is due at a time and says when to come again; it is the same in tests, on simulated time, and in
the thread that an open broker runs. A timeout is a command like any other: it goes through the journal.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from trine.broker.entry import Entry
from trine.broker.metadata import BucketDropped, CronMeta, CronSet
from trine.log import compaction
from trine.model.durability import Level
from trine.model.errors import DiskFull, Refused
from trine.model.message import H_CRON, Outgoing, draft
from trine.queue import cron as crons

if TYPE_CHECKING:
    from trine.broker.engine import Engine
    from trine.broker.partition import Partition
    from trine.broker.topic import TopicState

CHECKPOINT_MS = 60_000
"""A quiet store is checkpointed this often, so that its journal is short when it is opened again."""
UPKEEP_MS = 5_000
"""Retention and rolling by age look this often; both work on whole segments, so sooner gains nothing."""
COMPACT_MS = 60_000
IDLE_MS = 500
"""The longest the thread sleeps: group events far from any consumer are noticed at the latest then."""
BUCKET_KEPT_MS = 7 * 24 * 3600 * 1000
"""How long a finished hour of the schedule is kept for traces, if the topic has no retention of its own."""

log = logging.getLogger("trine")


class Housekeeper:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        now = engine.clock.now_ms()
        self._next_upkeep = now + UPKEEP_MS
        self._next_compaction = now + COMPACT_MS
        self._next_checkpoint = now + CHECKPOINT_MS
        self._thread: threading.Thread | None = None
        self._alarm = threading.Condition()
        self._called = False
        self._stop = False

    # --- one step

    def step(self, now: int) -> int:
        """Does what is due; answers when to come again, in ms from now."""
        engine = self._engine
        with engine.lock:
            if engine.closed:
                return IDLE_MS
            engine.store.flush_journal()
            for topic in list(engine.topics.values()):
                self._step_topic(topic, now)
            self._fire_crons(now)
            if now >= self._next_upkeep:
                self._next_upkeep = now + UPKEEP_MS
                self.upkeep(now)
        if now >= self._next_compaction:
            self._next_compaction = now + COMPACT_MS
            self.compact(now)
        if now >= self._next_checkpoint or engine.store.wants_checkpoint():
            self._next_checkpoint = now + CHECKPOINT_MS
            engine.checkpoint()
        upcoming = self.next_event()
        return IDLE_MS if upcoming is None else max(min(upcoming - now, IDLE_MS), 0)

    def next_event(self) -> int | None:
        """When the next message is due, scheduled or recurring."""
        engine = self._engine
        with engine.lock:
            times = [cron.next_ms for cron in engine.meta.crons.values()]
            for topic in engine.topics.values():
                due = topic.schedule.next_due()
                if due is not None:
                    times.append(due)
            return min(times, default=None)

    def _step_topic(self, topic: TopicState, now: int) -> None:
        try:
            while topic.fire(now):
                pass
        except Refused as error:
            log.warning("topic %s: due messages wait: %s", topic.name, error)
        topic.dedup.forget_old(now)
        for group in list(topic.groups.values()):
            group.keep_members(now)
            group.expire(now)
            if group.config.ephemeral and group.abandoned(now):
                self._engine.delete_group(topic, group.name)

    def _fire_crons(self, now: int) -> None:
        for cron in [cron for cron in self._engine.meta.crons.values() if cron.next_ms <= now]:
            self._fire_cron(cron, now)

    def _fire_cron(self, cron: CronMeta, now: int) -> None:
        """One message for all the times missed, and the next time in the same entry: never twice, never none."""
        engine = self._engine
        topic = engine.topics.get(cron.topic)
        if topic is None:
            return
        message = Outgoing(
            value=cron.value, key=cron.key, headers=cron.headers or None, priority=cron.priority
        )
        one = draft(message, topic.config, now)
        one.headers.append((H_CRON, cron.name.encode()))
        entry = Entry()
        try:
            topic.add(entry, [one], now)
        except Refused as error:
            log.warning("recurring schedule %s waits: %s", cron.name, error)
            return
        following = crons.next_after(cron.expression, now, cron.timezone)
        entry.meta(CronSet(_moved(cron, following)), engine.apply_meta)
        engine.commit(entry, Level.SYNCED)

    def step_if_simulated(self) -> None:
        """On simulated time there is no thread: whoever waited lets time's work be done."""
        if self._thread is None:
            self.step(self._engine.clock.now_ms())

    def pause_ms(self, now: int, deadline: int, event: int | None = None) -> int:
        """How long to wait at the most: on simulated time nobody else makes due messages arrive."""
        until = deadline if event is None else min(deadline, event)
        if self._thread is None and (upcoming := self.next_event()) is not None:
            until = min(until, upcoming)
        return max(until - now, 1)

    # --- upkeep of the logs

    def upkeep(self, now: int) -> None:
        """Rolling by age, retention, finished hours of the schedule, old rows of ledgers."""
        engine = self._engine
        for topic in list(engine.topics.values()):
            starts = []
            for partition in topic.partitions:
                partition.log.maybe_roll(now, topic.config.segment_ms)
                start = self._retained_from(topic, partition, now)
                if start > partition.log.start_offset:
                    starts.append((partition, start))
            if starts:
                engine.start_log_at(starts, Level.WRITTEN)
            self._trim_ledgers(topic)
            kept = topic.config.retention_ms or BUCKET_KEPT_MS
            entry = Entry()
            for hour in list(topic.schedule.finished(now - kept)):
                entry.meta(BucketDropped(topic.name, hour), engine.apply_meta)
            engine.commit(entry, Level.WRITTEN, reserve=True)

    def _retained_from(self, topic: TopicState, partition: Partition, now: int) -> int:
        config = topic.config
        if config.retention_ms is None and config.retention_bytes is None:
            return 0
        start = partition.log.segments_before(
            time_ms=now - config.retention_ms if config.retention_ms is not None else None,
            bytes_max=config.retention_bytes,
        )
        if config.archive is not None:
            start = min(start, topic.meta.archived.get(partition.number, 0))
        if config.retention_waits_for_groups:
            for group in topic.groups.values():
                start = min(start, group.parts[partition.number].ledger.first_unsettled())
        return start

    def _trim_ledgers(self, topic: TopicState) -> None:
        """Rows older than the oldest message are of messages that are gone."""
        for partition in topic.partitions:
            if not topic.groups or partition.log.start_offset == 0:
                continue
            oldest = next(partition.scan(partition.log.start_offset, partition.log.next_offset), None)
            if oldest is None:
                continue
            for group in topic.groups.values():
                rows = group.parts[partition.number].log
                before = rows.segments_before(time_ms=oldest.timestamp, bytes_max=None)
                if before > rows.start_offset:
                    rows.retain(before)

    def compact(self, now: int) -> None:
        """Cleans the compacted topics. The reading and writing is done without the lock; only the swap needs it."""
        engine = self._engine
        with engine.lock:
            engine.check_open()
            chosen = [
                (topic, one)
                for topic in engine.topics.values()
                if topic.config.compact
                for one in topic.partitions
            ]
        for topic, partition in chosen:
            # No checkpoint meanwhile: it would delete files that retention gave up while they are read here.
            with engine.checkpointing:
                with engine.lock:
                    if engine.topics.get(topic.name) is not topic:
                        continue
                    partition.log.flush()
                    # What the archive has is asked here, with the segments: one may have been closed meanwhile.
                    archived = topic.meta.archived.get(partition.number, 0)
                    below = None if topic.config.archive is None else archived
                    cleaning = compaction.begin(partition.log, below)
                done = compaction.clean(cleaning, now_ms=now, tombstone_ms=topic.config.tombstone_ms)
                with engine.lock:
                    if engine.topics.get(topic.name) is not topic:
                        compaction.discard(cleaning, done)
                        continue
                    compaction.finish(partition.log, cleaning, done)
                    engine.decoded.forget(partition.log_id)

    # --- the thread

    def start(self) -> None:
        self._engine.nearer = self.call
        self._thread = threading.Thread(target=self._run, name="trine-housekeeping", daemon=True)
        self._thread.start()

    def call(self) -> None:
        """Something nearer than known is due: look again."""
        if not self._called:
            with self._alarm:
                self._called = True
                self._alarm.notify()

    def stop(self) -> None:
        with self._alarm:
            self._stop = True
            self._alarm.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop:
            self._called = False
            pause_ms = IDLE_MS
            try:
                pause_ms = self.step(self._engine.clock.now_ms())
            except DiskFull as error:
                log.warning("%s", error)
            except BaseException as error:
                # Whatever it was, time has stopped for this broker: every caller is told, nothing is promised in vain.
                log.exception("housekeeping stops")
                self._engine.failure = error
                return
            with self._alarm:
                if not self._called and not self._stop:
                    self._alarm.wait(pause_ms / 1000)


def _moved(cron: CronMeta, next_ms: int) -> CronMeta:
    return CronMeta(
        cron.topic, cron.name, cron.expression, cron.timezone, cron.value, cron.key, cron.headers, cron.priority,
        next_ms, cron.fired + 1,
    )  # fmt: skip
