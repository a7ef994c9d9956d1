"""Executable examples of a documentation page.

Blocks marked `python` run one after the other in one namespace, except those whose first line is
the comment `# name.py`: they are files of that name, for commands to use. So are blocks marked
`sql` that begin with `-- name.sql`. Blocks marked `console` hold commands after `$ `, continued
after `> `, each followed by its output; `...` stands for anything. On a page of a database, other
`sql` blocks are statements for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILES = {"python": re.compile(r"# (\w+\.py)\n"), "sql": re.compile(r"-- (\w+\.sql)\n")}


@dataclass
class Command:
    """A command of a page, and its expected output."""

    text: str
    expected: str


@dataclass
class Block:
    """A fenced block: Python, SQL or commands."""

    kind: str
    line: int
    text: str
    commands: list[Command] = field(default_factory=list)

    @property
    def file(self) -> str | None:
        """The file name of the block, if it is a file."""
        pattern = _FILES.get(self.kind)
        named = pattern.match(self.text) if pattern else None
        return named[1] if named else None


def blocks(page: Path, *, database: bool = False) -> Iterator[Block]:
    """The executable blocks of a page, in order. With a database, SQL is executable."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        kind, body = found[1], found[2]
        line = text.count("\n", 0, found.start()) + 2
        commands = _commands(body) if kind == "console" else []
        block = Block(kind, line, body, commands)
        if kind in ("python", "console") or block.file or (kind == "sql" and database):
            yield block


def _commands(body: str) -> list[Command]:
    commands: list[Command] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:], ""))
        elif line.startswith("> ") and not commands[-1].expected:
            commands[-1].text += "\n" + line[2:]
        else:
            commands[-1].expected += line + "\n"
    return commands


def same(expected: str, printed: str) -> bool:
    """True if a command printed the expected output."""
    pattern = re.escape(expected.strip()).replace(r"\.\.\.", ".*?")
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
