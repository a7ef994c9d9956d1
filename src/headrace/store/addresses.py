"""Stores by their addresses: `search:`, `postgresql://host/database`, `redis://host`, ..."""

from __future__ import annotations

import importlib

from headrace.errors import InvalidPipeline
from headrace.store.contract import Store

STORES: dict[str, str] = {
    "delta": "headrace.store.delta:Delta",
    "postgres": "headrace.store.postgres:Postgres",
    "postgresql": "headrace.store.postgres:Postgres",
    "opensearch+http": "headrace.store.opensearch:OpenSearch",
    "opensearch+https": "headrace.store.opensearch:OpenSearch",
    "redis": "headrace.store.redis:Redis",
    "rediss": "headrace.store.redis:Redis",
    "search": "headrace.store.search:Search",
}
"""The class of each scheme. Its `from_address` makes a store of an address."""


def parse_store(address: str) -> Store:
    """The store with this address. Only its own module is loaded, and nothing is opened."""
    scheme, colon, _ = address.partition(":")
    if not colon or scheme not in STORES:
        raise InvalidPipeline(
            f"There is no store with the address {address!r}",
            hint=f"An address begins with {', '.join(f'{name}:' for name in STORES)}. "
            "A store of your own is a value: an hr.Store",
        )
    module, _, name = STORES[scheme].partition(":")
    made: Store = getattr(importlib.import_module(module), name).from_address(address)
    return made
