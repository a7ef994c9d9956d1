"""A file of SQL as an application: its topics, streams, views and outputs."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from headrace.errors import InvalidPipeline, UserError
from headrace.language.sql.query import stream_of
from headrace.language.sql.relations import Scope
from headrace.language.sql.statements import (
    FORMS,
    Value,
    check_end,
    name_at,
    placed,
    properties,
    query_at,
    span_at,
)
from headrace.language.sql.terms import Terms
from headrace.language.sql.tokens import Piece, Script
from headrace.language.sql.topics import declare_topic
from headrace.operators.dedup.declare import Deduplicated
from headrace.operators.stream_join.declare import Join
from headrace.operators.window.declare import Aggregation
from headrace.pipeline.app import App
from headrace.pipeline.row_steps import Filter, Project
from headrace.pipeline.stream import Stream
from headrace.pipeline.where import Where, declared_at

_KINDS = ("APPLICATION", "TOPIC", "TABLE", "STREAM", "VIEW")
_SPANS = ("delay", "grace", "ttl", "wait")
_INSTEAD = {
    "SELECT": f"Give the query a name: {FORMS['VIEW']}",
    "WITH": f"Give the query a name: {FORMS['VIEW']}",
    "INSERT": f"Give the query a name, and {FORMS['PUBLISH']}",
}


def load_sql(path: str | Path) -> App:
    """Load the application that a file of SQL declares. By default its name is that of the file.

    `headrace run` does the same with a file.
    """
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise UserError(f"There is no file {path}", hint=f"Looked in {Path.cwd()}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}", hint="It has to be UTF-8 text") from None
    script = Script(text, Where(str(path), 1), is_file=True)
    if not script.statements:
        raise InvalidPipeline(f"{path} declares nothing", hint=f"Begin with {FORMS['TOPIC']}")
    first, *rest = script.statements
    reading = _Reading(first, Path(path).stem)
    for statement in [first, *rest] if not reading.names_app(first) else rest:
        with placed(statement):
            reading.take(statement)
    return reading.app


@dataclass
class _Reading:
    """An application while its file is read."""

    first: Piece
    stem: str
    app: App = field(init=False)
    streams: dict[str, Stream] = field(default_factory=dict)
    watermarks: dict[str, timedelta] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name, log = self.stem, None
        with placed(self.first):
            if self.names_app(self.first):
                name, at = name_at(self.first, 2, "APPLICATION")
                said, at = properties(self.first, at, "APPLICATION", ("log",))
                check_end(self.first, at, "APPLICATION")
                log = said["log"].text if "log" in said else None
            self.app = App(name, log=log)

    @staticmethod
    def names_app(statement: Piece) -> bool:
        return statement.is_word(0, "CREATE") and statement.is_word(1, "APPLICATION")

    def take(self, statement: Piece) -> None:
        """Read one statement."""
        if self.names_app(statement):
            statement.refuse("An application is named once, at the top", "Move it up")
        if statement.is_word(0, "PUBLISH"):
            return self._publish(statement)
        if statement.is_word(0, "CREATE") and statement.is_word(1, *_KINDS):
            kind = statement.tokens[1].text.upper()
            name, at = name_at(statement, 2, kind)
            if name in self.streams:
                statement.part(2).refuse(f"The name {name!r} is taken", "Rename one")
            with declared_at(statement.where):
                if kind in ("TOPIC", "TABLE"):
                    made = declare_topic(self.app, statement, name, at, self.watermarks)
                else:
                    made = self._query(statement, name, at, kind)
                self.streams[name] = made
            return None
        statement.refuse(
            "This is not a statement of a pipeline",
            _INSTEAD.get(
                statement.tokens[0].text.upper(),
                "There are CREATE APPLICATION, TOPIC, TABLE, STREAM and VIEW, and PUBLISH",
            ),
        )

    def _query(self, statement: Piece, name: str, at: int, kind: str) -> Stream:
        """The stream of CREATE STREAM or CREATE VIEW. A view is kept, too."""
        is_view = kind == "VIEW"
        known = (*_SPANS, "emit", "key") if is_view else (*_SPANS, "emit")
        said, at = properties(statement, at, kind, known)
        query = query_at(statement, at, kind)
        emit = said.get("emit")
        if emit is not None and emit.text not in ("updates", "final"):
            emit.piece.refuse(f"emit cannot be {emit.text!r}", "Use updates or final")
        terms = Terms(
            {one: span_at(said[one]) for one in _SPANS if one in said},
            "final" if emit and emit.text == "final" else "updates",
            _advice(kind),
            self.watermarks,
            f"View {name!r}" if is_view else "The query",
            statement.part(2) if is_view else None,
        )
        made = stream_of(query, Scope(self.streams, terms))
        if is_view:
            self._keep(name, made, query, said.get("key"))
        for one in terms.unused:
            said[one].piece.refuse(f"The query does not use {one!r}", "Leave it out")
        return made

    def _keep(self, name: str, made: Stream, query: Piece, said: Value | None) -> None:
        """Declare the view of a stream."""
        key = _key_of(made) if said is None else [part.strip() for part in said.text.split(",")]
        if key is None:
            query.refuse(
                f"View {name!r} has no GROUP BY, so its rows have no unique key",
                "WITH (key = 'column') keeps the latest row of each key; "
                f"{FORMS['STREAM']} makes a stream of rows, and PUBLISH writes it to a topic",
            )
        self.app.view(name, made, key=key)

    def _publish(self, statement: Piece) -> None:
        late = statement.is_word(1, "LATE") and statement.is_word(2, "OF")
        start = 3 if late else 1
        name, at = name_at(statement, start, "PUBLISH")
        topic = statement.part(at + 1, at + 2)
        if not statement.is_word(at, "TO") or not len(topic):
            statement.part(at).refuse("PUBLISH does not name a topic", f"Write {FORMS['PUBLISH']}")
        to, end = name_at(statement, at + 1, "PUBLISH")
        check_end(statement, end, "PUBLISH")
        stream = self.streams.get(name)
        if stream is None:
            near = difflib.get_close_matches(name, self.streams, 1)
            statement.part(start).refuse(
                f"There is no stream or view {name!r} above",
                f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(self.streams)}",
            )
        if late:
            while isinstance(stream, Filter | Project):
                stream = stream.input
            stream = stream.computed
            if not isinstance(stream, Aggregation | Join | Deduplicated):
                statement.part(start).refuse(
                    f"{name!r} has no late rows", "Views, joins and duplicates have"
                )
            stream = stream.late
        with declared_at(statement.where):
            self.app.publish(to, stream)


def _advice(kind: str) -> dict[str, str]:
    """The place for each span that a query lacks."""
    form = f"Write CREATE {kind} name WITH ({{}}) AS SELECT ..."
    given = {name: form.format(f"{name} = '1 minute'") for name in _SPANS}
    return {**given, "lateness": form.format("delay = '10 seconds', grace = '1 minute'")}


def _key_of(stream: Stream) -> list[str] | None:
    """The key of a stream: its own, or that of the results whose columns it selects."""
    if isinstance(stream, Filter):
        return _key_of(stream.input)
    if not isinstance(stream, Project):
        return list(stream.view_key) if stream.view_key is not None else None
    named = {made.strip("`"): name for name, made in stream.expressions if isinstance(made, str)}
    own = _key_of(stream.input)
    return [named[name] for name in own] if own and named.keys() >= {*own} else None
