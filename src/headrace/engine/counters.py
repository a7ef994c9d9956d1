"""What Spark counts on the way: what steps take away from rows, and what they add."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Counters:
    """Names under which Spark counts what filters take away and what explosions add."""

    filtered: list[str] = field(default_factory=list)
    exploded: list[str] = field(default_factory=list)
    paired: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    """Counters of what is left after those that are too late."""
    late: list[str] = field(default_factory=list)
    """Counters of those that are too late, where nothing else tells of them."""

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.filtered, *self.exploded, *self.paired, *self.taken, *self.late)

    def name(self, kind: list[str], what: str) -> str:
        kind.append(f"{what}-{len(kind)}")
        return kind[-1]

    def __bool__(self) -> bool:
        return bool(self.all)
