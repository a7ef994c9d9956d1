"""Load an application from MODULE:APP or an SQL file; errors name the user's own line."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import headrace
from headrace.errors import HeadraceError, UserError
from headrace.language.sql.file import load_sql
from headrace.pipeline.app import App
from headrace.pipeline.where import Where

_OURS = str(Path(headrace.__file__).parent)


def load_app(reference: str) -> App:
    """Load the application of `package.module:app`, `path/to/file.py:app` or `file.sql`.

    The current folder is searched first.
    """
    if reference.endswith(".sql"):
        return load_sql(reference)
    module_name, colon, name = reference.rpartition(":")
    if module_name.endswith(".sql"):
        raise UserError(
            f"{reference!r} does not name an application",
            hint=f"An SQL file is one application: write {module_name}",
        )
    if not colon or not module_name or not name:
        raise UserError(
            f"{reference!r} does not name an application",
            hint="Write MODULE:APP, as in pipelines.pageviews:app or pipelines/pageviews.py:app, "
            "or an SQL file, as in pipelines/pageviews.sql",
        )
    module = _load(module_name)
    if not hasattr(module, name):
        raise UserError(f"{module_name!r} has no {name!r}", hint=_apps_of(module))
    found = getattr(module, name)
    if not isinstance(found, App):
        raise UserError(
            f"{reference!r} is of type {type(found).__name__}, not an application",
            hint=_apps_of(module),
        )
    return found


def _load(name: str) -> ModuleType:
    is_file = name.endswith(".py")
    folder = str(Path(name).resolve().parent) if is_file else str(Path.cwd())
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)
    spec = _find_file(name) if is_file else _find_module(name)
    if spec.name in sys.modules and not is_file:
        return sys.modules[spec.name]
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
    said = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    return UserError(
        f"{name!r} cannot be loaded: {said}", hint="" if where is None else f"See {where}"
    )


def _where(error: BaseException, file: str) -> Where | None:
    """The last line of the module in the traceback; else the last one outside headrace."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return Where(error.filename, error.lineno)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_OURS, "<"))
    ]
    own = [frame for frame in frames if frame.filename == file]
    chosen = (own or frames)[-1:]
    return Where(chosen[0].filename, chosen[0].lineno or 0) if chosen else None


def _apps_of(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    return (
        f"It has: {', '.join(names)}"
        if names
        else "It has no application: app = headrace.App(NAME)"
    )
