"""CREATE TOPIC and CREATE TABLE: topics, with the words of headrace or those of Flink.

A WATERMARK is the event time, and the delay of the queries that read the topic. With a PRIMARY KEY,
the topic has the changes of a table. A computed column is derived from the rows of the topic, and
may be the event time: `rowtime AS TO_TIMESTAMP_LTZ(ts, 3)`.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import quote

from sqlglot import TokenType

from headrace.language.sql.statements import FORMS, Value, check_end, placed, properties
from headrace.language.sql.tokens import Piece
from headrace.language.sql.windows import interval_of
from headrace.log.settings import TopicSettings
from headrace.pipeline.app import App
from headrace.pipeline.row_steps import derive
from headrace.pipeline.stream import Stream
from headrace.pipeline.tables import table

_CONNECTORS = ("kafka", "upsert-kafka")
_SERVERS = "properties.bootstrap.servers"
_REGISTRY = "avro-confluent."
_REGISTRY_URLS = ("avro-confluent.url", "value.avro-confluent.url")
_IGNORED = ("key.format", "properties.group.id")
_FORM = "WATERMARK FOR column AS column - INTERVAL '5' SECOND"
_PRECISION = re.compile(r"\b(TIMESTAMP(?:_LTZ|_NTZ)?)\s*\(\s*\d\s*\)", re.IGNORECASE)
_TYPES = ((re.compile(r"\bROW\s*<", re.IGNORECASE), "STRUCT<"), (_PRECISION, r"\1"))
_EPOCHS = {"0": "timestamp_seconds", "3": "timestamp_millis"}
"""Spark's functions by the precision of TO_TIMESTAMP_LTZ."""
_WHOLE_TYPES = {"BYTES": "BINARY", "VARCHAR": "STRING", "CHAR": "STRING"}


@dataclass
class _Columns:
    """The columns of a topic, and what stands between them."""

    ddl: list[str]
    event_time: str | None = None
    delay: timedelta | None = None
    key: tuple[str, ...] = ()
    computed: dict[str, Piece] = field(default_factory=dict)


def declare_topic(
    app: App, statement: Piece, name: str, at: int, watermarks: MutableMapping[str, timedelta]
) -> Stream:
    """Declare the topic of a statement, and note the delay of its watermark."""
    kind = statement.tokens[1].text.upper()
    listed = statement.brackets(at)
    if listed is None or not len(listed):
        statement.part(at).refuse(f"Topic {name!r} has no columns", f"Write {FORMS[kind]}")
    said, at = properties(statement, at + len(listed) + 2, kind)
    check_end(statement, at, kind)
    columns = _columns(listed)
    topic = said.pop("topic").text if "topic" in said else name
    _read_connector(app, said)
    partitions = said.pop("partitions", None)
    if partitions is not None and (not partitions.text.isdecimal() or partitions.text == "0"):
        partitions.piece.refuse(f"There cannot be {partitions.text} partitions", "Write 1 or more")
    key = said.pop("key", None) or said.pop("key.fields", None)
    own = columns.key[0] if len(columns.key) == 1 else None
    settings = TopicSettings()
    event_time = _event_time(statement, name, said, columns, kind)
    for setting, value in said.items():
        with placed(value.piece):
            settings = settings.change({setting: value.text})
    with placed(listed):
        made = app.topic(
            topic,
            schema=", ".join(columns.ddl),
            event_time=event_time,
            key=own if key is None else key.text,
            partitions=None if partitions is None else int(partitions.text),
            settings=settings,
        )
        stream: Stream = made
        for column, expression in columns.computed.items():
            stream = derive(stream, **{column: _spark(expression)})
    if columns.delay is not None:
        watermarks[topic] = columns.delay
    if columns.key and columns.computed:
        next(iter(columns.computed.values())).refuse(
            "A table has the columns of its rows", "Leave it out, and compute it in the query"
        )
    return table(made, key=columns.key) if columns.key else stream


def _event_time(
    statement: Piece, name: str, said: dict[str, Value], columns: _Columns, kind: str
) -> str:
    given = said.pop("event_time", None)
    if given is not None and columns.event_time is not None:
        given.piece.refuse("WATERMARK already names the event time", "Leave one of them out")
    found = columns.event_time if given is None else given.text
    if found in columns.computed:
        return _spark(columns.computed[found])
    if found is None:
        statement.refuse(
            f"Topic {name!r} does not say which column is the event time",
            "Add WITH (event_time = 'column')" if kind == "TOPIC" else f"Add {_FORM}",
        )
    return found


def _read_connector(app: App, said: dict[str, Value]) -> None:
    """Read the properties of Flink's connector for Kafka. The others are settings of the topic."""
    connector = said.pop("connector", None)
    if connector is not None and connector.text.lower() not in _CONNECTORS:
        connector.piece.refuse(
            f"There is no connector {connector.text!r}",
            "Topics are in the log: write 'connector' = 'kafka', or leave it out",
        )
    for name in _IGNORED:
        said.pop(name, None)
    for name in ("value.format", "scan.startup.mode"):
        value = said.pop(name, None)
        if value is None:
            continue
        if name == "value.format":
            said["format"] = value
        elif value.text.lower() != "earliest-offset":
            value.piece.refuse(
                "A topic is read from its beginning, so that a view has all of it",
                "Write 'earliest-offset', or leave it out",
            )
    _read_address(app, said)
    for name, value in said.items():
        if name.startswith(_REGISTRY):
            value.piece.refuse(
                f"{name!r} is a setting of the log, and may be a secret",
                "Set HEADRACE_KAFKA_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO and the like",
            )
        if name.startswith("properties."):
            value.piece.refuse(
                f"{name.removeprefix('properties.')!r} is a setting of the log, not of a topic",
                "Put it into the address: kafka://host:port?setting=value",
            )


