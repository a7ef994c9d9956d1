"""A view in Redis as a value: its settings, and what happens to whole versions of it.

APP:VIEW                  a hash: the version that readers see, its position, the key's columns
APP:VIEW:VERSION:KEY      a row, as JSON
APP:VIEW:ranking:VERSION  a sorted set, if there is a ranking; with `within`, :VALUE is appended
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pyarrow import types

from headrace.errors import InvalidPipeline, InvalidSetting
from headrace.store.contract import Store, StoredView
from headrace.store.redis.connection import (
    Client,
    check_server,
    check_url,
    connect,
    shown,
    translated,
)
from headrace.store.redis.keys import scanned
from headrace.store.redis.ranking import Ranking
from headrace.store.redis.table import RedisTable

_GRACE = 60_000
"""Milliseconds for which old rows stay, for readers who have just read the name of a version."""

_PREFIX = re.compile(r"[A-Za-z0-9._-]*")
_VERSION = re.compile(rb"(?:ranking:)?([0-9a-f]{8})(?::|$)")


@dataclass(frozen=True)
class Redis(Store):
    """A view in Redis, at redis://HOST:PORT/DATABASE: a JSON text for each row, ready to `GET`.

    With `ranking`, a numeric column, a sorted set serves as a leaderboard. Its members are the
    values of `member`, by default the keys of the rows; each value of the column `within` has a
    ranking of its own. With `ttl`, a row disappears that long after its last change. `prefix`
    tells apart applications of one name on one server.
    """

    url: str = field(repr=False)
    ranking: str | None = None
    member: str | None = None
    within: str | None = None
    ttl: timedelta | None = None
    prefix: str = ""

    def __post_init__(self) -> None:
        check_url(self.url)
        if not _PREFIX.fullmatch(self.prefix):
            raise InvalidSetting(
                f"The prefix {self.prefix!r} is not allowed",
                hint="Use letters, digits, dots, underscores and dashes",
            )
        if self.ttl is not None and self.ttl < timedelta(milliseconds=1):
            raise InvalidSetting("The ttl is too short", hint="Use a timedelta of 1 ms or more")
        if self.ranking is None and (self.member or self.within):
            raise InvalidSetting(
                "`member` and `within` belong to a ranking", hint="Name its column: ranking=..."
            )
        if self.ranking is not None and self.ttl is not None:
            raise InvalidSetting(
                "A ranking cannot have a ttl: members of a sorted set do not expire",
                hint="Leave out one of them",
            )

    @classmethod
    def from_address(cls, address: str) -> Redis:
        return cls(address)

    @property
    def address(self) -> str:
        return shown(self.url)

    @property
    def form(self) -> str:
        chosen = (self.prefix, self.ranking, self.member, self.within, self.ttl)
        return "|".join("" if one is None else str(one) for one in chosen)

    @property
    def expires(self) -> bool:
        return self.ttl is not None

    def check(self, view: StoredView) -> None:
        for name in (self.ranking, self.member, self.within):
            if name is not None and name not in view.columns.names:
                raise InvalidPipeline(
                    f"The ranking of view {view.name!r} in Redis names a column {name!r}, which "
                    "it lacks",
                    hint=f"There are: {', '.join(view.columns.names)}",
                )
        if self.ranking is None:
            return
        kind = view.columns.field(self.ranking).type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
            raise InvalidPipeline(
                f"View {view.name!r} cannot be ranked by {self.ranking!r}, which is {kind}",
                hint="Rank by a number",
            )

    def live(self, view: StoredView) -> RedisTable:
        with self._client() as client:
            check_server(client, self.url, cache=self.ttl is not None)
        return self._table(view, None)

    def beside(self, view: StoredView) -> RedisTable:
        base, version = self.base(view), secrets.token_hex(4)
        with self._client() as client:
            check_server(client, self.url, cache=self.ttl is not None)
            with client.pipeline(transaction=True) as pipe:
                pipe.hset(base, "beside", version)
                pipe.hdel(base, "beside_generation", "beside_offset")
                pipe.execute()
            kept = {version.encode(), client.hget(base, "version")}
            _sweep(client, base, lambda found: found not in kept, client.unlink)
        return self._table(view, version)

    def switch(self, view: StoredView) -> None:
        base = self.base(view)
        with self._client() as client:
            with client.pipeline(transaction=True) as pipe:
                pipe.watch(base)
                state = pipe.hgetall(base)
                pipe.multi()
                if b"beside_offset" in state:
                    pipe.hset(base, mapping=_switched(state, view))
                    pipe.hdel(base, "beside", "beside_generation", "beside_offset")
                    pipe.execute()
            old = client.hget(base, "old")
            if old is not None:
                _sweep(client, base, lambda found: found == old, _expire(client))
                client.hdel(base, "old")

    def remove(self, view: StoredView) -> None:
        with self._client() as client:
            client.unlink(self.base(view))
            _sweep(client, self.base(view), lambda _: True, client.unlink)

    def base(self, view: StoredView) -> str:
        """The key of the view's hash, with which its other keys begin."""
        return f"{self.prefix}/{view.app}:{view.name}".removeprefix("/")

    def _table(self, view: StoredView, beside: str | None) -> RedisTable:
        return RedisTable(
            url=self.url,
            base=self.base(view),
            view=view,
            beside=beside,
            ttl=self.ttl,
            ranking=self._ranking(view),
        )

    def _ranking(self, view: StoredView) -> Ranking | None:
        if self.ranking is None:
            return None
        return Ranking(self.ranking, (self.member,) if self.member else view.key, self.within)

    @contextlib.contextmanager
    def _client(self) -> Iterator[Client]:
        with contextlib.closing(connect(self.url)) as client, translated(self.url):
            yield client


def _switched(state: dict[bytes, bytes], view: StoredView) -> dict[str, bytes]:
    """The hash of a view after its version beside has become the one that readers see."""
    names = ("beside", "beside_generation", "beside_offset")
    version, generation, offset = (state[name.encode()] for name in names)
    key = json.dumps(view.key).encode()
    made = {"version": version, "generation": generation, "offset": offset, "key": key}
    return {**made, "old": state[b"version"]} if b"version" in state else made


def _sweep(
    client: Client, base: str, chosen: Callable[[bytes], bool], act: Callable[..., Any]
) -> None:
    """Do something with the keys of some versions, found by a scan of the database."""
    for keys in scanned(client, f"{base}:*"):
        found = ((_VERSION.match(key, len(base) + 1), key) for key in keys)
        some = [key for version, key in found if version is not None and chosen(version[1])]
        if some:
            act(*some)


def _expire(client: Client) -> Callable[..., None]:
    def expire(*keys: bytes) -> None:
        with client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.pexpire(key, _GRACE)
            pipe.execute()

    return expire
