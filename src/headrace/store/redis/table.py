"""One version of a view in Redis. A batch of rows, their ranking and the position are one MULTI."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from headrace.errors import StoreFenced, StoreUnavailable
from headrace.log.kafka.rows_json import JsonRows
from headrace.store.contract import Changes, StoredView, StorePosition, StoreTable
from headrace.store.json_keys import key_texts
from headrace.store.progress import Progress, must_apply
from headrace.store.redis.connection import Client, connect, shown, translated
from headrace.store.redis.keys import scanned, slices, stored
from headrace.store.redis.ranking import Ranking

_ATTEMPTS = 100


class RedisTable(StoreTable):
    """A version of a view. The live one is looked up with every use; `beside` names another."""

    def __init__(
        self,
        *,
        url: str,
        base: str,
        view: StoredView,
        beside: str | None,
        ttl: timedelta | None,
        ranking: Ranking | None,
    ) -> None:
        self._url = url
        self._base = base
        self._view = view
        self._beside = beside
        self._ttl = None if ttl is None else round(ttl / timedelta(milliseconds=1))
        self._ranking = ranking
        self._rows = JsonRows(view.columns)
        self._client = connect(url)
        self._known: Progress | None = None
        """The last state that this process has seen. The server has it still, unless it lost it."""

    def close(self) -> None:
        self._client.close()

    def position(self) -> StorePosition | None:
        with translated(self._url):
            self._known = self._state(self._client)
        return self._known.position

    def fill(self, parts: Iterable[Changes], position: StorePosition) -> None:
        for part in parts:
            self._write(_Batch.of(part, self._view, self._rows), None)
        self._write(_Batch([], [], []), position)

    def apply(self, changes: Changes) -> None:
        batch = _Batch.of(changes, self._view, self._rows)
        self._write(batch, changes.position)

    def read(self) -> Iterator[pa.RecordBatch]:
        with translated(self._url):
            for _ in range(_ATTEMPTS):
                before = self._state(self._client)
                rows = self._texts(before.version)
                if self._state(self._client) == before:
                    break
            else:
                raise StoreUnavailable(
                    f"{self._what} changed each of the {_ATTEMPTS} times that it was read",
                    hint="Read it when less is written, or read its rows one by one",
                )
        yield from self._batches(rows)

    def find(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        with translated(self._url):
            version = self._state(self._client).version
            place = f"{self._base}:{version}:"
            texts = key_texts(keys.select(list(self._view.key)))
            rows = stored(self._client, [place + text for text in texts])
        yield from self._batches(rows)

    def _batches(self, rows: list[bytes]) -> Iterator[pa.RecordBatch]:
        for some in slices(rows):
            columns = self._rows.decode(some, set())
            yield pa.RecordBatch.from_arrays(columns, schema=self._view.columns)

    def _texts(self, version: str | None) -> list[bytes]:
        """Every row of a version, as it is stored."""
        if version is None:
            return []
        found: dict[bytes, bytes] = {}  # by key, since a scan may show a key twice
        for keys in scanned(self._client, f"{self._base}:{version}:*"):
            texts = zip(keys, self._client.mget(keys), strict=True)
            found.update((key, text) for key, text in texts if text is not None)
        return list(found.values())

    @property
    def _what(self) -> str:
        return f"View {self._view.name!r} in Redis at {shown(self._url)}"

    def _write(self, batch: _Batch, position: StorePosition | None) -> None:
        """Write rows and perhaps the position, all or nothing, if the version is as expected."""
        with translated(self._url), self._client.pipeline(transaction=True) as pipe:
            pipe.watch(self._base)
            state = self._state(pipe)
            if position is not None and not must_apply(
                self._what, self._known or state, state, position
            ):
                self._known = state
                return
            version = state.version or secrets.token_hex(4)
            place = f"{self._base}:{version}:"
            ranked = None
            if self._ranking is not None:
                board = f"{self._base}:ranking:{version}"
                ranked = self._ranking.changes(board, batch.rows, batch.old(pipe, place))
            pipe.multi()
            batch.queue(pipe, place, self._ttl)
            if ranked is not None:
                ranked.queue(pipe)
            if position is not None:
                pipe.hset(self._base, mapping=self._recorded(version, position))
            pipe.execute()
            self._known = Progress(version, position or state.position)

    def _state(self, client: Client) -> Progress:
        beside = "beside_" if self._beside else ""
        names = ("beside" if beside else "version", f"{beside}generation", f"{beside}offset")
        version, generation, offset = client.hmget(self._base, names)
        name = None if version is None else version.decode()
        if self._beside and name != self._beside:
            raise StoreFenced(
                f"{self._what} is not built by this process any more",
                hint="Another process builds the view, or has removed it. Stop one of them",
            )
        if offset is None:
            return Progress(name, None)
        return Progress(name, StorePosition(generation.decode(), int(offset)))

    def _recorded(self, version: str, position: StorePosition) -> dict[str, Any]:
        if self._beside:
            return {"beside_generation": position.generation, "beside_offset": position.offset}
        return {
            "version": version,
            "generation": position.generation,
            "offset": position.offset,
            "key": json.dumps(self._view.key),
        }


@dataclass(frozen=True)
class _Batch:
    """Rows as JSON by the texts of their keys, and the texts of deleted keys."""

    keys: list[str]
    rows: list[bytes]
    deleted: list[str]

    @classmethod
    def of(cls, changes: Changes, view: StoredView, codec: JsonRows) -> _Batch:
        return cls(
            key_texts(changes.rows.select(list(view.key))),
            [text for batch in changes.rows.to_batches() for text in codec.encode(batch)],
            key_texts(changes.deleted),
        )

    def old(self, client: Client, place: str) -> list[bytes]:
        """The rows that its keys have now."""
        return stored(client, [place + key for key in (*self.keys, *self.deleted)])

    def queue(self, pipe: Client, place: str, ttl: int | None) -> None:
        for some in slices(list(zip(self.keys, self.rows, strict=True))):
            pipe.mset({place + key: row for key, row in some})
            if ttl is not None:
                for key, _ in some:
                    pipe.pexpire(place + key, ttl)
        for keys in slices(self.deleted):
            pipe.unlink(*(place + key for key in keys))
