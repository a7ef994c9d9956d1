"""`headrace studio`: the web app that shows a log, its pipelines and their views."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app
from headrace.cli.output import show_json
from headrace.errors import MissingExtra

app = new_app()


@app.command()
def studio(
    references: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODULE:APP|FILE.sql]...",
            help="Applications that can be started from the page. No others can. Domains of events "
            "that their modules declare are shown; MODULE:DOMAIN names one without an application.",
            show_default=False,
        ),
    ] = None,
    *,
    log: LogUrl = DEFAULT_LOG,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port. 0 takes a free one.")
    ] = 8787,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on.", show_default=True)
    ] = "127.0.0.1",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse everything that changes something.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show a log and its pipelines in a browser, and learn streaming from simulations.

    The printed address has a token, without which nothing is answered. Ctrl-C stops the studio and
    the applications that it started.
    """
    require_studio()
    from headrace.cli.loading import load_apps_and_domains
    from headrace.studio.server import serve
    from headrace.studio.settings import StudioSettings

    if host not in ("127.0.0.1", "localhost", "::1"):
        say(f"warning: other machines can reach {host}, and the connection is not encrypted")
    apps, domains = load_apps_and_domains(references or ())
    declared = {found.name: found for found in apps.values()}
    serve(
        StudioSettings(log, tuple(apps), host, port, read_only, declared=declared, domains=domains),
        started=lambda address: (
            show_json({"address": address}) if json else say(f"The studio is at {address}")
        ),
        browser=browser,
    )


def require_studio() -> None:
    """Raise if the packages of the studio are not installed."""
    for name in ("fastapi", "htpy", "multipart", "uvicorn", "websockets"):
        if importlib.util.find_spec(name) is None:
            raise MissingExtra(
                f"The studio needs {name}, which is not installed",
                hint="pip install 'headrace[studio]'",
            )
