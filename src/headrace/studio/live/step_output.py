"""The output of a step that only Spark can compute: the rows that it has stored or published."""

from __future__ import annotations

from htpy import Element, Node

from headrace.errors import HeadraceError
from headrace.log.sample import newest as newest_of_topic
from headrace.plan.steps import Step
from headrace.studio.live.cells import cell
from headrace.studio.live.handles import Handles
from headrace.studio.live.rows import described, newest, opened
from headrace.studio.pages import failure, table


def stored_sample(handles: Handles, app: str, step: Step, rows: int, reason: str) -> Node:
    """The newest rows of a step's view, or else of its topics."""
    try:
        if step.view is not None:
            return _of_view(handles, app, step.name, rows)
        found = [_of_topic(handles, topic, rows) for topic in step.outputs]
    except HeadraceError as error:
        return failure(error.message, error.hint)
    return found or failure(reason, "It stores no rows of its own that could be shown")


def _of_view(handles: Handles, app: str, view: str, rows: int) -> Node:
    with opened(handles.views, app) as db:
        found = described(db, app, view)
        shown = newest(db, found, rows)
    return table(
        found.columns,
        [
            [cell(value, name) for name, value in zip(found.columns, row, strict=True)]
            for row in shown
        ],
        numeric=found.right,
        caption="As stored by the last run, newest first.",
        empty="It has stored no rows yet.",
    )


def _of_topic(handles: Handles, topic: str, rows: int) -> Element | Node:
    found = newest_of_topic(handles.log, topic, rows).table().to_pylist()[::-1][:rows]
    columns = tuple(found[0]) if found else ("rows",)
    return table(
        columns,
        [[cell(row[name], name) for name in columns] for row in found],
        caption=f"The newest rows of {topic}, as published by the last run.",
        empty=f"Nothing was published to {topic} yet.",
    )
