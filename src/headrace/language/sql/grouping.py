"""GROUP BY as the keys, window and aggregates of `aggregate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import TokenType, exp

from headrace.errors import InvalidPipeline
from headrace.language.sql.clauses import Item, Select
from headrace.language.sql.tokens import Piece
from headrace.language.sql.windows import is_window, window_of
from headrace.operators.window import aggregates
from headrace.operators.window.aggregates import Aggregate
from headrace.operators.window.declare import Aggregation, Emit, aggregate
from headrace.operators.window.windows import SQL_FORMS
from headrace.pipeline.row_steps import project
from headrace.pipeline.stream import Stream
from headrace.pipeline.time import WINDOW_END, WINDOW_START, Lateness
from headrace.pipeline.where import Where, declared_at

_OF_ONE: dict[str, Callable[[str], Aggregate]] = {
    "COUNT": aggregates.count,
    "SUM": aggregates.sum,
    "AVG": aggregates.average,
    "MEAN": aggregates.average,
    "MIN": aggregates.min,
    "MAX": aggregates.max,
    "APPROX_COUNT_DISTINCT": aggregates.approx_distinct,
    "FIRST": aggregates.first,
    "FIRST_VALUE": aggregates.first,
    "LAST": aggregates.last,
    "LAST_VALUE": aggregates.last,
}
_QUANTILES = ("APPROX_PERCENTILE", "PERCENTILE_APPROX", "QUANTILE")
_OWN_ORDER = ("FIRST", "FIRST_VALUE", "LAST", "LAST_VALUE")
_TAKEN = ("by", "emit", "lateness", "stream", "window")
_WINDOW = f"{WINDOW_START} and {WINDOW_END} are always there"


@dataclass(frozen=True)
class Terms:
    """The settings of a window besides its shape; `advice` says where to set them."""

    lateness: Lateness | None
    emit: Emit
    advice: str


def aggregated(select: Select, stream: Stream, terms: Terms) -> Aggregation:
    """The aggregation of a stream that a SELECT with GROUP BY describes."""
    windows = [piece for piece in select.group if is_window(piece)]
    if not windows:
        select.group[0].refuse(
            "Without a window, a result would never be final",
            f"Add one to GROUP BY: {', '.join(SQL_FORMS)}, as in {SQL_FORMS['TUMBLE'].text}",
        )
    for piece in windows[1:]:
        piece.refuse("There are two windows", "Group by one of them")
    window = window_of(windows[0], stream)
    if terms.lateness is None:
        windows[0].refuse("The query does not say how late a row may be", terms.advice)
    keys = [_key(piece, select, stream) for piece in select.group if not is_window(piece)]
    made = {name: item.piece.text for name, item in keys if item.piece.name != name}
    listed = [item for _, item in keys]
    named: dict[str, Aggregate] = {}
    for item in select.items:
        if item in listed or (item.alias is None and item.name in (WINDOW_START, WINDOW_END)):
            continue
        name, one = _named(item, stream, select)
        if name in _TAKEN:
            item.piece.refuse(f"An aggregate cannot be called {name!r}", "Give it another name")
        if name in named:
            item.piece.refuse(f"There are two columns {name!r}", "Give them different names")
        named[name] = one
    if not named:
        select.whole.refuse("An aggregation needs an aggregate", "Select COUNT(*) AS hits?")
    with declared_at(select.whole.where):
        return aggregate(
            _with_keys(stream, made, select.whole.where) if made else stream,
            by=[name for name, _ in keys],
            window=window,
            lateness=terms.lateness,
            emit=terms.emit,
            **named,
        )


def _with_keys(stream: Stream, made: Mapping[str, str], where: Where) -> Stream:
    """Rows with computed keys, as `rekey` makes them."""
    kept = [(name, f"`{name}`") for name in stream.columns]
    return project(stream, [*kept, *made.items()], where)


def _key(piece: Piece, select: Select, stream: Stream) -> tuple[str, Item]:
    """The name of a GROUP BY key, and its item in SELECT."""
    if [token.token_type for token in piece.tokens] == [TokenType.NUMBER]:
        piece.refuse("GROUP BY takes a column by its name", "Write it in place of its number")
    item = _selected(piece, select.items)
    if item is None:
        if piece.name is None:
            piece.refuse(
                f"{piece.text!r} is in GROUP BY and has no name",
                f"Select it under one: SELECT {piece.text} AS name",
            )
        piece.check_columns(stream.columns, select.prefixes)
        piece.refuse(
            f"{piece.name!r} is in GROUP BY and not selected",
            "Results are kept by their key, so select all of it",
        )
    item.piece.check_columns(stream.columns, select.prefixes)
    assert item.name is not None
    if item.made.find(exp.AggFunc):
        piece.refuse(f"{item.piece.text} cannot be in GROUP BY", "It is known when a window ends")
    derived = item.piece.name != item.name
    if derived and item.name.lower() in {column.lower() for column in stream.columns}:
        item.piece.refuse(
            f"{item.name!r} could be the column or {item.piece.text!r}",
            "Give it a name that no column has",
        )
    return item.name, item


def _selected(piece: Piece, items: Sequence[Item]) -> Item | None:
    """The item of SELECT with that name, or else with that text."""
    named = [item for item in items if piece.name is not None and item.name == piece.name]
    same = [item for item in items if item.name is not None and _words(item.piece) == _words(piece)]
    return next(iter([*named, *same]), None)


def _words(piece: Piece) -> list[str]:
    """The words of an expression for comparison: case matters only in quotes."""
    quotes = (TokenType.STRING, TokenType.RAW_STRING)
    return [t.text if t.token_type in quotes else t.text.lower() for t in piece.tokens]


def _named(item: Item, stream: Stream, select: Select) -> tuple[str, Aggregate]:
    """The name of a column, and the aggregate in it."""
    item.piece.check_columns(stream.columns, select.prefixes)
    functions = (exp.AggFunc, exp.Anonymous)
    if item.made.find(exp.Explode):
        item.piece.refuse(
            "An array is exploded before rows are grouped", "Use LATERAL VIEW EXPLODE"
        )
    if not item.made.find(*functions) or isinstance(item.made, exp.Star):
        item.piece.refuse(
            f"{item.piece.text!r} is neither in GROUP BY nor an aggregate",
            f"Add it to GROUP BY, or remove it. {_WINDOW}",
        )
    if item.alias is None:
        item.piece.refuse(f"{item.piece.text} needs a name", f"Write {item.piece.text} AS name")
    try:
        made = _aggregate(item)
    except InvalidPipeline as error:
        if str(item.piece.where) in error.hint:
            raise
        item.piece.refuse(error.message, error.hint or "Choose another")
    return item.alias, made


def _aggregate(item: Item) -> Aggregate:
    """The aggregate of that name; otherwise an expression of Spark."""
    function, arguments = item.call or ("", [])
    first, *more = arguments or [item.piece]
    if function == "COUNT" and first.text == "*":
        return aggregates.count()
    if function == "COUNT" and first.is_word(0, "DISTINCT") and not more:
        return aggregates.distinct(first.part(1).text)
    numbers = [_number(piece) for piece in more]
    plain = not first.is_word(0, "DISTINCT", "ALL") and first.find(TokenType.IGNORE) is None
    match function, numbers:
        case _, [] if function in _OF_ONE and plain:
            return _OF_ONE[function](first.text)
        case "APPROX_COUNT_DISTINCT", [float(error)] if plain:
            return aggregates.approx_distinct(first.text, error=error)
        case _, [float(fraction)] if function in _QUANTILES and plain:
            return aggregates.quantile(first.text, fraction)
    if item.piece.is_word(0, *_OWN_ORDER):
        item.piece.refuse(
            f"{item.piece.text} cannot ignore nulls",
            "Filter them with WHERE, or use MIN_BY or MAX_BY",
        )
    return aggregates.expression(item.piece.text)


def _number(piece: Piece) -> float | None:
    (token, *more) = piece.tokens
    return float(token.text) if token.token_type == TokenType.NUMBER and not more else None
