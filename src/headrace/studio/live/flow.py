"""The data flow of pipelines as one picture: topics, steps, views and outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from headrace.clock import to_datetime
from headrace.plan.steps import dead_letters_of
from headrace.studio.learn.frame import Arrow, Box, Flow
from headrace.studio.live.drawn import kind_of, rate_text
from headrace.studio.live.pipeline_states import PipelineNow, StepNow

_SHOWN = 18
"""Letters of a name that fit into a box."""


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
        wide=True,
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
    behind = "not kept" if step.unknown else f"lag {step.lag:,}"
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
    if dead in records and step.law.dead and dead not in outputs:
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
