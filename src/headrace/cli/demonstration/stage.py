"""Set up the demo: a log, the pipeline, a screen, and the check at the end."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from rich.console import RenderableType
from rich.live import Live

import headrace
from headrace.cli.demonstration.check import TOPIC, Account, check
from headrace.cli.demonstration.generator import Generator, plan_live, plan_once
from headrace.cli.demonstration.play import Play
from headrace.cli.demonstration.screen import draw, plain_line
from headrace.cli.loading import load_app
from headrace.cli.output import out
from headrace.clock import SystemClock
from headrace.log import open_log
from headrace.log.home import folder_of
from headrace.store import open_views

S = TypeVar("S")
"""A scene."""

_LINE_EVERY = 2.0


def perform(url: str, *, events: int, once: bool, quiet: bool) -> Account:
    """Run the demo on a log, and recount at the end."""
    pipeline = load_app(f"{pipeline_file()}:app")
    topic = pipeline.topics[TOPIC]
    with open_log(url) as log:
        log.ensure_topic(topic)
        make_plan = plan_once if once else plan_live
        plan = make_plan(events, SystemClock().now(), log.frontier(topic.name))
        play = Play(log, pipeline, Generator(log.url, topic, plan))
        with shown(play.scene, draw, plain_line, quiet=quiet):
            play.run()
        with open_views(log.url, app=pipeline.name) as views:
            written = play.scene().written
            return Account(
                log.url,
                written,
                play.seconds,
                play.first_result,
                check(folder_of(log.url), pipeline, views, written),
                play.top(views),
            )


def pipeline_file(name: str = "pageviews.py") -> Path:
    """A pipeline of a demo: in the installed package, else beside src/."""
    package = Path(headrace.__file__).resolve().parent
    installed = package / "pipelines" / name
    return installed if installed.exists() else package.parents[1] / "pipelines" / name


@contextlib.contextmanager
def shown(
    scene: Callable[[], S],
    draw: Callable[[S], RenderableType],
    line: Callable[[S], str],
    *,
    quiet: bool,
) -> Iterator[None]:
    """Show scenes from another thread, since the start of Spark blocks this one."""
    if quiet:
        yield
    elif sys.stdout.isatty():
        with Live(get_renderable=lambda: draw(scene()), console=out(), refresh_per_second=4):
            yield
    else:
        over = threading.Event()
        emission = threading.Thread(target=_tell, args=(lambda: line(scene()), over), daemon=True)
        emission.start()
        try:
            yield
        finally:
            over.set()
            emission.join()
            print(line(scene()), flush=True)


def _tell(line: Callable[[], str], over: threading.Event) -> None:
    while not over.is_set():
        print(line(), flush=True)
        over.wait(_LINE_EVERY)
