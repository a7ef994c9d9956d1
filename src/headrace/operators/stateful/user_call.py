"""Calls of the user's function, with a check of what it returns.

Spark's workers import this module, so it does not import declarations, which load slowly.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.schema.soundness import first_unsound

_OURS = str(Path(__file__).parents[2])
_KINDS: tuple[tuple[Callable[[Any], bool], ...], ...] = (
    (pa.types.is_integer,),
    (pa.types.is_floating, pa.types.is_integer),
    (pa.types.is_timestamp,),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    (pa.types.is_decimal,),
    (pa.types.is_nested,),
)
"""Allowed casts: the first of each row is the declared type, any of the row may be returned."""


class CallFailed(Exception):
    """A call that raised or returned something invalid. `where` is the line of the user's code."""

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.where = where


@dataclass(frozen=True)
class Signature:
    """The columns that a function takes and returns."""

    keys: tuple[str, ...]
    state: pa.Schema
    """The key columns, then the declared ones."""
    output: pa.Schema


def call(
    function: Callable[[pa.Table, pa.Table], Any],
    signature: Signature,
    state: pa.Table,
    events: pa.Table,
) -> tuple[pa.Table, pa.Table]:
    """The new state and the output, in the declared columns and types."""
    try:
        made = function(state, events)
    except Exception as error:
        said = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        raise CallFailed(said, _where(error)) from error
    if not isinstance(made, Sequence | tuple) or len(made) != 2:
        raise CallFailed(f"it returned {_shown(made)}, not a state and an output")
    kept, output = made
    return (
        _conformed("state", kept, signature.state),
        _conformed("output", output, signature.output),
    )


def _conformed(what: str, made: Any, schema: pa.Schema) -> pa.Table:
    """A table, or any frame that converts to one, in the columns of a schema."""
    table = _table(what, made)
    if (unsound := first_unsound(table)) is not None:
        raise CallFailed(
            f"column {unsound[0]} of the {what} it returned is not valid Arrow: {unsound[1]}"
        )
    missing = [name for name in schema.names if name not in table.column_names]
    more = [name for name in table.column_names if name not in schema.names]
    if missing or more or table.num_columns != len(schema):
        wrong = [f"lacks {', '.join(missing)}"] * bool(missing)
        wrong += [f"has undeclared {', '.join(more)}"] * bool(more)
        raise CallFailed(f"the {what} it returned {' and '.join(wrong) or 'has a column twice'}")
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        column = table.column(field.name)
        if not _fits(column.type, field.type):
            raise CallFailed(
                f"column {field.name} of the {what} it returned is {column.type}, not {field.type}"
            )
        try:
            columns.append(column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CallFailed(
                f"column {field.name} of the {what} it returned does not fit {field.type}: "
                f"{str(error).splitlines()[0]}"
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)


def _table(what: str, made: Any) -> pa.Table:
    if isinstance(made, pa.Table):
        return made
    if isinstance(made, pa.RecordBatch):
        return pa.Table.from_batches([made])
    if hasattr(made, "__arrow_c_stream__"):  # Polars, pandas, DuckDB and others
        return pa.table(made)
    raise CallFailed(f"the {what} it returned is {_shown(made)}, not a table")


def _fits(have: pa.DataType, want: pa.DataType) -> bool:
    """True if values may be cast, such as between widths of integers, but not text to a number."""
    if have == want or pa.types.is_null(have):
        return True
    if pa.types.is_dictionary(have):
        return _fits(have.value_type, want)
    return any(kinds[0](want) and any(kind(have) for kind in kinds) for kinds in _KINDS)


def _shown(made: Any) -> str:
    return "nothing" if made is None else f"of type {type(made).__name__}"


def _where(error: BaseException) -> str:
    """The last line of user code that led to an error."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_OURS, "<")) and "site-packages" not in frame.filename
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
