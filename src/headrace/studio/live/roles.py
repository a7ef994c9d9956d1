"""The part that a topic plays: an input, or something that headrace writes beside a pipeline."""

from __future__ import annotations

from headrace.log import Topic
from headrace.log.dead_letter import DEAD_LETTER

DEAD = "dead letters"
LATE = "late rows"
CHANGELOG = "changelog"
OWN = "headrace's own"

KINDS = {DEAD: "bad", LATE: "warn", CHANGELOG: "", OWN: "muted"}
"""The colour of each role."""

_LATE_COLUMNS = {"watermark", "late_by"}
_ENVELOPE = {"before", "after", "source", "op", "ts_ms"}


def role_of(topic: Topic) -> str:
    """The role of a topic, by its columns; empty if it is one like any other."""
    if topic.name.startswith("_headrace."):
        return OWN
    columns = set() if topic.schema is None else set(topic.schema.names)
    if columns >= set(DEAD_LETTER.names):
        return DEAD
    if columns >= _LATE_COLUMNS:
        return LATE
    return CHANGELOG if columns >= _ENVELOPE else ""
