"""A process that follows a view into a store until it is killed: `python -m ... URL [POSTGRES]`."""

from __future__ import annotations

import sys

import headrace as hr
from headrace.clock import SystemClock
from headrace.store.followers import Followers, FollowerThread


def main(url: str, *postgres: str) -> None:
    clock = SystemClock()
    stores: list[hr.Store] = [hr.Search(columns=["note"])]
    stores += [hr.Postgres(address) for address in postgres]
    with hr.open_log(url) as log:
        threads = [FollowerThread(log, "shop", "orders", store, clock) for store in stores]
        with Followers(threads, clock) as followers:
            followers.start()
            print("following", flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
