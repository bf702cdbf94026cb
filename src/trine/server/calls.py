"""The calls: everything but the hot commands. One table says who may make each and who answers it.

An answer is a coroutine that runs as a task of its connection. The handlers are in files by subject; each is a few
lines over the public interface of the broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from trine.model.errors import UnknownJob, UnknownSchedule
from trine.model.ids import parse_message_id, parse_schedule_id
from trine.server import group_calls, letter_calls, run_calls, topic_calls
from trine.server.keys import Action, check_group
from trine.wire import calls
from trine.wire.bodies import Bytes
from trine.wire.calls import Call, write_reply

if TYPE_CHECKING:
    from trine.server.connection import Connection

Handler = Callable[["Connection", Any], Awaitable[Any]]
TopicOf = Callable[["Connection", Any], str | None]
"""The topic a call is about; None if it is about the whole server."""


def _topic(connection: Connection, call: Any) -> str:
    return str(call.topic)


def _name(connection: Connection, call: Any) -> str:
    return str(call.name)


def _server(connection: Connection, call: Any) -> None:
    return None


def _schedule(connection: Connection, call: Any) -> str:
    return parse_schedule_id(call.schedule_id).topic


def _traced(connection: Connection, call: Any) -> str:
    """A message id or a schedule id."""
    if "@" in call.message_id:
        return parse_schedule_id(call.message_id).topic
    return parse_message_id(call.message_id).topic


# Crons and jobs have names of the whole server: to say no would tell whose topic they are about.


def _cron(connection: Connection, call: Any) -> str:
    cron = connection.context.engine.meta.crons.get(call.name)
    if cron is None or not connection.may("read", cron.topic):
        raise UnknownSchedule(f"there is no recurring schedule {call.name!r}; crons() lists them")
    return cron.topic


def _job(connection: Connection, call: Any) -> str:
    job = connection.context.engine.meta.jobs.get(call.id)
    if job is None or not connection.may("read", job.topic):
        raise UnknownJob(f"there is no redrive {call.id!r}; redrives() lists them")
    return job.topic


CALLS: Final[dict[type[Call], tuple[Action | None, TopicOf, Handler]]] = {
    # topics
    calls.CreateTopic: ("admin", _name, topic_calls.create_topic),
    calls.GetTopic: ("read", _name, topic_calls.get_topic),
    calls.ListTopics: (None, _server, topic_calls.list_topics),
    calls.DescribeTopic: ("read", _topic, topic_calls.describe_topic),
    calls.AlterTopic: ("admin", _topic, topic_calls.alter_topic),
    calls.DeleteTopic: ("admin", _topic, topic_calls.delete_topic),
    calls.PurgeTopic: ("admin", _topic, topic_calls.purge_topic),
    calls.GetOffsets: ("read", _topic, topic_calls.get_offsets),
    calls.GetArchived: ("read", _topic, topic_calls.get_archived),
    calls.SetArchived: ("admin", _topic, topic_calls.set_archived),
    # in
    calls.Send: ("publish", _topic, topic_calls.send),
    calls.SendNumbered: ("publish", _topic, topic_calls.send_numbered),
    calls.SendBatch: ("publish", _topic, topic_calls.send_batch),
    calls.RegisterProducer: ("publish", _server, topic_calls.register_producer),
    calls.ForgetProducers: ("publish", _server, topic_calls.forget_producers),
    calls.NextSequence: ("publish", _topic, topic_calls.next_sequence),
    calls.Transact: (None, _server, group_calls.transact),
    # groups
    calls.CreateGroup: ("consume", _topic, group_calls.create_group),
    calls.CheckGroup: ("read", _topic, group_calls.check_group),
    calls.ListGroups: ("read", _topic, group_calls.list_groups),
    calls.DescribeGroup: ("read", _topic, group_calls.describe_group),
    calls.ReadLedger: ("read", _topic, group_calls.read_ledger),
    calls.GetLag: ("read", _topic, group_calls.get_lag),
    calls.AlterGroup: ("admin", _topic, group_calls.alter_group),
    calls.DeleteGroup: ("admin", _topic, group_calls.delete_group),
    calls.PauseGroup: ("admin", _topic, group_calls.pause_group),
    calls.ResumeGroup: ("admin", _topic, group_calls.resume_group),
    calls.SeekGroup: ("consume", _topic, group_calls.seek_group),
    calls.ReplayGroup: ("consume", _topic, group_calls.replay_group),
    calls.SettleReceipts: ("consume", _topic, group_calls.settle_receipts),
    calls.Join: ("consume", _topic, group_calls.join),
    calls.Subscribe: ("consume", _topic, group_calls.subscribe),
    # of a session, whose connection was allowed to join
    calls.Leave: (None, _server, group_calls.leave),
    calls.Heartbeat: (None, _server, group_calls.heartbeat),
    calls.ReturnUnseen: (None, _server, group_calls.return_unseen),
    calls.GetPartitions: (None, _server, group_calls.get_partitions),
    # the log
    calls.OpenReader: ("read", _topic, topic_calls.open_reader),
    calls.CommitReader: ("consume", _topic, topic_calls.commit_reader),
    calls.FindOffsets: ("read", _topic, topic_calls.find_offsets),
    # schedule
    calls.ListSchedules: (None, _server, topic_calls.list_schedules),
    calls.CancelSchedule: ("publish", _schedule, topic_calls.cancel_schedule),
    calls.MoveSchedule: ("publish", _schedule, topic_calls.move_schedule),
    calls.CreateCron: ("publish", _topic, topic_calls.create_cron),
    calls.ListCrons: (None, _server, topic_calls.list_crons),
    calls.DeleteCron: ("publish", _cron, topic_calls.delete_cron),
    # dead letters
    calls.ListDeadLetters: ("read", _topic, letter_calls.list_dead_letters),
    calls.PurgeDeadLetters: ("admin", _topic, letter_calls.purge_dead_letters),
    calls.BeginRedrive: ("admin", _topic, letter_calls.begin_redrive),
    calls.ResumeRedrive: ("admin", _job, letter_calls.resume_redrive),
    calls.ListRedrives: (None, _server, letter_calls.list_redrives),
    calls.PreviewRedrive: ("read", _job, letter_calls.preview_redrive),
    calls.StepRedrive: ("admin", _job, letter_calls.step_redrive),
    calls.MoveLetters: ("admin", _job, letter_calls.move_letters),
    calls.CancelRedrive: ("admin", _job, letter_calls.cancel_redrive),
    # runs
    calls.BeginRun: (None, _server, run_calls.begin_run),
    calls.TellRun: (None, _server, run_calls.tell_run),
    calls.EndRun: (None, _server, run_calls.end_run),
    calls.ListRuns: (None, _server, run_calls.list_runs),
    calls.GetRun: (None, _server, run_calls.get_run),
    # trace
    calls.GetTrace: ("read", _traced, topic_calls.get_trace),
    calls.Search: ("read", _topic, topic_calls.search),
    # upkeep
    calls.Checkpoint: ("admin", _server, topic_calls.checkpoint),
    calls.Tick: ("admin", _server, topic_calls.tick),
    calls.ApplyRetention: ("admin", _server, topic_calls.apply_retention),
    calls.Verify: ("admin", _server, topic_calls.verify),
    calls.Statistics: ("read", _server, topic_calls.statistics),
}
"""Who may, about which topic, and who answers. Without an action the handler asks for itself, or shows only what may
be read."""
assert set(CALLS) == set(calls.REPLIES), "every call has an answer"

STEERS: Final[dict[type[Call], str]] = {
    calls.CreateGroup: "group", calls.AlterGroup: "group", calls.DeleteGroup: "group", calls.PauseGroup: "group",
    calls.ResumeGroup: "group", calls.SeekGroup: "group", calls.ReplayGroup: "group", calls.SettleReceipts: "group",
    calls.Join: "group", calls.Subscribe: "name",
}  # fmt: skip
"""What consumes from a group or changes it, and where its name stands."""


async def answer(connection: Connection, call: Call) -> list[Bytes]:
    """The body of the reply."""
    action, topic_of, handler = CALLS[type(call)]
    if action is not None:
        connection.check(action, topic_of(connection, call))
    else:
        connection.check("read", None)  # all may, unless the key was deleted meanwhile
    if (where := STEERS.get(type(call))) is not None:
        check_group(getattr(call, where))
    return [write_reply(await handler(connection, call))]
