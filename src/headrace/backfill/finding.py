"""Find the files to read: paths, folders and patterns, in a stable order."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.errors import UserError

Kind = Literal["parquet", "csv", "jsonl"]

_KINDS: dict[str, Kind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Compression of texts. Parquet has its own."""

_KNOWN = "Known are .parquet, .csv and .jsonl, the last two also with .gz, .bz2 or .zst"


@dataclass(frozen=True)
class FoundFile:
    """A file to read, under the path that the user sees."""

    path: str
    kind: Kind

    @property
    def size(self) -> int:
        return self.stamp[0]

    @property
    def stamp(self) -> tuple[int, int]:
        """The file's size and the time of its last change, to notice a change while it is read."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise unreadable(self.path, error) from error
        return found.st_size, found.st_mtime_ns

    @property
    def packed(self) -> str | None:
        """Arrow's name of the compression of a text; None if it is plain."""
        return _PACKED.get(os.path.splitext(self.path.lower())[1])

    def digest(self) -> str:
        """The SHA-256 of the file's bytes."""
        try:
            with open(self.path, "rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise unreadable(self.path, error) from error


def unreadable(path: str, error: OSError) -> UserError:
    """The error for a file that cannot be opened."""
    return UserError(f"{path} cannot be read: {error.strerror or error}")


def kind_of(path: str) -> Kind | None:
    """The format of a file by its name; None if it is unknown."""
    stem, ending = os.path.splitext(path.lower())
    if ending in _PACKED:
        inner = _KINDS.get(os.path.splitext(stem)[1])
        return None if inner == "parquet" else inner
    return _KINDS.get(ending)


def is_selection(text: str) -> bool:
    """True for a folder, a pattern, or a file in a known format."""
    return kind_of(text) is not None or os.path.isdir(text) or glob.has_magic(text)


def find_files(wanted: Iterable[str]) -> list[FoundFile]:
    """The files of several paths, folders and patterns: in that order, each sorted by path.

    A file that is found twice is read once.
    """
    found: dict[str, FoundFile] = {}
    for text in wanted:
        there = list(_matches(text))
        if not there:
            raise UserError(
                f"{text} matches no file to read"
                if not os.path.isdir(text)
                else f"The folder {text} has no file to read",
                hint=_KNOWN,
            )
        for path in there:
            found.setdefault(os.path.realpath(path), _known(path))
    return list(found.values())


def _matches(text: str) -> Iterator[str]:
    if os.path.isdir(text):
        names = (str(path) for path in sorted(Path(text).rglob("*")) if path.is_file())
        yield from (
            name
            for name in names
            if not _hidden(os.path.relpath(name, text)) and kind_of(name) is not None
        )
    elif not os.path.exists(text) and glob.has_magic(text):
        yield from sorted(p for p in glob.glob(text, recursive=True) if os.path.isfile(p))
    else:
        yield text


def _hidden(path: str) -> bool:
    """True for what other programs leave beside data, such as `_SUCCESS` and `.part-0.crc`."""
    return any(part.startswith(("_", ".")) for part in Path(path).parts)


def _known(path: str) -> FoundFile:
    kind = kind_of(path)
    if kind is None:
        raise UserError(f"{path} has no ending that tells its format", hint=_KNOWN)
    return FoundFile(path, kind)
