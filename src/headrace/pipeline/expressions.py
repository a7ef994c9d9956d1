"""Expressions: Spark SQL, as text or as Columns. Text is checked before Spark starts."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import sqlglot
from sqlglot import exp

from headrace.errors import InvalidPipeline
from headrace.pipeline.where import Where

Expression = Any
"""Text, or a callable that returns a Spark Column (which needs a running Spark to be made)."""


def columns_in(text: str, where: Where) -> set[str]:
    """The columns that an expression names."""
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except sqlglot.ParseError as error:
        first = error.errors[0]["description"] if error.errors else str(error)
        raise InvalidPipeline(f"{text!r} is not Spark SQL: {first}", hint=f"See {where}") from None
    return {column.parts[0].name for column in tree.find_all(exp.Column)} - bound_names(tree)


def names_column(expression: Expression, column: str, where: Where) -> bool:
    """True if an expression that is text names a column; unknown for others, so False."""
    if not isinstance(expression, str):
        return False
    return column.lower() in {name.lower() for name in columns_in(expression, where)}


def bound_names(tree: Any) -> set[str]:
    """The parameters of the lambdas in an expression."""
    return {name.name for scope in tree.find_all(exp.Lambda) for name in scope.expressions}


def check_columns(expression: Expression, columns: Sequence[str], where: Where) -> None:
    """Check that an expression names only known columns. As in Spark, case does not matter."""
    if not isinstance(expression, str):
        return
    known = {name.lower(): name for name in columns}
    for name in sorted(columns_in(expression, where)):
        if name.lower() not in known:
            raise not_there(f"There is no column {name!r} in {expression!r}", name, columns, where)


def not_there(message: str, name: str, names: Sequence[str], where: Where) -> InvalidPipeline:
    """The error for an unknown name, with the nearest known one as a hint."""
    near = difflib.get_close_matches(name, names, 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names) or 'none'}."
    return InvalidPipeline(
        message, hint=f"{hint} See {where}", column=name, file=where.file, line=where.line
    )
