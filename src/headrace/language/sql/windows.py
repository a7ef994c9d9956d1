"""TUMBLE, HOP, SLIDE, SESSION and RUNNING: windows as functions of the event time."""

from __future__ import annotations

import re
from datetime import timedelta

from sqlglot import TokenType

from headrace.errors import InvalidPipeline, InvalidWindow
from headrace.language.sql.tokens import Piece
from headrace.operators.window.windows import FOREVER, SQL_FORMS, AnyWindow, running
from headrace.pipeline.row_steps import Explode, Filter, Merge, Project
from headrace.pipeline.stream import Source, Stream

_UNITS = {
    "microsecond": timedelta(microseconds=1), "us": timedelta(microseconds=1),
    "millisecond": timedelta(milliseconds=1), "ms": timedelta(milliseconds=1),
    "second": timedelta(seconds=1), "s": timedelta(seconds=1),
    "minute": timedelta(minutes=1), "m": timedelta(minutes=1),
    "hour": timedelta(hours=1), "h": timedelta(hours=1),
    "day": timedelta(days=1), "d": timedelta(days=1),
    "week": timedelta(weeks=1),
}  # fmt: skip
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def is_window(piece: Piece) -> bool:
    """True if the piece is just a call of a window function."""
    inside = piece.brackets(1)
    return piece.is_word(0, *SQL_FORMS) and inside is not None and len(inside) + 3 == len(piece)


def window_of(piece: Piece, stream: Stream) -> AnyWindow:
    """The window of a function call on the event time of a stream."""
    name = piece.tokens[0].text.upper()
    inside = piece.brackets(1)
    assert inside is not None
    moment, *spans = inside.split(TokenType.COMMA)
    form = SQL_FORMS[name]
    if not form.least <= len(spans) <= form.most:
        piece.refuse(f"{piece.text} is not a window", f"Write {form.text}")
    _check_event_time(moment, stream)
    if name == "RUNNING" and spans[0].is_word(0, "FOREVER") and len(spans[0]) == 1:
        return running(FOREVER)
    lengths = [_interval(span, form.text) for span in spans]
    try:
        return form.make(*lengths)
    except InvalidWindow as error:
        hint = f"{error.hint}. " if error.hint else ""
        raise InvalidWindow(error.message, hint=f"{hint}See {piece.where}") from None


def span_of(text: str) -> timedelta:
    """Parse a duration, such as 10 seconds, 1 hour 30 minutes or 5m."""
    rest, total = text.lower(), timedelta(0)
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
    return total


def _interval(piece: Piece, form: str) -> timedelta:
    """INTERVAL '1 minute', INTERVAL 1 MINUTE or INTERVAL '1' MINUTE."""
    if not piece.is_word(0, "INTERVAL"):
        piece.refuse(f"{piece.text!r} is not an interval", f"Write {form}")
    text = " ".join(token.text for token in piece.tokens[1:])
    try:
        return span_of(text)
    except InvalidPipeline as error:
        piece.refuse(error.message, error.hint)


def _check_event_time(moment: Piece, stream: Stream) -> None:
    names = event_times(stream)
    if moment.name is not None and moment.name.lower() in {name.lower() for name in names}:
        return
    if not names:
        moment.refuse(
            "The event time of the topic is not among the selected columns",
            "Select it as it is, along with the others",
        )
    moment.refuse(
        f"A window needs the event time of the topic, and {moment.text!r} is not it",
        f"Write {' or '.join(sorted(names))}",
    )


def event_times(stream: Stream) -> set[str]:
    """The columns of a stream that are the unchanged event time of its topic."""
    match stream:
        case Source(topic=topic):
            return {topic.event_time} if topic.event_time is not None else set()
        case Filter():
            return event_times(stream.input)
        case Explode():
            return event_times(stream.input) - {stream.into}
        case Project():
            before = {name.lower() for name in event_times(stream.input)}
            return {
                name
                for name, made in stream.expressions
                if isinstance(made, str) and made.strip("` ").lower() in before
            }
        case Merge():
            return set.intersection(*(event_times(part) for part in stream.inputs))
        case _:
            return set()
