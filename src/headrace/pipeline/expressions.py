"""Expressions: Spark SQL, as text or as Columns. Text is checked before Spark starts."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from headrace.errors import InvalidPipeline
from headrace.pipeline.arguments import Kind
from headrace.pipeline.where import Where

Expression = Annotated[
    Any,
    Kind(
        "Spark SQL in a string",
        "'{value}'",
        lambda value: isinstance(value, str) or callable(value) or _is_column(value),
    ),
]
"""Text, or a callable that returns a Spark Column (which needs a running Spark to be made)."""


def _is_column(value: Any) -> bool:
    # Declarations do not import Spark.
    return type(value).__name__ == "Column"


def columns_in(text: str, where: Where) -> set[str]:
    """The columns that an expression names."""
    tree = parsed(text, where)
    return {column.parts[0].name for column in tree.find_all(exp.Column)} - bound_names(tree)


def parsed(text: str, where: Where) -> Any:
    """The syntax tree of an expression."""
    try:
        return sqlglot.parse_one(text, dialect="spark")
    except TokenError:
        raise InvalidPipeline(
            f"{text!r} is not Spark SQL: a quote or a comment does not end", hint=f"See {where}"
        ) from None
    except ParseError as error:
        said = error.errors[0] if error.errors else {}
        first = syntax_problem(said.get("description"), said.get("highlight"))
        raise InvalidPipeline(f"{text!r} is not Spark SQL: {first}", hint=f"See {where}") from None


def syntax_problem(described: str | None, token: str | None) -> str:
    """Say in our words what sqlglot describes, which names its own classes."""
    what, near = described or "", repr(token) if token else "the end"
    if what.startswith("Expecting "):
        return f"{what.removeprefix('Expecting ')!r} is missing before {near}"
    if what.startswith("Required"):
        return f"Something is missing after {near}"
    return f"{near} is not expected here" if token else "There is no expression"


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
            place = "" if expression.strip("`") == name else f" in {expression!r}"
            raise not_there(f"There is no column {name!r}{place}", name, columns, where)


def not_there(message: str, name: str, names: Sequence[str], where: Where) -> InvalidPipeline:
    """The error for an unknown name, with the nearest known one as a hint."""
    near = difflib.get_close_matches(name, names, 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names) or 'none'}."
    return InvalidPipeline(
        message, hint=f"{hint} See {where}", column=name, file=where.file, line=where.line
    )
