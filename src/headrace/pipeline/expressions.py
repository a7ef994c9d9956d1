"""Expressions are Spark SQL, as text or as Columns. Text is looked into before Spark starts."""

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
    """True if an expression names a column. Nobody can tell of one that is no text."""
    if not isinstance(expression, str):
        return False
    return column.lower() in {name.lower() for name in columns_in(expression, where)}


def bound_names(tree: Any) -> set[str]:
    """The names that lambdas in an expression give to what they are called with."""
    return {name.name for scope in tree.find_all(exp.Lambda) for name in scope.expressions}


def check_columns(expression: Expression, columns: Sequence[str], where: Where) -> None:
    """Return if an expression names only columns that are there. Spark does not mind the case."""
    if not isinstance(expression, str):
        return
    known = {name.lower(): name for name in columns}
    for name in sorted(columns_in(expression, where)):
        if name.lower() not in known:
            raise not_there(f"There is no column {name!r} in {expression!r}", name, columns, where)


def not_there(message: str, name: str, names: Sequence[str], where: Where) -> InvalidPipeline:
    """The error for a name that is not among those there are."""
    near = difflib.get_close_matches(name, names, 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names) or 'none'}."
    return InvalidPipeline(
        message, hint=f"{hint} See {where}", column=name, file=where.file, line=where.line
    )
