"""The settings of an attached database, kept beside the log: everything but the password."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.cdc.connector import SnapshotMode, load_connector
from headrace.errors import InvalidSetting, UserError
from headrace.files import write_note
from headrace.log import Log
from headrace.log.home import folder_of

PASSWORD = "HEADRACE_CDC_PASSWORD"
"""The variable with the password of a database. One that ends in _PREFIX is for that capture."""

_FORMAT = 1


@dataclass(frozen=True)
class Attachment:
    """A database that is captured under a prefix.

    `address` has no password. `password_file` is a file with nothing else, and `connector` is that
    of a Debezium connector, which may hold it.
    """

    prefix: str
    kind: str
    address: str
    tables: tuple[str, ...]
    snapshot: SnapshotMode = "initial"
    slot: str | None = None
    publication: str | None = None
    outbox: Mapping[str, str] | None = None
    password_file: str | None = None
    connector: str | None = None

    def password(self, environment: Mapping[str, str] | None = None) -> str | None:
        """The password, from a variable or a file; None if the database asks for none."""
        if (found := variable_password(self.prefix, environment)) is not None:
            return found
        if self.password_file is not None:
            return read_password(Path(self.password_file))
        if self.connector is not None and Path(self.connector).exists():
            return load_connector(Path(self.connector)).password
        return None


def variable_password(prefix: str, environment: Mapping[str, str] | None = None) -> str | None:
    """The password of a capture in a variable."""
    variables = os.environ if environment is None else environment
    own = re.sub(r"[^A-Z0-9]", "_", prefix.upper())
    return variables.get(f"{PASSWORD}_{own}") or variables.get(PASSWORD) or None


def read_password(path: Path) -> str:
    """The first line of a file."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"The password file {path} cannot be read: {error}") from None
    if not lines or not lines[0]:
        raise InvalidSetting(f"The password file {path} is empty", hint="Its first line counts")
    return lines[0]


def captures_folder(log: Log) -> Path:
    """The folder with what belongs to captures of a log."""
    return folder_of(log.home) / "cdc"


def attachments(log: Log) -> list[Attachment]:
    """All attached databases, by prefix."""
    return [_read(path) for path in sorted(captures_folder(log).glob("*.json"))]


def attached(log: Log, prefix: str | None = None) -> Attachment:
    """The attached database with a prefix, or without one the only one there is."""
    found = {attachment.prefix: attachment for attachment in attachments(log)}
    if not found:
        raise UserError(
            f"No database is attached to {log.url}",
            hint="Attach one: headrace cdc attach shop.db --tables orders,products",
        )
    if prefix is None and len(found) > 1:
        raise UserError(
            "Several databases are attached", hint=f"Name one of them: {', '.join(found)}"
        )
    if prefix is None:
        return next(iter(found.values()))
    if prefix not in found:
        raise UserError(
            f"No database is attached as {prefix!r}", hint=f"There are: {', '.join(found)}"
        )
    return found[prefix]


def remember(log: Log, attachment: Attachment) -> None:
    """Keep the settings of an attached database."""
    text = json.dumps({"format": _FORMAT, **asdict(attachment)}, indent=2)
    write_note(_path(log, attachment.prefix), text + "\n")


def forget(log: Log, prefix: str) -> None:
    """Delete the settings of an attached database."""
    _path(log, prefix).unlink(missing_ok=True)


def _path(log: Log, prefix: str) -> Path:
    return captures_folder(log) / f"{prefix}.json"


def _read(path: Path) -> Attachment:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if found.pop("format") != _FORMAT:
            raise ValueError("a newer headrace wrote it")
        found["tables"] = tuple(found["tables"])
        return Attachment(**found)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} cannot be read: {error}", hint="Attach the database again, or remove the file"
        ) from None
