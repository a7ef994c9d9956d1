"""A view in a Delta table as a value: where it is, and what happens to whole versions of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from headrace.errors import InvalidPipeline, InvalidSetting
from headrace.store.contract import Store, StoredView
from headrace.store.delta.history import COLUMNS
from headrace.store.delta.lake import Place
from headrace.store.delta.table import DeltaVersion, replace

_FORBIDDEN = set(" ,;{}()\n\t=")
"""Characters that Delta forbids in the name of a column."""

_BESIDE = "~beside"
"""The suffix of the name of a view where its new version is built. No view's name has a tilde."""


@dataclass(frozen=True)
class Delta(Store):
    """A view in a Delta table, at FOLDER/APP/VIEW of a folder or of object storage.

    `folder` is a path or an address such as s3://BUCKET/FOLDER. `options` are for the client of the
    object storage; without them it takes those of the environment, such as AWS_ACCESS_KEY_ID. Old
    versions of the table stay readable for the time to `keep`. With `history`, the table keeps
    every row that ever was, with `valid_from`, `valid_to` and `is_current`.
    """

    folder: str
    history: bool = False
    keep: timedelta = timedelta(days=7)
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.folder)
        if "@" in parts.netloc or parts.query:
            raise InvalidSetting(
                "The address of a Delta table has a login or options, which would be shown",
                hint="Set AWS_ACCESS_KEY_ID and the like, or pass options={...}",
            )
        if not self.folder:
            raise InvalidSetting(
                "The folder of Delta tables is empty", hint="Use delta:./warehouse, for example"
            )
        if self.keep < timedelta(0):
            raise InvalidSetting("The time to keep old versions is negative", hint="Use 0 or more")

    @classmethod
    def from_address(cls, address: str) -> Delta:
        return cls(address.removeprefix("delta:"))

    @property
    def address(self) -> str:
        return f"delta:{self.folder}"

    @property
    def form(self) -> str:
        return "history" if self.history else ""

    @property
    def every_change(self) -> bool:
        return self.history

    def check(self, view: StoredView) -> None:
        folded: dict[str, str] = {}
        own = [field.name for field in COLUMNS] if self.history else []
        for name in [*own, *view.columns.names]:
            if _FORBIDDEN & set(name) or not name:
                raise InvalidPipeline(
                    f"Column {name!r} of view {view.name!r} has a character that Delta forbids in "
                    "names",
                    hint="Use another name for it, without spaces, commas and brackets",
                )
            if (other := folded.setdefault(name.lower(), name)) != name or (
                name in own and name in view.columns.names
            ):
                raise InvalidPipeline(
                    f"Delta cannot tell column {name!r} of view {view.name!r} from {other!r}",
                    hint="Use names that differ in more than upper and lower case",
                )

    def live(self, view: StoredView) -> DeltaVersion:
        return self._table(self.place(view), view, None)

    def beside(self, view: StoredView) -> DeltaVersion:
        place = self.place(view, _BESIDE)
        with place.errors():
            place.remove()
        return self._table(place, view, secrets.token_hex(8))

    def switch(self, view: StoredView) -> None:
        built = self.place(view, _BESIDE)
        with built.errors():
            if replace(built, self.place(view)):
                built.remove()

    def remove(self, view: StoredView) -> None:
        for place in (self.place(view), self.place(view, _BESIDE)):
            with place.errors():
                place.remove()

    def _table(self, place: Place, view: StoredView, version: str | None) -> DeltaVersion:
        return DeltaVersion(place, view, version, keep=self.keep, history=self.history)

    def place(self, view: StoredView, suffix: str = "") -> Place:
        """The address of a view's table."""
        folder = self.folder.rstrip("/")
        if not urlsplit(folder).scheme:
            folder = os.path.abspath(Path(folder or "/").expanduser())
        return Place(f"{folder}/{view.app}/{view.name}{suffix}", self.options)
