"""The pages of docs/reference that are made from the code: commands, settings, errors.

`scripts/reference` writes them. A test fails when they are out of date.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from pathlib import Path
from typing import Any

import typer.main

from headrace import errors
from headrace.cli.main import COMMANDS, app
from headrace.log.settings import TopicSettings

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
_NOTE = "<!-- Made from the code by scripts/reference. -->\n\n"


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    return {
        "cli.md": _NOTE + _commands(),
        "errors.md": _NOTE + _errors(),
        "settings.md": _NOTE + _settings(),
    }


def _commands() -> str:
    root: Any = typer.main.get_command(app)
    lines = [
        "# Commands\n",
        "Errors go to standard error and say what to do next. A mistake in what was asked for "
        "exits with 2, any other failure with 1. `--json` prints JSON on standard output, and "
        "nothing else.\n",
    ]
    for name in sorted(COMMANDS):
        _describe(root.get_command(typer.Context(root), name), f"headrace {name}", lines)
    return "\n".join(lines)


def _describe(command: Any, name: str, lines: list[str]) -> None:
    # Typer brings a click of its own, whose classes are private to it.
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
    """A table of the topic settings; what each means is the text below it in the class."""
    tree = ast.parse(inspect.getsource(TopicSettings)).body[0]
    assert isinstance(tree, ast.ClassDef)
    texts: dict[str, str] = {}
    name = ""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
            texts[name] = " ".join(str(node.value.value).split())
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
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    for file, text in pages().items():
        (FOLDER / file).write_text(text)
