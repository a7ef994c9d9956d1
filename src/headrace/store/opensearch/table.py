"""One version of a view in OpenSearch: versioned documents, tombstones, and the position."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Protocol

import orjson
import pyarrow as pa
from opensearchpy import exceptions

from headrace.clock import MILLISECOND, Clock
from headrace.errors import StoreError, StoreFenced, StoreUnavailable
from headrace.log.kafka.rows_json import JsonRows
from headrace.store.contract import Changes, StoredView, StorePosition, StoreTable
from headrace.store.json_keys import key_texts
from headrace.store.opensearch.connection import (
    Client,
    connect,
    shown,
    translated,
    unavailable,
)
from headrace.store.opensearch.mapping import OWN, VISIBLE
from headrace.store.progress import Progress, must_apply

_POSITION = "_position"
"""The id of the position. No row's id begins with an underscore."""

_VERSIONS = "external"
"""A document is written only if its version is higher than the one that is there."""

_PAGE = 5_000
_BULK_BYTES = 5 << 20
_LONGEST_ID = 512
_SCROLL = "5m"
_MISSING = 404
_CONFLICT = 409
_BUSY = (429, 503)
_FORGET_EVERY = 20
"""Batches between two removals of old tombstones."""


class Settings(Protocol):
    """The parts of a store that a table needs."""

    @property
    def url(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...
    @property
    def tombstones(self) -> timedelta: ...
    @property
    def clock(self) -> Clock: ...

    def alias(self, view: StoredView) -> str: ...

    def create_live(self, client: Client, view: StoredView) -> str: ...


class OpenSearchTable(StoreTable):
    """A version of a view. The live one is looked up with every use; `index` names another."""

    def __init__(self, store: Settings, view: StoredView, index: str | None) -> None:
        self._store = store
        self._view = view
        self._index = index
        self._alias = store.alias(view)
        self._rows = JsonRows(view.columns)
        self._client = connect(store.url, store.options)
        self._known: Progress | None = None
        """The last state that this process has seen."""
        self._applied = 0

    def close(self) -> None:
        self._client.close()

    def position(self) -> StorePosition | None:
        with translated(self._store.url):
            self._known = self._progress()
        return self._known.position

    def fill(self, parts: Iterable[Changes], position: StorePosition) -> None:
        with translated(self._store.url):
            index = self._progress().version or self._store.create_live(self._client, self._view)
            for part in parts:
                self._send(index, part)
            self._record(index, position)

    def apply(self, changes: Changes) -> None:
        with translated(self._store.url):
            now = self._progress()
            if not must_apply(self._what, self._known or now, now, changes.position):
                self._known = now
                return
            index = now.version or self._store.create_live(self._client, self._view)
            self._send(index, changes)
            self._record(index, changes.position)
            self._known = Progress(index, changes.position)
            if self._applied % _FORGET_EVERY == 0:
                self._forget(index, changes.position)
            self._applied += 1

    def read(self) -> Iterator[pa.RecordBatch]:
        with translated(self._store.url):
            index, found = self._progress().version, False
            while index is not None:
                try:
                    for page in self._pages(index, VISIBLE):
                        found = True
                        yield self._batch(orjson.dumps(hit["_source"]) for hit in page)
                    return
                except exceptions.TransportError:
                    before, index = index, self._progress().version
                    if index == before:
                        raise
                    # A switch has removed the index. What was read so far cannot be taken back.
                    if found:
                        raise StoreUnavailable(
                            f"{self._what} was built again while it was read", hint="Read it again"
                        ) from None

    def find(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        with translated(self._store.url):
            index = self._progress().version
            ids = [_id(text) for text in key_texts(keys.select(list(self._view.key)))]
            for first in range(0, len(ids) if index else 0, _PAGE):
                body = {"ids": ids[first : first + _PAGE]}
                docs = self._client.mget(index=index, body=body)["docs"]
                rows = [doc["_source"] for doc in docs if doc.get("found")]
                rows = [row for row in rows if OWN not in row]
                if rows:
                    yield self._batch(map(orjson.dumps, rows))

    @property
    def _what(self) -> str:
        return f"View {self._view.name!r} in OpenSearch at {shown(self._store.url)}"

    def _progress(self) -> Progress:
        index = self._index or live_index(self._client, self._alias)
        if index is None:
            return Progress(None, None)
        try:
            return Progress(index, position_in(self._client, index))
        except exceptions.NotFoundError:
            if self._index is None:
                return self._progress()  # a switch came between the two questions
            raise StoreFenced(
                f"{self._what} is not built by this process any more",
                hint="Another process builds the view, or has removed it. Stop one of them",
            ) from None

    def _send(self, index: str, changes: Changes) -> None:
        """Write documents in requests of a bounded size. Older versions are refused, rightly."""
        lines: list[bytes] = []
        size = 0
        for line in self._lines(index, changes):
            lines.append(line)
            size += len(line)
            if size >= _BULK_BYTES:
                self._bulk(lines)
                lines, size = [], 0
        self._bulk(lines)

    def _lines(self, index: str, changes: Changes) -> Iterator[bytes]:
        versions = changes.versions.to_pylist()
        kept = changes.rows.num_rows
        texts = (text for batch in changes.rows.to_batches() for text in self._rows.encode(batch))
        keys = key_texts(changes.rows.select(list(self._view.key)))
        gone = {OWN: {"hidden": True, "deleted": self._store.clock.now() // MILLISECOND}}
        for key, text, version in zip(keys, texts, versions[:kept], strict=True):
            yield _action(index, key, version) + text + b"\n"
        for key, version in zip(key_texts(changes.deleted), versions[kept:], strict=True):
            yield _action(index, key, version) + orjson.dumps(gone) + b"\n"

    def _bulk(self, lines: list[bytes]) -> None:
        if not lines:
            return
        answer = self._client.bulk(body=b"".join(lines).decode(), require_alias=True)
        if not answer["errors"]:
            return
        for item in answer["items"]:
            done = next(iter(item.values()))
            status = done["status"]
            if "error" not in done or status == _CONFLICT:
                continue
            reason = f"{done['error'].get('type')}: {done['error'].get('reason')}"
            if status in _BUSY:
                raise unavailable(self._store.url, reason)
            raise StoreError(
                f"{self._what} refused the row with the id {done['_id']!r}: {reason}",
                hint="Its column may need another mapping: hr.OpenSearch(url, mappings=...)",
            )

    def _record(self, index: str, position: StorePosition) -> None:
        """Write the position. It is durable when this returns, and so are the changes before it."""
        own = {"hidden": True, "generation": position.generation, "offset": position.offset}
        try:
            self._client.index(
                index=f"{index}~write",
                id=_POSITION,
                body={OWN: own},
                params={
                    "version": position.offset,
                    "version_type": "external_gte",
                    "require_alias": "true",
                },
            )
        except exceptions.ConflictError:
            return  # another process is further

    def _forget(self, index: str, position: StorePosition) -> None:
        """Remove tombstones that no change can be older than any more."""
        until = (self._store.clock.now() - self._store.tombstones // timedelta(microseconds=1)) // (
            MILLISECOND
        )
        old = {"range": {f"{OWN}.deleted": {"lte": until}}}
        for page in self._pages(index, old, refresh=False):
            lines = [
                orjson.dumps(
                    {
                        "delete": {
                            "_index": index,
                            "_id": hit["_id"],
                            "if_seq_no": hit["_seq_no"],
                            "if_primary_term": hit["_primary_term"],
                        }
                    }
                )
                + b"\n"
                for hit in page
                if hit["_version"] <= position.offset
            ]
            if lines:
                self._client.bulk(body=b"".join(lines).decode())

    def _pages(
        self, index: str, query: dict[str, Any], *, refresh: bool = True
    ) -> Iterator[list[dict[str, Any]]]:
        """Documents as of one moment, some at a time."""
        if refresh:
            self._client.indices.refresh(index=index)
        body = {"query": query, "sort": ["_doc"], "version": True, "seq_no_primary_term": True}
        answer = self._client.search(
            index=index,
            body=body,
            scroll=_SCROLL,
            size=_PAGE,
            allow_partial_search_results=False,
        )
        try:
            while hits := answer["hits"]["hits"]:
                yield hits
                if len(hits) < _PAGE:
                    return
                answer = self._client.scroll(
                    body={"scroll_id": answer["_scroll_id"], "scroll": _SCROLL}
                )
        finally:
            done = {"scroll_id": [answer["_scroll_id"]]}
            self._client.clear_scroll(body=done, ignore=[_MISSING])

    def _batch(self, texts: Iterable[bytes]) -> pa.RecordBatch:
        columns = self._rows.decode(list(texts), set())
        return pa.RecordBatch.from_arrays(columns, schema=self._view.columns)


def live_index(client: Client, alias: str) -> str | None:
    """The index that readers see; None if there is none."""
    found = client.indices.get_alias(name=alias, ignore=[_MISSING])
    return None if found.get("status") == _MISSING else next(iter(found), None)


def position_in(client: Client, index: str) -> StorePosition | None:
    """The position of an index. Raises `NotFoundError` if there is no such index."""
    found = client.mget(index=index, body={"ids": [_POSITION]})["docs"][0]
    if "error" in found:
        raise exceptions.NotFoundError(404, "index_not_found_exception", found["error"])
    if not found["found"]:
        return None
    own = found["_source"][OWN]
    return StorePosition(own["generation"], own["offset"])


def _action(index: str, key: str, version: int) -> bytes:
    action = {
        "_index": f"{index}~write",
        "_id": _id(key),
        "version": version,
        "version_type": _VERSIONS,
    }
    return orjson.dumps({"index": action}) + b"\n"


def _id(key: str) -> str:
    """The id of a document: its key, unless OpenSearch cannot have that as an id."""
    text = json.dumps([key]) if not key or key.startswith("_") else key
    if len(text.encode()) > _LONGEST_ID:
        return f"_sha256-{hashlib.sha256(text.encode()).hexdigest()}"
    return text
