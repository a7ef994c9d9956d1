"""Topics, upkeep and lateness, as tables and as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from headrace.cli.output import facts, moment, plain, show, show_json, table
from headrace.log import Topic, TopicSettings, TopicState, UpkeepReport
from headrace.pipeline.disorder import Disorder
from headrace.pipeline.time import Lateness
from headrace.schema.ddl import format_schema
from headrace.wording import count, many, size, span, when


def topic_json(topic: Topic) -> dict[str, Any]:
    """The declaration of a topic."""
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "schema": None if topic.schema is None else format_schema(topic.schema),
        "key": topic.key,
        "event_time": topic.event_time,
        "settings": topic.settings.to_text(),
    }


def state_json(state: TopicState, *, by_partition: bool) -> dict[str, Any]:
    """A topic and its contents."""
    made = topic_json(state.topic) | {
        "records": state.records,
        "bytes": state.bytes,
        "frontier": moment(state.frontier),
    }
    if by_partition:
        made["by_partition"] = [
            dataclasses.asdict(partition) | {"last_append": moment(partition.last_append)}
            for partition in state.partitions
        ]
    return made


def show_topics(states: Sequence[TopicState]) -> None:
    """Print a table with one topic per line."""
    lines = table("topic", ">partitions", ">records", ">bytes", "key", "columns")
    for state in states:
        topic = state.topic
        lines.add_row(
            plain(topic.name, "bold"),
            count(topic.partitions),
            count(state.records),
            size(state.bytes),
            plain(topic.key or "-"),
            plain("raw bytes", "dim")
            if topic.schema is None
            else plain(format_schema(topic.schema)),
        )
    show(lines)


def show_topic(state: TopicState) -> None:
    """Print everything about one topic."""
    show(_facts(state), "", _partitions(state), "", _settings(state.topic.settings))


def _facts(state: TopicState) -> Table:
    topic = state.topic
    lines = facts()
    lines.add_row("topic", plain(topic.name, "bold"))
    if topic.schema is None:
        lines.add_row("columns", "none: raw bytes as key and value")
    else:
        lines.add_row("columns", plain(format_schema(topic.schema)))
        lines.add_row("key", plain(topic.key or "none"))
        lines.add_row("event time", plain(topic.event_time or "none"))
    lines.add_row("records", count(state.records))
    lines.add_row("bytes", size(state.bytes))
    if state.frontier is not None:
        lines.add_row("frontier", f"{moment(state.frontier)} (the highest event time)")
    return lines


def _partitions(state: TopicState) -> Table:
    tiered = any(partition.tiered_segments for partition in state.partitions)
    lines = table(
        *(">partition", ">first", ">end", ">records", ">segments"),
        *((">tiered",) if tiered else ()),
        *(">bytes", ">last append"),
    )
    for partition in state.partitions:
        lines.add_row(
            str(partition.partition),
            count(partition.first),
            count(partition.end),
            count(partition.end - partition.first),
            count(partition.segments),
            *((count(partition.tiered_segments),) if tiered else ()),
            size(partition.bytes),
            when(partition.last_append),
        )
    return lines


def _settings(settings: TopicSettings) -> Table:
    lines = table("setting", "value", "default")
    usual = TopicSettings().to_text()
    for name, value in settings.to_text().items():
        changed = value != usual[name]
        lines.add_row(
            name,
            plain(_setting(value), "bold" if changed else ""),
            plain(_setting(usual[name]), "dim"),
        )
    return lines


def _setting(text: str) -> str:
    """A setting's value. Whole numbers are bytes."""
    return size(int(text)).replace(".0 ", " ") if text.isdigit() else text


def show_reports(reports: Sequence[UpkeepReport], *, json: bool) -> None:
    """Print the results of upkeep, one topic per line."""
    if json:
        for report in reports:
            show_json(dataclasses.asdict(report))
        return
    lines = table(
        "topic", ">segments deleted", ">compacted", ">tiered", ">records removed", ">bytes freed"
    )
    for report in reports:
        lines.add_row(
            plain(report.topic, "bold"),
            count(report.segments_deleted),
            count(report.segments_compacted),
            count(report.segments_tiered),
            count(report.records_removed),
            size(report.bytes_freed),
        )
    show(lines)


_BAR = 40
"""The width of the longest bar."""


def disorder_json(found: Disorder, suggestion: Lateness) -> dict[str, Any]:
    """The measured lateness, and the suggestion."""
    return {
        "topic": found.topic,
        "rows": found.rows,
        "dead": found.dead,
        "out_of_order": len(found.behind),
        "most_behind_seconds": found.most.total_seconds(),
        "median_arrival_seconds": None if found.arrival is None else found.arrival.total_seconds(),
        "choices": [
            {
                "delay_seconds": choice.delay.total_seconds(),
                "late": choice.late,
                "share": choice.share,
            }
            for choice in found.choices()
        ],
        "suggestion": {
            "delay_seconds": suggestion.delay.total_seconds(),
            "grace_seconds": suggestion.grace.total_seconds(),
        },
    }


def show_disorder(found: Disorder, suggestion: Lateness) -> None:
    """Print a line for each delay, with a bar for the rows that can be late."""
    if not found.rows:
        show(f"Topic {found.topic!r} has no rows to measure")
        return
    lines = table(">delay", ">can be late", ">share", "")
    for choice in found.choices():
        lines.add_row(
            plain(span(choice.delay.total_seconds())),
            count(choice.late),
            plain(_percent(choice.share)),
            plain(_bar(choice.late, found.rows), "red" if choice.late else ""),
        )
    show(lines)
    arrival = "" if found.arrival is None else (
        f"; median arrival {span(max(0.0, found.arrival.total_seconds()))} after the event"
    )  # fmt: skip
    show(
        f"\n{many(found.rows, 'row')}, {count(len(found.behind))} out of order, by up to "
        f"{span(found.most.total_seconds())}{arrival}"
    )
    seconds = [
        f"td(seconds={part.total_seconds():g})" for part in (suggestion.delay, suggestion.grace)
    ]
    show(f"Suggested: Lateness(delay={seconds[0]}, grace={seconds[1]})")


def _percent(share: float) -> str:
    return "0" if not share else f"{share:.3%}" if share >= 0.000_01 else "< 0.001%"


def _bar(part: int, whole: int) -> str:
    """A bar on a logarithmic scale: one late row in a million is visible."""
    if not part:
        return ""
    return "█" * max(1, round(_BAR * math.log1p(part) / math.log1p(whole)))
