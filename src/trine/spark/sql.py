"""SQL over topics: their messages, ledgers, dead letters, schedules and archives as tables by name.

    orders                  the messages in the log
    orders$deliveries       what happened to them in the groups
    orders$dead_letters     what was given up on
    orders$schedule         what waits for its time
    orders$archive          the topic's archive

A query is given to Spark as it is; each table it does not know is looked up here and registered, until it knows all.
Keys and values are text in these tables, unless bytes are asked for.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final

from trine.model.errors import InvalidInput, NotFound, UnknownTopic
from trine.spark.errors import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trine.spark.place import Place

MARK: Final = "$"
KINDS: Final = ("deliveries", "dead_letters", "schedule", "archive")
TABLES_MAX: Final = 100
"""Tables of one query."""
UNKNOWN: Final = "TABLE_OR_VIEW_NOT_FOUND"
LOOKS: Final = ("show", "describe", "desc", "explain")

_PIECES: Final = re.compile(
    r"""(?P<kept>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/)"""
    rf"""|(?P<name>[A-Za-z0-9_](?:[\w.-]*\w)?\$(?:{"|".join(KINDS)})\b)""",
    re.DOTALL,
)
_COMMENTS: Final = re.compile(r"^(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)


def quoted(query: str) -> str:
    """The query with names such as orders$deliveries in backquotes, which Spark wants around the mark.

    >>> quoted("select * from orders$deliveries where reason = 'a$deliveries'")
    "select * from `orders$deliveries` where reason = 'a$deliveries'"
    """
    return _PIECES.sub(lambda found: found["kept"] or f"`{found['name']}`", query)


def sql(spark: SparkSession, place: Place, query: str, *, binary: bool = False) -> DataFrame:
    """The answer to a query as a DataFrame; the tables it names are temporary views until it is understood."""
    from pyspark.errors import AnalysisException

    text = quoted(query).strip().rstrip(";")
    with plain():
        _only_asks(spark, text)
        tables = Tables(spark, place, binary=binary)
        try:
            for _ in range(TABLES_MAX):
                try:
                    return spark.sql(text)
                except AnalysisException as error:
                    if error.getCondition() != UNKNOWN:
                        raise
                    tables.register(str((error.getMessageParameters() or {}).get("relationName", "")))
        finally:
            tables.close()
    raise InvalidInput(f"the query names more than {TABLES_MAX} tables")


def table_names(place: Place) -> list[str]:
    """Every table a query can name."""
    found = []
    for one in sorted(place.shared().topics(), key=lambda topic: topic.name):
        found.append(one.name)
        if one.config.kind != "dead_letters":
            kinds = [kind for kind in KINDS if kind != "archive" or one.config.archive]
            found += [f"{one.name}{MARK}{kind}" for kind in kinds]
    return found


class Tables:
    def __init__(self, spark: SparkSession, place: Place, *, binary: bool) -> None:
        self._spark = spark
        self._place = place
        self._binary = binary
        self._known: set[str] = set()

    def register(self, relation: str) -> None:
        """Makes the table known under the name as the query has it."""
        parts = [part.replace("``", "`") for part in re.findall(r"`((?:[^`]|``)*)`", relation)] or [relation]
        name = ".".join(parts)
        if len(parts) > 1:
            self._find(name)
            raise InvalidInput(f"write the table's name in backquotes, as it has a dot: `{name}`")
        if name in self._known:
            raise InvalidInput(f"Spark does not find the table {name!r} although it was registered")
        topic, kind = self._find(name)
        frame = self._read(topic, kind)
        if not self._binary:
            for column in ("key", "value"):
                if column in frame.columns:
                    frame = frame.withColumn(column, frame[column].cast("string"))
        frame.createOrReplaceTempView(_in_backquotes(name))
        self._known.add(name)

    def close(self) -> None:
        """Forgets the tables: a query that was understood has what it needs, and the next may be of another broker."""
        for name in self._known:
            self._spark.sql(f"DROP VIEW IF EXISTS {_in_backquotes(name)}")

    def _find(self, name: str) -> tuple[str, str]:
        """(topic, kind) of a table's name; the error names those that are near it."""
        topic, _, kind = name.partition(MARK)
        topics = {one.name for one in self._place.shared().topics()}
        alike = [one for one in topics if one.lower() == topic.lower()]
        if topic not in topics and len(alike) == 1:
            topic = alike[0]
        if topic in topics and kind in ("", *KINDS):
            return topic, kind
        near = difflib.get_close_matches(name, table_names(self._place), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`trine sql` alone lists the tables"
        raise UnknownTopic(f"there is no table {name!r}; {hint}")

    def _read(self, topic: str, kind: str) -> DataFrame:
        if kind == "archive":
            return self._archive(topic)
        reader = self._spark.read.format("trine").options(**self._place.options()).option("subscribe", topic)
        if kind:
            return reader.option("view", kind).load()
        return reader.option("includeHeaders", "true").option("failOnDataLoss", "false").load()

    def _archive(self, topic: str) -> DataFrame:
        from trine.spark.archive import read

        path = self._place.shared().topic(topic).describe().config.archive
        if path is None:
            raise NotFound(f"topic {topic!r} has no archive; `trine archive {topic} --to PATH` makes one")
        found: DataFrame = read(self._spark, path, [topic])
        return found


def _in_backquotes(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _only_asks(spark: SparkSession, text: str) -> None:
    """Queries look; what would write is refused before Spark does it."""
    from py4j.java_gateway import is_instance_of

    word = _COMMENTS.sub("", text)[:10].lower()
    if not text:
        raise InvalidInput('give a query, e.g. trine sql "select count(*) from orders"')
    if word.startswith(LOOKS):
        return
    session: Any = spark._jsparkSession
    gateway: Any = spark.sparkContext._gateway
    logical = "org.apache.spark.sql.catalyst.plans.logical"
    waiting = [session.sessionState().sqlParser().parsePlan(text)]
    while waiting:
        plan = waiting.pop()
        if any(is_instance_of(gateway, plan, f"{logical}.{name}") for name in ("Command", "ParsedStatement")):
            raise InvalidInput(
                "trine sql only reads: begin with select or with; to write, see `trine pipeline`"
            )
        children = plan.children()
        waiting += [children.apply(number) for number in range(children.size())]
