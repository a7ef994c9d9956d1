"""An application: its topics, its views and what it publishes, under one name."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headrace.errors import InvalidPipeline
from headrace.log import Log, open_log
from headrace.log.names import check_name
from headrace.log.settings import TopicSettings
from headrace.log.state import Topic
from headrace.pipeline.explanation import Explanation
from headrace.pipeline.output import Early, Output, check_output
from headrace.pipeline.stream import Late, Source, Stream
from headrace.pipeline.where import Where, caller
from headrace.schema.ddl import parse_schema

Latency = Literal["micro-batch", "real-time"]
"""How long results wait: for a batch of rows, or for none."""


@dataclass(frozen=True)
class View:
    """A table that the application keeps, by key."""

    name: str
    stream: Stream
    key: tuple[str, ...]
    where: Where


class App:
    """A pipeline's declaration. It runs nothing; `headrace run` and `hr.run` do.

    With `latency="real-time"`, it runs in Spark's Real-time Mode, on a broker, if it can.
    """

    def __init__(
        self, name: str, *, log: str | None = None, latency: Latency = "micro-batch"
    ) -> None:
        self.name = check_name(name, "application")
        self.log = log
        self.latency = check_latency(latency)
        self.topics: dict[str, Topic] = {}
        self.views: dict[str, View] = {}
        self.outputs: dict[str, Output] = {}

    def topic(
        self,
        name: str,
        *,
        schema: str,
        event_time: str,
        key: str | None = None,
        partitions: int = 1,
        settings: TopicSettings | Mapping[str, Any] | None = None,
    ) -> Source:
        """A topic as a stream. It is created when the application first runs, if need be."""
        where = caller()
        check_name(name, "topic")
        columns = parse_schema(schema)
        for what, column in (("event-time", event_time), ("key", key)):
            if column is not None and column not in columns.names:
                raise InvalidPipeline(
                    f"The {what} column {column!r} is not in the schema of topic {name!r}",
                    hint=f"There are: {', '.join(columns.names)}. See {where}",
                )
        if not isinstance(settings, TopicSettings):
            settings = TopicSettings().change(settings or {})
        topic = Topic(name, partitions, columns, key, event_time, settings)
        if name in self.topics and self.topics[name] != topic:
            raise InvalidPipeline(
                f"Topic {name!r} is declared twice, differently", hint=f"See {where}"
            )
        self.topics[name] = topic
        return Source(tuple(columns.names), where, topic)

    def view(self, name: str, stream: Stream, *, key: Sequence[str] | None = None) -> View:
        """Keep an aggregation as a table, by its key and window, or a ranking by its ranks.

        Joined tables are kept by the key of the first, or where that is not unique by both.
        """
        where = caller()
        check_name(name, "view")
        own = stream.view_key
        if own is None:
            raise InvalidPipeline(
                f"View {name!r} has nothing that makes its rows unique",
                hint="A view is kept of an aggregation or of joined tables; publish() takes any "
                f"stream. See {where}",
            )
        unique, chosen = set(own), tuple(key) if key is not None else own
        for column in chosen:
            if column not in stream.columns:
                raise InvalidPipeline(
                    f"The key of view {name!r} names a column {column!r} that it does not have",
                    hint=f"There are: {', '.join(stream.columns)}. See {where}",
                )
        if not unique <= set(chosen):
            raise InvalidPipeline(
                f"The key of view {name!r}, {', '.join(chosen)}, is not unique",
                hint=f"Add {', '.join(sorted(unique - set(chosen)))}. See {where}",
            )
        if stream.view_key_is and set(chosen) != unique:
            raise InvalidPipeline(
                f"The key of view {name!r} names more than the {stream.view_key_is}, which is all "
                "that stays",
                hint=f"Leave out {', '.join(sorted(set(chosen) - unique))}. See {where}",
            )
        if name in self.views:
            raise InvalidPipeline(f"There are two views {name!r}", hint=f"See {where}")
        view = self.views[name] = View(name, stream, chosen, where)
        return view

    def publish(
        self, topic: str, stream: Stream, *, early: Early = "batch", retractions: bool = False
    ) -> Output:
        """Write a stream to a topic of the log, exactly once.

        `early` says when a window that is still open is written: with each `batch` that changes
        it, `never`, after so many rows more, or at most once in so much time. With `retractions`, a
        pane that is written again is first taken back, as it was written the last time.
        """
        where = caller()
        check_name(topic, "topic")
        if topic in self.outputs:
            raise InvalidPipeline(f"Two streams are published to {topic!r}", hint=f"See {where}")
        if _changes_rows(stream):
            raise InvalidPipeline(
                f"Rows of joined tables change and go, and {topic!r} would only grow",
                hint="app.view(...) keeps them, and its changelog tells of every change. "
                f"See {where}",
            )
        late_of = stream.of if isinstance(stream, Late) else None
        if late_of is not None and not self._computes(late_of):
            raise InvalidPipeline(
                "Late rows are known where what they were too late for is computed",
                hint="Declare app.view(...) of an aggregation, or app.publish(...) of a join, of "
                f"deduplicate(), of alerts or of what has state, first. See {where}",
            )
        output = Output(topic, stream, where, early, retractions)
        check_output(output)
        self.outputs[topic] = output
        return output

    def _computes(self, stream: Stream) -> bool:
        """True if one of the steps declared so far knows what came too late for a stream."""
        if stream.view_key is None:
            return any(output.stream is stream for output in self.outputs.values())
        return any(view.stream.computed is stream for view in self.views.values())

    def explain(self, log: str | Log | None = None) -> Explanation:
        """Explain what each step reads, holds, emits and publishes, and when.

        Given a log, it estimates as well how many rows a join will hold at the rate they come.
        """
        # The operators explain themselves, and they are downstream of declarations.
        explain = importlib.import_module("headrace.language.explain").explain
        with contextlib.ExitStack() as stack:
            if isinstance(log, str):
                log = stack.enter_context(open_log(log, create=False))
            made: Explanation = explain(self, log)
        return made


def _changes_rows(stream: Stream) -> bool:
    return stream.changes_rows or any(map(_changes_rows, stream.upstream))


def check_latency(latency: str) -> Latency:
    """The latency of that name."""
    known: dict[str, Latency] = {name: name for name in get_args(Latency)}
    if latency in known:
        return known[latency]
    raise InvalidPipeline(
        f"latency cannot be {latency!r}", hint=f"Use {' or '.join(get_args(Latency))}"
    )
