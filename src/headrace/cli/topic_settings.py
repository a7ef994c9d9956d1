"""What `--set` takes: every topic setting, in a line each."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import InvalidSetting

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
