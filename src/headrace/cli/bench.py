"""`headrace bench`: measure the performance claims of this project on your machine."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import headrace
from headrace.cli.failures import say
from headrace.cli.options import AsJson, new_app
from headrace.cli.output import plain, show, show_json, table
from headrace.errors import UserError

app = new_app()

Run = Callable[..., dict[str, Any]]


@app.command()
def bench(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A file in bench/, such as log.", show_default=False),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Measure less, as a smoke test.")] = False,
    json: AsJson = False,
) -> None:
    """Run a benchmark from a source checkout.

    The ratio compares headrace with the baseline of the same run. Above 1, headrace is better, for
    times too.
    """
    run = _load(name)
    arguments: dict[str, Any] = {"quick": quick}
    if "progress" in inspect.signature(run).parameters:
        arguments["progress"] = say
    measured = run(**arguments)
    if json:
        show_json(measured)
    else:
        _show(measured)


def _load(name: str) -> Run:
    folder = _folder()
    files = [path for path in folder.glob("*.py") if "\ndef run(" in path.read_text()]
    known = sorted(path.stem.replace("_", "-") for path in files)
    if name not in known:
        raise UserError(
            f"There is no benchmark {name!r}", hint=f"There are: {', '.join(known) or 'none'}"
        )
    name = name.replace("-", "_")
    # As part of the package `bench`, so that it can import its neighbours.
    if str(folder.parent) not in sys.path:
        sys.path.insert(0, str(folder.parent))
    spec = importlib.util.spec_from_file_location(f"bench.{name}", folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # child processes and dataclasses look for it here
    spec.loader.exec_module(module)
    run: Run = module.run
    return run


def _folder() -> Path:
    """The folder bench/ beside src/, if the package runs from a source checkout."""
    root = Path(headrace.__file__).resolve().parents[2]
    if not (root / "pyproject.toml").exists() or not (root / "bench").is_dir():
        raise UserError(
            "The benchmarks are not part of the installed package",
            hint="Run this in a source checkout of headrace, installed with make setup",
        )
    return root / "bench"


def _show(measured: dict[str, Any]) -> None:
    settings = ", ".join(f"{name}={value}" for name, value in measured["settings"].items())
    lines = table(
        "name", ">value", "unit", "baseline", ">baseline value", ">ratio", title=measured["bench"]
    )
    for result in measured["results"]:
        ratio = result.get("ratio")
        lines.add_row(
            plain(result["name"]),
            _number(result["value"]),
            plain(result.get("unit") or ""),
            plain(result.get("baseline") or "-"),
            _number(result.get("baseline_value")),
            plain("-" if ratio is None else f"{ratio:.2f}", _style(ratio)),
        )
    show(lines)
    if settings:
        show("", plain(settings, "dim"))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _style(ratio: float | None) -> str:
    if ratio is None:
        return "dim"
    return "green" if ratio >= 1 else "red"
