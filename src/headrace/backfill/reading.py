"""Read Parquet, CSV and JSON lines in chunks that depend on the file and the topic alone."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from headrace.backfill.chunks import (
    CHUNK_ROWS,
    Chunk,
    LineChunk,
    Refuse,
    Refused,
    table_chunks,
)
from headrace.backfill.finding import FoundFile, unreadable
from headrace.backfill.json_lines import line_reader
from headrace.backfill.text_columns import from_texts
from headrace.errors import InvalidRecord, UserError, WrongType
from headrace.log import Topic
from headrace.log.conform import conform
from headrace.log.record import RAW_SCHEMA
from headrace.schema.ddl import format_type

_BLOCK_BYTES = 4 << 20
_LINES_BYTES = 8 << 20
"""Bytes of JSON lines in a chunk, about. A restart counts in chunks, so it is fixed."""


def chunks_of(file: FoundFile, topic: Topic, refuse: Refuse) -> Iterator[tuple[Chunk, float]]:
    """The chunks of a file in row order, each with the share of the file that is read by then."""
    read = {"parquet": _parquet, "csv": _csv, "jsonl": _lines}[file.kind]
    try:
        yield from read(file, topic, refuse)
    except OSError as error:
        raise unreadable(file.path, error) from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        called = {"parquet": "a Parquet file", "csv": "CSV in UTF-8", "jsonl": "JSON lines"}
        raise UserError(
            f"{file.path} is not {called[file.kind]}: {str(error).splitlines()[0]}",
            hint="Check that it is complete, and that its ending tells its format",
        ) from error


# Parquet


def _parquet(file: FoundFile, topic: Topic, refuse: Refuse) -> Iterator[tuple[Chunk, float]]:
    with pq.ParquetFile(file.path) as opened:
        _check_columns(file, topic, opened.schema_arrow)
        total, done = opened.metadata.num_rows or 1, 0
        for rows in _rechunked(opened.iter_batches(CHUNK_ROWS)):
            numbers = range(done + 1, done + rows.num_rows + 1)
            done += rows.num_rows
            for chunk in table_chunks(topic, rows, numbers, refuse):
                yield chunk, done / total


def _check_columns(file: FoundFile, topic: Topic, schema: pa.Schema) -> None:
    """Check that the columns of a file fit, before any of its rows is looked at."""
    try:
        conform(topic, schema.empty_table())
    except InvalidRecord as error:
        raise type(error)(f"{file.path}: {error.message}", hint=error.hint) from None
    for field in topic.schema or ():
        there = schema.field(field.name).type if field.name in schema.names else field.type
        if pa.types.is_timestamp(field.type) and pa.types.is_integer(there):
            raise WrongType(
                f"{file.path}: column {field.name!r} of topic {topic.name!r} is "
                f"{format_type(field.type)}, and the file has numbers, whose unit it does not tell",
                hint=f"Declare '{field.name} bigint' and the topic's event time as "
                f"timestamp_millis({field.name}), or convert the column",
            )
        if pa.types.is_integer(field.type) and pa.types.is_timestamp(there):
            raise WrongType(
                f"{file.path}: column {field.name!r} of topic {topic.name!r} is "
                f"{format_type(field.type)}, and the file has times, which a number holds in a "
                "unit that the topic does not tell",
                hint=f"Declare '{field.name} timestamp', or convert the column to numbers in the "
                "unit that your readers expect",
            )


def _rechunked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of CHUNK_ROWS rows each, but for the last, however the batches are cut."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        while count >= CHUNK_ROWS:
            rows = pa.Table.from_batches(waiting)
            yield rows.slice(0, CHUNK_ROWS)
            waiting, count = rows.slice(CHUNK_ROWS).to_batches(), count - CHUNK_ROWS
    if count:
        yield pa.Table.from_batches(waiting)


# CSV


def _csv(file: FoundFile, topic: Topic, refuse: Refuse) -> Iterator[tuple[Chunk, float]]:
    _check_flat(file, topic)
    schema = RAW_SCHEMA if topic.schema is None else topic.schema
    malformed: list[Refused] = []
    wrong: list[int] = []

    def skip(row: Any) -> str:
        why = f"The row has {row.actual_columns} values for {row.expected_columns} columns"
        malformed.append(Refused(row.number, row.text, InvalidRecord(why)))
        wrong.append(row.number)
        return "skip"

    def refuse_malformed() -> None:
        while malformed:
            refuse(malformed.pop(0))

    with _opened(file) as (stream, share):
        if not stream.peek(1):
            return  # no header, no rows
        reader = pa_csv.open_csv(
            stream,
            # Only a single thread knows the numbers of malformed rows.
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
            convert_options=pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in schema.names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        _check_columns(file, topic, reader.schema)
        number = 2  # the header is row 1
        for rows in _rechunked(reader):
            refuse_malformed()
            numbers = _numbers(number, rows.num_rows, wrong)
            number = numbers[-1] + 1
            for chunk in table_chunks(topic, rows, numbers, refuse, partial(_typed, topic)):
                yield chunk, share()
        refuse_malformed()


def _check_flat(file: FoundFile, topic: Topic) -> None:
    for field in topic.schema or ():
        if pa.types.is_nested(field.type):
            raise WrongType(
                f"{file.path}: column {field.name!r} of topic {topic.name!r} is "
                f"{format_type(field.type)}, which CSV cannot hold",
                hint="Write the file as Parquet or JSON lines",
            )


def _numbers(first: int, rows: int, wrong: Sequence[int]) -> Sequence[int]:
    """The numbers of the next rows in the file, from `first` on without the malformed ones."""
    count = rows + sum(1 for number in wrong if number >= first)
    missing = set(wrong)
    return [n for n in range(first, first + count) if n not in missing][:rows]


def _typed(topic: Topic, rows: pa.Table) -> pa.Table:
    """Rows of texts in the types of a topic."""
    if topic.schema is None:
        return rows
    for place, name in enumerate(rows.schema.names):
        kind = topic.schema.field(name).type
        try:
            column = from_texts(rows.column(place), kind)
        except ValueError as error:
            raise WrongType(
                f"Column {name!r} of topic {topic.name!r} is {format_type(kind)}, "
                f"but {rows.column(place)[0].as_py()!r} does not fit it: "
                f"{str(error).splitlines()[0]}",
                topic=topic.name,
                column=name,
            ) from None
        rows = rows.set_column(place, pa.field(name, kind), column)
    return rows


# JSON lines


def _lines(file: FoundFile, topic: Topic, refuse: Refuse) -> Iterator[tuple[Chunk, float]]:
    read, number = line_reader(topic), 0
    with _opened(file) as (stream, share):
        while lines := stream.readlines(_LINES_BYTES):
            numbered = [(n, line) for n, line in enumerate(lines, number + 1) if not line.isspace()]
            number += len(lines)
            for first in range(0, len(numbered), CHUNK_ROWS):
                some = numbered[first : first + CHUNK_ROWS]
                yield LineChunk(topic, some[-1][0], some, read, refuse), share()


@contextmanager
def _opened(file: FoundFile) -> Iterator[tuple[io.BufferedReader, Callable[[], float]]]:
    """The text of a file, unpacked, and a function that tells the share that is read."""
    size = file.size or 1
    with open(file.path, "rb") as raw:
        stream, packed = raw, file.packed
        if packed is not None:
            stream = io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw), packed))
        yield stream, lambda: raw.tell() / size
