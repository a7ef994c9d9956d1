"""Types of expressions, as far as the declared schemas tell. Spark's analyzer checks the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from sqlglot import exp

from headrace.errors import InvalidPipeline
from headrace.pipeline.expressions import Expression, bound_names, not_there, parsed
from headrace.pipeline.where import Where
from headrace.schema.ddl import format_type

TypeOf = Callable[[str], pa.DataType | None]
"""The type of a column by its name; None if unknown."""

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)


def type_of(expression: Expression, column: TypeOf, where: Where) -> pa.DataType | None:
    """The type of an expression that is a column by itself; None if it is not, or unknown."""
    return _type(parsed(expression, where), column) if isinstance(expression, str) else None


def check_types(expression: Expression, column: TypeOf, where: Where) -> None:
    """Check that paths lead somewhere, and that an expression does not compute with strings."""
    if not isinstance(expression, str):
        return
    tree = parsed(expression, where)
    bound = bound_names(tree)
    for path in tree.find_all(exp.Column):
        names = [part.name for part in path.parts]
        if names[0] not in bound:
            _check_path(names, column, where)
    # Spark fails on the first word that is no number.
    for sum_of in tree.find_all(*_ARITHMETIC):
        sides = [sum_of.this.unnest(), sum_of.expression.unnest()]
        if any(side.find(exp.Interval) for side in sides):
            continue  # a string may be a time
        for side in sides:
            kind = _type(side, column)
            if kind is not None and pa.types.is_string(kind):
                raise InvalidPipeline(
                    f"{expression!r} computes with {side.name!r}, which is a string",
                    hint=f"Write CAST({side.name} AS double) if it holds numbers. See {where}",
                    column=side.name,
                )


def _check_path(path: list[str], column: TypeOf, where: Where) -> None:
    """Check that each field of a path such as `user.country` is in the one before it."""
    kind = column(path[0])
    for place, name in enumerate(path[1:], 1):
        if kind is None or not pa.types.is_struct(kind):
            return
        fields = {field.name.lower(): field for field in kind}
        if name.lower() not in fields:
            inside = ".".join(path[:place])
            known = [field.name for field in kind]
            raise not_there(f"There is no field {name!r} in {inside!r}", name, known, where)
        kind = fields[name.lower()].type


def check_condition(expression: Expression, column: TypeOf, where: Where) -> None:
    """Check that a condition is not known to be something else than true or false."""
    if not isinstance(expression, str):
        return
    tree = parsed(expression, where).unnest()
    kind = _type(tree, column)
    number = isinstance(tree, (*_ARITHMETIC, exp.Literal))
    if number or (kind is not None and not pa.types.is_boolean(kind)):
        said = "not true or false" if kind is None else f"{format_type(kind)}, not boolean"
        raise InvalidPipeline(
            f"The condition {expression!r} is {said}",
            hint=f"Compare it, as in {expression} > 0. See {where}"
            if number or (kind is not None and is_number(kind))
            else f"Compare it, as in {expression} = '...'. See {where}",
        )


def is_number(kind: pa.DataType) -> bool:
    """True if values of a type can be added up."""
    is_any = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(is_any or pa.types.is_duration(kind) or pa.types.is_interval(kind))


def _type(tree: Any, column: TypeOf) -> pa.DataType | None:
    tree = tree.unnest()
    alone = isinstance(tree, exp.Column) and len(tree.parts) == 1
    return column(tree.name) if alone else None
