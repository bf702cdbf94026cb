"""Every message's life in every group, as DataFrames: what traces and reports are made of.

The ledgers say what happened (view=deliveries), the log says what was published; a message a ledger says nothing of is
waiting. `lives` puts the two together, a row for each message and group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trine.broker.operations import REDRIVE_GROUP
from trine.model.errors import NotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trine.spark.place import Place

MESSAGE_COLUMNS: Final = "key,value,topic,partition,offset,timestamp,priority,producer,message_id,schedule_id"
SETTLES: Final = "'acked', 'rejected', 'dead_lettered', 'expired', 'filtered', 'gone', 'redriven'"
UNSETTLED: Final = "'waiting', 'in flight', 'retrying'"

_TOLD: Final = f"""
SELECT topic, partition, offset, `group`,
       max(`row`) AS last_row,
       max_by(event, `row`) FILTER (WHERE event <> 'extended') AS last_event,
       max_by(at, `row`) FILTER (WHERE event IN ({SETTLES})) AS ended,
       max_by(coalesce(attempt, 0), `row`) FILTER (WHERE event <> 'extended') AS attempts,
       count_if(event = 'delivered') AS deliveries,
       min(at) FILTER (WHERE event = 'delivered') AS first_delivered,
       max_by(member, `row`) FILTER (WHERE event <> 'extended') AS member,
       max_by(reason, `row`) FILTER (WHERE event <> 'extended') AS reason,
       max_by(until, `row`) AS until,
       max_by(`to`, `row`) FILTER (WHERE event <> 'extended') AS `to`
FROM {{events}} WHERE event <> 'seek'
GROUP BY topic, partition, offset, `group`
"""

_JOINED: Final = f"""
WITH expected AS (
  SELECT m.message_id, m.topic, m.partition, m.offset, m.published, m.size, g.`group`, g.late
  FROM {{messages}} m JOIN {{groups}} g ON m.topic = g.topic
), moved AS (
  SELECT topic, partition, `group`, max_by(offset, `row`) AS seek_to, max(`row`) AS seek_row
  FROM {{events}} WHERE event = 'seek' GROUP BY topic, partition, `group`
), known AS (
  SELECT *, CASE last_event
      WHEN 'delivered' THEN 'in flight' WHEN 'nacked' THEN 'retrying' WHEN 'returned' THEN 'retrying'
      WHEN 'reopened' THEN 'waiting' WHEN 'dead_lettered' THEN 'dead-lettered'
      ELSE coalesce(last_event, 'waiting') END AS known_state
  FROM expected FULL OUTER JOIN {{told}} USING (topic, partition, offset, `group`)
), stated AS (
  SELECT known.*, CASE
      WHEN seek_row IS NULL OR last_row > seek_row THEN known_state
      WHEN offset >= seek_to THEN 'waiting'
      WHEN known_state IN ({UNSETTLED}) THEN 'skipped'
      ELSE known_state END AS stated
  FROM known LEFT JOIN moved USING (topic, partition, `group`)
), ranked AS (
  SELECT stated.*, CASE WHEN late AND stated = 'waiting' THEN row_number() OVER (
      PARTITION BY topic, partition, `group`, stated IN ({UNSETTLED})
      ORDER BY CASE WHEN last_row IS NULL THEN 1 ELSE 0 END, offset DESC) END AS place
  FROM stated
)
SELECT coalesce(message_id, concat(topic, '/', partition, '/', offset)) AS message_id,
       topic, partition, offset, `group`, state, published, size,
       cast(coalesce(attempts, 0) AS int) AS attempts, cast(coalesce(deliveries, 0) AS int) AS deliveries,
       first_delivered,
       CASE WHEN state NOT IN ({UNSETTLED}, 'skipped') THEN ended END AS settled,
       member, reason,
       CASE WHEN state IN ('in flight', 'retrying') THEN until END AS until,
       `to`,
       unix_millis(first_delivered) - unix_millis(published) AS wait_ms,
       CASE WHEN state NOT IN ({UNSETTLED}, 'skipped')
            THEN unix_millis(ended) - unix_millis(published) END AS settle_ms
