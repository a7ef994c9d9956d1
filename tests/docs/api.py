"""The reference of the Python names, by theme. `scripts/reference` writes it."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from dataclasses import dataclass
from typing import Any

import headrace
from headrace.pipeline.stream import Stream
from tests.docs import signatures
from tests.docs.links import anchor
from tests.docs.signatures import code, first_sentence, text

_EVENTSOURCING = "headrace.eventsourcing."


@dataclass(frozen=True)
class Theme:
    """A page: its subject, and its names in reading order.

    A name with a dot is in that module; the others are in `headrace`, and are written `hr.NAME`.
    """

    title: str
    opening: str
    names: str

    def all(self) -> list[str]:
        return self.names.split()


def _of_eventsourcing(names: str) -> str:
    return " ".join(_EVENTSOURCING + name for name in names.split())


THEMES: dict[str, Theme] = {
    "log": Theme(
        "The log",
        "Topics, producers and consumers. None of this needs Spark. "
        "[Kinds of log](../logs.md) says what Kafka lacks.",
        "open_log Log Topic TopicSettings Producer Transaction Receipt Consumer Record Batch "
        "EARLIEST LATEST Offset Commit Time once_by Capability",
    ),
    "pipeline": Theme(
        "Declare a pipeline",
        "An application and the steps that its streams go through. A declaration runs nothing "
        "and needs no Spark. An `Expression` is text in Spark SQL, or a callable that returns a "
        "Spark `Column`.",
        "App Stream filter select derive rekey explode merge split deduplicate Deduplicated "
        "stateful Stateful alerts Alerts rule Rule pattern sql load_sql",
    ),
    "time": Theme(
        "Windows and time",
        "Windows of event time, and how late a row may be. Concepts: [windows](../../concepts/"
        "windows.md), [watermarks](../../concepts/watermarks.md), [late events](../../concepts/"
        "late-events.md).",
        "tumbling hopping cumulative sliding session running FOREVER Lateness suggest_lateness "
        "Disorder ArrivalTimeWarning Window Cumulative Sliding Session",
    ),
    "joins": Theme(
        "Joins and tables",
        "Streams joined with streams, looked up in tables, and tables joined with tables. "
        "Concept: [joins](../../concepts/joins.md).",
        "join Join table Table enrich Enriched remote Remote join_tables TableJoin",
    ),
    "aggregates": Theme(
        "Aggregates",
        "What is computed for each key and window. The argument `of` is an expression in Spark "
        "SQL, such as a column.",
        "aggregate Aggregation count sum average min max first last distinct approx_distinct "
        "approx_top quantile expression top Top rollup cube grouping_sets GroupingSets",
    ),
    "run": Theme(
        "Run",
        "Run an application from Python; `headrace run` does the same from the command line. "
        "These names load Spark.",
        "run start Run headrace.runtime.task.StepProgress LogRange BatchResult drain preflight "
        "Preflight StepCheck rebuild Rebuild Rebuilt Diff verify Verified "
        "headrace.application.verify.result.HopResult "
        "headrace.application.verify.result.Difference headrace.application.verify.result.Write "
        "headrace.plan.source_options.BatchLimits "
        "headrace.runtime.session.SparkSettings headrace.runtime.realtime.settings.RealTime",
    ),
    "show": Theme(
        "Show",
        "Look at the rows of a step while you write it; `headrace show` does the same from the "
        "command line. [Develop in a notebook](../../how-to/develop-in-a-notebook.md) shows it at "
        "work.",
        "show Shown",
    ),
    "results": Theme(
        "Read results",
        "Views are tables that applications keep. Reading them needs no Spark, and does not "
        "disturb a run.",
        "open_views wait_for Views headrace.store.sqlite.reading.ViewState "
        "headrace.store.sqlite.result.Result headrace.plan.law.Law",
    ),
    "stores": Theme(
        "Stores",
        "Places for a view beside SQLite: `app.view(..., store=...)`, and what a store of your own "
        "has to do.",
        "Search open_search SearchIndex headrace.store.search.Found headrace.store.search.Hit "
        "Postgres Redis Delta OpenSearch Store StoreTable StoredView Changes StorePosition "
        "headrace.store.suite.StoreSuite",
    ),
    "eventsourcing": Theme(
        "Event sourcing",
        "Events, commands and the functions between them, in `headrace.eventsourcing`. None of "
        "this needs Spark. Concept: [event sourcing](../../concepts/event-sourcing.md).",
        _of_eventsourcing(
            "event command aggregate refuse Domain Store Handled Refused Refusal Loaded Change "
            "StoredEvent StoredCommand Difference decision match to Addressed rename default "
            "drop split merge retype upcast process send send_across timeout cancel "
            "CommandRefused TimedOut Process Runner KeyStore Forgotten hidden SEALED FORGOTTEN"
        ),
    ),
    "testing": Theme(
        "Test",
        "Tools for your own tests, in `headrace.testing`. "
        "[Test a pipeline](../../how-to/test-a-pipeline.md) shows them at work.",
        "headrace.testing.scripted_log headrace.testing.ScriptedLog headrace.testing.Results "
        "headrace.testing.crash_at headrace.testing.kill_at headrace.testing.Crash "
        "headrace.testing.POINTS headrace.testing.REBUILD_POINTS "
        "headrace.testing.meaning headrace.testing.events_of",
    ),
}

FILES = ("python/README.md", *(f"python/{file}.md" for file in THEMES))
"""File names of the pages, known without importing their subjects, which would load Spark."""

_CONSTRUCTED = {
    "App", "BatchLimits", "Commit", "Domain", "KeyStore", "Lateness", "LogRange", "Offset",
    "RealTime", "Rebuild", "Search", "SparkSettings", "Time", "TopicSettings",
}  # fmt: skip
"""Classes that users call. Functions create the others, and their pages show those functions."""

_CONSTANTS = {
    "FOREVER": "headrace.operators.window.windows",
    "FORGOTTEN": "headrace.eventsourcing.personal",
    "SEALED": "headrace.eventsourcing.personal",
}
"""The modules of constants of Python's own types."""

