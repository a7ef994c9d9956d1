"""GROUP BY as the keys, grouping sets, window and aggregates of `aggregate`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import TokenType, exp

from headrace.errors import InvalidPipeline
from headrace.language.sql.aggregates import aggregate_of
from headrace.language.sql.clauses import Item, Select
from headrace.language.sql.terms import Terms
from headrace.language.sql.tokens import Piece
from headrace.language.sql.windows import (
    WINDOW_COLUMNS,
    WINDOW_TIME,
    TableWindow,
    is_window,
    window_of,
)
from headrace.operators.window.aggregates import Aggregate
from headrace.operators.window.declare import Aggregation, aggregate
from headrace.operators.window.grouping_sets import (
    GROUPING_ID,
    GroupingSets,
    cube,
    grouping_sets,
    rollup,
)
from headrace.operators.window.windows import SQL_FORMS, AnyWindow, Cumulative
from headrace.pipeline.row_steps import project
from headrace.pipeline.stream import Stream
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.pipeline.where import Where, declared_at

_TAKEN = ("by", "emit", "lateness", "stream", "window")
_WINDOW = f"{WINDOW_START} and {WINDOW_END} are always there"
_AUXILIARY = re.compile(r"(TUMBLE|HOP|SESSION)_(START|END|ROWTIME|PROCTIME)", re.IGNORECASE)
_IN_FROM = "GROUP BY window_start, window_end"


def aggregated(select: Select, stream: Stream, table: TableWindow | None, terms: Terms) -> Stream:
    """The aggregation of a stream that a SELECT with GROUP BY describes."""
    of_window = [item for item in select.items if _is_of_window(item)]
    last = select.group[-1]
    if last.is_word(len(last) - 1, "ROLLUP", "CUBE"):
        word = last.tokens[-1].text.upper()
        last.refuse(f"WITH {word} does not say of which keys", f"Write {word} (key, ...)")
    at, window = _window(select, stream, table)
    lateness = terms.lateness(at, stream)
    grouped = [piece for piece in select.group if not is_window(piece) and not _of(piece, table)]
    by = [_by(piece, select, stream) for piece in grouped]
    keys = [key for one in by for group in one.sets for key in group]
    if table is not None:
        _check_sessions(table, by)
    made = {name: item.piece.text for name, item in keys if item.piece.name != name}
    listed = [*of_window, *(item for _, item in keys)]
    if any(one.several for one in by):
        listed += [item for item in select.items if item.name == GROUPING_ID and not item.alias]
    named: dict[str, Aggregate] = {}
    for item in select.items:
        if item in listed:
            continue
        name, one = _named(item, stream)
        if name in _TAKEN:
            item.piece.refuse(f"An aggregate cannot be called {name!r}", "Give it another name")
        if name in named:
            item.piece.refuse(f"There are two columns {name!r}", "Give them different names")
        named[name] = one
    if not named:
        select.whole.refuse("An aggregation needs an aggregate", "Select COUNT(*) AS hits?")
    with declared_at(select.whole.where):
        results = aggregate(
            _with_keys(stream, made, select.whole.where) if made else stream,
            by=[one.of_python for one in by],
            window=window,
            lateness=lateness,
            emit=terms.emit,
            **named,
        )
    return _renamed(results, select) if any(map(_is_renamed, of_window)) else results


def _is_renamed(item: Item) -> bool:
    """True if an item is not a column that the results of a window have under that name."""
    column = (item.piece.name or "").lower()
    return column == WINDOW_TIME or (item.name or "").lower() != column


def _renamed(results: Aggregation, select: Select) -> Stream:
    """Results under the names of SELECT. What it lacks of their key comes last."""
    aggregates = (name for name, _ in results.aggregates)
    columns: list[tuple[str, str]] = []
    for item in select.items:
        column = item.piece.name
        if item.name not in results.by and _is_of_window(item):
            assert item.name is not None
            assert column is not None
            made = results.time if column.lower() == WINDOW_TIME else column.lower()
            columns.append((item.name, f"`{made}`" if made == item.name else made))
        else:
            name = item.name if item.name in results.by else next(aggregates)
            columns.append((name, f"`{name}`"))
    there = {made.strip("`") for _, made in columns}
    columns += [(name, f"`{name}`") for name in results.view_key if name not in there]
    return project(results, columns, select.whole.where)


def _window(select: Select, stream: Stream, table: TableWindow | None) -> tuple[Piece, AnyWindow]:
    """The window of a query: a function in GROUP BY, or one in FROM that GROUP BY names."""
    windows = [piece for piece in select.group if is_window(piece)]
    named = [piece for piece in select.group if _of(piece, table)]
    if table is not None and not windows:
        names = {(piece.name or "").lower() for piece in named}
        enough = names - {WINDOW_START} if isinstance(table.window, Cumulative) else names
        if not enough:
            piece = select.group[0]
            piece.refuse("GROUP BY lacks the window in FROM", f"Write {_IN_FROM}, ...")
        return table.piece, table.window
    if not windows:
        select.group[0].refuse(
            "Without a window, a result would never be final",
            f"Add one to GROUP BY: {', '.join(SQL_FORMS)}, as in {SQL_FORMS['TUMBLE'].text}",
        )
    for piece in windows if table is not None else windows[1:]:
        piece.refuse("There are two windows", "Group by one of them")
    return windows[0], window_of(windows[0], stream)


def _of(piece: Piece, table: TableWindow | None) -> bool:
    """True if a piece is a column of the window in FROM."""
    return table is not None and (piece.name or "").lower() in WINDOW_COLUMNS


@dataclass(frozen=True)
class _By:
    """An element of GROUP BY: a key, or the `several` sets of keys of ROLLUP, CUBE and the like."""

    sets: list[list[tuple[str, Item]]]
    several: bool = False

    @property
    def of_python(self) -> str | GroupingSets:
        named = [[name for name, _ in one] for one in self.sets]
        return grouping_sets(*named) if self.several else named[0][0]


def _by(piece: Piece, select: Select, stream: Stream) -> _By:
    """The keys of an element of GROUP BY, which may be grouping sets."""
    kind, inside = piece.tokens[0].token_type, piece.brackets(1)
    if kind not in (TokenType.ROLLUP, TokenType.CUBE, TokenType.GROUPING_SETS) or inside is None:
        return _By([[_key(piece, select, stream)]])
    parts = inside.listed()
    if kind == TokenType.GROUPING_SETS:
        inner = [(part, part.brackets(0)) for part in parts]
        groups = [part if group is None else group for part, group in inner]
        listed = [group.listed() for group in groups]
        return _By([[_key(one, select, stream) for one in group] for group in listed], True)
    keys = [_key(part, select, stream) for part in parts]
    found = {name: (name, item) for name, item in keys}
    made = (rollup if kind == TokenType.ROLLUP else cube)(*found)
    return _By([[found[name] for name in one] for one in made.sets], True)


def _check_sessions(table: TableWindow, by: Sequence[_By]) -> None:
    """Sessions are those of a key here, so they have to be partitioned by what is grouped by."""
    name = table.piece.tokens[0].text.upper()
    if name not in ("SESSION", "RUNNING"):
        return
    if any(one.several for one in by):
        table.piece.refuse(
            "Sessions of a table have one key, not grouping sets",
            f"Write {SQL_FORMS[name].text} in GROUP BY: each set has its own sessions",
        )
    grouped = [item.piece.text.strip("`") for one in by for _, item in one.sets[0]]
    if {one.lower() for one in grouped} != {one.lower() for one in table.keys}:
        keys = f"PARTITION BY {', '.join(grouped)}" if grouped else "no PARTITION BY"
        table.piece.refuse(
            "Sessions are per key, so PARTITION BY and GROUP BY must name the same keys",
            f"Write {name}(TABLE stream {keys}, ...) for this GROUP BY",
        )


def _is_of_window(item: Item) -> bool:
    """True if an item is a column of the window, which results have anyway."""
    if item.piece.is_word(0, "GROUPING", GROUPING_ID.upper()) and item.call is not None:
        item.piece.refuse(
            f"{item.piece.text} is a column of the result", f"Write {GROUPING_ID}, without brackets"
        )
    if _AUXILIARY.fullmatch(item.piece.tokens[0].text) and item.call is not None:
        end = "START" not in item.piece.tokens[0].text.upper()
        item.piece.refuse(
            f"{item.piece.text} is a column of the result",
            f"Write {WINDOW_END if end else WINDOW_START}",
        )
    return (item.piece.name or "").lower() in WINDOW_COLUMNS


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
        item = Item(piece, piece.tree(), None)  # results have their key, selected or not
    item.piece.check_columns(stream.columns)
    assert item.name is not None
    if item.made.find(exp.AggFunc):
        piece.refuse(
            f"{item.piece.text} cannot be in GROUP BY", "Its value is known at the window's end"
        )
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


def _named(item: Item, stream: Stream) -> tuple[str, Aggregate]:
    """The name of a column, and the aggregate in it. Without AS it is that of the function."""
    if item.over is not None:
        item.piece.refuse(
            "Results are ranked by a query around them",
            "Write SELECT *, ROW_NUMBER() OVER (...) AS n FROM (SELECT ... GROUP BY ...)",
        )
    item.piece.check_columns(stream.columns)
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
    name = item.alias or (item.call[0].lower() if item.call is not None else None)
    if name is None:
        item.piece.refuse(f"{item.piece.text} needs a name", f"Write {item.piece.text} AS name")
    try:
        made = aggregate_of(item)
    except InvalidPipeline as error:
        if str(item.piece.where) in error.hint:
            raise
        item.piece.refuse(error.message, error.hint or "Choose another")
    return name, made
