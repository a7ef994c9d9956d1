"""Windows: functions of the event time in GROUP BY, or of a table in FROM.

In FROM, HOP and CUMULATE have the step before the size, as in Flink and the SQL standard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlglot import TokenType

from headrace.errors import InvalidPipeline, InvalidWindow
from headrace.language.sql.tokens import Piece
from headrace.operators.window.windows import FOREVER, SQL_FORMS, AnyWindow, running
from headrace.pipeline.row_steps import Explode, Filter, Merge, Project
from headrace.pipeline.stream import Source, Stream
from headrace.pipeline.time import WINDOW_END, WINDOW_START

_UNITS = {
    "microsecond": timedelta(microseconds=1), "us": timedelta(microseconds=1),
    "millisecond": timedelta(milliseconds=1), "ms": timedelta(milliseconds=1),
    "second": timedelta(seconds=1), "s": timedelta(seconds=1),
    "minute": timedelta(minutes=1), "m": timedelta(minutes=1),
    "hour": timedelta(hours=1), "h": timedelta(hours=1),
    "day": timedelta(days=1), "d": timedelta(days=1),
    "week": timedelta(weeks=1),
}  # fmt: skip
_ARGUMENTS = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SLIDE": ("SIZE",),
    "SESSION": ("GAP",),
    "RUNNING": ("EXPIRY",),
}
"""The intervals of a window function in FROM, in order. Only OFFSET may be left out."""
WINDOW_TIME = "window_time"
"""The event time of the results of a window: its last moment."""
WINDOW_COLUMNS = (WINDOW_START, WINDOW_END, WINDOW_TIME)
"""The columns that a window function in FROM adds."""
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def is_window(piece: Piece) -> bool:
    """True if the piece is just a call of a window function."""
    inside = piece.brackets(1)
    return piece.is_word(0, *SQL_FORMS) and inside is not None and len(inside) + 3 == len(piece)


def window_of(piece: Piece, stream: Stream) -> AnyWindow:
    """The window of a function of the event time of a stream, in GROUP BY."""
    name = piece.tokens[0].text.upper()
    inside = piece.brackets(1)
    assert inside is not None
    form, arguments = SQL_FORMS[name], inside.listed()
    if not form.least < len(arguments) <= form.most + 1:
        piece.refuse(f"{piece.text} is not a window", f"Write {form.text}")
    moment, *spans = arguments
    _check_event_time(moment, stream)
    return _made(piece, spans, form.text)


@dataclass(frozen=True)
class TableWindow:
    """A window function in FROM: its stream, its window, and the keys of its sessions."""

    piece: Piece
    stream: Stream
    window: AnyWindow
    keys: tuple[str, ...]


def table_window(piece: Piece, read: Callable[[Piece], Stream]) -> TableWindow:
    """The window of a function of a table. `read` makes the stream of that table."""
    name = piece.tokens[0].text.upper()
    inside = piece.brackets(1)
    assert inside is not None
    form, known = _table_form(name), _ARGUMENTS[name]
    data, moment, keys = inside.part(0, 0), None, list[Piece]()
    in_order: list[Piece] = []
    named: dict[str, Piece] = {}
    for part in inside.listed():
        label, value = _label(part)
        if label == "DATA" or (label is None and not len(data)):
            data, *keys = value.split(TokenType.PARTITION_BY)
        elif label == "TIMECOL" or value.is_word(0, "DESCRIPTOR"):
            moment = value.brackets(1) if value.is_word(0, "DESCRIPTOR") else value
        elif label is not None:
            if label not in known or label in named:
                part.refuse(f"{name} has no argument {label}", f"Write {form}")
            named[label] = value
        elif keys and moment is None and not in_order and value.name is not None:
            keys.append(value)
        else:
            in_order.append(value)
    if len(in_order) > len(known) or (named and in_order):
        piece.refuse(f"{piece.text} is not a window", f"Write {form}")
    named |= dict(zip(known, in_order, strict=False))
    if any(need not in named for need in known if need != "OFFSET") or not len(data):
        piece.refuse(f"{piece.text} is not a window", f"Write {form}")
    if keys and name not in ("SESSION", "RUNNING"):
        keys[0].refuse(
            f"{name} has the same windows for every key, so it is not partitioned",
            "Leave out PARTITION BY, and add the key to GROUP BY",
        )
    stream = read(data)
    if moment is not None:
        _check_event_time(moment, stream)
    spans = [named[one] for one in known if one in named]
    if name in ("HOP", "CUMULATE"):
        spans[:2] = reversed(spans[:2])
    return TableWindow(piece, stream, _made(piece, spans, form), tuple(_names(keys)))


def _names(keys: Sequence[Piece]) -> list[str]:
    """The columns after PARTITION BY, which may be in brackets."""
    found = []
    for key in keys:
        inside = key.brackets(0)
        for part in [key] if inside is None else inside.listed():
            if part.name is None:
                part.refuse(f"{part.text!r} is not a column", "PARTITION BY takes columns")
            found.append(part.name)
    return found


def _label(part: Piece) -> tuple[str | None, Piece]:
    """The name before => and the value after it."""
    if len(part) > 2 and part.tokens[1].token_type == TokenType.FARROW:
        return part.tokens[0].text.upper(), part.part(2)
    return None, part


def _table_form(name: str) -> str:
    spans = ", ".join(f"INTERVAL {one.lower()}" for one in _ARGUMENTS[name] if one != "OFFSET")
    offset = " [, INTERVAL offset]" if "OFFSET" in _ARGUMENTS[name] else ""
    by = " PARTITION BY key" if name == "SESSION" else ""
    return f"TABLE({name}(TABLE stream{by}, DESCRIPTOR(event_time), {spans}{offset}))"


def _made(piece: Piece, spans: Sequence[Piece], form: str) -> AnyWindow:
    """The window with these intervals, in the order of Python."""
    name = piece.tokens[0].text.upper()
    if name == "RUNNING" and spans[0].is_word(0, "FOREVER") and len(spans[0]) == 1:
        return running(FOREVER)
    lengths = [interval_of(span, form) for span in spans]
    if len(lengths) == SQL_FORMS[name].most and name in ("TUMBLE", "HOP", "CUMULATE"):
        # Windows on the same grid are the same: an offset is one from 0 up to the step.
        step = lengths[1 if name == "HOP" else 0]
        lengths[-1] = lengths[-1] % step if step else lengths[-1]
    try:
        return SQL_FORMS[name].make(*lengths)
    except InvalidWindow as error:
        hint = f"{error.hint}. " if error.hint else ""
        raise InvalidWindow(error.message, hint=f"{hint}See {piece.where}") from None


def span_of(text: str) -> timedelta:
    """Parse a duration, such as 10 seconds, 1 hour 30 minutes or 5m."""
    sign, rest, total = 1, text.lower().strip(), timedelta(0)
    if rest.startswith(("-", "+")):
        sign, rest = -1 if rest[0] == "-" else 1, rest[1:]
    while rest and (found := _PART.match(rest)):
        number, unit = found.groups()
        known = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if known is None:
            break
        total += known * (float(number) if "." in number else int(number))
        rest = rest[found.end() :]
    if rest or not text.strip():
        raise InvalidPipeline(
            f"{text!r} is not a duration",
            hint="Write 10 seconds, 1 hour 30 minutes or 7 days. Months and years differ in length",
        )
    return sign * total


def interval_of(piece: Piece, form: str) -> timedelta:
    """INTERVAL '1 minute', INTERVAL 1 MINUTE or INTERVAL '1' MINUTE, with a sign or without."""
    minus = piece.tokens[0].token_type == TokenType.DASH
    plain = piece.part(1) if minus else piece
    if not plain.is_word(0, "INTERVAL"):
        piece.refuse(f"{piece.text!r} is not an interval", f"Write {form}")
    text = " ".join(token.text for token in plain.tokens[1:])
    try:
        return -span_of(text) if minus else span_of(text)
    except InvalidPipeline as error:
        piece.refuse(error.message, error.hint)


def _check_event_time(moment: Piece, stream: Stream) -> None:
    names = event_times(stream)
    said = moment.text if moment.name is None else moment.name
    if said.lower() in {name.lower() for name in names}:
        return
    if not names:
        moment.refuse(
            "The event time of the rows is not among the selected columns",
            f"Select it as it is, along with the others. Of a window it is {WINDOW_TIME}",
        )
    moment.refuse(
        f"A window needs the event time of the rows, and {moment.text!r} is not it",
        f"Write {' or '.join(sorted(names))}",
    )


def event_times(stream: Stream) -> set[str]:
    """The columns of a stream that are the unchanged event time of its rows.

    Of a topic it may be an expression, which a query then repeats. Of a window it is `window_time`,
    which need not be a column.
    """
    match stream:
        case Source(topic=topic):
            return {topic.event_time} if topic.event_time is not None else set()
        case Filter():
            return event_times(stream.input)
        case Explode():
            return event_times(stream.input) - {stream.into}
        case Project():
            names, time = event_times(stream.input), stream.input.time
            before = {name.lower() for name in (*names, time) if name is not None}
            kept = {WINDOW_TIME} & names if stream.time == time else set()
            return kept | {
                name
                for name, made in stream.expressions
                if isinstance(made, str) and made.strip("` ").lower() in before
            }
        case Merge():
            return set.intersection(*(event_times(part) for part in stream.inputs))
        case _ if stream.has_panes:
            return {WINDOW_TIME, stream.time or ""} & {WINDOW_TIME, *stream.columns}
        case _:
            return {stream.time} if stream.time is not None else set()


def window_time(stream: Stream) -> str | None:
    """The expression of `window_time`, if a query can name it and it is not a column."""
    named = WINDOW_TIME in event_times(stream) and WINDOW_TIME not in stream.columns
    return stream.time if named else None
