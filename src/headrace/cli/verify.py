"""`headrace verify`: compare views with what they are derived from, and with their stores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import spark_options as spark
from headrace.cli.asked import Asked
from headrace.cli.failures import say
from headrace.cli.loading import load_app
from headrace.cli.options import DEFAULT_LOG, AppLogUrl, AsJson, new_app
from headrace.cli.output import err, show_json
from headrace.cli.verify_tables import show_verified, told, verified_json
from headrace.clock import SECOND, SystemClock, micros
from headrace.errors import InvalidSetting, UnknownView, UserError
from headrace.log.settings import parse_span
from headrace.wording import count, span

if TYPE_CHECKING:
    from headrace.application.verify.result import Verified
    from headrace.pipeline.app import App

app = new_app()

_LOOK = SECOND // 4
_LOOKS = 20
"""The number of looks at changes while everything is compared once."""


@app.command()
def verify(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:APP|VIEW",
            help="The application, as in pipelines.catalog:app; or a view that was verified before",
            show_default=False,
        ),
    ],
    view: Annotated[
        str | None,
        typer.Argument(metavar="[VIEW]", help="Only this view.", show_default=False),
    ] = None,
    *,
    changed: Annotated[
        bool,
        typer.Option(
            "--changed",
            help="Compare only rows changed since the last time, or that differed then.",
        ),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Mend what differs by a commit that every store follows."),
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Go on until Ctrl-C: compare everything once in that time (30m, 6h), slowly, "
            "and what has changed in between.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Rows to show of each hop.")
    ] = 20,
    log: AppLogUrl = None,
    cores: spark.Cores = 0,
    memory: spark.Memory = "2g",
    json: AsJson = False,
) -> None:
    """Compare views with what they are derived from, and with their stores.

    Each hop is compared by itself: a captured table with its topic, the topic with the view, the
    view with each store. Any other view is compared with a recomputation by Spark. Everything may
    be running meanwhile: rows that are on their way are no differences. The exit code is 1 if rows
    differ or a hop could not be compared. With --json, one object per view.
    """
    spark.check_memory(memory)
    period = None if every is None else _period(every, changed=changed)
    reference, view, url = _resolved(reference, view, log)
    declared = load_app(reference)
    url = url or declared.log or DEFAULT_LOG
    # Imported here, since it loads Arrow and Spark's modules.
    from headrace.application.verify.result import keep
    from headrace.application.verify.verify import Verification

    with (
        _progress() as tell,
        Verification(
            declared,
            url,
            limit=limit,
            duty=1.0 if period is None else 0.5,
            settings=spark.settings_of(cores, memory, 0, "memory", True, ""),
            tell=tell,
        ) as verification,
    ):
        views = _views(declared, view)

        def look(*, changed: bool) -> Iterator[Verified]:
            for name in views:
                found = verification.verify(name, changed=changed, repair=repair)
                keep(verification.log.home, found, reference)
                yield found

        if period is not None:
            raise typer.Exit(_repeat(look, period, json=json))
        results = []
        for found in look(changed=changed):
            results.append(found)
            _show(found, json=json)
        if not all(found.proven for found in results):
            raise typer.Exit(1)


def _repeat(look: Callable[..., Iterator[Verified]], period: int, *, json: bool) -> int:
    """Compare again and again until Ctrl-C; return the exit code."""
    asked, clock = Asked(), SystemClock()
    differed = False
    due = clock.monotonic()
    with asked.listening():
        while not asked.signal:
            began = clock.monotonic()
            whole = began >= due
            for found in look(changed=not whole):
                differed = differed or not found.proven
                if whole or not found.proven:
                    _show(found, json=json)
            if whole:
                due = began + period
                took = clock.monotonic() - began
                if took > period:
                    say(
                        f"It took {span(took / SECOND)} to compare everything, longer than "
                        f"{span(period / SECOND)}"
                    )
            next = min(due, clock.monotonic() + period // _LOOKS)
            while (left := next - clock.monotonic()) > 0:
                clock.sleep(min(_LOOK, left))
                if asked.signal:
                    break
    return int(differed)


def _show(found: Verified, *, json: bool) -> None:
    if json:
        show_json(verified_json(found))
    else:
        show_verified(found)
    for line in told(found):
        say(line)


def _views(declared: App, view: str | None) -> Sequence[str]:
    if view is None and not declared.views:
        raise UnknownView(
            f"Application {declared.name!r} has no views", hint="Declare one: app.view(...)"
        )
    return [view] if view is not None else sorted(declared.views)


def _resolved(
    reference: str, view: str | None, log: str | None
) -> tuple[str, str | None, str | None]:
    """The reference of an application, a view and the log, if a view alone was given."""
    if view is not None or ":" in reference or reference.endswith(".sql"):
        return reference, view, log
    from headrace.application.verify.result import last_verified
    from headrace.log import open_log

    url = log or DEFAULT_LOG
    with open_log(url, create=False) as opened:
        known = last_verified(opened.home)
    found = {
        (one.app, one.view): reference_of
        for one, reference_of in known
        if reference_of and reference in (one.view, f"{one.app}.{one.view}")
    }
    if len(found) != 1:
        why = "was never verified" if not found else "is one of several applications"
        raise UserError(
            f"View {reference!r} {why}, so its application has to be named",
            hint=f"headrace verify MODULE:APP {reference}",
        )
    (((_, name), where),) = found.items()
    return where, name, url


def _period(text: str, *, changed: bool) -> int:
    if changed:
        raise InvalidSetting(
            "--every compares what has changed in between by itself", hint="Leave out --changed"
        )
    if not (found := micros(parse_span(text))):
        raise InvalidSetting("--every needs some time", hint="Write 30m, or 6h")
    return found


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int], None]]:
    """Show the rows that were read of a hop, if standard error is a terminal."""
    console = err()
    if not console.is_terminal:
        yield lambda hop, rows: None
        return
    with console.status("") as status:
        yield lambda hop, rows: status.update(f"{hop}: {count(rows)} rows read")