_OF_DECLARATIONS = ("late", "show")
"""Members of streams, tables and windows that users need. The others are for operators."""

_INTERNAL = {
    "Domain.command_type", "Domain.decider", "Domain.event_type", "Domain.type_of_command",
    "Domain.type_of_event", "KeyStore.check_apart", "KeyStore.forgets", "Log.check_there",
    "Log.lacks", "Log.require", "Log.rollbacks", "Log.topic_ids",
}  # fmt: skip
"""Members for implementations and the runtime."""


def pages() -> dict[str, str]:
    """The index and a page for each theme, by file name."""
    written = {f"python/{file}.md": _page(theme, _places(file)) for file, theme in THEMES.items()}
    return {"python/README.md": _index(), **written}


def _index() -> str:
    lines = [
        "# Python\n",
        "All public names, by theme. `import headrace as hr` loads a name when it is first used: "
        "the log and the declarations need no Spark.\n",
    ]
    for file, theme in THEMES.items():
        lines += [f"## [{theme.title}]({file}.md)\n", "| name | |", "|---|---|"]
        for name in theme.all():
            _, value = _find(name)
            words = first_sentence(_words(name, value)).replace("|", "\\|")
            lines.append(f"| [`{_called(name)}`]({file}.md#{anchor(_heading(name))}) | {words} |")
        lines.append("")
    lines += [
        "## [Errors](../errors.md)\n",
        "Every error is in `headrace.errors`, a `HeadraceError`, and has a `message`, a `hint` and "
        "`details`.\n",
    ]
    return "\n".join(lines)


def _page(theme: Theme, places: dict[str, str]) -> str:
    lines = [f"# {theme.title}\n", theme.opening + "\n"]
    for name in theme.all():
        lines += [f"## {_heading(name)}\n", *_entry(name, places)]
    return "\n".join(lines)


