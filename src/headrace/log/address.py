"""Open a log by its URL."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path

from headrace.clock import Clock
from headrace.errors import InvalidSetting, MissingExtra
from headrace.log.file.log import FileLog
from headrace.log.interface import Log

DEFAULT_LOG = "file:./data"
VARIABLE = "HEADRACE_LOG"

_KAFKA = {"confluent_kafka", "fastavro", "orjson"}


def open_log(
    url: str | None = None,
    *,
    clock: Clock | None = None,
    create: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Log:
    """Open the log at a URL, by default that in HEADRACE_LOG, or else the one in ./data.

    With `create`, a missing embedded log is created. A Kafka cluster has to exist. Its `settings`
    take precedence over those in the URL.
    """
    url = url or os.environ.get(VARIABLE) or DEFAULT_LOG
    if (folder := folder_of_log(url)) is not None:
        return FileLog(folder, clock=clock, create=create)
    scheme, _, rest = url.partition(":")
    if scheme == "kafka" and rest.startswith("//"):
        return _kafka_log(url, clock, settings or {})
    example = url if ":" not in url else "./data"
    raise InvalidSetting(
        f"{scheme + ':...' if '@' in url or '?' in url else url!r} is not the address of a log",
        hint=f"Use file:FOLDER for a log in a folder, such as file:{example}, "
        "or kafka://HOST:PORT for one on Kafka",
    )


def folder_of_log(url: str) -> Path | None:
    """The folder of an embedded log; None for other logs."""
    scheme, _, rest = url.partition(":")
    return Path(rest.removeprefix("//")).expanduser() if scheme == "file" and rest else None


def _kafka_log(url: str, clock: Clock | None, settings: Mapping[str, str]) -> Log:
    """Open a log on Kafka. Its client is optional and slow to import, so it is imported here."""
    try:
        module = importlib.import_module("headrace.log.kafka.log")
    except ModuleNotFoundError as error:
        if error.name not in _KAFKA:
            raise
        raise MissingExtra(
            f"A log on Kafka needs the package {error.name!r}, which is not installed",
            hint="pip install 'headrace[kafka]'",
        ) from None
    log: Log = module.KafkaLog(url, clock=clock, settings=settings)
    return log
