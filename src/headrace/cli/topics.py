"""`headrace topics`: what is declared in a log, and how it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, Yes, confirm, new_app, show_help
from headrace.cli.output import many, moment, show_json
from headrace.cli.topic_tables import (
    disorder_json,
    show_disorder,
    show_reports,
    show_topic,
    show_topics,
    state_json,
    topic_json,
)
from headrace.clock import to_datetime
from headrace.errors import InvalidPosition, InvalidSetting, TopicExists
from headrace.log import Time, open_log, parse_position
from headrace.pipeline.disorder import suggest_lateness

app = new_app()

SETTINGS = {
    "retention": "delete records older than this: 12h, 7d, none",
    "retention_bytes": "delete the oldest of a larger partition: 2GiB, none",
    "cleanup": "delete, compact (last of each key), compact,delete",
    "tombstone_retention": "compaction leaves tombstones readable for: 1d",
    "segment_bytes": "close a segment at this size: 64MiB",
    "segment_age": "close a segment at this age: 7d, none",
    "max_record_bytes": "refuse a larger record: 1MiB",
    "compression": "of new segments: none, lz4, zstd",
    "skew": "believe event times up to so far ahead: 1h, none",
    "frontier": "what moves time: events, punctuation, arrival",
    "missing_time": "a row without event time: dead, arrival",
    "idle": "with no row for so long, time goes on: 30s, none",
    "format": "a row on Kafka: json, avro, bytes",
    "tier": "closed segments go to: a folder, s3://bucket/x, none",
    "tier_after": "closed segments stay local for: 0s, 1h",
}

_WIDTH = max(len(name) for name in SETTINGS)

SETTINGS_HELP = "\b\nSettings:\n" + "\n".join(
    f"  {name:{_WIDTH}} {text}" for name, text in SETTINGS.items()
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Change a setting, as listed below; may be repeated."
    ),
]


@app.callback(invoke_without_command=True)
def topics(ctx: typer.Context) -> None:
    """Create, list, describe, change and delete topics."""
    show_help(ctx)


@app.command("create", epilog=SETTINGS_HELP)
def create(
    name: Name,
    *,
    partitions: Annotated[
        int, typer.Option(metavar="N", help="How many partitions it has.", show_default=True)
    ] = 1,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="DDL",
            help="Its columns, as in 'url string, user string not null, at timestamp'. "
            "Without a schema a topic holds raw bytes.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The key column: rows with one key stay in order."),
    ] = None,
    event_time: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The timestamp column that says when it happened."),
    ] = None,
    settings: Settings = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a topic of that name as it is.")
    ] = False,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Declare a topic; the first one makes the log.

    A topic has a schema of columns, or holds raw bytes as key and value.
    """
    with open_log(log) as opened:
        try:
            topic = opened.create_topic(
                name,
                partitions=partitions,
                schema=schema,
                key=key,
                event_time=event_time,
                settings=read_settings(settings),
            )
        except TopicExists:
            if not if_not_exists:
                raise
            topic = opened.topic(name).topic
            if not json:
                say(f"Topic {name!r} is there already and was left as it is")
        else:
            if not json:
                say(f"Created topic {name!r} with {many(partitions, 'partition')} in {log}")
        if json:
            show_json(topic_json(topic))


@app.command("list")
def list_topics(log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """List the topics of a log. With --json, one object per line."""
    with open_log(log, create=False) as opened:
        states = [opened.topic(topic.name) for topic in opened.topics()]
    if json:
        for state in states:
            show_json(state_json(state, by_partition=False))
    elif not states:
        say("There are no topics: 'headrace topics create NAME' makes one")
    else:
        show_topics(states)


@app.command("describe")
def describe(name: Name, log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Show what a topic is, what it holds and how it is kept."""
    with open_log(log, create=False) as opened:
        state = opened.topic(name)
    if json:
        show_json(state_json(state, by_partition=True))
    else:
        show_topic(state)


@app.command("lateness")
def lateness(
    name: Name,
    *,
    tolerated: Annotated[
        float, typer.Option(metavar="SHARE", help="The share of rows that may be late.")
    ] = 0.001,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Measure how late rows came, and suggest a delay and a grace.

    For each delay it shows how many rows a watermark would have passed. That is how many can be
    late; those whose window goes on after them are not.
    """
    found = suggest_lateness(name, log)
    suggestion = found.suggestion(tolerated)
    if json:
        show_json(disorder_json(found, suggestion))
    else:
        show_disorder(found, suggestion)


@app.command("advance")
def advance(
    name: Name,
    time: Annotated[
        str, typer.Argument(metavar="TIME", help="A moment in ISO 8601.", show_default=False)
    ],
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Say that all events up to a moment have come.

    It moves the frontier of a topic on without a row, so that windows which end before can fire.
    Rows for them that come after all may be late.
    """
    position = parse_position(time)
    if not isinstance(position, Time):
        raise InvalidPosition(f"{time!r} is not a time", hint="Write it as 2026-01-31T12:00:00Z")
    with open_log(log, create=False) as opened:
        number = opened.advance(name, to_datetime(position.micros))
        frontier = opened.frontier(name)
    if json:
        show_json({"topic": name, "commit": number, "frontier": moment(frontier)})
    elif number is None:
        say(f"The frontier of topic {name!r} is at {moment(frontier)} already")
    else:
        say(f"The frontier of topic {name!r} is at {moment(frontier)} now")


@app.command("alter", epilog=SETTINGS_HELP)
def alter(
    name: Name,
    *,
    settings: Settings = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Have so many partitions; there can be more and never fewer. A key's new records "
            "may then go to another partition than its old ones.",
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="DDL", help="The columns it has now, and after them new nullable ones."
        ),
    ] = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Change settings, add partitions, or add columns."""
    if not settings and partitions is None and schema is None:
        raise InvalidSetting(
            "Nothing was named to change", hint="Use --set, --partitions or --schema"
        )
    with open_log(log, create=False) as opened:
        topic = opened.alter_topic(
            name, settings=read_settings(settings), partitions=partitions, schema=schema
        )
    if json:
        show_json(topic_json(topic))
    else:
        say(f"Changed topic {name!r}: 'headrace topics describe {name}' shows it")


@app.command("delete")
def delete(name: Name, yes: Yes = False, log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Delete a topic, its records, and what groups remember of it."""
    with open_log(log, create=False) as opened:
        records = opened.topic(name).records
        confirm(f"Delete topic {name!r} and its {many(records, 'record')}?", yes=yes)
        opened.delete_topic(name)
    if json:
        show_json({"deleted": name, "records": records})
    else:
        say(f"Deleted topic {name!r} and its {many(records, 'record')}")


@app.command("compact")
def compact(name: Name, log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Compact a topic now, its newest segment included.

    Of each key the last record stays. It is for topics with cleanup=compact.
    """
    with open_log(log, create=False) as opened:
        report = opened.compact(name)
    show_reports([report], json=json)


@app.command("upkeep")
def upkeep(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One topic; without it, all.")
    ] = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Apply retention, compaction and tiering now.

    Each topic is treated as its settings say. With --json, one object per line.
    """
    with open_log(log, create=False) as opened:
        reports = opened.upkeep(name)
    show_reports(reports, json=json)


def read_settings(texts: Sequence[str] | None) -> dict[str, str]:
    """`name=value` texts by name; the log reads the values."""
    settings = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidSetting(
                f"{text!r} is not a setting", hint="Write --set NAME=VALUE: --set retention=7d"
            )
        settings[name.strip().replace("-", "_")] = value.strip()
    return settings
