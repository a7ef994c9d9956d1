"""Rebuilding a view for somebody who watches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from datetime import datetime

from headrace.application.rebuild.rebuild import Rebuild
from headrace.application.run import StepProgress
from headrace.cli.failures import INTERRUPTED
from headrace.cli.running import Asked, shown
from headrace.pipeline.app import App
from headrace.plan.source_options import BatchLimits
from headrace.runtime.session import SparkSettings

Tell = Callable[[StepProgress], None]
Act = Callable[[Rebuild, Tell, Callable[[], None]], None]
"""What to do with what was built: it may tell of more to build, and then end the drawing."""


def rebuild_watched(
    app: App,
    view: str,
    log: str,
    act: Act,
    *,
    until: datetime | int | None,
    settings: SparkSettings,
    batch_limits: BatchLimits,
) -> None:
    """Build a view, showing how far it is, and act on it. Ctrl-C keeps what was built."""
    asked = Asked()
    try:
        with (
            Rebuild(
                app, view, log, until=until, settings=settings, batch_limits=batch_limits
            ) as building,
            contextlib.ExitStack() as drawing,
        ):
            show = drawing.enter_context(shown(app, f"to rebuild {view!r}"))
            listening = drawing.enter_context(contextlib.ExitStack())
            heard = False

            def tell(progress: StepProgress) -> None:
                nonlocal heard
                if not heard:
                    # Spark has a handler for Ctrl-C of its own, and is there by now.
                    listening.enter_context(asked.listening())
                    heard = True
                if asked.signal:
                    raise KeyboardInterrupt
                show([progress])

            building.build(tell)
            act(building, tell, drawing.close)
    except KeyboardInterrupt:
        sys.exit(asked.code or INTERRUPTED)
