"""A subset of Spark SQL expressions in plain Python.

Null is None. Every operation on null gives null, except IS NULL, COALESCE, AND, OR and IN. What
Spark would convert first, such as a text that is compared with a number, is refused.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp

Row = Mapping[str, Any]
Evaluate = Callable[[Row], Any]
Apply = Callable[..., Any]

_LONG = 1 << 63
_DIGITS = 28
"""The digits of a decimal that Python computes exactly."""


class BeyondOracle(ValueError):
    """An expression or a value that the oracle does not know, and Spark may."""


def _number(apply: Apply) -> Apply:
    """Arithmetic on two numbers, with the types that Spark gives the result."""

    def compute(left: Any, right: Any) -> Any:
        result = apply(*_numbers(left, right))
        inexact = isinstance(result, Decimal) and len(result.as_tuple().digits) >= _DIGITS
        if inexact or (isinstance(result, int) and not -_LONG <= result < _LONG):
            raise BeyondOracle(f"{left} and {right} give too many digits")
        return result

    return compute


def _comparison(apply: Apply) -> Apply:
    """A comparison of two values of one type, or of two numbers."""

    def compare(left: Any, right: Any) -> Any:
        if type(left) is not type(right):
            left, right = _numbers(left, right)
        if any(isinstance(value, float) and math.isnan(value) for value in (left, right)):
            raise BeyondOracle("NaN is equal to itself in Spark")
        return apply(left, right)

    return compare


def _numbers(left: Any, right: Any) -> tuple[Any, Any]:
    for value in (left, right):
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise BeyondOracle(f"{value!r} is not a number")
    if isinstance(left, float) != isinstance(right, float):
        return float(left), float(right)
    return left, right


def _quotient(left: Any, right: Any) -> float:
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        raise BeyondOracle("only Spark divides decimals")
    return float(left / right)


def _remainder(left: Any, right: Any) -> Any:
    """The remainder, which has the sign of the dividend."""
    if isinstance(left, float):
        return math.fmod(left, right)
    rest = abs(left) % abs(right)
    return rest if left >= 0 else -rest


_BINARY: dict[type[Any], Apply] = {
    exp.EQ: _comparison(operator.eq),
    exp.NEQ: _comparison(operator.ne),
    exp.GT: _comparison(operator.gt),
    exp.GTE: _comparison(operator.ge),
    exp.LT: _comparison(operator.lt),
    exp.LTE: _comparison(operator.le),
    exp.Add: _number(operator.add),
    exp.Sub: _number(operator.sub),
    exp.Mul: _number(operator.mul),
    exp.Div: _number(_quotient),
    exp.Mod: _number(_remainder),
}


def _of(kind: type[Any], change: Callable[[Any], Any]) -> Apply:
    """An operation on values of one type."""

    def apply(value: Any) -> Any:
        if not isinstance(value, kind):
            raise BeyondOracle(f"{value!r} is not of type {kind.__name__}")
        return change(value)

    return apply


_UNARY: dict[type[Any], Apply] = {
    exp.Not: _of(bool, operator.not_),
    exp.Neg: lambda value: _BINARY[exp.Sub](0, value),
    exp.Lower: _of(str, str.lower),
    exp.Upper: _of(str, str.upper),
    exp.Length: _of(str, len),
}


@lru_cache(maxsize=1000)
def compile_sql(text: str) -> Evaluate:
    """Compile Spark SQL to a function of a row."""
    if not isinstance(text, str):
        raise BeyondOracle("the oracle does not support a Column made in Python")
    evaluate = _compile(sqlglot.parse_one(text, dialect="spark"))

    def checked(row: Row) -> Any:
        try:
            return evaluate(row)
        except (ArithmeticError, LookupError, TypeError) as error:
            raise BeyondOracle(f"the oracle cannot compute {text!r}: {error!r}") from None

    return checked


def _compile(node: Any) -> Evaluate:
    match node:
        case exp.Paren():
            return _compile(node.this)
        case exp.Column():
            return _column([part.name for part in node.parts])
        case exp.Literal():
            value = node.this if node.is_string else _literal(node.this)
            return lambda _: value
        case exp.Boolean():
            truth = node.this
            return lambda _: truth
        case exp.Null():
            return lambda _: None
        case exp.Is() if isinstance(node.expression, exp.Null):
            operand = _compile(node.this)
            return lambda row: operand(row) is None
        case exp.And() | exp.Or():
            return _logic(_compile(node.left), _compile(node.right), stop=isinstance(node, exp.Or))
    if type(node) in _BINARY:
        left, right, apply = _compile(node.left), _compile(node.right), _BINARY[type(node)]
        return lambda row: _strict(apply, left(row), right(row))
    if type(node) in _UNARY:
        inner, change = _compile(node.this), _UNARY[type(node)]
        return lambda row: _strict(change, inner(row))
    return _compile_choice(node)


def _compile_choice(node: Any) -> Evaluate:
    """An expression of several others, one of which may be its value."""
    match node:
        case exp.Coalesce():
            parts = [_compile(part) for part in (node.this, *node.expressions)]
            return lambda row: next((v for p in parts if (v := p(row)) is not None), None)
        case exp.Nullif():
            given, unwanted = _compile(node.this), _compile(node.expression)
            equal = _BINARY[exp.EQ]
            return lambda row: None if _strict(equal, v := given(row), unwanted(row)) else v
        case exp.Array():
            items = [_compile(item) for item in node.expressions]
            return lambda row: [item(row) for item in items]
        case exp.In() if node.expressions:
            return _is_in(_compile(node.this), [_compile(item) for item in node.expressions])
        case exp.Case() if node.this is None:
            return _case(node)
    raise BeyondOracle(f"the oracle does not support {node.sql(dialect='spark')!r}")


def _column(path: Sequence[str]) -> Evaluate:
    """A column, or a field of a struct."""
    first, *fields = path

    def evaluate(row: Row) -> Any:
        value = row[first]
        for name in fields:
            value = None if value is None else value[name]
        return value

    return evaluate


def _literal(text: str) -> int | float | Decimal:
    if text.isdigit():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _is_in(given: Evaluate, listed: Sequence[Evaluate]) -> Evaluate:
    def evaluate(row: Row) -> bool | None:
        value = given(row)
        found = [_strict(_BINARY[exp.EQ], value, item(row)) for item in listed]
        return True if True in found else None if None in found else False

    return evaluate


def _case(node: Any) -> Evaluate:
    tests = [(_compile(one.this), _compile(one.args["true"])) for one in node.args["ifs"]]
    other = _compile(node.args.get("default") or exp.Null())

    def evaluate(row: Row) -> Any:
        made = next((made for test, made in tests if test(row) is True), other)
        return made(row)

    return evaluate


def _strict(apply: Apply, *values: Any) -> Any:
    return None if any(value is None for value in values) else apply(*values)


def _logic(left: Evaluate, right: Evaluate, *, stop: bool) -> Evaluate:
    """AND or OR with nulls: `stop` is the value that decides alone."""

    def evaluate(row: Row) -> bool | None:
        values = (left(row), right(row))
        if any(not isinstance(value, bool | None) for value in values):
            raise BeyondOracle(f"{values} are not true or false")
        if stop in values:
            return stop
        return None if None in values else not stop

    return evaluate
