"""Load applications and domains from MODULE:NAME or SQL files; errors name the user's own line."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from headrace.cli.modules import load_module
from headrace.errors import UserError
from headrace.eventsourcing import Domain
from headrace.language.sql.file import load_sql
from headrace.pipeline.app import App


def load_app(reference: str) -> App:
    """Load the application of `package.module:app`, `path/to/file.py:app` or `file.sql`.

    The current folder is searched first.
    """
    if reference.endswith(".sql"):
        return load_sql(reference)
    module_name, name = _parts(reference)
    return _app_in(load_module(module_name), reference, name)


def load_apps_and_domains(references: Sequence[str]) -> tuple[dict[str, App], dict[str, Domain]]:
    """The applications that references name, by reference, and all domains of their modules.

    A reference may name a domain too, for a module without an application.
    """
    apps: dict[str, App] = {}
    domains: dict[str, Domain] = {}
    modules: dict[str, ModuleType] = {}
    for reference in references:
        if reference.endswith(".sql"):
            apps[reference] = load_sql(reference)
            continue
        module_name, name = _parts(reference)
        if module_name not in modules:
            modules[module_name] = load_module(module_name)
        if not isinstance(getattr(modules[module_name], name, None), Domain):
            apps[reference] = _app_in(modules[module_name], reference, name)
    for module in modules.values():
        for value in vars(module).values():
            if isinstance(value, Domain) and domains.setdefault(value.name, value) is not value:
                raise UserError(
                    f"The modules have two domains {value.name!r}",
                    hint="Name modules that declare each domain once",
                )
    return apps, domains


def _parts(reference: str) -> tuple[str, str]:
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
    return module_name, name


def _app_in(module: ModuleType, reference: str, name: str) -> App:
    if not hasattr(module, name):
        raise UserError(f"{reference.rpartition(':')[0]!r} has no {name!r}", hint=_apps_of(module))
    found = getattr(module, name)
    if not isinstance(found, App):
        raise UserError(
            f"{reference!r} is of type {type(found).__name__}, not an application",
            hint=_apps_of(module),
        )
    return found


def _apps_of(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    return (
        f"It has: {', '.join(names)}"
        if names
        else "It has no application: app = headrace.App(NAME)"
    )
