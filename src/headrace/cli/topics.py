"""`headrace topics`: create, inspect, change and delete topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from headrace.cli import topic_tables as tables
from headrace.cli.failures import say
from headrace.cli.options import DEFAULT_LOG, AsJson, LogUrl, Yes, confirm, new_app, show_help
from headrace.cli.output import moment, show_json
from headrace.clock import to_datetime
from headrace.errors import InvalidPosition, InvalidSetting, TopicExists
from headrace.log import Time, open_log, parse_position
from headrace.pipeline.disorder import suggest_lateness
from headrace.wording import many

app = new_app()

SETTINGS = {
    "retention": "delete records older than this: 12h, 7d, none",
    "retention_bytes": "keep at most this much per partition: 2GiB, none",
    "cleanup": "delete, compact (last of each key), compact,delete",
    "tombstone_retention": "compaction keeps tombstones for: 1d",
    "segment_bytes": "close a segment at this size: 64MiB",
    "segment_age": "close a segment at this age: 7d, none",
    "max_record_bytes": "reject larger records: 1MiB",
    "compression": "of new segments: none, lz4, zstd",
    "skew": "accept event times up to this far ahead: 1h, none",
    "frontier": "what advances event time: events, punctuation, arrival",
    "missing_time": "rows without event time become: dead, arrival",
    "idle": "advance event time after a silence of: 30s, none",
    "format": "encoding on Kafka: json, avro, bytes and others",
    "index": "find rows by the texts in this column: tags, none",
    "tier": "move closed segments to: a folder, s3://bucket/x, none",
    "tier_after": "keep closed segments local for: 0s, 1h",
}

_WIDTH = max(len(name) for name in SETTINGS)

SETTINGS_HELP = "\b\nSettings:\n" + "\n".join(
    f"  {name:{_WIDTH}} {text}" for name, text in SETTINGS.items()
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Set one of the settings below; may be repeated."
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
        int, typer.Option(metavar="N", help="Number of partitions.", show_default=True)
    ] = 1,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="DDL",
            help="Its columns, such as 'url string, user string not null, at timestamp'. "
            "Without a schema, a topic holds raw bytes.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The key column. Rows with the same key stay in order."
        ),
    ] = None,
    event_time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|EXPRESSION",
            help="The timestamp column with the event time, or an expression, such as "
            "timestamp_millis(ts).",
        ),
    ] = None,
    settings: Settings = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")
    ] = False,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Create a topic, and the log if there is none.

    A topic has typed columns, or raw bytes as key and value.
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
                say(f"Topic {name!r} already exists and was not changed")
        else:
            if not json:
                say(f"Created topic {name!r} with {many(partitions, 'partition')} in {log}")
        if json:
            show_json(tables.topic_json(topic))


@app.command("list")
def list_topics(log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """List the topics of a log. With --json, one object per line."""
    with open_log(log, create=False) as opened:
        states = [opened.topic(topic.name) for topic in opened.topics()]
    if json:
        for state in states:
            show_json(tables.state_json(state, by_partition=False))
    elif not states:
        say("There are no topics: 'headrace topics create NAME' creates one")
    else:
        tables.show_topics(states)


@app.command("describe")
def describe(name: Name, log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Show a topic's columns, partitions and settings."""
    with open_log(log, create=False) as opened:
        state = opened.topic(name)
    if json:
        show_json(tables.state_json(state, by_partition=True))
    else:
        tables.show_topic(state)


@app.command("lateness")
def lateness(
    name: Name,
    *,
    tolerated: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of rows that may be late.")
    ] = 0.001,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Measure how late rows arrived, and suggest a delay and a grace period.

    For each delay it counts the rows that arrived behind the watermark. These rows can be late;
    a row whose window is still open is not.
    """
    found = suggest_lateness(name, log)
    suggestion = found.suggestion(tolerated)
    if json:
        show_json(tables.disorder_json(found, suggestion))
    else:
        tables.show_disorder(found, suggestion)


@app.command("advance")
def advance(
    name: Name,
    time: Annotated[
        str, typer.Argument(metavar="TIME", help="A time in ISO 8601.", show_default=False)
    ],
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Declare that all events up to a time have arrived.

    It advances the frontier of a topic, its highest event time, without a row, so that windows
    that end before it can fire. Rows that still arrive for them may be late.
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
        say(f"The frontier of topic {name!r} is already at {moment(frontier)}")
    else:
        say(f"The frontier of topic {name!r} is now at {moment(frontier)}")


@app.command("alter", epilog=SETTINGS_HELP)
def alter(
    name: Name,
    *,
    settings: Settings = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="New number of partitions; it can only grow. New records of a key may then go to "
            "a different partition than its old ones.",
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(metavar="DDL", help="Its current columns, followed by new nullable ones."),
    ] = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Change settings, add partitions, or add columns."""
    if not settings and partitions is None and schema is None:
        raise InvalidSetting(
            "There is nothing to change", hint="Use --set, --partitions or --schema"
        )
    with open_log(log, create=False) as opened:
        topic = opened.alter_topic(
            name, settings=read_settings(settings), partitions=partitions, schema=schema
        )
    if json:
        show_json(tables.topic_json(topic))
    else:
        say(f"Changed topic {name!r}: 'headrace topics describe {name}' shows it")


@app.command("delete")
def delete(name: Name, yes: Yes = False, log: LogUrl = DEFAULT_LOG, json: AsJson = False) -> None:
    """Delete a topic, its records, and the offsets of groups in it."""
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
    """Compact a topic now, including its newest segment.

    Only the last record of each key stays. The topic needs cleanup=compact.
    """
    with open_log(log, create=False) as opened:
        report = opened.compact(name)
    tables.show_reports([report], json=json)


@app.command("upkeep")
def upkeep(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One topic; default: all.")
    ] = None,
    log: LogUrl = DEFAULT_LOG,
    json: AsJson = False,
) -> None:
    """Apply retention, compaction and tiering now.

    The settings of each topic apply. With --json, one object per line.
    """
    with open_log(log, create=False) as opened:
        reports = opened.upkeep(name)
    tables.show_reports(reports, json=json)


def read_settings(texts: Sequence[str] | None) -> dict[str, str]:
    """Split `name=value` texts. The log parses the values."""
    settings = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidSetting(
                f"{text!r} is not a setting", hint="Write --set NAME=VALUE: --set retention=7d"
            )
        settings[name.strip().replace("-", "_")] = value.strip()
    return settings
