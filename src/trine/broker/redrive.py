"""Redrive: dead letters sent back to where they came from, or elsewhere, as a job that survives a restart.

What is moved is one journal entry a chunk: append there, settle here, and how far the job is. So a letter is moved
once, whatever happens in between. Letters buried after the job began are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from trine.broker.dead_letters import dlq_name, record_bytes
from trine.broker.entry import Entry
from trine.broker.metadata import JobMeta, JobSet
from trine.broker.operations import letters_group, letters_named, matches
from trine.log.stored import DeadLetter
from trine.model.durability import Level
from trine.model.duration import instant_ms
from trine.model.errors import (
    Conflict,
    InvalidOption,
    TooMany,
    TrineError,
    UnknownJob,
    UnknownMessage,
    UnknownPartition,
    UnknownTopic,
)
from trine.model.ids import DLQ_SUFFIX, parse_message_id
from trine.model.message import H_REDRIVEN, RESERVED, Draft, Instant, Outgoing, as_bytes, draft, outgoing_many
from trine.queue.rows import Kind, Row, pack_place

if TYPE_CHECKING:
    from trine.broker.engine import Engine
    from trine.broker.group import GroupState
    from trine.broker.group_part import GroupPart
    from trine.broker.topic import TopicState

JOBS_MAX = 1000
"""Jobs remembered; finished ones are forgotten oldest first."""
GAP_MAX = 256
"""Letters that were named are read together when no more than this many others lie between two of them."""

Edit = Callable[[DeadLetter], Any]


def begin_redrive(
    engine: Engine,
    topic: str,
    *,
    to: str | None,
    reason: str | None,
    group: str | None,
    key: bytes | str | None,
    from_time: Instant | None,
    to_time: Instant | None,
    rate: float | None,
    edited: bool,
    where: str | None = None,
    ids: Sequence[str] | None = None,
) -> tuple[RedriveJob, int]:
    """A job that is under way from now on. `ids` names letters instead of filters."""
    if edited and ids is not None:
        raise InvalidOption("ids= and edit= do not go together: letters that are named are moved as they are")
    job = _new_job(
        engine, topic, to=to, reason=reason, group=group, key=key, from_time=from_time, to_time=to_time,
        rate=rate, edited=edited, where=where, ids=ids,
    )  # fmt: skip
    entry = Entry()
    entry.meta(JobSet(job), engine.apply_meta)
    return RedriveJob(engine, job.id), engine.commit(entry, Level.SYNCED)


def dry_redrive(
    engine: Engine,
    topic: str,
    *,
    to: str | None = None,
    reason: str | None = None,
    group: str | None = None,
    key: bytes | str | None = None,
    from_time: Instant | None = None,
    to_time: Instant | None = None,
    ids: Sequence[str] | None = None,
) -> RedriveJob:
    """A job that was not begun: to see what it would look at, and `fits` says which of that it would move."""
    job = _new_job(
        engine, topic, to=to, reason=reason, group=group, key=key, from_time=from_time, to_time=to_time,
        rate=None, edited=False, where=None, ids=ids,
    )  # fmt: skip
    return RedriveJob(engine, job.id, job)


def redrive_edited(
    engine: Engine, topic: str, letter: str, *, to: str | None, edit: Edit
) -> tuple[RedriveJob, int]:
    """Sends one letter back as `edit` makes it: one entry, so there is no job to resume."""
    job = _new_job(
        engine, topic, to=to, reason=None, group=None, key=None, from_time=None, to_time=None, rate=None,
        edited=True, where=None, ids=[letter],
    )  # fmt: skip
    draft_of = RedriveJob(engine, job.id, job)
    ((part, found),) = draft_of.named()
    if found is None:
        raise UnknownMessage(f"{letter} is not a dead letter any more; it was redriven or purged")
    now = engine.clock.now_ms()
    target = draft_of._target(job, found)
    made = draft_of._draft(found, target, edit, now)
    assert made is not None, "an edit of one letter does not leave it where it is"
    entry = Entry()
    draft_of._move(entry, target, [(part, found, made)], now)
    done = msgspec.structs.replace(job, positions=[1], matched=1, moved=1, state="done")
    entry.meta(JobSet(done), engine.apply_meta)
    return RedriveJob(engine, job.id), engine.commit(entry, Level.SYNCED)


def _new_job(
    engine: Engine,
    topic: str,
    *,
    to: str | None,
    reason: str | None,
    group: str | None,
    key: bytes | str | None,
    from_time: Instant | None,
    to_time: Instant | None,
    rate: float | None,
    edited: bool,
    where: str | None,
    ids: Sequence[str] | None,
) -> JobMeta:
    name = topic if topic.endswith(DLQ_SUFFIX) else dlq_name(topic)
    if name not in engine.topics:
        engine.topic(topic)
        raise UnknownTopic(f"topic {topic!r} has no dead letters: nothing of it was ever given up on")
    named = None
    if ids is not None:
        if any(one is not None for one in (reason, group, key, from_time, to_time, where)):
            raise InvalidOption("ids= names the letters: it does not go together with filters or where=")
        named = letters_named(engine, name, ids)
    if to is not None:
        engine.topic(to)
    if where is not None and edited:
        raise InvalidOption(
            "where= and edit= do not go together: letters that are named are moved as they are"
        )
    if rate is not None and not rate > 0:
        raise InvalidOption(f"rate is {rate}; it is messages a second, above 0")
    if len(engine.meta.jobs) >= JOBS_MAX and not engine.forget_finished_job():
        raise TooMany(f"{JOBS_MAX} redrives are running; cancel some, or wait for their end")
    dlq = engine.topics[name]
    letters = letters_group(dlq)
    return JobMeta(
        id=f"redrive-{engine.meta.next_job}",
        topic=name,
        to=to,
        reason=reason,
        group=group,
        key=as_bytes(key, "key"),
        from_ms=None if from_time is None else instant_ms(from_time),
        to_ms=None if to_time is None else instant_ms(to_time),
        rate=rate,
        ends=[part.partition.log.next_offset for part in letters.parts] if named is None else [len(named)],
        positions=[part.ledger.first_unsettled() for part in letters.parts] if named is None else [0],
        created_ms=engine.clock.now_ms(),
        edited=edited,
        where=where,
        letters=named,
    )


def find_job(engine: Engine, job_id: str, has_edit: bool) -> RedriveJob:
    job = engine.meta.jobs.get(job_id)
    if job is None:
        raise UnknownJob(f"there is no redrive {job_id!r}; redrives() lists them")
    if job.edited and not has_edit and job.state == "running":
        raise InvalidOption(
            f"redrive {job_id!r} was begun with edit=; give the same function to go on with it"
        )
    return RedriveJob(engine, job_id)


def jobs(engine: Engine) -> list[RedriveJob]:
    return [RedriveJob(engine, job_id) for job_id in engine.meta.jobs]


class RedriveJob:
    """One job. What it is and how far stands in the metadata; here is only what moves it on."""

    def __init__(self, engine: Engine, job_id: str, dry: JobMeta | None = None) -> None:
        self._engine = engine
        self._dry = dry
        """What it would be, if it was not begun."""
        self.id = job_id
        self._began_ms = engine.clock.now_ms()
        self._moved = 0
        """Since this object was made: what the rate is counted by."""

    @property
    def _job(self) -> JobMeta:
        job = self._dry or self._engine.meta.jobs.get(self.id)
        if job is None:
            raise UnknownJob(f"redrive {self.id!r} is long over and forgotten")
        return job

    @property
    def where(self) -> str | None:
        return self._job.where

    @property
    def ends(self) -> list[int]:
        return list(self._job.ends)

    @property
    def done(self) -> bool:
        return self._job.state != "running"

    def progress(self) -> dict[str, Any]:
        job = self._job
        total = sum(job.ends)
        return {
            "id": job.id,
            "topic": job.topic,
            "state": job.state,
            "matched": job.matched,
            "moved": job.moved,
            "passed_over": job.passed_over,
            "looked_at": sum(min(at, end) for at, end in zip(job.positions, job.ends, strict=True)),
            "of": total,
            "created_ms": job.created_ms,
            "to": job.to,
            "rate": job.rate,
        }

    def fits(self, letter: DeadLetter) -> bool:
        """Whether a job with filters moves this letter, if it is still there."""
        job = self._job
        if job.from_ms is not None and letter.failed_ms < job.from_ms:
            return False
        if job.to_ms is not None and letter.failed_ms >= job.to_ms:
            return False
        return matches(letter, job.reason, job.group, job.key)

    def named(self) -> list[tuple[GroupPart, DeadLetter | None]]:
        """The letters of a job that names them; None for one that is not there any more."""
        parts = self._letters().parts
        found: list[tuple[GroupPart, DeadLetter | None]] = []
        for number, offset in self._job.letters or []:
            part = parts[number]
            one = part.partition
            there = one.log.start_offset <= offset < one.log.next_offset and not part.ledger.is_settled(
                offset
            )
            record = one.record(offset) if there else None
            letter = DeadLetter(record, one.origin, one.lane_of(offset)) if record is not None else None
            found.append((part, letter))
        return found

    def preview(self, limit: int) -> list[DeadLetter]:
        job = self._job
        if job.letters is not None:
            return [letter for _, letter in self.named() if letter is not None][:limit]
        found = []
        for number, part in enumerate(self._letters().parts):
            for letter in self._matching(job, number, part):
                if letter is not None:
                    found.append(letter)
                    if len(found) >= limit:
                        return found
        return found

    def reach(self, letters: set[str]) -> int:
        """How many letters a step has to look at to move these, the first of a preview, and no others."""
        job = self._job
        looked = far = 0
        left = len(letters)
        for number, part in enumerate(self._letters().parts):
            for letter in self._matching(job, number, part):
                if letter is not None and letter.id not in letters:
                    return far
                looked += 1
                if letter is not None:
                    far = looked
                    left -= 1
                    if not left:
                        return far
        return far

    def pause_ms(self) -> int:
        """How long until the rate allows another one."""
        rate = self._job.rate
        if rate is None:
            return 0
        due = self._began_ms + (self._moved + 1) * 1000 / rate
        return max(int(due - self._engine.clock.now_ms()) + 1, 0)

    def step(self, most: int, edit: Edit | None) -> tuple[int, int]:
        """Looks at up to `most` letters and moves those that match; (looked at, lsn)."""
        engine, job = self._engine, self._job
        if job.state != "running":
            return 0, engine.store.end_lsn
        if job.edited and edit is None:
            raise InvalidOption(f"redrive {job.id!r} needs its edit= function")
        if job.where is not None:
            raise InvalidOption(
                f"redrive {job.id!r} has a condition in SQL, which Spark evaluates: go on with it by "
                f"`trine redrive --resume {job.id}`"
            )
        now = engine.clock.now_ms()
        allowed = self._allowed(most, now)
        if allowed <= 0:
            return 0, engine.store.end_lsn
        if job.letters is not None:
            return self._step_named(job.letters, job.positions[0], allowed, now)
        entry = Entry()
        positions, matched, moved, looked = list(job.positions), 0, 0, 0
        room = engine.store.entry_bytes_max // 2
        targets: dict[str, list[tuple[GroupPart, DeadLetter, Draft]]] = {}
        for number, part in enumerate(self._letters().parts):
            if looked >= most or matched >= allowed or room <= 0:
                break
            for letter in self._matching(job, number, part, positions):
                looked += 1
                if letter is not None:
                    matched += 1
                    room -= record_bytes(letter._record)
                    target = self._target(job, letter)
                    new = self._draft(letter, target, edit, now)
                    if new is not None:
                        targets.setdefault(target.name, []).append((part, letter, new))
                if looked >= most or matched >= allowed or room <= 0:
                    break
        for name, letters in targets.items():
            self._move(entry, engine.topic(name), letters, now)
            moved += len(letters)
        over = all(at >= end for at, end in zip(positions, job.ends, strict=True))
        changed = msgspec.structs.replace(
            job,
            positions=positions,
            matched=job.matched + matched,
            moved=job.moved + moved,
            passed_over=job.passed_over + looked - moved,
            state="done" if over else "running",
        )
        entry.meta(JobSet(changed), engine.apply_meta)
        lsn = engine.commit(entry, Level.SYNCED)
        self._moved += moved
        return looked, lsn

    def move(self, letters: Sequence[tuple[int, int]], last: bool) -> tuple[int, int]:
        """Moves the letters that the caller's condition found, named by (partition, offset) and rising; (how many of
        them, from the front, are dealt with, lsn). One that is not there any more was moved before, and is passed over:
        so the same letters may be named again. After `last` the job is over."""
        engine, job = self._engine, self._job
        if job.where is None:
            raise InvalidOption(
                f"redrive {job.id!r} finds its letters itself; only one with where= is told them"
            )
        if job.state != "running":
            return 0, engine.store.end_lsn
        now = engine.clock.now_ms()
        entry = Entry()
        dealt, moved = self._move_named(entry, letters[: self._allowed(len(letters), now)], job.ends, now)
        positions = list(job.positions)
        for number, offset in letters[:dealt]:
            positions[number] = max(positions[number], min(offset + 1, job.ends[number]))
        over = last and dealt == len(letters)
        changed = msgspec.structs.replace(
            job,
            positions=list(job.ends) if over else positions,
            matched=job.matched + moved,
            moved=job.moved + moved,
            passed_over=job.passed_over + dealt - moved,
            state="done" if over else "running",
        )
        entry.meta(JobSet(changed), engine.apply_meta)
        lsn = engine.commit(entry, Level.SYNCED)
        self._moved += moved
        return dealt, lsn

    def _step_named(
        self, letters: Sequence[tuple[int, int]], at: int, most: int, now: int
    ) -> tuple[int, int]:
        engine, job = self._engine, self._job
        ends = [part.partition.log.next_offset for part in self._letters().parts]
        entry = Entry()
        dealt, moved = self._move_named(entry, letters[at : at + most], ends, now)
        changed = msgspec.structs.replace(
            job,
            positions=[at + dealt],
            matched=job.matched + moved,
            moved=job.moved + moved,
            passed_over=job.passed_over + dealt - moved,
            state="done" if at + dealt == len(letters) else "running",
        )
        entry.meta(JobSet(changed), engine.apply_meta)
        lsn = engine.commit(entry, Level.SYNCED)
        self._moved += moved
        return dealt, lsn

    def _move_named(
        self, entry: Entry, letters: Sequence[tuple[int, int]], ends: list[int], now: int
    ) -> tuple[int, int]:
        """Puts the letters that are there into the entry, as many as fit; (how many it dealt with, how many moved)."""
        engine, job = self._engine, self._job
        parts = self._letters().parts
        dealt = 0
        room = engine.store.entry_bytes_max // 2
        targets: dict[str, list[tuple[GroupPart, DeadLetter, Draft]]] = {}
        for number, first, offsets in _near(letters, len(parts)):
            if room <= 0:
                break
            part, one = parts[number], parts[number].partition
            wanted = set(offsets)
            there = {
                record.offset: record
                for record in one.scan(first, min(offsets[-1] + 1, ends[number]))
                if record.offset in wanted and not part.ledger.is_settled(record.offset)
            }
            for offset in offsets:
                dealt += 1
                if (record := there.get(offset)) is not None:
                    letter = DeadLetter(record, one.origin, one.lane_of(offset))
                    target = self._target(job, letter)
                    made = self._draft(letter, target, None, now)
                    assert made is not None, "only edit= leaves letters out"
                    targets.setdefault(target.name, []).append((part, letter, made))
                    room -= record_bytes(record)
                    if room <= 0:
                        break
        for name, found in targets.items():
            self._move(entry, engine.topic(name), found, now)
        return dealt, sum(map(len, targets.values()))

    def _allowed(self, most: int, now: int) -> int:
        """What the rate leaves of `most`."""
        rate = self._job.rate
        return most if rate is None else min(most, int((now - self._began_ms) / 1000 * rate) - self._moved)

    def cancel(self) -> int:
        job = self._job
        if job.state != "running":
            raise Conflict(f"redrive {job.id!r} is over already: {job.state}")
        entry = Entry()
        entry.meta(JobSet(msgspec.structs.replace(job, state="cancelled")), self._engine.apply_meta)
        return self._engine.commit(entry, Level.SYNCED)

    def _letters(self) -> GroupState:
        return letters_group(self._engine.topic(self._job.topic))

    def _matching(
        self, job: JobMeta, number: int, part: GroupPart, positions: list[int] | None = None
    ) -> Iterator[DeadLetter | None]:
        """Letters of a partition that are still there, None for one that does not match; positions move along."""
        one = part.partition
        at = positions if positions is not None else list(job.positions)
        for record in one.scan(at[number], job.ends[number]):
            at[number] = record.offset + 1
            if part.ledger.is_settled(record.offset):
                continue
            letter = DeadLetter(record, one.origin, one.lane_of(record.offset))
            yield letter if self.fits(letter) else None
        at[number] = job.ends[number]

    def _target(self, job: JobMeta, letter: DeadLetter) -> TopicState:
        """Where a letter goes: back to its topic, unless the job says otherwise. What its origin says is believed only
        if letters of that topic come here."""
        if job.to is not None:
            return self._engine.topic(job.to)
        with suppress(TrineError):
            origin = parse_message_id(letter.origin).topic
            if dlq_name(origin) == job.topic:
                return self._engine.topic(origin)
        return self._engine.topic(job.topic.removesuffix(DLQ_SUFFIX))

    def _draft(self, letter: DeadLetter, target: TopicState, edit: Edit | None, now: int) -> Draft | None:
        """The message to send: as it was, or as `edit` makes it; None leaves the letter where it is."""
        own = {name: value for name, value in letter.headers.items() if not name.startswith(RESERVED)}
        lanes = target.config.lanes
        message = Outgoing(
            value=letter.value,
            key=letter.key,
            headers=own,
            priority=letter.priority if letter.priority in lanes else None,
        )
        if edit is not None:
            edited = edit(letter)
            if edited is None:
                return None
            message = next(iter(outgoing_many([edited], message)))
        made = draft(message, target.config, now)
        made.headers.append((H_REDRIVEN, letter.id.encode()))
        return made

    def _move(
        self, entry: Entry, target: TopicState, letters: list[tuple[GroupPart, DeadLetter, Draft]], now: int
    ) -> None:
        places, _ = target.add(entry, [made for _, _, made in letters], now)
        for (part, letter, _), place in zip(letters, places, strict=True):
            link = pack_place(*place) if not isinstance(place, str) else -1
            why = part.ledger.name(target.name)
            row = Row(Kind.REDRIVEN, 0, 0, 0, why, now, letter.offset, 1, link, -1)
            entry.rows(part, (row,))


def _near(letters: Sequence[tuple[int, int]], partitions: int) -> Iterator[tuple[int, int, list[int]]]:
    """Letters that are worth one read: (partition, first offset, offsets)."""
    run: list[int] = []
    at = -1
    for number, offset in letters:
        if not 0 <= number < partitions:
            raise UnknownPartition(f"there is no partition {number}; the dead letters have {partitions}")
        if run and number == at and offset <= run[-1]:
            raise InvalidOption("letters are named in rising order, partition by partition, each once")
        if run and (number != at or offset - run[-1] > GAP_MAX):
            yield at, run[0], run
            run = []
        at = number
        run.append(offset)
    if run:
        yield at, run[0], run
