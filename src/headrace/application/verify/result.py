"""The outcome of a verification, and its note: the last one of each view is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.application.verify.compare import Kind
from headrace.files import write_note
from headrace.log.home import folder_of
from headrace.schema.python_rows import to_values
from headrace.store.location import app_folder

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Write:
    """The commit of the log that last wrote a row, and the source's transaction in it."""

    commit: int
    at: int
    transaction: str | None = None


@dataclass(frozen=True)
class Difference:
    """A row that differs: what it should be and what it is, in the columns that differ."""

    kind: Kind
    key: Row
    expected: Row
    found: Row
    write: Write | None = None
    """None if the log has nothing about the row."""


@dataclass(frozen=True)
class HopResult:
    """One hop: a table, and the one that is derived from it. Times are microseconds."""

    one: str
    other: str
    rows: int = 0
    rows_other: int = 0
    ranges: int = 0
    """Ranges of keys that were compared."""
    differing: int = 0
    """Ranges whose checksums differ."""
    missing: int = 0
    extra: int = 0
    different: int = 0
    moving: int = 0
    """Rows that are on their way, and so could not be compared."""
    commit: int | None = None
    """The commit of the log as of which the two were compared."""
    checksum: str = ""
    whole: bool = True
    """False if only rows were compared that have changed since the last verification."""
    took: int = 0
    rows_differing: tuple[Difference, ...] = ()
    """Some of the rows that differ."""
    error: str = ""
    """The reason if it could not be compared."""
    hint: str = ""
    mark: Mapping[str, Any] = field(default_factory=dict)
    """The place in the log after which the next verification of changes begins."""

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.different

    @property
    def proven(self) -> bool:
        """True if it was compared, and all rows are the same or on their way."""
        return not self.differences and not self.error


@dataclass(frozen=True)
class Verified:
    """A view and its hops, as of a moment in microseconds."""

    app: str
    view: str
    at: int
    hops: tuple[HopResult, ...]
    repaired: int = 0
    """Rows that were mended before."""

    @property
    def differences(self) -> int:
        return sum(hop.differences for hop in self.hops)

    @property
    def proven(self) -> bool:
        """True if every hop was compared, and none has a difference."""
        return all(hop.proven for hop in self.hops)


def keep(url: str, verified: Verified, reference: str = "") -> None:
    """Note a verification, with the reference of the application for the next one."""
    data = {**asdict(verified), "reference": reference}
    text = json.dumps(data, default=_text)
    write_note(_note(url, verified.app, verified.view), text)


def last_of(url: str, app: str, view: str) -> Verified | None:
    """The last verification of a view; None if there was none."""
    found = _read(_note(url, app, view))
    return None if found is None else found[0]


def last_verified(url: str) -> list[tuple[Verified, str]]:
    """The last verification of each view of a log, and the reference of its application."""
    paths = sorted((folder_of(url) / "apps").glob("*/verified/*.json"))
    return [found for path in paths if (found := _read(path)) is not None]


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """A row with one value in each column, given columns of one value."""
    return {name: to_values(column)[0] for name, column in values.items()}


def _note(url: str, app: str, view: str) -> Path:
    return app_folder(url, app) / "verified" / f"{view}.json"


def _read(path: Path) -> tuple[Verified, str] | None:
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        reference = str(data.pop("reference", ""))
        found = Verified(**{**data, "hops": tuple(_hop(hop) for hop in data["hops"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None  # there is none, or another version of headrace wrote it
    return found, reference


def _hop(data: dict[str, Any]) -> HopResult:
    rows = tuple(
        replace(Difference(**row), write=None if row["write"] is None else Write(**row["write"]))
        for row in data["rows_differing"]
    )
    return HopResult(**{**data, "rows_differing": rows})


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
