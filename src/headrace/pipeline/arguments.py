"""Arguments of declarations, checked against their annotations.

A mistake is refused with the argument, the value, the kind that is wanted, a way to write it, and
the user's own line. A class says how it is called in `noun`, how it is made in `example`, and where
it belongs in `belongs`.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from inspect import Parameter, Signature
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from headrace.errors import InvalidPipeline, InvalidSetting, UserError
from headrace.log.settings import parse_span
from headrace.pipeline.where import caller, in_python

P = ParamSpec("P")
R = TypeVar("R")

_NOUNS: dict[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    timedelta: "a timedelta",
}
_EXAMPLES: dict[Any, str] = {timedelta: "{span}", bool: "True"}
_UNITS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds")
_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Kind(NamedTuple):
    """A kind of value that has no class of its own, for `Annotated`."""

    noun: str
    example: str
    accepts: Callable[[Any], bool]


def declaration(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a function, and add the user's line to what it refuses."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            raise _miscalled(function, signature, args, kwargs) from None
        _check(function, signature, given)
        try:
            return function(*args, **kwargs)
        except UserError as error:
            where = caller()
            # Those who read SQL add its line and column.
            if in_python() and f"{where.file}:{where.line}" not in error.hint:
                error.hint = f"{_sentence(error.hint)}See {where}"
            raise

    return checked


def constructor(kind: type[R]) -> type[R]:
    """Check the arguments of a class like those of a function."""
    made: Any = kind
    made.__init__ = declaration(made.__init__)
    return kind


def _check(function: Any, signature: Signature, given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        parameter = signature.parameters[name]
        wanted = _hints(function).get(name, Any)
        if parameter.kind is Parameter.VAR_KEYWORD:
            values = list(value.items())
        elif parameter.kind is Parameter.VAR_POSITIONAL:
            values = [(name, one) for one in value]
        else:
            values = [(name, value)]
        for called, one in values:
            if not _fits(one, wanted):
                raise _wrong(function, parameter, called, one, wanted)


@functools.cache
def _hints(function: Any) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


def _fits(value: Any, wanted: Any) -> bool:
    """True if a value is of an annotated type."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted is Any or origin is tuple:
        return True  # the function looks inside of tuples
    if origin is Annotated:
        return bool(parts[1].accepts(value))
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return any(value == part and type(value) is type(part) for part in parts)
    if origin is not None:
        return _is(value, origin) and all(_fits(v, parts[-1]) for _, v in _inside(value, origin))
    if isinstance(value, bool):
        return wanted is bool
    if wanted is float:
        return isinstance(value, int | float)
    if not getattr(value, "stands_for_stream", True):
        return wanted is type(value)
    return isinstance(value, wanted)


def _is(value: Any, origin: Any) -> bool:
    """True if a value is a sequence, mapping or function; text is no sequence."""
    return isinstance(value, origin) and not (isinstance(value, str | bytes))


def _inside(value: Any, origin: Any) -> Iterator[tuple[Any, Any]]:
    """The values in a mapping or sequence, by key or index."""
    if issubclass(origin, Mapping):
        yield from value.items()
    elif issubclass(origin, Sequence):
        yield from enumerate(value)


