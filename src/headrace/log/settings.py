"""Topic settings, and their text form."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.errors import InvalidSetting

MIB = 1 << 20

_CHOICES = {
    "cleanup": ("delete", "compact", "compact,delete"),
    "compression": ("none", "lz4", "zstd"),
    "frontier": ("events", "punctuation", "arrival"),
    "missing_time": ("dead", "arrival"),
    "format": (
        "json",
        "avro",
        "bytes",
        "avro-confluent",
        "json-confluent",
        "cloudevents",
        "debezium-json",
    ),
}

READ_ONLY = ("avro-confluent", "json-confluent", "cloudevents", "debezium-json")
"""The formats that headrace reads, and does not write."""

_OPTIONAL = {"retention", "retention_bytes", "segment_age", "skew", "idle", "tier", "index"}

MAX_RECORD_BYTES = 32 * MIB
"""The upper limit of `max_record_bytes`, since a record has to fit a commit."""

_LARGEST = {"max_record_bytes": MAX_RECORD_BYTES}

_SPANS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_SIZES = {"": 1, "b": 1, "kib": 1 << 10, "mib": MIB, "gib": 1 << 30, "tib": 1 << 40}


@dataclass(frozen=True)
class TopicSettings:
    """The settings of a topic. None means no limit."""

    retention: timedelta | None = None
    """Records older than this may be deleted, a whole segment at a time."""
    retention_bytes: int | None = None
    """Oldest segments of a partition are deleted while it is larger than this."""
    cleanup: str = "delete"
    """`delete` by retention, `compact` to the last record of each key, or `compact,delete`."""
    tombstone_retention: timedelta = timedelta(days=1)
    """A tombstone stays readable for this long before compaction may remove it."""
    segment_bytes: int = 64 * MIB
    """A segment is closed when it reaches this size."""
    segment_age: timedelta | None = timedelta(days=7)
    """A segment is closed when its first record is older than this."""
    max_record_bytes: int = MIB
    """A larger record is refused."""
    compression: str = "none"
    """Arrow buffer compression of new segments: `none`, `lz4` or `zstd`."""
    skew: timedelta | None = timedelta(hours=1)
    """An event time further ahead of the append time than this never moves the frontier."""
    frontier: str = "events"
    """The frontier follows event times (`events`), only `punctuation` (a source's calls of
    `advance`), or append times (`arrival`)."""
    missing_time: str = "dead"
    """A row without an event time becomes a `dead` letter in a pipeline, or gets the time of its
    `arrival` when it is appended."""
    idle: timedelta | None = None
    """After this long without a row in any partition, the frontier follows the clock while a
    pipeline runs."""
    format: str = "json"
    """The format of rows on Kafka: `json`, `avro`, or the `bytes` of one column. Other programs
    write `avro-confluent` and `json-confluent`, with the id of a schema in a registry,
    `cloudevents` and `debezium-json`. The embedded log uses Arrow."""
    index: str | None = None
    """A column of strings or of lists of strings. The log notes the rows of each value, to find
    them by it and to make commits on the condition that no others came. It is set when a topic is
    created."""
    tier: str | None = None
    """The storage for closed segments: a folder or any URL that pyarrow's filesystems open."""
    tier_after: timedelta = timedelta(0)
    """A closed segment stays on the local disk for this long before it is tiered."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.name not in _OPTIONAL:
                raise InvalidSetting(f"{field.name} needs a value: it cannot be none")
            kind = _kind(field.name)
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise InvalidSetting(
                    f"{field.name} cannot be {value!r}", hint=f"Give it as {kind.__name__} or text"
                )
            if isinstance(value, timedelta) and value < timedelta(0):
                raise InvalidSetting(f"{field.name} cannot be negative: {format_span(value)}")
            if isinstance(value, int) and not 1 <= value <= _LARGEST.get(field.name, 1 << 60):
                raise InvalidSetting(
                    f"{field.name} cannot be {value:,}",
                    hint=f"Choose 1 to {_LARGEST.get(field.name, 1 << 60):,}",
                )
        if self.format.startswith("protobuf"):
            raise InvalidSetting(
                "Protobuf cannot be read: Spark's connector for it is not among the jars of "
                "headrace",
                hint="Let the topic be written as avro-confluent or json-confluent. With "
                "format=bytes, a column has the bytes unchanged",
            )
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise InvalidSetting(
                    f"{name} cannot be {getattr(self, name)!r}", hint=f"Use {' or '.join(known)}"
                )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup

    def change(self, changes: Mapping[str, Any]) -> TopicSettings:
        """The settings with `changes` applied; text values are parsed."""
        known = {field.name for field in dataclasses.fields(self)}
        values = {}
        for name, value in changes.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                raise InvalidSetting(
                    f"There is no topic setting {name!r}",
                    hint=f"Did you mean {near[0]!r}?"
                    if near
                    else f"There are: {', '.join(sorted(known))}",
                )
            values[name] = _read(name, value) if isinstance(value, str) else value
        return dataclasses.replace(self, **values)

    def to_text(self) -> dict[str, str]:
        """Every setting as text, which `change` parses."""
        return {
            field.name: _write(field.name, getattr(self, field.name))
            for field in dataclasses.fields(self)
        }


_SPAN_SETTINGS = {"retention", "tombstone_retention", "segment_age", "skew", "idle", "tier_after"}
_SIZE_SETTINGS = {"retention_bytes", "segment_bytes", "max_record_bytes"}


def _kind(name: str) -> type:
    if name in _SPAN_SETTINGS:
        return timedelta
    return int if name in _SIZE_SETTINGS else str


def _read(name: str, text: str) -> Any:
    if text == "none" and name != "compression":
        return None
    if name in _SPAN_SETTINGS:
        return parse_span(text)
    if name in _SIZE_SETTINGS:
        return parse_size(text)
    return text


def _write(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if name in _SPAN_SETTINGS:
        return format_span(value)
    return str(value)


def parse_span(text: str) -> timedelta:
    """Parse a duration such as 500ms, 30s, 10m, 12h or 7d.

    >>> parse_span("90s")
    datetime.timedelta(seconds=90)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)", text.strip())
    if not found:
        raise InvalidSetting(f"{text!r} is not a duration", hint="Write 500ms, 30s, 10m, 12h or 7d")
    number = float(found[1]) if "." in found[1] else int(found[1])
    try:
        return number * _SPANS[found[2]]
    except OverflowError:
        raise InvalidSetting(f"{text!r} is too long", hint="Write none for no limit") from None


def format_span(span: timedelta) -> str:
    """The shortest exact text of a duration.

    >>> format_span(timedelta(minutes=90))
    '90m'
    """
    for unit in ("d", "h", "m", "s", "ms") if span else ("s",):
        if span % _SPANS[unit] == timedelta(0):
            return f"{span // _SPANS[unit]}{unit}"
    return f"{span // _SPANS['us']}us"


def parse_size(text: str) -> int:
    """Parse a size in bytes such as 1000, 64KiB, 1MiB or 2GiB.

    >>> parse_size("64KiB")
    65536
    """
    found = re.fullmatch(r"(\d+)\s*([kmgt]ib|b|)", text.strip().lower())
    if not found:
        raise InvalidSetting(f"{text!r} is not a size", hint="Write 1000, 64KiB, 1MiB or 2GiB")
    return int(found[1]) * _SIZES[found[2]]
