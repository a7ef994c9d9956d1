"""The options of Spark's format `headrace`: the topic, columns and batches to read."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, field

import pyarrow as pa

from headrace.errors import InvalidSetting, UnknownColumn
from headrace.log import Topic
from headrace.plan import metadata
from headrace.plan.lateness import Closing
from headrace.plan.position import Position
from headrace.plan.waiting import Waiting

FORMAT = "headrace"

MAX_ROWS = 4_000_000
"""Rows in a batch, unless one commit alone has more. A batch costs half a second whatever its size,
and only its results are held in memory."""

_SETTINGS = "secret_settings"
"""Spark shows no option with such a name."""

ANY = 1 << 60
"""No limit."""


@dataclass(frozen=True)
class SourceOptions:
    """The rows to read of a topic: its columns, their metadata (`places`), and the batch limits.

    `clean` drops rows without a valid event time, and tombstones unless DELETED is read. `closing`
    drops rows that are too late for all of their windows, and `waiting` keeps only those that
    become ready in its range.
    """

    log: str
    topic: str
    columns: tuple[str, ...] | None = None
    places: tuple[str, ...] = ()
    clean: bool = False
    start: Position | None = None
    max_rows: int = MAX_ROWS
    max_commits: int = ANY
    tasks: int = 2
    closing: Closing | None = None
    seam: int = 0
    """A commit that no batch goes across: everything up to it is stored."""
    until: int = ANY
    """The last commit to read."""
    waiting: Waiting | None = None
    ticks: bool = False
    """True if a batch without rows, in which only time advances, has a task too."""
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The settings of the log's address."""
    beside: str = ""
    """The folder for uncounted rows (`plan.side_output`), if tasks hand them to the driver."""
    step: str = ""
    """The step that dead letters name."""
    late: Closing | None = None
    """The rule by which tasks find rows that may be late."""

    @staticmethod
    def from_options(options: Mapping[str, str]) -> SourceOptions:
        """Parse the options of a reader, whose names Spark has made lower case."""
        known = {"log", "topic", "columns", "places", "clean", "start", "max_rows", "max_commits"}
        ours = {"tasks", "closing", "seam", "until", "waiting", "ticks", "path", _SETTINGS}
        ours |= {"beside", "step", "late"}
        check_options("source", options, known, ours)
        columns, start = options.get("columns"), options.get("start")
        return SourceOptions(
            options["log"],
            options["topic"],
            tuple(json.loads(columns)) if columns else None,
            tuple(json.loads(options.get("places", "[]"))),
            options.get("clean", "false") == "true",
            Position.from_json(json.loads(start)) if start else None,
            _number(options, "max_rows", MAX_ROWS),
            _number(options, "max_commits", ANY),
            _number(options, "tasks", 2),
            Closing(*json.loads(options["closing"])) if "closing" in options else None,
            int(options.get("seam", "0")),
            int(options.get("until", str(ANY))),
            Waiting.from_json(json.loads(options["waiting"])) if "waiting" in options else None,
            options.get("ticks") == "true",
            tuple(sorted(json.loads(options.get(_SETTINGS, "{}")).items())),
            options.get("beside", ""),
            options.get("step", ""),
            Closing(*json.loads(options["late"])) if "late" in options else None,
        )

    def options(self) -> dict[str, str]:
        """Format as options, for `.options(**wish.options())`."""
        made = {
            "log": self.log,
            "topic": self.topic,
            "places": json.dumps(self.places),
            "clean": "true" if self.clean else "false",
            "max_rows": str(self.max_rows),
            "max_commits": str(self.max_commits),
            "tasks": str(self.tasks),
            "seam": str(self.seam),
            "until": str(self.until),
            "ticks": "true" if self.ticks else "false",
        }
        if self.columns is not None:
            made["columns"] = json.dumps(self.columns)
        if self.closing is not None:
            made["closing"] = json.dumps(astuple(self.closing))
        if self.waiting is not None:
            made["waiting"] = json.dumps(self.waiting.to_json())
        if self.beside:
            made |= {"beside": self.beside, "step": self.step}
        if self.late is not None:
            made["late"] = json.dumps(astuple(self.late))
        if self.settings:
            made[_SETTINGS] = json.dumps(dict(self.settings))
        if self.start is not None:
            made["start"] = json.dumps(self.start.to_json())
        return made

    def schema(self, topic: Topic) -> pa.Schema:
        """The columns of the rows, followed by their metadata."""
        if topic.schema is None:
            raise InvalidSetting(
                f"Topic {topic.name!r} holds raw bytes and has no columns for Spark",
                hint="Create it with a schema",
            )
        names = topic.schema.names if self.columns is None else self.columns
        for name in names:
            if name not in topic.schema.names:
                raise UnknownColumn(
                    f"Topic {topic.name!r} has no column {name!r}",
                    hint=f"There are: {', '.join(topic.schema.names)}",
                )
        fields = [topic.schema.field(name).with_nullable(True) for name in names]
        return pa.schema([*fields, *((name, metadata.type_of(name)) for name in self.places)])


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdigit() or int(text) < 1:
        raise InvalidSetting(f"{name} cannot be {text!r}", hint="It is a number, 1 or more")
    return int(text)


def check_options(
    what: str, options: Mapping[str, str], known: Collection[str], ours: Collection[str]
) -> None:
    """Check that all options are known, and that the required ones are given."""
    if unknown := {name.lower() for name in options}.difference(known, ours):
        raise InvalidSetting(
            f"The {what} {FORMAT!r} has no option {min(unknown)!r}",
            hint=f"There are: {', '.join(sorted(known))}",
        )
    for needed in ("log", "topic"):
        if needed not in options:
            raise InvalidSetting(
                f"The {what} {FORMAT!r} needs the option {needed!r}",
                hint='.option("log", "file:./data").option("topic", "orders")',
            )


@dataclass(frozen=True)
class BatchLimits:
    """The limits of a batch: it takes whole commits, until either is reached."""

    max_rows: int = SourceOptions.max_rows
    max_commits: int = SourceOptions.max_commits
