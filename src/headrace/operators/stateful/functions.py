"""Which function it is that a user gave: by its name and its text, not by where it is in memory."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any


def identity_of(function: Callable[..., Any], version: str | None) -> tuple[str, str]:
    """A function's name, and what tells it from others of that name.

    That is the `version` its user gives it, or else a digest of its source, where there is one, or
    of its code. What it calls is not in it.
    """
    kind = function if inspect.isroutine(function) else type(function)
    name = getattr(kind, "__qualname__", repr(kind))
    if version is not None:
        return name, f"version {version}"
    if (own := getattr(function, "identity", None)) is not None:
        return name, str(own)
    return name, hashlib.sha256(_text_of(kind)).hexdigest()[:16]


def _text_of(kind: Any) -> bytes:
    try:
        return inspect.getsource(kind).encode()
    except (OSError, TypeError):
        code = getattr(kind, "__code__", None)
        return repr((code.co_code, code.co_consts, code.co_names) if code else kind).encode()
