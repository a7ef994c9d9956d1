"""ROW_NUMBER() in a subquery: the top N of each window, and rows without their duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from sqlglot import TokenType

from headrace.language.sql.clauses import Item, Select
from headrace.language.sql.terms import Terms
from headrace.language.sql.tokens import Piece
from headrace.language.sql.windows import event_times
from headrace.operators.dedup.declare import deduplicate
from headrace.operators.top.declare import RANK, top
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.windows import Session
from headrace.pipeline.stream import Stream
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.pipeline.where import declared_at

_WINDOW = {WINDOW_START, WINDOW_END}
_TURNED = {TokenType.GTE: TokenType.LTE, TokenType.GT: TokenType.LT, TokenType.EQ: TokenType.EQ}
_FORM = "ROW_NUMBER() OVER (PARTITION BY key ORDER BY event_time) AS n"


@dataclass(frozen=True)
class Ranked(Stream):
    """Numbered rows of each key. The query around them takes the first ones."""

    input: Stream
    name: str
    by: tuple[str, ...]
    order: str
    descending: bool
    by_time: bool
    over: Piece = field(compare=False)
    is_result = True

    def refuse_alone(self) -> NoReturn:
        """Refuse numbers that no query uses: they change with every row."""
        self.over.refuse(
            f"The number {self.name!r} of a row changes with every row after it",
            f"Take the first ones: SELECT * FROM (...) WHERE {self.name} <= 3",
        )


def ranks_results(item: Item, stream: Stream) -> bool:
    """True if ROW_NUMBER() ranks the results of a window, instead of ordering rows by time."""
    assert item.over is not None
    return isinstance(stream, Aggregation) and not _is_time(_ordered(item.over)[1], stream)


def ranked(select: Select, item: Item, stream: Stream, rows: Stream) -> Ranked:
    """Numbered rows, ordered as the columns of a stream say."""
    over = item.over
    assert over is not None
    assert item.alias is not None
    by, order, descending = _ordered(over)
    for piece in by:
        piece.check_columns(stream.columns)
    names = tuple(piece.name or piece.text for piece in by)
    by_time = _is_time(order, stream)
    if isinstance(stream, Aggregation) and not by_time:
        if select.where is not None:
            select.where.refuse(
                "Results cannot be filtered before they are ranked",
                "Filter the rows that are aggregated, or read the view",
            )
        _check_all(select.items, item, stream.columns, ())
    elif not by_time:
        order.refuse(
            f"Rows are numbered by the event time, and {order.text!r} is not it",
            f"Write {_FORM}. To rank by a value, aggregate first: GROUP BY a window",
        )
    columns = (*rows.columns, item.alias)
    where = over.where
    return Ranked(columns, where, rows, item.alias, names, order.text, descending, by_time, over)


def _is_time(order: Piece, stream: Stream) -> bool:
    return order.text.upper() == "PROCTIME()" or order.name in event_times(stream)


def chosen(
    select: Select,
    numbered: Ranked,
    terms: Terms,
    projected: Callable[[Select, Stream], Stream],
) -> Stream:
    """The first rows of each key: a ranking of results, or rows without duplicates."""
    limits = [] if select.where is None else select.where.conditions()
    found = [(piece, _limit(piece, numbered.name)) for piece in limits]
    numbers = [n for _, n in found if n is not None]
    if len(numbers) != 1 or select.group or select.laterals:
        numbered.refuse_alone()
    for piece, n in found:
        if n is None:
            piece.refuse(
                f"{piece.text!r} would filter rows after they are ranked",
                "Filter the rows in the subquery, or the ranking in a query around it",
            )
    with declared_at(select.whole.where):
        if isinstance(numbered.input, Aggregation) and not numbered.by_time:
            return _top(select, numbered, numbered.input, numbers[0])
        return _deduplicated(select, numbered, numbers[0], terms, projected)


def _top(select: Select, numbered: Ranked, of: Aggregation, n: int) -> Stream:
    window = _WINDOW & set(numbered.by)
    live = isinstance(of.window, Session)
    if live and window:
        numbered.over.refuse(
            "All open sessions are ranked together, whenever they began",
            "Leave the window out of PARTITION BY",
        )
    if not live and not window >= set(of.window.key) and WINDOW_START not in of.window.key[1:]:
        numbered.over.refuse(
            "A ranking is per window", f"Write PARTITION BY {', '.join(_in_order(of))}, ..."
        )
    if not numbered.descending:
        numbered.over.refuse(
            "A ranking begins with the highest value",
            "Write ORDER BY ... DESC. For the lowest, aggregate the negative: SUM(-price)",
        )
    listed = [name for name in numbered.by if name not in _WINDOW]
    made = top(of, n, by=numbered.order.strip("`"), within=listed)
    _check_all(select.items, None, of.columns, (numbered.name, RANK))
    return made


def _deduplicated(
    select: Select,
    numbered: Ranked,
    n: int,
    terms: Terms,
    projected: Callable[[Select, Stream], Stream],
) -> Stream:
    if n != 1:
        numbered.over.refuse(
            f"The first {n} rows of a key would have to be remembered forever",
            f"Write {numbered.name} = 1 for rows without duplicates, or rank an aggregation",
        )
    rows, by = numbered.input, list(numbered.by)
    if [item.piece.text for item in select.items] != ["*"]:
        rows = projected(replace(select, where=None), rows)
        renamed = {item.piece.name: item.name for item in select.items if item.piece.name}
        by = [renamed.get(name) or "" for name in by]
        if "" in by:
            select.whole.refuse(
                f"{numbered.by[by.index('')]!r} is not selected",
                "Duplicates are found by their key, so select all of it",
            )
    return deduplicate(
        rows,
        by=by,
        ttl=terms.span("ttl", numbered.over),
        keep="last" if numbered.descending else "first",
        delay=terms.delay(numbered.over, rows),
    )


def _ordered(over: Piece) -> tuple[list[Piece], Piece, bool]:
    """The columns after PARTITION BY, the one after ORDER BY, and whether it is descending."""
    order_at = over.find(TokenType.ORDER_BY)
    if not over.is_word(0, "PARTITION BY") or order_at is None or order_at == 1:
        over.refuse("ROW_NUMBER needs a key and an order", f"Write {_FORM}")
    by = over.part(1, order_at).listed()
    order = over.part(order_at + 1)
    descending = order.is_word(len(order) - 1, "DESC")
    plain = order.part(0, len(order) - order.is_word(len(order) - 1, "ASC", "DESC"))
    if plain.name is None and plain.text.upper() != "PROCTIME()":
        plain.refuse("Rows are numbered in the order of one column", f"Write {_FORM}")
    for piece in by:
        if piece.name is None:
            piece.refuse(f"{piece.text!r} is not a column", f"Write {_FORM}")
    return by, plain, descending


def _limit(piece: Piece, name: str) -> int | None:
    """The N of n <= N, n < N + 1, N >= n or n = 1."""
    if len(piece) != 3:
        return None
    first, sign, last = piece.tokens
    kind = sign.token_type
    if first.token_type == TokenType.NUMBER:
        first, last, kind = last, first, _TURNED.get(kind, kind)
    if first.text.lower() != name.lower() or not last.text.isdecimal():
        return None
    n = int(last.text) - (kind == TokenType.LT)
    if n < 1 or kind not in (TokenType.LTE, TokenType.LT, TokenType.EQ):
        return None
    return n if kind != TokenType.EQ or n == 1 else None


def _check_all(
    items: Sequence[Item], numbered: Item | None, columns: Sequence[str], more: Sequence[str]
) -> None:
    """Refuse a list of columns that is not all of them: a ranking has those of its aggregation."""
    rest = [item for item in items if item is not numbered]
    if [item.piece.text for item in rest] == ["*"]:
        return
    for item in rest:
        if item.alias is not None or item.piece.name not in (*columns, *more):
            item.piece.refuse(
                f"{item.piece.text!r} cannot be selected from a ranking",
                "Write SELECT *, and choose columns in a query around it",
            )
    missing = {*columns} - _WINDOW - {item.piece.name for item in rest}
    if missing and rest:
        rest[0].piece.refuse(
            f"A ranking has all columns of its results, and {min(missing)!r} is not selected",
            "Write SELECT *, and choose columns in a query around it",
        )


def _in_order(of: Aggregation) -> tuple[str, ...]:
    return (WINDOW_START, WINDOW_END) if len(of.window.key) > 1 else (WINDOW_START,)
