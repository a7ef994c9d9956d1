"""Differences between two declarations of a step, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.operators.contract import Term
from headrace.operators.registry import OPERATORS
from headrace.schema.ddl import parse_schema

TERMS = {name: term for _, operator in OPERATORS for name, term in operator.terms.items()}
"""The words for the parts of a definition, of all operators."""


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences between two definitions of a step."""
    found = []
    flat_before, flat_now = _flat(before), _flat(now)
    for name, term in TERMS.items():
        old, new = flat_before.get(name), flat_now.get(name)
        if old == new or (name == "schema" and old and new and _agree(old, new)):
            continue
        if term.one:
            found += _named(term.one, old or (), new or ())
        elif name == "merge" and old is not None and new is not None and len(old) == len(new):
            parts = enumerate(zip(old, new, strict=True), 1)
            changed = [(n, differences(was, now)) for n, (was, now) in parts if was != now]
            found += [f"in merged stream {n} {text}" for n, words in changed for text in words]
        elif name == "merge" and old is not None and new is not None:
            found.append(f"{len(old)} streams were merged and {len(new)} are")
        elif name == "part" and old is not None and new is not None:
            found += [f"in its inner step {text}" for text in differences(old, new)]
        elif old is None or new is None:
            found.append(f"the {term.called} is {'new' if old is None else 'gone'}")
        else:
            was, now_is = _shown(term, old), _shown(term, new)
            found.append(f"the {term.called} was {was} and is {now_is}")
    return found or ["the order of its steps has changed"]


def _agree(old: str, new: str) -> bool:
    """True if the columns that both schemas have are of the same types.

    A definition has the columns that its step uses: what uses others is told by itself.
    """
    before, now = ({field.name: field.type for field in parse_schema(ddl)} for ddl in (old, new))
    return all(before[name] == now[name] for name in before.keys() & now.keys())


def _flat(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a chain of steps, by name. Of several steps of a kind, the last comes first."""
    found: dict[str, Any] = {}
    here: Mapping[str, Any] | None = definition
    while here is not None:
        for name, value in here.items():
            if name in ("filter", "explode", "project") and name in found:
                found[name] = [*_several(found[name]), *_several(value)]
            elif name != "of":
                found[name] = value
        here = here.get("of")
    return found


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _named(what: str, old: Iterable[Any], new: Iterable[Any]) -> list[str]:
    """The differences between lists of named entries."""
    before, now = ({entry[0]: entry[1:] for entry in entries} for entries in (old, new))
    return [
        *(f"{what} {name!r} is new" for name in now if name not in before),
        *(f"{what} {name!r} is gone" for name in before if name not in now),
        *(
            f"{what} {name!r} is computed differently"
            for name in now
            if name in before and list(now[name]) != list(before[name])
        ),
    ]


def _shown(term: Term, value: Any) -> str:
    if term.show is not None:
        return term.show(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else repr(value)
