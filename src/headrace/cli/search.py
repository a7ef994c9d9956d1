"""`headrace search`: find rows of a view by the words in them."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, new_app
from headrace.cli.output import plain, show, show_json, table
from headrace.cli.view_tables import row_json

app = new_app()


@app.command()
def search(
    view: Annotated[
        str,
        typer.Argument(
            metavar="VIEW", help="The view, or APP.VIEW if several have it.", show_default=False
        ),
    ],
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help='Words to search for: blue shoe, "blue shoe", sho*, title:shoe, red OR blue, '
            "shoe -suede.",
            show_default=False,
        ),
    ],
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of rows.")
    ] = 20,
    of: Annotated[
        str | None,
        typer.Option("--app", metavar="APP", help="Only the indexes of this application."),
    ] = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Search a view that has a search index, app.view(..., store="search:"), best matches first.

    A row has to have all words; -word excludes rows. With --json, one object per row: score,
    snippet and row.
    """
    from headrace.store.search import open_search

    # A word in front of which there is a dash is no option of ours: "--" ends the options.
    with open_search(view, log, app=of) as index:
        found = index.search(text, limit=limit, marks=("[", "]"))
    if json:
        for hit in found.hits:
            show_json({"score": hit.score, "snippet": hit.snippet, "row": row_json(hit.row)})
        return
    if not found.hits:
        say(f"No row of {view} has these words")
        return
    names = [name for name in found.hits[0].row if name != "revision"]
    lines = table(">score", "found", *names)
    for hit in found.hits:
        cells = row_json(hit.row)
        lines.add_row(
            f"{hit.score:.2f}",
            plain(hit.snippet, "bold"),
            *(plain("" if cells[name] is None else str(cells[name])) for name in names),
        )
    show(lines)
    if found.more:
        say(f"There are more: --limit {limit * 2} shows more of them")
