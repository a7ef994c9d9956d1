"""The mapping of a view's columns, so that each can be searched by its type.

Rows are read from `_source`, which has their exact values: a decimal or a time of nanoseconds is
rounded in the index alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types

OWN = "_headrace"
"""The field of a document that is ours: `deleted` in a tombstone, or the position."""

VISIBLE: dict[str, Any] = {"bool": {"must_not": {"exists": {"field": f"{OWN}.hidden"}}}}
"""The filter that hides tombstones and the position from readers."""

_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
_SIMPLE = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
}


def index_of(
    columns: pa.Schema, mappings: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The body that creates the index of a version."""
    properties = {field.name: mappings.get(field.name, _field(field.type)) for field in columns}
    own = {
        "hidden": {"type": "boolean"},
        "deleted": {"type": "long"},
        "generation": {"type": "keyword"},
        "offset": {"type": "long"},
    }
    return {
        "settings": {"index.mapping.ignore_malformed": True, **settings},
        "mappings": {
            "dynamic": False,
            "properties": {**properties, OWN: {"type": "object", "properties": own}},
        },
    }


def _field(kind: pa.DataType) -> dict[str, Any]:
    """The mapping of a type. Lists have that of their values."""
    if types.is_list(kind):
        return _field(kind.value_type)
    if types.is_struct(kind):
        return {"type": "object", "properties": {f.name: _field(f.type) for f in kind}}
    if types.is_string(kind):
        return dict(_TEXT)
    if types.is_decimal(kind):
        return {"type": "double"}
    if types.is_timestamp(kind):
        return {"type": "date"}
    if types.is_binary(kind):
        return {"type": "binary"}
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    return {"type": "object", "enabled": False}
