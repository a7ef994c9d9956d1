"""An application: its topics, views and outputs, under one name."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, get_args

from headrace.cdc.envelope import EVENT_TIME, KEY, envelope_schema
from headrace.errors import InvalidPipeline, InvalidSchema
from headrace.log import Log, open_log
from headrace.log.declared import check_compaction, check_name, check_partitions, columns_of
from headrace.log.event_time import check_event_time
from headrace.log.settings import TopicSettings
from headrace.log.state import Topic
from headrace.pipeline.arguments import declaration
from headrace.pipeline.chains import check_chain
from headrace.pipeline.explanation import Explanation
from headrace.pipeline.expressions import not_there
from headrace.pipeline.output import Early, Output, check_output
from headrace.pipeline.stores import DeclaredStore, stores_of
from headrace.pipeline.stream import Late, Source, Stream
from headrace.pipeline.tables import Table, captured
from headrace.pipeline.where import Where, caller
from headrace.schema.ddl import format_schema, parse_schema

Latency = Literal["micro-batch", "real-time"]
"""The execution mode: micro-batches, or Spark's Real-time Mode."""


@dataclass(frozen=True)
class View:
    """A table with a key that the application keeps up to date."""

    name: str
    stream: Stream
    key: tuple[str, ...]
    where: Where
    stores: tuple[DeclaredStore, ...] = ()
    noun: ClassVar[str] = "a view"
    belongs: ClassVar[str] = "Pass the stream that the view is made of: VIEW.stream"


