"""The table of mutations: one TOML file per area, beside this one.

    [[mutation]]
    breaks = "recovery trusts the bytes of an unsynced commit"
    file = "log/file/recovery.py"
    old = "return checksum.value == digest"
    new = "return True"
    tests = ["tests/recovery/test_power_cut.py::test_name"]

`old` occurs exactly once in the file, which is a path below `src/headrace`. With `new` in its place
every one of the `tests` must fail. A change that no test can detect has `equivalent`, the reason,
instead of the tests.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = Path("src/headrace")
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Mutation:
    """A change of the source, and the tests that must detect it."""

    area: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    equivalent: str = ""

    @property
    def path(self) -> Path:
        """The file to change, from the root of a source tree."""
        return SOURCE / self.file

    def apply(self, text: str) -> str:
        """The file's text after the change."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self}: the old text is {found} times in {self.file}, not once")
        return text.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.area}: {self.breaks}"


def mutations() -> Iterator[Mutation]:
    """All mutations, by area."""
    for file in sorted(_FOLDER.glob("*.toml")):
        for entry in tomllib.loads(file.read_text())["mutation"]:
            entry["tests"] = tuple(entry.get("tests", ()))
            yield Mutation(file.stem, **entry)
