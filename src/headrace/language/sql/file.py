"""A file of SQL as an application: its topics, streams, views and outputs."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from sqlglot import TokenType

from headrace.errors import InvalidPipeline, UserError
from headrace.language.sql.grouping import Terms
from headrace.language.sql.query import Scope, stream_of
from headrace.language.sql.tokens import Piece, Script
from headrace.language.sql.windows import span_of
from headrace.log.settings import TopicSettings
from headrace.operators.window.declare import Aggregation
from headrace.pipeline.app import App
from headrace.pipeline.stream import Stream
from headrace.pipeline.time import Lateness
from headrace.pipeline.where import Where, declared_at

_FORMS = {
    "APPLICATION": "CREATE APPLICATION name [WITH (log = 'file:./data')]",
    "TOPIC": "CREATE TOPIC name (column TYPE, ...) WITH (event_time = 'column')",
    "STREAM": "CREATE STREAM name AS SELECT ...",
    "VIEW": "CREATE VIEW name WITH (delay = '10 seconds', grace = '1 minute') AS SELECT ...",
    "PUBLISH": "PUBLISH name TO 'topic', or PUBLISH LATE OF view TO 'topic'",
}
_KINDS = ("APPLICATION", "TOPIC", "STREAM", "VIEW")


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
        raise InvalidPipeline(f"{path} declares nothing", hint=f"Begin with {_FORMS['TOPIC']}")
    first, *rest = script.statements
    reading = _Reading(first, Path(path).stem)
    for statement in [first, *rest] if not reading.names_app(first) else rest:
        with _placed(statement):
            reading.take(statement)
    return reading.app


@dataclass
class _Value:
    """The value of a property in WITH, and its position."""

    text: str
    piece: Piece


@dataclass
class _Reading:
    """An application while its file is read."""

    first: Piece
    stem: str
    app: App = field(init=False)
    streams: dict[str, Stream] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name, log = self.stem, None
        with _placed(self.first):
            if self.names_app(self.first):
                name, at = _name(self.first, 2, "APPLICATION")
                said, at = _properties(self.first, at, "APPLICATION", ("log",))
                _end(self.first, at, "APPLICATION")
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
            name, at = _name(statement, 2, kind)
            if name in self.streams:
                statement.part(2).refuse(f"The name {name!r} is taken", "Rename one")
            with declared_at(statement.where):
                make = {"TOPIC": self._topic, "STREAM": self._stream, "VIEW": self._view}[kind]
                self.streams[name] = make(statement, name, at)
            return None
        statement.refuse(
            "This is not a statement of a pipeline",
            "There are CREATE APPLICATION, TOPIC, STREAM and VIEW, and PUBLISH",
        )

    def _topic(self, statement: Piece, name: str, at: int) -> Stream:
        columns = statement.brackets(at)
        if columns is None or not len(columns):
            statement.part(at).refuse(f"Topic {name!r} has no columns", f"Write {_FORMS['TOPIC']}")
        said, at = _properties(statement, at + len(columns) + 2, "TOPIC")
        _end(statement, at, "TOPIC")
        if "event_time" not in said:
            statement.refuse(
                f"Topic {name!r} does not say which column is the event time",
                "Add WITH (event_time = 'column')",
            )
        partitions = said.pop("partitions", _Value("1", statement))
        if not partitions.text.isdecimal() or partitions.text == "0":
            partitions.piece.refuse(
                f"There cannot be {partitions.text} partitions", "Write 1 or more"
            )
        key = said.pop("key", None)
        event_time = said.pop("event_time").text
        settings = TopicSettings()
        for setting, value in said.items():
            with _placed(value.piece):
                settings = settings.change({setting: value.text})
        with _placed(columns):
            return self.app.topic(
                name,
                schema=columns.text,
                event_time=event_time,
                key=None if key is None else key.text,
                partitions=int(partitions.text),
                settings=settings,
            )

    def _stream(self, statement: Piece, name: str, at: int) -> Stream:
        terms = Terms(None, "updates", f"Make it a view: {_FORMS['VIEW']}")
        return stream_of(_query(statement, at, "STREAM"), Scope(self.streams, terms))

    def _view(self, statement: Piece, name: str, at: int) -> Stream:
        known = ("delay", "grace", "emit", "key")
        said, at = _properties(statement, at, "VIEW", known)
        query = _query(statement, at, "VIEW")
        for need in ("delay", "grace"):
            if need not in said:
                statement.part(2).refuse(
                    f"View {name!r} does not say its {need}: only you know how late rows are",
                    f"Write {_FORMS['VIEW']}",
                )
        lateness = Lateness(*(_span(said[need]) for need in ("delay", "grace")))
        emit = said.get("emit")
        if emit is not None and emit.text not in ("updates", "final"):
            emit.piece.refuse(f"emit cannot be {emit.text!r}", "Use updates or final")
        terms = Terms(lateness, "final" if emit and emit.text == "final" else "updates", "")
        made = stream_of(query, Scope(self.streams, terms))
        if not isinstance(made, Aggregation):
            query.refuse(
                f"View {name!r} has no GROUP BY, so its rows have no unique key",
                f"{_FORMS['STREAM']} makes a stream of rows, and PUBLISH writes it to a topic",
            )
        key = said.get("key")
        chosen = None if key is None else [part.strip() for part in key.text.split(",")]
        self.app.view(name, made, key=chosen)
        return made

    def _publish(self, statement: Piece) -> None:
        late = statement.is_word(1, "LATE") and statement.is_word(2, "OF")
        start = 3 if late else 1
        name, at = _name(statement, start, "PUBLISH")
        topic = statement.part(at + 1, at + 2)
        if not statement.is_word(at, "TO") or not len(topic):
            statement.part(at).refuse("PUBLISH does not name a topic", f"Write {_FORMS['PUBLISH']}")
        to, end = _name(statement, at + 1, "PUBLISH")
        _end(statement, end, "PUBLISH")
        stream = self.streams.get(name)
        if stream is None:
            near = difflib.get_close_matches(name, self.streams, 1)
            statement.part(start).refuse(
                f"There is no stream or view {name!r} above",
                f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(self.streams)}",
            )
        if late:
            if not isinstance(stream, Aggregation):
                statement.part(start).refuse(f"{name!r} has no late rows", "Only a view has")
            stream = stream.late
        with declared_at(statement.where):
            self.app.publish(to, stream)


def _name(statement: Piece, at: int, kind: str) -> tuple[str, int]:
    """Read a name, quoted or with dots; return it and the index of the next token."""
    start = at
    while at < len(statement) and (
        statement.tokens[at].token_type == TokenType.DOT
        or at == start
        or statement.tokens[at - 1].token_type == TokenType.DOT
    ):
        at += 1
    name = "".join(token.text for token in statement.tokens[start:at])
    if not name.strip("("):
        statement.part(start).refuse("A name is missing", f"Write {_FORMS[kind]}")
    return name, at


def _properties(
    statement: Piece, at: int, kind: str, known: tuple[str, ...] | None = None
) -> tuple[dict[str, _Value], int]:
    """Read WITH (name = value, ...), if present; return it and the index of the next token."""
    if not statement.is_word(at, "WITH"):
        return {}, at
    inside = statement.brackets(at + 1)
    found: dict[str, _Value] = {}
    for piece in [] if inside is None else inside.split(TokenType.COMMA):
        if len(piece) != 3 or piece.tokens[1].token_type != TokenType.EQ:
            piece.refuse("This cannot be read as name = value", f"Write {_FORMS[kind]}")
        name = piece.tokens[0].text.lower()
        if known is not None and name not in known:
            piece.refuse(f"There is no property {name!r} here", f"There are: {', '.join(known)}")
        if name in found:
            piece.refuse(f"{name!r} is given twice", "Remove one")
        found[name] = _Value(piece.tokens[2].text, piece.part(2))
    if inside is None or not found:
        statement.part(at).refuse("WITH is empty", f"Write {_FORMS[kind]}")
    return found, at + len(inside) + 3


def _query(statement: Piece, at: int, kind: str) -> Piece:
    if not statement.is_word(at, "AS"):
        statement.part(at).refuse("AS and a query are missing here", f"Write {_FORMS[kind]}")
    return statement.part(at + 1)


def _end(statement: Piece, at: int, kind: str) -> None:
    if at < len(statement):
        rest = statement.part(at)
        rest.refuse(f"{rest.tokens[0].text!r} is not expected here", f"Write {_FORMS[kind]}")


def _span(value: _Value) -> timedelta:
    with _placed(value.piece):
        return span_of(value.text)


@contextlib.contextmanager
def _placed(piece: Piece) -> Iterator[None]:
    """Add the line and column to an error that lacks them."""
    try:
        yield
    except UserError as error:
        where = piece.where
        if f"{where.file}:" in error.hint:
            raise
        hint = f"{error.hint}\nSee {where}" if error.hint else f"See {where}"
        raise type(error)(error.message, hint=hint, **error.details) from None