class App:
    """A pipeline's declaration. It runs nothing; `headrace run` and `hr.run` do.

    With `latency="real-time"`, it runs in Spark's Real-time Mode, which needs a broker.
    """

    @declaration
    def __init__(
        self, name: str, *, log: str | None = None, latency: Latency = "micro-batch"
    ) -> None:
        self.name = check_name(name, "application")
        self.log = log
        self.latency = check_latency(latency)
        self.topics: dict[str, Topic] = {}
        self.views: dict[str, View] = {}
        self.outputs: dict[str, Output] = {}

    @declaration
    def topic(
        self,
        name: str,
        *,
        schema: str,
        event_time: str,
        key: str | None = None,
        partitions: int | None = None,
        settings: TopicSettings | Mapping[str, Any] | None = None,
    ) -> Source:
        """Declare a topic and return its stream. The first run creates the topic if needed.

        `event_time` is a timestamp column, or an expression in Spark SQL over the record, such as
        `timestamp_millis(ts)`. A new topic has one partition by default, and an existing one keeps
        its partitions.
        """
        where = caller()
        check_name(name, "topic")
        columns = parse_schema(schema)
        if key is not None and key not in columns.names:
            message = f"The key column {key!r} is not in the schema of topic {name!r}"
            raise not_there(message, key, columns.names, where)
        try:
            check_event_time(event_time, columns)
        except InvalidSchema as error:
            hint = f"{error.hint}. " if error.hint else ""
            raise InvalidPipeline(
                f"Topic {name!r}: {error.message}", hint=f"{hint}See {where}"
            ) from None
        if not isinstance(settings, TopicSettings):
            settings = TopicSettings().change(settings or {})
        count = 1 if partitions is None else partitions
        topic = Topic(name, count, columns, key, event_time, settings)
        check_partitions(count)
        check_compaction(topic, columns_of(columns, key, event_time))
        if name in self.topics and self.topics[name] != topic:
            raise InvalidPipeline(
                f"Topic {name!r} is declared twice, differently", hint=f"See {where}"
            )
        self.topics[name] = topic
        return Source(tuple(columns.names), where, topic, partitions, self.log)

    @declaration
    def captured(
        self,
        topic: str,
        *,
        schema: str,
        key: str | Sequence[str],
        partitions: int | None = None,
        settings: TopicSettings | Mapping[str, Any] | None = None,
    ) -> Table:
        """Declare the topic of a captured table, and return the table: its rows as they are now.

        `schema` has the columns of the database's table, or those that are needed, and `key` its
        primary key. The topic is in Debezium's envelope, as `headrace cdc` writes it, or on Kafka
        with `settings={"format": "debezium-json"}` as Debezium itself does.
        """
        where = caller()
        columns = parse_schema(schema)
        keys = (key,) if isinstance(key, str) else tuple(key)
        for name in keys:
            if name not in columns.names:
                message = f"The key column {name!r} is not in the schema of topic {topic!r}"
                raise not_there(message, name, columns.names, where)
        changes = self.topic(
            topic,
            schema=format_schema(envelope_schema(columns)),
            key=KEY,
            event_time=EVENT_TIME,
            partitions=partitions,
            settings=settings
            if isinstance(settings, TopicSettings)
            else {"cleanup": "compact", **(settings or {})},
        )
        return captured(changes, columns.names, keys, where)

    @declaration
    def view(
        self,
        name: str,
        stream: Stream | Table,
        *,
        key: str | Sequence[str] | None = None,
        store: str | DeclaredStore | Sequence[str | DeclaredStore] | None = None,
    ) -> View:
        """Keep an aggregation as a table by its key and window, or a ranking by its ranks.

        The key of joined tables is that of the first, or if that is not unique those of both. Of
        any other stream, a view keeps the latest row of each `key`, by event time and then in log
        order.

        SQLite keeps the view. Each `store`, one or several, follows its changes: an address such as
        "search:" or a value such as `hr.Search()`.
        """
        where = caller()
        check_name(name, "view")
        key = (key,) if isinstance(key, str) else key
        if isinstance(stream, Table):
            stream = _alone(stream)
        if stream.view_key is None:
            stream = _latest(name, stream, key, where)
        own = stream.view_key
        assert own is not None
        check_chain(stream, where)
        unique, chosen = set(own), tuple(key) if key is not None else own
        for column in chosen:
            if column not in stream.columns:
                message = f"The key of view {name!r} names a column {column!r} that it lacks"
                raise not_there(message, column, stream.columns, where)
        if not unique <= set(chosen):
            raise InvalidPipeline(
                f"The key of view {name!r}, {', '.join(chosen)}, is not unique",
                hint=f"Add {', '.join(sorted(unique - set(chosen)))}. See {where}",
            )
        if stream.view_key_is and set(chosen) != unique:
            raise InvalidPipeline(
                f"The key of view {name!r} has more columns than the {stream.view_key_is}",
                hint=f"Leave out {', '.join(sorted(set(chosen) - unique))}. See {where}",
            )
        if name in self.views:
            raise InvalidPipeline(f"View {name!r} is declared twice", hint=f"See {where}")
        view = self.views[name] = View(name, stream, chosen, where, stores_of(name, store))
        return view

    @declaration
    def publish(
        self, topic: str, stream: Stream, *, early: Early = "batch", retractions: bool = False
    ) -> Output:
        """Write a stream to a topic of the log, exactly once.

        `early` says how often an open window is written: with each `batch` that changes it,
        `never`, after a number of new rows, or at most once per timedelta. With `retractions`, each
        new pane of a window follows a retraction of the one that was written before.
        """
        where = caller()
        check_name(topic, "topic")
        if topic in self.outputs:
            raise InvalidPipeline(f"Two streams are published to {topic!r}", hint=f"See {where}")
        if _changes_rows(stream):
            raise InvalidPipeline(
                f"Joined tables update and delete rows, and topic {topic!r} is append-only",
                hint=f"app.view(...) keeps them, and its changelog has every change. See {where}",
            )
        late_of = stream.of if isinstance(stream, Late) else None
        if late_of is not None and not self._computes(late_of):
            raise InvalidPipeline(
                f"No step computes the stream whose late rows are published to {topic!r}",
                hint="Declare app.view(...) of an aggregation, or app.publish(...) of a join, "
                f"deduplicate(), alerts or a stateful step, first. See {where}",
            )
        output = Output(topic, stream, where, early, retractions)
        check_output(output)
        if late_of is None:
            check_chain(stream, where)
        self.outputs[topic] = output
        return output

    def _computes(self, stream: Stream) -> bool:
        """True if a step declared so far computes a stream, and so knows its late rows."""
        last: list[Stream] = [view.stream for view in self.views.values()]
        last += [o.stream for o in self.outputs.values() if not isinstance(o.stream, Late)]
        return any(map(partial(_contains, stream), last))

    def explain(self, log: str | Log | None = None) -> Explanation:
        """Explain what each step reads, holds, emits and publishes, and when.

        Given a log, it also estimates how many rows a join will hold.
        """
        # The operators explain themselves, and are downstream of declarations.
        explain = importlib.import_module("headrace.language.explain").explain
        with contextlib.ExitStack() as stack:
            if isinstance(log, str):
                log = stack.enter_context(open_log(log, create=False))
            made: Explanation = explain(self, log)
        return made


def _latest(name: str, stream: Stream, key: Sequence[str] | None, where: Where) -> Stream:
    """The latest row of each key of a stream."""
    if not key:
        raise InvalidPipeline(
            f"View {name!r} has no unique key",
            hint="Name the columns of which it keeps the latest row: "
            f"app.view({name!r}, ..., key='id'). See {where}",
        )
    made: Stream = _table_join().latest(stream, key, where)
    return made


def _alone(table: Table) -> Stream:
    """The current rows of a table."""
    made: Stream = _table_join().alone(table)
    return made


def _table_join() -> Any:
    """The declaration of joined tables, an operator, which is downstream of declarations."""
    return importlib.import_module("headrace.operators.table_join.declare")


def _contains(stream: Stream, last: Stream) -> bool:
    """True if a stream is a step of a chain."""
    return last.computed is stream or any(map(partial(_contains, stream), last.upstream))


def _changes_rows(stream: Stream) -> bool:
    return stream.changes_rows or any(map(_changes_rows, stream.upstream))


def check_latency(latency: str) -> Latency:
    """Return the latency of that name, or raise if there is none."""
    known: dict[str, Latency] = {name: name for name in get_args(Latency)}
    if latency in known:
        return known[latency]
    raise InvalidPipeline(
        f"latency cannot be {latency!r}", hint=f"Use {' or '.join(get_args(Latency))}"
    )
