"""Load a user's module; errors name the user's own line."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import headrace
from headrace.errors import HeadraceError, UserError
from headrace.pipeline.where import Where

_OURS = str(Path(headrace.__file__).parent)
_LIBRARIES = (_OURS, "<", *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))


def load_function(reference: str, *, again: bool = True) -> Callable[..., Any]:
    """Load the function of `package.module:function` or `path/to/file.py:function`.

    The current folder is searched first. `again` is that of `load_module`.
    """
    module_name, colon, name = reference.rpartition(":")
    if not colon or not module_name or not name:
        raise UserError(
            f"{reference!r} does not name a function",
            hint="Write MODULE:FUNCTION, as in tasks:send or jobs/tasks.py:send",
        )
    module = load_module(module_name, again=again)
    found = getattr(module, name, None)
    if not callable(found):
        names = [
            known
            for known, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", None) == module.__name__
        ]
        raise UserError(
            f"{module_name!r} has no function {name!r}",
            hint=f"It has: {', '.join(names)}" if names else "It has no functions",
        )
    function: Callable[..., Any] = found
    return function


@contextlib.contextmanager
def users_failures() -> Iterator[None]:
    """Translate what a function of the user's raises; the error names its line."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        where = _where(error, "", beside=_LIBRARIES)
        if where is None:
            raise
        raise UserError(f"Your code failed: {_said(error)}", hint=f"See {where}") from error


def load_module(name: str, *, again: bool = True) -> ModuleType:
    """Load a module by its name or its file.

    A file is loaded again each time, unless `again` is False: then what was loaded from it before
    has the same classes.
    """
    is_file = name.endswith(".py")
    folder = str(Path(name).resolve().parent) if is_file else str(Path.cwd())
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)
    spec = _find_file(name) if is_file else _find_module(name)
    known = sys.modules.get(spec.name)
    if known is not None and (not is_file or (not again and known.__file__ == spec.origin)):
        return known
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise _explained(error, name, spec.origin or "") from error
    return module


def _find_file(name: str) -> ModuleSpec:
    path = Path(name).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None:
        raise UserError(f"There is no file {name}", hint=f"Looked in {Path.cwd()}")
    return spec


def _find_module(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise _explained(error, name, "") from error
        spec = None
    except (Exception, SystemExit) as error:  # raised by a parent package
        raise _explained(error, name, "") from error
    if spec is None:
        raise UserError(
            f"There is no module {name!r}",
            hint=f"Looked in {Path.cwd()} and among the installed packages. For a file, give "
            "its path: pipelines/pageviews.py:app",
        )
    if spec.loader is None or spec.origin is None:
        raise UserError(f"{name!r} is a folder, not a module", hint="Name a module in it")
    return spec


def _explained(error: BaseException, name: str, file: str) -> HeadraceError:
    """The error that a module raised, with its line."""
    where = _where(error, file)
    if isinstance(error, HeadraceError):
        if where is None or str(where) in error.hint:
            return error
        hint = f"{error.hint}\nSee {where}" if error.hint else f"See {where}"
        return type(error)(error.message, hint=hint, **error.details)
    return UserError(
        f"{name!r} cannot be loaded: {_said(error)}", hint="" if where is None else f"See {where}"
    )


def _said(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]


def _where(
    error: BaseException, file: str, *, beside: tuple[str, ...] = (_OURS, "<")
) -> Where | None:
    """The last line of the module in the traceback; else the last one outside headrace."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return Where(error.filename, error.lineno)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(beside)
    ]
    own = [frame for frame in frames if frame.filename == file]
    chosen = (own or frames)[-1:]
    return Where(chosen[0].filename, chosen[0].lineno or 0) if chosen else None