def _wrong(
    function: Any, parameter: Parameter, name: str, value: Any, wanted: Any
) -> InvalidPipeline:
    """The error for a value of another kind."""
    for part in _parts(wanted):  # name the wrong one in a list, not the list
        origin = get_origin(part)
        if origin not in (None, Literal, Annotated, tuple) and _is(value, origin):
            for key, one in _inside(value, origin):
                if not _fits(one, inner := get_args(part)[-1]):
                    return _wrong(function, parameter, f"{name}[{key!r}]", one, inner)
    choices = [choice for part in _parts(wanted) for choice in _choices(part)]
    words = _or(noun for part in _parts(wanted) for noun in _nouns(part))
    if isinstance(value, str) and choices:
        near = difflib.get_close_matches(value, choices, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Use {words}"
        return _refused(f"{name} cannot be {value!r}", hint, name)
    said, fix = _shown(value), _fix(value, wanted)
    hint = f"Write {fix}" if fix else ""
    if name == parameter.name and parameter.kind in (*_BY_PLACE, Parameter.VAR_POSITIONAL):
        message = f"{_called(function)} needs {words}"
        message += "" if words.endswith(name.rstrip("s")) else f" for `{name}`"
    else:
        message = f"{name} must be {words}"
        hint = f"Write {name}={fix}" if fix and "[" not in name else hint
    if parameter.kind is Parameter.VAR_POSITIONAL and isinstance(value, list):
        hint = "Leave out the brackets"
    return _refused(f"{message}, not {said}", getattr(value, "belongs", hint), name)


def _refused(message: str, hint: str, argument: str) -> InvalidPipeline:
    return InvalidPipeline(message, hint=f"{_sentence(hint)}See {caller()}", argument=argument)


def _sentence(hint: str) -> str:
    """A hint that another sentence can follow."""
    return hint and hint + (" " if hint[-1] in ".?" else ". ")


def _called(function: Any) -> str:
    """A function as it is called; a constructor has the name of its class."""
    return f"{function.__qualname__.removesuffix('.__init__').rpartition('.')[2]}()"


def _parts(wanted: Any) -> list[Any]:
    """The types of a union, without None."""
    union = get_origin(wanted) in (Union, types.UnionType)
    return [part for part in (get_args(wanted) if union else (wanted,)) if part is not type(None)]


def _choices(wanted: Any) -> list[str]:
    return [str(one) for one in get_args(wanted)] if get_origin(wanted) is Literal else []


def _or(words: Iterator[str]) -> str:
    *most, last = dict.fromkeys(words)
    return f"{', '.join(most)} or {last}" if most else last


def _nouns(wanted: Any) -> list[str]:
    literal = get_origin(wanted) is Literal
    return [repr(one) for one in get_args(wanted)] if literal else [_noun(wanted)]


def _noun(wanted: Any) -> str:
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        return str(parts[1].noun)
    if origin is not None and issubclass(origin, Mapping):
        return "a dict"
    if origin is not None and issubclass(origin, Sequence):
        return "a list of strings" if parts == (str,) else "a list"
    if origin is not None:
        return "a function"
    return _NOUNS.get(wanted) or getattr(wanted, "noun", None) or f"a {wanted.__name__}"


def _shown(value: Any) -> str:
    """A given value, short enough for a message."""
    if isinstance(value, timedelta):
        return _span(value)
    if callable(value):
        kind = "class" if isinstance(value, type) else "function"
        return f"the {kind} {getattr(value, '__name__', value)}"
    if noun := getattr(value, "noun", None):
        return str(noun)
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def _fix(value: Any, wanted: Any) -> str:
    """The nearest value that fits; empty if there is none."""
    if callable(value) and getattr(value, "__module__", "").startswith("headrace."):
        needed = [p for p in inspect.signature(value).parameters.values() if p.default is p.empty]
        return f"hr.{value.__name__}({'...' if needed else ''})"
    example = next(filter(None, map(_example, _parts(wanted))), "")
    number = isinstance(value, int | float)
    if "{value}" in example and not number:
        return ""
    span = timedelta(seconds=value) if number and not isinstance(value, bool) else value
    if isinstance(value, str):
        with contextlib.suppress(InvalidSetting):
            span = parse_span(value)
    span = span if isinstance(span, timedelta) else timedelta(minutes=1)
    return example.replace("{span}", _span(span)).replace("{value}", str(value).lower())


def _example(wanted: Any) -> str:
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        return str(parts[1].example)
    if origin is not None and origin is not Literal and issubclass(origin, Mapping):
        inner = next(filter(None, map(_example, _parts(parts[-1]))), "...")
        return f"{{'name': {inner}}}"
    return str(_EXAMPLES.get(wanted) or getattr(wanted, "example", ""))


def _span(value: timedelta) -> str:
    """A timedelta as it is written, in the largest unit that divides it."""
    for unit in _UNITS:
        number, rest = divmod(value, timedelta(**{unit: 1}))
        if number and not rest:
            return f"timedelta({unit}={number})"
    return "timedelta(0)"


def _miscalled(
    function: Any, signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> InvalidPipeline:
    """The error for arguments that are missing, unknown or too many."""
    called = {name: p for name, p in signature.parameters.items() if name != "self"}
    by_place = [name for name, p in called.items() if p.kind in _BY_PLACE]
    named = [name for name, p in called.items() if p.kind is Parameter.KEYWORD_ONLY]
    given = {*kwargs, *by_place[: len(args) - ("self" in signature.parameters)]}
    needed = [n for n in (*by_place, *named) if called[n].default is Parameter.empty]
    missing = [name for name in needed if name not in given]
    for name in kwargs:
        near = difflib.get_close_matches(name, [n for n in called if n not in given], 1)
        if name not in called and (near or not missing):
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(called)}"
            return _refused(f"{_called(function)} has no argument {name!r}", hint, name)
    if missing:
        fixes = {name: _fix(None, _hints(function).get(name, Any)) for name in missing}
        hint = ", ".join(f"{name}={fix}" for name, fix in fixes.items() if fix)
        message = f"{_called(function)} needs {' and '.join(f'`{name}`' for name in missing)}"
        return _refused(message, f"Write {hint}" if hint else "", missing[0])
    number = f"{len(by_place)} argument{'s' * (len(by_place) != 1)}"
    hint = f"Name the others: {', '.join(named)}" if named else ""
    return _refused(f"{_called(function)} takes {number} without a name", hint, "")
