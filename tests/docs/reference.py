"""The generated pages of docs/reference: commands, Python, settings, errors.

`scripts/reference` writes them. A test fails when they are out of date.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from pathlib import Path
from typing import Any

import typer.main

from headrace import errors
from headrace.cli.main import COMMANDS, app
from headrace.log.settings import TopicSettings
from tests.docs import api
from tests.docs.signatures import code, field_texts, signature
from tests.unit.mistakes import DECLARED, mistakes

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
_NOTE = "<!-- Made from the code by scripts/reference. -->\n\n"


FILES = ("cli.md", "errors.md", "mistakes.md", "settings.md", *api.FILES)
"""The generated pages."""


@functools.cache
def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    return {
        "cli.md": _NOTE + _commands(),
        "errors.md": _NOTE + _errors(),
        "mistakes.md": _NOTE + _mistakes(),
        "settings.md": _NOTE + _settings(),
        **{file: _NOTE + text for file, text in api.pages().items()},
    }


def _commands() -> str:
    root: Any = typer.main.get_command(app)
    lines = [
        "# Commands\n",
        "Errors go to standard error and say what to do next. A mistake in the command or its "
        "input exits with 2, any other failure with 1. `--json` prints JSON on standard output, "
        "and nothing else.\n",
    ]
    for name in sorted(COMMANDS):
        _describe(root.get_command(typer.Context(root), name), f"headrace {name}", lines)
    return "\n".join(lines)


def _describe(command: Any, name: str, lines: list[str]) -> None:
    # Typer bundles its own click, whose classes are private.
    if hasattr(command, "commands"):
        for child in sorted(command.commands):
            _describe(command.commands[child], f"{name} {child}", lines)
        return
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    lines += [f"## {name}\n", f"    {name} {usage}\n", f"{inspect.cleandoc(command.help or '')}\n"]
    rows = []
    for parameter in command.params:
        if parameter.param_type_name == "option":
            names = ", ".join(f"`{n}`" for n in (*parameter.opts, *parameter.secondary_opts))
            text = " ".join((parameter.help or "").split()).replace("|", "\\|")
            rows.append(f"| {names} | {text} |")
    if rows:
        lines += ["| option | |", "|---|---|", *rows, ""]


def _settings() -> str:
    """A table of the topic settings, each with the text below its field."""
    texts = field_texts(TopicSettings)
    default = TopicSettings().to_text()
    lines = [
        "# Topic settings\n",
        "Set them with `headrace topics create NAME --set retention=7d` or `topics alter`, or in "
        "Python with `settings={...}`. Durations are written 500ms, 30s, 10m, 12h or 7d; sizes "
        "1000, 64KiB, 1MiB or 2GiB; `none` is without limit.\n",
        "| setting | default | |",
        "|---|---|---|",
    ]
    for field in dataclasses.fields(TopicSettings):
        lines.append(f"| `{field.name}` | {default[field.name]} | {texts[field.name]} |")
    return "\n".join([*lines, ""])


def _errors() -> str:
    tree = inspect.cleandoc(errors.__doc__ or "")
    body = tree.split("\n\n")
    lines = ["# Errors\n", body[0] + "\n", "```text", inspect.cleandoc(body[1]), "```\n", *body[2:]]
    base = errors.HeadraceError
    lines += [
        "\n## class `HeadraceError`\n",
        code(
            "from headrace.errors import HeadraceError\n",
            signature("class HeadraceError", base.__init__, method=True),
        ),
        f"{inspect.getdoc(base)}\n",
        "## Every error\n",
        "| in `headrace.errors` | |",
        "|---|---|",
    ]
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, base) and kind is not base:
            lines.append(f"| `{name}` | {' '.join((inspect.getdoc(kind) or '').split())} |")
    return "\n".join([*lines, ""])


def _mistakes() -> str:
    """The table of mistakes, each with its error as the command line prints it."""
    lines = [
        "# Mistakes and their errors\n",
        "A mistake in a declaration is found when Python runs that line, before Spark starts. The "
        "error names the line, the wrong value and the nearest fix. Each example below is a line "
        "after these declarations, and the error that it raises. A test compares them.\n",
        code(DECLARED.strip()),
    ]
    for mistake in mistakes():
        lines += [code(mistake.code), f"```text\n{mistake.error}: {mistake.text}\n```\n"]
    return "\n".join(lines)


if __name__ == "__main__":
    for file, text in pages().items():
        (FOLDER / file).parent.mkdir(exist_ok=True)
        (FOLDER / file).write_text(text)
