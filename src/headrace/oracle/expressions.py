"""A subset of Spark SQL expressions in plain Python.

Null is None. Every operation on null gives null, except IS NULL, COALESCE, AND and OR.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp

Row = Mapping[str, Any]
Evaluate = Callable[[Row], Any]

_BINARY: dict[type[Any], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
    exp.Mod: lambda a, b: a - b * int(a / b),
}
_UNARY: dict[type[Any], Callable[[Any], Any]] = {
    exp.Not: operator.not_,
    exp.Neg: operator.neg,
    exp.Lower: str.lower,
    exp.Upper: str.upper,
    exp.Length: len,
}


@lru_cache(maxsize=1000)
def compile_sql(text: str) -> Evaluate:
    """Compile Spark SQL to a function of a row."""
    return _compile(sqlglot.parse_one(text, dialect="spark"))


def _compile(node: Any) -> Evaluate:
    match node:
        case exp.Paren():
            return _compile(node.this)
        case exp.Column():
            name = node.name
            return lambda row: row[name]
        case exp.Literal():
            value = (
                node.this
                if node.is_string
                else (int(node.this) if node.is_int else float(node.this))
            )
            return lambda _: value
        case exp.Boolean():
            truth = node.this
            return lambda _: truth
        case exp.Null():
            return lambda _: None
        case exp.Is():
            operand = _compile(node.this)
            return lambda row: operand(row) is None
        case exp.Coalesce():
            parts = [_compile(part) for part in (node.this, *node.expressions)]
            return lambda row: next((v for p in parts if (v := p(row)) is not None), None)
        case exp.Nullif():
            given, unwanted = _compile(node.this), _compile(node.expression)
            return lambda row: None if (v := given(row)) == unwanted(row) else v
        case exp.And() | exp.Or():
            return _logic(_compile(node.left), _compile(node.right), stop=isinstance(node, exp.Or))
    if isinstance(node, exp.Array | exp.In | exp.Case):
        return _compile_choice(node)
    if type(node) in _BINARY:
        left, right, apply = _compile(node.left), _compile(node.right), _BINARY[type(node)]
        return lambda row: _strict(apply, left(row), right(row))
    if type(node) in _UNARY:
        inner, change = _compile(node.this), _UNARY[type(node)]
        return lambda row: _strict(change, inner(row))
    raise ValueError(f"the oracle does not support {node.sql(dialect='spark')!r}")


def _compile_choice(node: Any) -> Evaluate:
    """An array, IN a list, or CASE WHEN."""
    listed = [_compile(item) for item in node.expressions]
    if isinstance(node, exp.Array):
        return lambda row: [item(row) for item in listed]
    if isinstance(node, exp.In):
        given = _compile(node.this)
        return lambda row: _strict(
            lambda value, *ones: value in ones, given(row), *(one(row) for one in listed)
        )
    tests = [(_compile(one.this), _compile(one.args["true"])) for one in node.args["ifs"]]
    other = _compile(node.args.get("default") or exp.Null())
    return lambda row: next((made(row) for test, made in tests if test(row) is True), other(row))


def _strict(apply: Callable[..., Any], *values: Any) -> Any:
    return None if any(value is None for value in values) else apply(*values)


def _logic(left: Evaluate, right: Evaluate, *, stop: bool) -> Evaluate:
    """AND or OR with nulls: `stop` is the value that decides alone."""

    def evaluate(row: Row) -> bool | None:
        values = (left(row), right(row))
        if stop in values:
            return stop
        return None if None in values else not stop

    return evaluate
