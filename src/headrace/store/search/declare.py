"""The search index of a view, as it is declared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import types

from headrace.errors import InvalidPipeline
from headrace.pipeline.arguments import constructor
from headrace.store.contract import Store, StoredView, StoreTable
from headrace.store.search.index import Index, SearchTable
from headrace.store.sqlite.values import check_storable

TOKENIZERS = {
    "words": "unicode61 remove_diacritics 2",
    "english": "porter unicode61 remove_diacritics 2",
    "substrings": "trigram",
}
"""Ways to cut text into terms, and what SQLite calls them."""


@constructor
@dataclass(frozen=True)
class Search(Store):
    """A full-text index of a view, in a file of its own beside the log.

    `columns` are those that are searched: by default every text. The `tokenizer` cuts them into
    `words`, without case and accents; `english` also finds other forms of a word (run, running);
    `substrings` finds parts of words, of three letters and more. The lengths in `prefixes` make
    queries such as sho* faster, for some space.
    """

    columns: Sequence[str] = ()
    tokenizer: str = "words"
    prefixes: Sequence[int] = (2, 3)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "prefixes", tuple(self.prefixes))
        if self.tokenizer not in TOKENIZERS:
            raise InvalidPipeline(
                f"There is no tokenizer {self.tokenizer!r}",
                hint=f"There are: {', '.join(TOKENIZERS)}",
            )
        if any(not 1 <= length <= 99 for length in self.prefixes):
            raise InvalidPipeline(
                f"prefixes cannot be {self.prefixes}", hint="Name lengths from 1 to 99"
            )

    @staticmethod
    def from_address(address: str) -> Search:
        """The index with an address: `search:`, or `search:title,body`."""
        names = address.partition(":")[2]
        return Search(tuple(name.strip() for name in names.split(",") if name.strip()))

    @property
    def address(self) -> str:
        return "search:"

    @property
    def form(self) -> str:
        return json.dumps([self.columns, TOKENIZERS[self.tokenizer], self.prefixes])

    def check(self, view: StoredView) -> None:
        check_storable(view.columns, f"view {view.name!r}")
        self._searched(view)

    def live(self, view: StoredView) -> StoreTable:
        return SearchTable(self._index(view), view)

    def beside(self, view: StoredView) -> StoreTable:
        index = self._index(view)
        number = index.begin(view, self._searched(view), TOKENIZERS[self.tokenizer], self.prefixes)
        return SearchTable(index, view, number)

    def switch(self, view: StoredView) -> None:
        with self._index(view) as index:
            index.switch()

    def remove(self, view: StoredView) -> None:
        path = path_of(view.folder, view.app, view.name)
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)

    def _index(self, view: StoredView) -> Index:
        return Index(path_of(view.folder, view.app, view.name))

    def _searched(self, view: StoredView) -> tuple[str, ...]:
        """The columns that are searched."""
        for name in self.columns:
            if name not in view.columns.names:
                raise InvalidPipeline(
                    f"View {view.name!r} has no column {name!r} to search",
                    hint=f"It has: {', '.join(view.columns.names)}",
                )
            if not _is_text(view.columns.field(name).type):
                raise InvalidPipeline(
                    f"Column {name!r} of view {view.name!r} is "
                    f"{view.columns.field(name).type}, and only texts can be searched",
                    hint=f"derive a text of it: string({name})",
                )
        found = self.columns or [f.name for f in view.columns if _is_text(f.type)]
        if not found:
            raise InvalidPipeline(
                f"View {view.name!r} has no text to search",
                hint="derive a text of a column: string(...)",
            )
        return tuple(found)


def _is_text(kind: pa.DataType) -> bool:
    if types.is_list(kind):
        return _is_text(kind.value_type)
    if types.is_struct(kind):
        return any(_is_text(field.type) for field in kind)
    return bool(types.is_string(kind) or types.is_large_string(kind))


def path_of(folder: Path, app: str, view: str) -> Path:
    """The file with the index of a view."""
    return folder / app / f"{view}.search.db"
