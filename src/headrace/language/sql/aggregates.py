"""Aggregate functions of SQL as those of Python."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import TokenType

from headrace.language.sql.clauses import Item
from headrace.language.sql.tokens import Piece
from headrace.operators.window import aggregates
from headrace.operators.window.aggregates import Aggregate

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


def aggregate_of(item: Item) -> Aggregate:
    """The aggregate of that name; otherwise an expression of Spark."""
    function, arguments = item.call or ("", [])
    if function in _OF_ONE and not arguments:
        item.piece.refuse(f"{item.piece.text} needs a column", f"Write {function}(column)")
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
