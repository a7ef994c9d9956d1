"""Calls of the user's fetch function in Spark's workers, a batch of keys at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLong
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.clock import SECOND, SystemClock
from headrace.errors import PipelineFailed

Answers = OrderedDict[Any, tuple[int, Mapping[str, Any] | None]]

_clock = SystemClock()
_answers: dict[str, Answers] = {}
"""Cached answers of this process, by function: a worker process outlives a batch."""


@dataclass(frozen=True)
class Fetching:
    """Adds columns to record batches: pairs of a fetched name and the field it becomes."""

    name: str
    fetch: Any
    on: str
    fields: tuple[tuple[str, pa.Field], ...]
    known: str
    timeout: int
    cache: int
    cache_for: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ThreadPoolExecutor(1, thread_name_prefix="headrace-fetch") as pool:
            for batch in batches:
                yield self._extended(batch, pool)

    def _extended(self, batch: pa.RecordBatch, pool: ThreadPoolExecutor) -> pa.RecordBatch:
        keys = batch.column(self.on).dictionary_encode()
        wanted = keys.dictionary.to_pylist()
        rows = self._rows(wanted, pool)
        found = [rows.get(key) for key in wanted]
        there = pa.array([row is not None for row in found], pa.bool_()).take(keys.indices)
        columns = [self._column(name, made, found).take(keys.indices) for name, made in self.fields]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *columns, there.fill_null(False)],
            names=[*batch.schema.names, *(made.name for _, made in self.fields), self.known],
        )

    def _column(
        self, name: str, made: pa.Field, found: Sequence[Mapping[str, Any] | None]
    ) -> pa.Array:
        values = [None if row is None else row.get(name) for row in found]
        try:
            return pa.array(values, made.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise PipelineFailed(
                f"{self.name} returned a {name!r} that is not {made.type}: {error}"
            ) from None

    def _rows(self, keys: Sequence[Any], pool: ThreadPoolExecutor) -> Mapping[Any, Any]:
        answers = _answers.setdefault(self.name, OrderedDict())
        oldest = _clock.monotonic() - self.cache_for
        known = {k: answers[k][1] for k in keys if k in answers and answers[k][0] > oldest}
        missing = [key for key in keys if key is not None and key not in known]
        if missing:
            fetched = self._fetch(missing, pool)
            now = _clock.monotonic()
            for key in missing:
                known[key] = fetched.get(key)
                answers[key] = (now, known[key])
                answers.move_to_end(key)
            while len(answers) > self.cache:
                answers.popitem(last=False)
        return known

    def _fetch(self, keys: Sequence[Any], pool: ThreadPoolExecutor) -> Mapping[Any, Any]:
        try:
            fetched = pool.submit(self.fetch, list(keys)).result(self.timeout / SECOND)
        except TooLong:
            raise PipelineFailed(
                f"{self.name} did not answer for {len(keys):,} keys within "
                f"{self.timeout / SECOND:g} s"
            ) from None
        except Exception as error:
            raise PipelineFailed(
                f"{self.name} failed for {len(keys):,} keys, the first {keys[0]!r}: {error!r}"
            ) from error
        if not isinstance(fetched, Mapping):
            raise PipelineFailed(f"{self.name} returned {type(fetched).__name__}, not a mapping")
        return fetched
