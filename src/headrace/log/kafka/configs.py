"""Topic settings as Kafka's own configuration, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from headrace.log.settings import MIB, TopicSettings

_ENDLESS = (1 << 63) - 1
_OVERHEAD = 64 << 10
_KAFKA_DEFAULT = 1_048_588
_SMALLEST_SEGMENT = MIB
_MILLISECOND = timedelta(milliseconds=1)


def _millis(span: timedelta | None, endless: int) -> str:
    return str(endless if span is None else -(-span // _MILLISECOND))


def _message_bytes(limit: int) -> str:
    # Kafka limits whole batches as written: rows are larger as JSON, and binary as base64.
    return str(max(2 * limit + _OVERHEAD, _KAFKA_DEFAULT))


_WRITE: dict[str, tuple[str, Callable[[Any], str]]] = {
    "retention": ("retention.ms", lambda span: _millis(span, -1)),
    "retention_bytes": ("retention.bytes", lambda size: str(-1 if size is None else size)),
    "cleanup": ("cleanup.policy", str),
    "tombstone_retention": ("delete.retention.ms", lambda span: _millis(span, -1)),
    "segment_bytes": ("segment.bytes", lambda size: str(min(max(size, _SMALLEST_SEGMENT), 2**30))),
    "segment_age": ("segment.ms", lambda span: _millis(span, _ENDLESS)),
    "max_record_bytes": ("max.message.bytes", _message_bytes),
    "compression": ("compression.type", lambda kind: "producer" if kind == "none" else kind),
}
_READ: dict[str, Callable[[str], Any]] = {
    "retention": lambda text: _span(text, -1),
    "retention_bytes": lambda text: int(text) if int(text) > 0 else None,
    "cleanup": lambda text: ",".join(sorted(text.split(","))),
    "tombstone_retention": lambda text: _span(text, -1),
    "segment_bytes": int,
    "segment_age": lambda text: _span(text, _ENDLESS),
    "max_record_bytes": lambda text: min(int(text), 32 * MIB),
    "compression": lambda text: text if text in ("lz4", "zstd") else "none",
}


def _span(text: str, endless: int) -> timedelta | None:
    millis = int(text)
    # More than timedelta can hold counts as forever.
    return None if millis == endless or millis > 86_400_000 * 999_999 else millis * _MILLISECOND


def to_configs(settings: TopicSettings) -> dict[str, str]:
    """Kafka's configuration of a topic with these settings."""
    return {
        name: write(getattr(settings, setting)) for setting, (name, write) in _WRITE.items()
    } | {"message.timestamp.type": "LogAppendTime"}


def from_configs(declared: TopicSettings | None, configs: Mapping[str, str]) -> TopicSettings:
    """The settings of a topic: as declared, with later changes made in Kafka."""
    settings = declared or TopicSettings()
    changes = {}
    for setting, (name, write) in _WRITE.items():
        text = configs.get(name)
        if text is None or (declared and text == write(getattr(settings, setting))):
            continue
        value = _READ[setting](text)
        if value is not None or setting in ("retention", "retention_bytes", "segment_age"):
            changes[setting] = value
    return settings.change(changes)
