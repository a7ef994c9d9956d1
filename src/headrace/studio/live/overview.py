"""The first page: the data flow as one picture, from topics through steps to views and outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import htpy as h
from fastapi import APIRouter, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from htpy import Element, Node
from starlette.responses import HTMLResponse

from headrace.clock import to_datetime
from headrace.errors import HeadraceError, UnknownTopic
from headrace.log import Log
from headrace.plan.steps import dead_letters_of
from headrace.store.changelog import topic_of as changelog_of
from headrace.studio.learn.drawing import panel_of
from headrace.studio.learn.frame import Arrow, Box, Flow
from headrace.studio.live.drawn import kind_of, listed, rate_text, wait_list
from headrace.studio.live.following import following
from headrace.studio.live.pipeline_states import PipelineNow, StepNow, Watch, Watching
from headrace.studio.pages import live, page, section, table

router = APIRouter()

_SHOWN = 18
"""Letters of a name that fit into a box."""
_TOPICS = 50


@router.get("/", include_in_schema=False)
def overview(request: Request, watch: Watching) -> HTMLResponse:
    """The first page."""
    if not _has_topics(watch) and not watch.handles.settings.declared:
        return page(request, "Welcome", _welcome(watch.handles.settings.log))
    return page(
        request,
        "Overview",
        live("/overview/live", _content(watch), id="overview"),
        wide=True,
    )


@router.get("/overview/live", include_in_schema=False, response_class=EventSourceResponse)
async def overview_live(request: Request, watch: Watching) -> AsyncIterator[ServerSentEvent]:
    """The picture, whenever it changes."""
    async for event in following(request, lambda: _content(watch), every=0.5):
        yield event


def _has_topics(watch: Watch) -> bool:
    try:
        return bool(watch.handles.log.topics())
    except HeadraceError:
        return False


def _content(watch: Watch) -> Node:
    try:
        log = watch.handles.log
    except HeadraceError as error:
        return [h.p(".lead")[error.message], _start_hint(watch)]
    found = watch.all()
    records = _records(log)
    flow = flow_of(found, records)
    troubled = [now for now in found if now.declared is not None and _trouble(now)]
    return [
        flow is not None and panel_of(flow),
        bool(troubled)
        and section(
            "Why something waits",
            (
                [h.h3[h.a(href=f"/pipelines/{now.app}")[now.app]], wait_list(now)]
                for now in troubled
            ),
        ),
        section("Pipelines", listed(found)),
        _others(found, records),
    ]


def _trouble(now: PipelineNow) -> bool:
    return any(kind_of(now, step) == "bad" for step in now.steps)


def _records(log: Log) -> dict[str, int]:
    """The records of each topic; of the first ones if there are very many."""
    found = {}
    for topic in log.topics()[:_TOPICS]:
        try:
            found[topic.name] = log.topic(topic.name).records
        except UnknownTopic:  # deleted meanwhile
            continue
    return found


def flow_of(found: Sequence[PipelineNow], records: Mapping[str, int]) -> Flow | None:
    """The picture of all pipelines; None without any step."""
    if not any(now.steps for now in found):
        return None
    boxes: dict[str, Box] = {}
    arrows: list[Arrow] = []
    for now in found:
        for step in now.steps:
            _add(boxes, arrows, now, step, records)
    words = "; ".join(
        f"{now.app} ({now.state.word}): " + ", ".join(step.name for step in now.steps)
        for now in found
    )
    return Flow(
        "Topics → steps → views and outputs",
        f"The data flow. Pipelines: {words}",
        tuple(_placed(boxes.values())),
        tuple(arrows),
    )


def _add(
    boxes: dict[str, Box],
    arrows: list[Arrow],
    now: PipelineNow,
    step: StepNow,
    records: Mapping[str, int],
) -> None:
    """The boxes and arrows of a step. Columns grow from its inputs to its outputs."""
    for topic in step.reads:
        boxes.setdefault(_topic(topic), _topic_box(topic, 0, records))
    kind = kind_of(now, step)
    column = 1 + max(boxes[_topic(topic)].column for topic in step.reads)
    me = f"step {now.app} {step.name}"
    behind = f"lag {step.lag:,}"
    wall = "no watermark yet" if step.watermark is None else (
        f"watermark {to_datetime(step.watermark):%H:%M:%S}"
    )  # fmt: skip
    boxes[me] = Box(me, _short(step.name), column, 0, (now.state.word, behind, wall), kind)
    for topic in step.reads:
        flowing = f"{rate_text(step.rate)} rows/s" if step.rate else ""
        slow = "bad" if kind == "bad" and step.lag else ""
        arrows.append(Arrow(_topic(topic), me, flowing, slow))
    if step.view:
        name = f"view {now.app} {step.name}"
        counted = f"{step.law.counted:,} counted"
        boxes[name] = Box(name, _short(step.name), column + 1, 0, ("view", counted), "a")
        arrows.append(Arrow(me, name))
    outputs = [*step.outputs]
    dead = dead_letters_of(now.app)
    if dead in records and step.law.dead:
        outputs.append(dead)
    for topic in outputs:
        boxes.setdefault(_topic(topic), _topic_box(topic, column + 1, records))
        late = step.law.late and topic.endswith(".late")
        count = f"{step.law.late:,} late" if late else ""
        arrows.append(Arrow(me, _topic(topic), count, "warn" if late or topic == dead else ""))


def _topic(name: str) -> str:
    return f"topic {name}"


def _topic_box(name: str, column: float, records: Mapping[str, int]) -> Box:
    there = f"{records[name]:,} records" if name in records else "not there yet"
    return Box(_topic(name), _short(name), column, 0, ("topic", there), "" if column else "c")


def _short(name: str) -> str:
    """A name that fits into a box: its middle is left out."""
    if len(name) <= _SHOWN:
        return name
    return f"{name[: _SHOWN // 2]}…{name[-(_SHOWN // 2 - 1) :]}"


def _placed(boxes: Iterable[Box]) -> Iterator[Box]:
    """The boxes of each column below each other."""
    rows: defaultdict[float, int] = defaultdict(int)
    for box in boxes:
        yield replace(box, row=rows[box.column])
        rows[box.column] += 1


def _others(found: Sequence[PipelineNow], records: Mapping[str, int]) -> Node:
    """Topics that no pipeline reads or writes."""
    used = {name for now in found for step in now.steps for name in (*step.reads, *step.outputs)}
    used |= {dead_letters_of(now.app) for now in found}
    used |= {changelog_of(now.app, step.name) for now in found for step in now.steps}
    rest = {name: count for name, count in records.items() if name not in used}
    if not rest:
        return None
    return section(
        "Other topics",
        table(
            ("topic", "records"),
            [(name, f"{count:,}") for name, count in rest.items()],
            numeric=("records",),
        ),
    )


def _start_hint(watch: Watch) -> Node:
    names = watch.handles.settings.declared
    return h.p[
        "The log is made by the first run: start ",
        ([h.a(href=f"/pipelines/{name}")[name], " "] for name in names),
    ]


def _welcome(log: str) -> Node:
    return [
        h.p(".lead")["There is nothing in ", h.code[log], " yet. Three things to do:"],
        h.div(".cards")[
            _card(
                "1",
                "Watch the demo",
                "A live pipeline that counts page views, with its own studio.",
                h.code["headrace demo"],
            ),
            _card(
                "2",
                "Write events, and run a pipeline on them",
                "A topic is made by the application that declares it.",
                h.pre["headrace studio pipelines/pageviews.py:app\nheadrace produce pageviews"],
            ),
            h.a(".card", href="/learn")[
                h.span(".ordinal")["3"],
                h.strong["Learn streaming"],
                h.span["Simulations that run the real operators. They need no log."],
            ],
        ],
    ]


def _card(number: str, title: str, text: str, command: Node) -> Element:
    return h.div(".card")[h.span(".ordinal")[number], h.strong[title], h.span[text], h.div[command]]
