"""Python names as Markdown: signatures, fields, members and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import json
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal, get_args, get_origin

from headrace.log.position import Earliest, Latest

_WIDTH = 88
_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def code(*lines: str) -> str:
    """A block of Python, marked `py` so that the tests of the pages do not run it."""
    return "\n".join(["```py", *lines, "```\n"])


def signature(name: str, function: Any, *, method: bool = False) -> str:
    """A definition in one line, or with a line per argument if it is long."""
    found = inspect.signature(function)
    known = getattr(inspect.unwrap(function), "__globals__", {})
    arguments = list(_arguments(found, known, skip=1 if method else 0))
    result = _spelled_out(_annotation(found.return_annotation), known)
    end = f" -> {result}" if result and result != "None" else ""
    line = f"{name}({', '.join(arguments)}){end}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), f"){end}"])


def _arguments(found: inspect.Signature, known: dict[str, Any], skip: int) -> Iterator[str]:
    stars = False
    shown = list(found.parameters.values())[skip:]
    for index, parameter in enumerate(shown):
        if parameter.kind is parameter.KEYWORD_ONLY and not stars:
            yield "*"
        prefix = _STARS.get(parameter.kind, "")
        stars = stars or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        text = prefix + parameter.name
        if hint := _spelled_out(_annotation(parameter.annotation), known):
            text += f": {hint}"
        if parameter.default is not parameter.empty:
            text += f" = {_default(parameter.default)}"
        yield text
        following = shown[index + 1 : index + 2]
        if parameter.kind is parameter.POSITIONAL_ONLY and (
            not following or following[0].kind is not parameter.POSITIONAL_ONLY
        ):
            yield "/"


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return "None" if text == "NoneType" else text


def _spelled_out(hint: str, known: dict[str, Any]) -> str:
    """A type with its aliases spelled out: `Emit` is Literal["updates", "final"]."""

    def spelled(found: re.Match[str]) -> str:
        value = known.get(found[0])
        if get_origin(value) is Literal:
            return f"Literal[{', '.join(map(_default, get_args(value)))}]"
        if isinstance(value, types.UnionType):
            return re.sub(r"\b(?:\w+\.)+", "", str(value))
        return found[0]

    return re.sub(r"(?<![.\w])[A-Z]\w*", spelled, hint)


def _default(value: Any) -> str:
    if isinstance(value, timedelta):
        return _span(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Earliest | Latest):
        return f"hr.{type(value).__name__.upper()}"
    if callable(value):
        return str(getattr(value, "__name__", "..."))
    # A default factory: its value differs between objects.
    return "..." if repr(value).startswith("<") else repr(value)


def _span(value: timedelta) -> str:
    """A duration as a user would write it, in the largest unit that divides it."""
    for unit in ("days", "hours", "minutes", "seconds", "milliseconds"):
        count, rest = divmod(value, timedelta(**{unit: 1}))
        if count and not rest:
            return f"timedelta({unit}={count})"
    return repr(value).removeprefix("datetime.")


def fields(kind: Any) -> str:
    """The fields of a dataclass, or the values of an enumeration, as a class."""
    lines = [f"class {kind.__name__}:"]
    texts = field_texts(kind)
    if isinstance(kind, enum.EnumType):
        values: dict[str, Any] = dict(kind.__members__)
        names = {name: f" = {_default(value.value)}" for name, value in values.items()}
    else:
        shown = [field for field in dataclasses.fields(kind) if not field.name.startswith("_")]
        known = vars(sys.modules[kind.__module__])
        hints = {field.name: _spelled_out(_annotation(field.type), known) for field in shown}
        names = {field.name: f": {hints[field.name]}{_preset(field)}" for field in shown}
    for name, rest in names.items():
        lines += [f"    # {line}" for line in textwrap.wrap(texts.get(name, ""), _WIDTH - 6)]
        lines.append(f"    {name}{rest}")
    return "\n".join(lines)


def _preset(field: dataclasses.Field[Any]) -> str:
    return "" if field.default is dataclasses.MISSING else f" = {_default(field.default)}"


def field_texts(kind: Any) -> dict[str, str]:
    """The text below each field of a class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    return _texts(tree.body)


def constant_text(module: str, name: str, value: Any) -> str:
    """The text below a constant in its module, or the docstring of its type."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return _texts(tree.body).get(name) or inspect.getdoc(type(value)) or ""


def _texts(body: list[ast.stmt]) -> dict[str, str]:
    texts: dict[str, str] = {}
    name = ""
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
            texts[name] = " ".join(str(node.value.value).split())
            name = ""
        else:
            name = ""
    return texts


def members(kind: Any) -> dict[str, Any]:
    """The public methods and properties of a class that have a docstring, its own first."""
    found: dict[str, Any] = {}
    for base in inspect.getmro(kind):
        if base.__module__.startswith("headrace."):
            for name, value in vars(base).items():
                if not name.startswith("_") and name not in found and is_member(value):
                    found[name] = value
    return {name: value for name, value in found.items() if text(getattr(kind, name))}


def is_member(value: Any) -> bool:
    return isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)


def text(value: Any) -> str:
    """A docstring, or that of the overridden method."""
    return inspect.getdoc(value) or ""


def first_sentence(words: str) -> str:
    """The first sentence of a docstring, on one line."""
    line = " ".join(words.split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=[.])\s", line, maxsplit=1)[0]
