"""Stores as they are declared: places for a view beside SQLite."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from headrace.errors import InvalidPipeline


class DeclaredStore(ABC):
    """A store as a declaration sees it: a value with an address. `headrace.Store` does the rest."""

    noun: ClassVar[str] = "a store"
    belongs: ClassVar[str] = "A view has stores: app.view(..., store=...)"

    @property
    @abstractmethod
    def address(self) -> str:
        """The address, without secrets, for people. It tells the stores of a view apart."""


def stores_of(
    view: str, given: str | DeclaredStore | Sequence[str | DeclaredStore] | None
) -> tuple[DeclaredStore, ...]:
    """The stores of a view, given one or several, or their addresses."""
    if given is None:
        return ()
    several = [given] if isinstance(given, str | DeclaredStore) else given
    # Stores are downstream of declarations.
    parse = importlib.import_module("headrace.store.addresses").parse_store
    found = tuple(parse(one) if isinstance(one, str) else one for one in several)
    addresses = [store.address for store in found]
    twice = next((a for a in addresses if addresses.count(a) > 1), None)
    if twice is not None:
        raise InvalidPipeline(
            f"View {view!r} has the store {twice} twice", hint="Name each store once"
        )
    return found
