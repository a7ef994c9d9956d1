"""A view in OpenSearch as a value: its settings, and what happens to whole versions of it.

APP~VIEW                an alias: what readers search, without documents that are hidden
APP~VIEW~VERSION        an index
APP~VIEW~VERSION~write  its alias for writing, so that a removed index is never made again
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from headrace.clock import Clock, SystemClock
from headrace.errors import InvalidPipeline, InvalidSetting
from headrace.store.contract import Store, StoredView
from headrace.store.opensearch.connection import Client, check_url, connect, shown, translated
from headrace.store.opensearch.mapping import OWN, VISIBLE, index_of
from headrace.store.opensearch.table import OpenSearchTable, live_index, position_in

_PREFIX = re.compile(r"[a-z0-9][a-z0-9.-]*|")


@dataclass(frozen=True)
class OpenSearch(Store):
    """A view in OpenSearch, at http://HOST:PORT: an alias APP~VIEW over a document for each row.

    `mappings` has the mapping of some columns instead of that of their types, such as another
    analyzer, and `settings` those of the index. `options` are for the client, such as `ca_certs`.
    A deleted row stays as a hidden document for `tombstones`, so that no change that was under way
    for as long can bring it back.
    """

    url: str = field(repr=False)
    mappings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    tombstones: timedelta = timedelta(hours=1)
    prefix: str = ""
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_url(self.url)
        if not _PREFIX.fullmatch(self.prefix):
            raise InvalidSetting(
                f"The prefix {self.prefix!r} is not allowed",
                hint="Use lower-case letters, digits, dots and dashes",
            )
        if self.tombstones < timedelta(0):
            raise InvalidSetting("The time of tombstones is negative", hint="Use 0 or more")

    @classmethod
    def from_address(cls, address: str) -> OpenSearch:
        return cls(address.removeprefix("opensearch+"))

    @property
    def address(self) -> str:
        return f"opensearch+{shown(self.url)}"

    @property
    def form(self) -> str:
        return json.dumps([self.prefix, dict(self.mappings), dict(self.settings)], sort_keys=True)

    def check(self, view: StoredView) -> None:
        for name in view.columns.names:
            if name == OWN or not name.strip(" .") or ".." in name:
                raise InvalidPipeline(
                    f"Column {name!r} of view {view.name!r} cannot be a field of OpenSearch",
                    hint="Use another name for it",
                )
        for name in self.mappings:
            if name not in view.columns.names:
                raise InvalidPipeline(
                    f"View {view.name!r} has no column {name!r}, which has a mapping",
                    hint=f"There are: {', '.join(view.columns.names)}",
                )

    def live(self, view: StoredView) -> OpenSearchTable:
        return self._table(view, None)

    def beside(self, view: StoredView) -> OpenSearchTable:
        alias, token = self.alias(view), secrets.token_hex(4)
        with self._client() as client:
            live = live_index(client, alias)
            self._delete(client, [name for name in self._indexes(client, alias) if name != live])
            self._create(client, view, f"{alias}~{token}")
        return self._table(view, f"{alias}~{token}")

    def switch(self, view: StoredView) -> None:
        alias = self.alias(view)
        with self._client() as client:
            live = live_index(client, alias)
            for index in self._indexes(client, alias):
                if index == live or position_in(client, index) is None:
                    continue
                shown_as = {"index": index, "alias": alias, "filter": VISIBLE}
                old = [] if live is None else [{"remove_index": {"index": live}}]
                client.indices.refresh(index=index)
                client.indices.update_aliases(body={"actions": [{"add": shown_as}, *old]})
                return

    def remove(self, view: StoredView) -> None:
        with self._client() as client:
            self._delete(client, self._indexes(client, self.alias(view)))

    def alias(self, view: StoredView) -> str:
        """The name that readers search. OpenSearch has lower-case names alone."""
        name = f"{view.app}~{view.name}"
        if name != name.lower() or name[0] in "-_.":
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            name = f"{name.lower().lstrip('-_.')}-{digest}"
        return f"{self.prefix}{name}"

    def _table(self, view: StoredView, index: str | None) -> OpenSearchTable:
        return OpenSearchTable(self, view, index)

    def create_live(self, client: Client, view: StoredView) -> str:
        """Create an index that readers see at once, where there is none yet."""
        alias = self.alias(view)
        index = f"{alias}~{secrets.token_hex(4)}"
        self._create(client, view, index)
        client.indices.put_alias(index=index, name=alias, body={"filter": VISIBLE})
        return index

    def _create(self, client: Client, view: StoredView, index: str) -> None:
        body = index_of(view.columns, self.mappings, self.settings)
        client.indices.create(index=index, body={**body, "aliases": {f"{index}~write": {}}})

    def _indexes(self, client: Client, alias: str) -> list[str]:
        """The indexes of all versions."""
        return sorted(client.indices.get(index=f"{alias}~*", expand_wildcards="all"))

    def _delete(self, client: Client, indexes: list[str]) -> None:
        for index in indexes:
            client.indices.delete(index=index, ignore_unavailable=True)

    @contextlib.contextmanager
    def _client(self) -> Iterator[Client]:
        with contextlib.closing(connect(self.url, self.options)) as client, translated(self.url):
            yield client