def _entry(name: str, places: dict[str, str]) -> list[str]:
    module, value = _find(name)
    short = name.rpartition(".")[2]
    about = _linked(_words(name, value), places, short) + "\n"
    if not inspect.isclass(value):
        shown = (
            signatures.signature(_called(name), value)
            if inspect.isfunction(value)
            else f"{_called(name)} = {_constant(value)}"
        )
        return [code(*_imported(module, short), shown), about]
    lines = [code(*_imported(module, short), *_class(short, value)), about]
    declared = issubclass(value, Stream) or value.__module__.startswith("headrace.operators.")
    for member in signatures.members(value):
        useful = not declared or member in _OF_DECLARATIONS
        if useful and f"{short}.{member}" not in _INTERNAL:
            lines += _member(short, member, value, places)
    return lines


def _class(short: str, value: Any) -> list[str]:
    made = short in _CONSTRUCTED
    if isinstance(value, enum.EnumType):
        return [signatures.fields(value)]
    if dataclasses.is_dataclass(value) and (made or _is_result(value)):
        return [signatures.fields(value)]
    if made:
        return [signatures.signature(f"class {short}", value.__init__, method=True)]
    known = (Stream, UserWarning, BaseException)
    base = next((f"({kind.__name__})" for kind in value.__mro__[1:] if kind in known), "")
    return [f"class {short}{base}"]


def _is_result(value: Any) -> bool:
    """True for plain values that users get, and false for parts of declarations."""
    return not value.__module__.startswith(
        ("headrace.operators.", "headrace.pipeline.", "headrace.eventsourcing.processes.declare")
    )


def _member(owner: str, name: str, kind: Any, places: dict[str, str]) -> list[str]:
    value = inspect.getattr_static(kind, name)
    about = _linked(text(getattr(kind, name)), places, owner)
    if isinstance(value, property):
        hint = inspect.signature(value.fget).return_annotation if value.fget else ""
        shown = f"{name}: {hint}"
    else:
        function = getattr(value, "__func__", value)
        shown = signatures.signature(name, function, method=not isinstance(value, staticmethod))
    return [f"### `{owner}.{name}`\n", code(shown), about + "\n"]


def _find(name: str) -> tuple[str, Any]:
    """The module to import a name from, and its value."""
    module, _, short = name.rpartition(".")
    found = importlib.import_module(module) if module else headrace
    return module, getattr(found, short)


def _words(name: str, value: Any) -> str:
    if inspect.isclass(value) or inspect.isfunction(value):
        return text(value)
    module = _CONSTANTS.get(name.rpartition(".")[2], type(value).__module__)
    if name.endswith("POINTS"):
        module = "headrace.plan.crash_points"
    return signatures.constant_text(module, name.rpartition(".")[2], value)


def _constant(value: Any) -> str:
    return repr(value).removeprefix("datetime.")


def _imported(module: str, short: str) -> list[str]:
    return [f"from {module} import {short}\n"] if f"{module}." not in (".", _EVENTSOURCING) else []


def _called(name: str) -> str:
    if name.startswith(_EVENTSOURCING):
        return f"es.{name.removeprefix(_EVENTSOURCING)}"
    return name.rpartition(".")[2] if "." in name else f"hr.{name}"


def _heading(name: str) -> str:
    """A heading with a unique anchor: `hr.Table` and `hr.table` would share one."""
    _, value = _find(name)
    return f"{'class ' if inspect.isclass(value) else ''}`{_called(name)}`"


def _places(page: str) -> dict[str, str]:
    """Link targets of the names that docstrings of a page may link to, except common words.

    Names of event sourcing, such as `Store`, mean others elsewhere.
    """
    places = {}
    for file, theme in THEMES.items():
        if file == "eventsourcing" != page:
            continue
        for name in theme.all():
            short = name.rpartition(".")[2]
            if short[0].isupper() or "_" in short:
                places[short] = f"{file}.md#{anchor(_heading(name))}"
    return places


def _linked(words: str, places: dict[str, str], own: str) -> str:
    def link(found: re.Match[str]) -> str:
        name = found[1].removeprefix("hr.")
        known = name != own and name in places
        return f"[{found[0]}]({places[name]})" if known else found[0]

    return re.sub(r"`([\w.]+)`", link, words)
