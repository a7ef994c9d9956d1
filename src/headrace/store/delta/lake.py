"""Delta tables at a place: opening, their commits' notes, removing, and errors as ours."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headrace.errors import MissingExtra, StoreError, StoreUnavailable

try:
    import deltalake
    from deltalake import exceptions
    from deltalake.fs import DeltaStorageHandler
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"A view in a Delta table needs the package {error.name!r}, which is not installed",
        hint="pip install 'headrace[delta]'",
    ) from None

_PATIENCE = {"connect_timeout": "5s", "timeout": "60s", "max_retries": "2", "retry_timeout": "20s"}
"""object_store by itself retries for three minutes."""

_SECRET = re.compile(r"secret|token|password|key|sas|credential", re.IGNORECASE)
_PASSING = re.compile(
    r"object store error|Generic \w+ error|error sending request|timed out|os error"
)
_LOCAL = ("", "file")


@dataclass(frozen=True)
class Place:
    """The address of a Delta table, and how to reach it."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def remote(self) -> bool:
        return urlsplit(self.uri).scheme not in _LOCAL

    @property
    def settings(self) -> dict[str, str] | None:
        """Options for the client of the object storage."""
        return {**_PATIENCE, **self.options} if self.remote else None

    def open(self) -> deltalake.DeltaTable | None:
        """The table, or None if there is none."""
        try:
            return deltalake.DeltaTable(self.uri, storage_options=self.settings)
        except exceptions.TableNotFoundError:
            return None

    def remove(self) -> None:
        """Remove the table and its files; its log goes first, so that no half of it is found."""
        if not self.remote:
            for folder in (Path(self.uri, "_delta_log"), Path(self.uri)):
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(folder)
            return
        # What follows holds Python's lock, so nobody may wait for a server that does not answer.
        self.open()
        files = DeltaStorageHandler(self.uri, self.settings)
        for name in ("_delta_log", ""):
            with contextlib.suppress(FileNotFoundError):
                files.delete_dir(name)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Raise what goes wrong as our errors, without secrets."""
        try:
            yield
        except exceptions.CommitFailedError as error:
            raise self._unavailable("has another writer", error) from None
        except OSError as error:
            raise self._unavailable("cannot be reached or written", error) from None
        except Exception as error:
            # deltalake raises some failures of the object storage as its own or as bare exceptions.
            if not isinstance(error, exceptions.DeltaError) and type(error) is not Exception:
                raise
            if _PASSING.search(str(error)):
                raise self._unavailable("cannot be reached or written", error) from None
            raise StoreError(f"The Delta table {self.uri} failed: {self._text(error)}") from None

    def _unavailable(self, what: str, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"The Delta table {self.uri} {what}: {self._text(error)}",
            hint="Nothing is lost: the view goes on when it is back",
        )

    def _text(self, error: Exception) -> str:
        text = str(error)
        for name, value in self.options.items():
            if _SECRET.search(name) and value:
                text = text.replace(value, "***")
        return text


def note_of(table: deltalake.DeltaTable, name: str) -> str | None:
    """The newest note of a name that a commit of the table has."""
    for limit in (1, 10, None):
        for commit in table.history(limit):
            if name in commit:
                found: Any = commit[name]
                return str(found)
    return None
