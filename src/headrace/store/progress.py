"""Positions of a store and of a process: changes to apply, to ignore or to refuse.

For stores that keep their position beside their rows. A process looks at it again before it writes:
another process may have taken over, and the store may have lost its last writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import StoreFenced, StoreUnavailable
from headrace.store.contract import StorePosition


@dataclass(frozen=True)
class Progress:
    """A version of a view by the store's name for it, and how far it is."""

    version: str | None
    position: StorePosition | None


def must_apply(what: str, known: Progress, now: Progress, new: StorePosition) -> bool:
    """True if changes up to a position are new, False if they were applied.

    `known` is what this process has seen last. Raises `StoreFenced` if the store has results of
    another generation, and `StoreUnavailable` if it has less than it had: going on would leave a
    gap, so the caller has to ask for its position.
    """
    if now.position is not None:
        if now.position.generation != new.generation:
            raise StoreFenced(
                f"{what} has the results of {now.position.generation}, and not of {new.generation}",
                hint="Another process follows the view. Stop one of them",
            )
        if new.offset <= now.position.offset:
            return False
    left = known.position
    if left is None:
        return True
    lost = now.position is None or now.position.offset < left.offset
    if lost or now.version != known.version:
        found = "is empty" if now.position is None else f"is at {now.position.offset}"
        raise StoreUnavailable(
            f"{what} {found}, and was at {left.offset} when this process wrote to it last",
            hint="It lost its last writes, or was built again. The view goes on from what it has",
        )
    return True
