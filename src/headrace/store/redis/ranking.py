"""Rankings of a view's rows as sorted sets, changed with the rows."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import orjson

from headrace.store.json_keys import key_text
from headrace.store.redis.connection import Client
from headrace.store.redis.keys import slices

Boards = dict[str, dict[str, float]]
"""Scores by sorted set and member."""


@dataclass(frozen=True)
class Ranking:
    """The columns of a ranking: its score, its members, and what separates its boards."""

    score: str
    members: tuple[str, ...]
    within: str | None

    def changes(self, board: str, rows: list[bytes], old: list[bytes]) -> RankingChanges:
        """The changes on the boards when these rows take the place of old ones."""
        return RankingChanges(self._boards(board, rows), self._boards(board, old))

    def _boards(self, board: str, rows: list[bytes]) -> Boards:
        found: Boards = defaultdict(dict)
        for row in map(orjson.loads, rows):
            score = row[self.score]
            if score is None or math.isnan(float(score)):
                continue  # neither first nor last: it is on no board
            place = board if self.within is None else f"{board}:{key_text([row[self.within]])}"
            found[place][key_text([row[name] for name in self.members])] = float(score)
        return found


@dataclass(frozen=True)
class RankingChanges:
    """Scores to set, and those of old rows, whose members leave unless they are set again."""

    added: Boards
    old: Boards

    def queue(self, pipe: Client) -> None:
        for board, members in self.old.items():
            staying = self.added.get(board, {})
            for some in slices([member for member in members if member not in staying]):
                pipe.zrem(board, *some)
        for board, scores in self.added.items():
            for part in slices(list(scores.items())):
                pipe.zadd(board, dict(part))