def _read_address(app: App, said: dict[str, Value]) -> None:
    """Read the address of the log, and of the schema registry that belongs to it."""
    servers = said.pop(_SERVERS, None)
    urls = [said.pop(name) for name in _REGISTRY_URLS if name in said]
    if servers is None:
        for url in urls:
            url.piece.refuse(
                "The schema registry belongs to the log, which has no address here",
                f"Write '{_SERVERS}' = 'host:port' too, or set HEADRACE_KAFKA_SCHEMA_REGISTRY_URL",
            )
        return
    address = f"kafka://{servers.text}"
    for url in urls:
        address += f"?schema.registry.url={quote(url.text, safe=':/')}"
    known = app.log or address
    if address not in (known, known.partition("?")[0]) and known != address.partition("?")[0]:
        servers.piece.refuse(
            f"An application has one log, and this one has {known}", "Leave it out"
        )
    app.log = max(known, address, key=len)


def _columns(listed: Piece) -> _Columns:
    found = _Columns([])
    for part in _split(listed):
        if part.is_word(0, "WATERMARK") and part.is_word(1, "FOR"):
            found.event_time, found.delay = _watermark(part)
        elif part.is_word(0, "CONSTRAINT", "PRIMARY KEY"):
            found.key = _primary_key(part)
        elif part.is_word(1, "AS") and part.part(0, 1).name is not None:
            found.computed[part.part(0, 1).name or ""] = part.part(2)
        else:
            found.ddl.append(_column(part, found))
    return found


def _split(listed: Piece) -> list[Piece]:
    """The pieces between commas outside of brackets, also of angle brackets."""
    cuts, depth = [-1], 0
    commas = {at for at, _ in listed.outside((TokenType.COMMA,))}
    for at, token in enumerate(listed.tokens):
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        depth += 0 if quoted else token.text.count("<") - token.text.count(">")
        if at in commas and depth == 0:
            cuts.append(at)
    return [listed.part(a + 1, b) for a, b in zip(cuts, [*cuts[1:], len(listed)], strict=True)]


def _watermark(part: Piece) -> tuple[str, timedelta]:
    """The column and the delay of WATERMARK FOR t AS t - INTERVAL '5' SECOND."""
    column, made = part.part(2, 3), part.part(4)
    same = column.name is not None and made.part(0, 1).name == column.name
    if not part.is_word(3, "AS") or not same or column.name is None:
        part.refuse("A watermark is its column less a delay", f"Write {_FORM}")
    if len(made) == 1:
        return column.name, timedelta(0)
    if made.tokens[1].token_type != TokenType.DASH:
        part.refuse("A watermark is its column less a delay", f"Write {_FORM}")
    return column.name, interval_of(made.part(2), _FORM)


def _primary_key(part: Piece) -> tuple[str, ...]:
    """The columns of [CONSTRAINT name] PRIMARY KEY (a, b) [NOT ENFORCED]."""
    at = part.find(TokenType.PRIMARY_KEY)
    listed = None if at is None else part.brackets(at + 1)
    if listed is None or not len(listed):
        part.refuse("This is not a primary key", "Write PRIMARY KEY (column) NOT ENFORCED")
    return tuple(piece.text.strip("`") for piece in listed.listed())


def _spark(expression: Piece) -> str:
    """An expression of Flink in Spark's words."""
    if expression.is_word(0, "PROCTIME"):
        expression.refuse(
            "There is no processing time: a replay would give other results",
            "Leave it out, or add the time of arrival to the rows",
        )
    inside = expression.brackets(1) if expression.is_word(0, "TO_TIMESTAMP_LTZ") else None
    if inside is None or len(expression) != len(inside) + 3:
        return expression.text
    number, *precision = inside.listed()
    function = _EPOCHS.get(precision[0].text if len(precision) == 1 else "0")
    if function is None:
        expression.refuse(
            f"{expression.text} is not a time", "Write TO_TIMESTAMP_LTZ(column, 3) for milliseconds"
        )
    return f"{function}({number.text})"


def _column(part: Piece, found: _Columns) -> str:
    """The DDL of a column, in the types of Spark."""
    if any(part.is_word(at, "METADATA") for at in range(2, len(part))):
        part.refuse(
            f"{part.text!r} is not in the rows of the topic",
            "Leave it out, and compute it in CREATE STREAM name AS SELECT *, ... AS column",
        )
    key = part.find(TokenType.PRIMARY_KEY)
    if key is not None:
        found.key = (part.part(0, 1).text.strip("`"),)
        part = part.part(0, key)
    name, kind = part.part(0, 1).text, part.part(1).text
    for pattern, spelling in _TYPES:
        kind = pattern.sub(spelling, kind)
    first, gap, rest = kind.partition(" ")
    return f"{name} {_WHOLE_TYPES.get(first.upper(), first)}{gap}{rest}"