FROM (SELECT ranked.*, CASE WHEN place > coalesce(unsettled, 0) AND last_row IS NULL THEN 'skipped'
                            ELSE stated END AS state
      FROM ranked LEFT JOIN {{lag}} USING (topic, partition, `group`))
"""

_ATTEMPTS: Final = """
SELECT * FROM (
  SELECT first(message_id) AS message_id, topic, partition, offset, `group`, lease,
         max(attempt) FILTER (WHERE event = 'delivered') AS attempt,
         max(member) FILTER (WHERE event = 'delivered') AS member,
         max(at) FILTER (WHERE event = 'delivered') AS delivered,
         max(until) FILTER (WHERE event IN ('delivered', 'extended')) AS deadline,
         coalesce(max_by(event, `row`) FILTER (WHERE event NOT IN ('delivered', 'extended')), 'in flight') AS outcome,
         max_by(reason, `row`) FILTER (WHERE event NOT IN ('delivered', 'extended')) AS reason,
         max(at) FILTER (WHERE event NOT IN ('delivered', 'extended')) AS ended,
         max(unix_millis(at)) FILTER (WHERE event NOT IN ('delivered', 'extended'))
           - max(unix_millis(at)) FILTER (WHERE event = 'delivered') AS duration_ms
  FROM {events} WHERE lease IS NOT NULL
  GROUP BY topic, partition, offset, `group`, lease
) WHERE delivered IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Lives:
    """What the tables are made of; `close` gives the memory back."""

    topics: tuple[str, ...]
    groups: tuple[tuple[str, str], ...]
    """(topic, group)."""
    events: DataFrame
    messages: DataFrame
    lives: DataFrame
    attempts: DataFrame

    def close(self) -> None:
        self.events.unpersist()
        self.messages.unpersist()
        self.lives.unpersist()


def chosen(place: Place, topics: Sequence[str] | None) -> list[str]:
    """The topics that are named, or all but dead letters."""
    broker = place.shared()
    if topics:
        for name in topics:
            broker.topic(name).describe()
        return list(dict.fromkeys(topics))
    found = [one.name for one in broker.topics() if one.config.kind != "dead_letters"]
    if not found:
        raise NotFound(
            "the broker has no topics yet: there is nothing to tell; `trine topic create` makes one"
        )
    return sorted(found)


def read_lives(spark: SparkSession, place: Place, topics: Sequence[str] | None = None) -> Lives:
    names = chosen(place, topics)
    reader = spark.read.format("trine").options(**place.options()).option("subscribe", ",".join(names))
    events = reader.option("view", "deliveries").load().persist()
    messages = (
        spark.read.format("trine")
        .options(**place.options())
        .option("subscribe", ",".join(names))
        .option("failOnDataLoss", "false")
        .option("columns", MESSAGE_COLUMNS)
        .load()
        .selectExpr(
            "message_id", "topic", "partition", "offset", "timestamp AS published", "key",
            "coalesce(length(key), 0) + coalesce(length(value), 0) AS size", "priority", "producer", "schedule_id",
        )
        .persist()
    )  # fmt: skip
    groups, lag = _groups(place, names)
    told = spark.sql(_TOLD, events=events)
    lives = spark.sql(
        _JOINED,
        events=events,
        messages=messages,
        told=told,
        groups=spark.createDataFrame(groups, "topic string, `group` string, late boolean"),
        lag=spark.createDataFrame(lag, "topic string, partition int, `group` string, unsettled bigint"),
    ).persist()
    attempts = spark.sql(_ATTEMPTS, events=events)
    return Lives(tuple(names), tuple((t, g) for t, g, _ in groups), events, messages, lives, attempts)


def _groups(place: Place, names: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """The groups of the topics, and how many messages of a partition each has yet to settle."""
    groups, lag = [], []
    for name in names:
        for one in place.shared().topic(name).groups():
            if one.name == REDRIVE_GROUP:
                continue
            groups.append((name, one.name, one.config.start == "latest"))
            lag += [(name, number, one.name, count) for number, count in one.lag.partitions.items()]
    return groups, lag
