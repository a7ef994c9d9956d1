"""Records as rows of a table: text as text, bytes as hex, long values cut with their length."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import htpy as h
from htpy import Node

from headrace.clock import to_micros
from headrace.log import Record, Topic
from headrace.log.record_json import RecordFormat, headers_json
from headrace.studio.live.links import address
from headrace.studio.live.roles import DEAD, LATE, role_of
from headrace.studio.pages import table
from headrace.wording import count, size, span, when

CUT = 400
"""Characters of a value that a table shows."""
_CUT_BYTES = 96
_SPACES = frozenset("\t\n\r")


def records_table(topic: Topic, records: Iterable[Record], *, again: bool, empty: str) -> Node:
    """A table of records. `again` adds a button to dead letters."""
    format, shown = RecordFormat(topic), list(records)
    headed = any(record.headers for record in shown)
    columns = [*_columns(topic, again=again), *(("headers",) if headed else ())]
    rows = [
        (*_row(topic, format, record, again=again), *((_headers(record),) if headed else ()))
        for record in shown
    ]
    return table(
        columns,
        rows,
        numeric=("partition", "offset"),
        empty=empty,
        id="records",
    )


def _columns(topic: Topic, *, again: bool) -> Sequence[str]:
    place = ("partition", "offset", "appended")
    match role_of(topic):
        case role if role == DEAD:
            return (*place, "reason", "step", "record", "row", *(("",) if again else ()))
        case role if role == LATE:
            return (*place, "late by", "watermark", "row")
        case _ if topic.schema is None:
            return (*place, "key", "value")
        case _:
            return (*place, *(("key",) if topic.key else ()), "row")


def _row(topic: Topic, format: RecordFormat, record: Record, *, again: bool) -> Sequence[Node]:
    place = (str(record.partition), count(record.offset), _appended(record))
    role = role_of(topic)
    row = dict(record.value) if isinstance(record.value, dict) else None
    record = replace(record, value=record.value if row is None else row)  # formats change it
    if role == DEAD and row is not None:
        return (
            *place,
            h.strong(".k-bad")[str(row["reason"])],
            str(row["step"]),
            _origin(row),
            _text_cell(str(row["row"]), record),
            *((_again(record),) if again else ()),
        )
    if role == LATE and row is not None:
        shown = dict(format.value(record))
        late_by, watermark = shown.pop("late_by"), shown.pop("watermark")
        return (
            *place,
            h.strong(".k-late")["–" if late_by is None else span(float(late_by))],
            watermark or "–",
            _text_cell(_json(shown), record),
        )
    if topic.schema is None:
        return (
            *place,
            _bytes_cell(record.key, record, "key"),
            _bytes_cell(record.value, record, "value"),
        )
    value = format.value(record)
    cell: Node = h.span(".badge.muted")["tombstone"]
    if value is not None:
        cell = _text_cell(_json(value), record)
    key = format.key(record)
    keys = (
        (_text_cell(key if isinstance(key, str) else _json(key), record, "key"),)
        if topic.key
        else ()
    )
    return (*place, *keys, cell, *(("",) if role == DEAD and again else ()))


def whole_value(topic: Topic, record: Record, part: str) -> bytes:
    """A record's value or key as it is downloaded."""
    if topic.schema is None:
        found = record.key if part == "key" else record.value
        return found or b""
    format = RecordFormat(topic)
    return _json(format.key(record) if part == "key" else format.value(record)).encode()


def _appended(record: Record) -> Node:
    commit = "" if record.commit is None else f"commit {record.commit:,}"
    return h.span(title=commit or None)[when(to_micros(record.timestamp))]


def _origin(row: dict[str, Any]) -> Node:
    name, partition, offset = row["topic"], row["partition"], row["offset"]
    if name is None or partition is None or offset is None:
        return "–"
    path = address(f"/topics/{name}", {"at": offset, "partition": partition})
    return h.a(href=path)[f"{name}/{partition} at {offset:,}"]


def _again(record: Record) -> Node:
    return h.form(
        hx_post=f"/topics/{record.topic}/again",
        hx_target="#again",
        data_confirm="Send the original record to its topic once more?",
    )[
        h.input(type="hidden", name="partition", value=str(record.partition)),
        h.input(type="hidden", name="offset", value=str(record.offset)),
        h.button(type="submit")["Send again"],
    ]


def _headers(record: Record) -> Node:
    return [
        h.div[h.code[name], " ", h.code["null" if value is None else _short(value)]]
        for name, value in headers_json(record)
    ]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else _json(value)
    return text if len(text) <= CUT else f"{text[:CUT]}… ({len(text):,} characters)"


def _text_cell(text: str, record: Record, part: str = "value") -> Node:
    if len(text) <= CUT:
        return h.code(".record")[text]
    return [
        h.code(".record")[text[:CUT], "…"],
        _whole(record, part, f"{len(text):,} characters"),
    ]


def _bytes_cell(data: bytes | None, record: Record, part: str) -> Node:
    if data is None:
        return h.span(".badge.muted")["tombstone" if part == "value" else "null"]
    text = readable(data[: 4 * CUT])
    if text is None:
        cut = len(data) > _CUT_BYTES
        return [
            h.code(".record")[data[:_CUT_BYTES].hex(" "), "…" if cut else ""],
            _whole(record, part, f"{size(len(data))}, binary"),
        ]
    if len(text) <= CUT and len(data) <= 4 * CUT:
        return h.code(".record")[text]
    return [h.code(".record")[text[:CUT], "…"], _whole(record, part, size(len(data)))]


def _whole(record: Record, part: str, length: str) -> Node:
    path = address(
        f"/topics/{record.topic}/value",
        {"partition": record.partition, "offset": record.offset, "part": part},
    )
    return h.div(".hint")[length, ", ", h.a(href=path)["download"]]


def readable(data: bytes) -> str | None:
    """The text of bytes, which may be cut at their end; None if they are no text."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in _SPACES for each in text) else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
