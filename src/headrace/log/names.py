"""Names of topics, groups and producers: safe in a shell, a URL and on Kafka."""

from __future__ import annotations

import re

from headrace.errors import InvalidName

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_name(name: str, kind: str) -> str:
    """Return the name, if it is valid. `kind` is the word for the error, such as topic."""
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise InvalidName(
            f"{name!r} is not a valid {kind} name",
            hint="Use 1 to 249 letters, digits, dots, underscores and dashes, "
            "and not just '.' or '..'",
            name=name,
        )
    return name
